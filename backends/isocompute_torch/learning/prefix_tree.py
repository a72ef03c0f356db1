"""Rollouts of a prompt laid out as a tree of shared prefixes: the same scores up to rounding, from fewer tokens.

Rows of one prompt are sorted by their tokens, so that each row shares a prefix with the row before it and adds the
rest. Written in that order, the added tokens are a depth-first walk through a tree: the subtree of a token follows it
without a gap, and a token attends to exactly its ancestors and itself. A tree that is too long for one sequence
continues in the next, which repeats the prompt; a sequence may hold several trees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isocompute_torch.learning.layout import Layout, Rows
from isocompute_torch.policy.architecture import LONGEST_TREE

SHORTEST = 64
"""Tokens of a sequence, unless a row needs more."""
MASKED = -1e30
"""Added to the scores of tokens that are not seen; finite, so that no row of attention weights becomes NaN."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Walk:
    """Rows sorted by prompt and tokens (axis W), and the tokens that each adds to the row before."""

    prompt_W: Ints
    length_W: Ints
    agreed_W: Ints
    """Leading tokens shared with the row before, in the same sequence."""
    known_W: Ints
    """How many of these are in the sequence already: a row's last token is scored but not written."""
    sequence_W: Ints
    start_W: Ints
    """Place of the first token that the row adds to its sequence."""
    root_W: Ints
    """Place of the last token of its prompt."""


def tree_layout(rows: Rows, chosen_U: Tensor, pad_id: int, dtype: torch.dtype) -> Layout | None:
    """The chosen rows as trees; None if trees would not hold fewer tokens than one sequence per row.

    Args:
        rows: distinct rollouts.
        chosen_U: indices of the rows to lay out.
        pad_id: fills the rest of a sequence.
        dtype: number format of the attention scores.
    """
    chosen: Ints = chosen_U.cpu().numpy()
    mask_UT = rows.mask_UT[chosen_U]
    length_U: Ints = (mask_UT > 0).sum(-1).cpu().numpy()
    width = int(length_U.max())
    prompt_U: Ints = rows.prompt_index_U.cpu().numpy()[chosen]
    token_UT: Ints = rows.response_UT[chosen_U, :width].cpu().numpy()
    size_P = np.array([len(prompt) for prompt in rows.prompt_ids])
    longest = int((size_P[prompt_U] + length_U).max()) - 1
    room = max(SHORTEST, longest)
    if room > LONGEST_TREE or int(length_U.min()) < 1:
        return None
    order_W = np.lexsort((*token_UT.T[::-1], prompt_U))
    walk = _walk(prompt_U[order_W], token_UT[order_W], length_U[order_W], size_P, room)
    if (int(walk.sequence_W[-1]) + 1) * room >= len(chosen) * longest:
        return None
    return _layout(walk, order_W, token_UT[order_W], rows.prompt_ids, room, pad_id, mask_UT[:, :width], dtype)


def _walk(prompt_W: Ints, token_WT: Ints, length_W: Ints, size_P: Ints, room: int) -> _Walk:
    same_VT = (token_WT[1:] == token_WT[:-1]) & (prompt_W[1:] == prompt_W[:-1])[:, None]
    alike_W = np.concatenate(([0], np.logical_and.accumulate(same_VT, axis=1).sum(1)))
    alike_W[1:] = np.minimum(alike_W[1:], np.minimum(length_W[1:], length_W[:-1]))
    size_W = size_P[prompt_W]
    found: list[tuple[int, int, int, int, int]] = []
    sequence, used, root, prompt, before = 0, 0, 0, -1, 0
    for owner, alike, length, size in zip(
        prompt_W.tolist(), alike_W.tolist(), length_W.tolist(), size_W.tolist(), strict=True
    ):
        agreed, known = alike, min(alike, length - 1, before - 1)
        if owner != prompt or used + length - 1 - known > room:
            agreed = known = 0
            if used + size + length - 1 > room:
                sequence, used = sequence + 1, 0
            root, used = used + size - 1, used + size
        found.append((agreed, known, sequence, used, root))
        used += length - 1 - known
        prompt, before = owner, length
    agreed_W, known_W, sequence_W, start_W, root_W = np.array(found, dtype=np.int64).T
    return _Walk(prompt_W, length_W, agreed_W, known_W, sequence_W, start_W, root_W)


def _layout(
    walk: _Walk,
    order_W: Ints,
    token_WT: Ints,
    prompt_ids: list[list[int]],
    room: int,
    pad_id: int,
    mask_UT: Tensor,
    dtype: torch.dtype,
) -> Layout:
    step_T = np.arange(token_WT.shape[1])
    # Places of a row's tokens: its own from `known` on, before that those of the last row that wrote them.
    place_WT = walk.sequence_W[:, None] * room + _from_writer(walk.start_W, walk.known_W, step_T)
    read_WT = step_T < (walk.length_W - 1)[:, None]
    added_WT = read_WT & (step_T >= walk.known_W[:, None])
    scored_WT = (step_T >= walk.agreed_W[:, None]) & (step_T < walk.length_W[:, None])
    first_W = np.concatenate(([0], scored_WT.sum(1).cumsum()[:-1]))
    node_WT = np.where(step_T < walk.length_W[:, None], _from_writer(first_W, walk.agreed_W, step_T), 0)
    root_W = walk.sequence_W * room + walk.root_W
    before_WT = np.concatenate((root_W[:, None], place_WT[:, :-1]), axis=1)
    source_J, pick_K = np.unique(before_WT[scored_WT], return_inverse=True)
    # The tokens that a row adds end here; the subtrees of its ancestors reach at least as far.
    stop_W = walk.sequence_W * room + walk.start_W + walk.length_W - 1 - walk.known_W
    places = (int(walk.sequence_W[-1]) + 1) * room
    ids_N = np.full(places, pad_id, dtype=np.int64)
    position_N = np.zeros(places, dtype=np.int64)
    end_N = np.arange(1, places + 1)
    ids_N[place_WT[added_WT]] = token_WT[added_WT]
    size_W = np.array([len(prompt) for prompt in prompt_ids])[walk.prompt_W]
    position_N[place_WT[added_WT]] = (size_W[:, None] + step_T)[added_WT]
    np.maximum.at(end_N, place_WT[read_WT], np.broadcast_to(stop_W[:, None], read_WT.shape)[read_WT])
    roots, root_index_W = np.unique(root_W, return_index=True)
    for root, row, stop in zip(
        roots.tolist(), root_index_W.tolist(), [*root_index_W[1:].tolist(), len(root_W)], strict=True
    ):
        prompt = prompt_ids[walk.prompt_W[row]]
        trunk = slice(root + 1 - len(prompt), root + 1)
        ids_N[trunk], position_N[trunk], end_N[trunk] = prompt, np.arange(len(prompt)), max(root + 1, stop_W[stop - 1])
    back_U = np.empty_like(order_W)
    back_U[order_W] = np.arange(len(order_W))
    device = mask_UT.device

    def sent(values: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device)

    return Layout(
        input_ids_SL=sent(ids_N.reshape(-1, room)),
        attention_mask=_mask(sent(end_N.reshape(-1, room)), dtype),
        position_ids_SL=sent(position_N.reshape(-1, room)),
        source_J=sent(source_J),
        pick_K=sent(pick_K),
        token_K=sent(token_WT[scored_WT]),
        node_UT=sent(node_WT[back_U]),
        mask_UT=mask_UT,
    )


def _from_writer(first_W: Ints, from_W: Ints, step_T: Ints) -> Ints:
    """Numbers (W, T) that count up in row w from first_w at step from_w; before that step they equal the row above."""
    writer_WT = np.where(step_T >= from_W[:, None], np.arange(len(from_W))[:, None], -1)
    writer_WT = np.maximum.accumulate(writer_WT, axis=0)
    return first_W[writer_WT] + step_T - from_W[writer_WT]


def _mask(end_SL: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive mask (S, 1, L, L): a token sees its ancestors and itself. Subtrees end before place `end_SL`."""
    sequences, room = end_SL.shape
    first_S1 = torch.arange(sequences, device=end_SL.device).unsqueeze(-1) * room
    end_SL = end_SL - first_S1
    place_L = torch.arange(room, device=end_SL.device)
    visible_SLL = (place_L <= place_L.unsqueeze(-1)) & (place_L.unsqueeze(-1) < end_SL.unsqueeze(1))
    mask_SLL = torch.zeros(visible_SLL.shape, dtype=dtype, device=end_SL.device).masked_fill_(~visible_SLL, MASKED)
    return mask_SLL.unsqueeze(1)
