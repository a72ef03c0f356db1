"""Rollouts laid out as trees of shared prefixes: the same scores up to rounding, from fewer tokens.

Rows, prompts included, are sorted by their tokens, so that each row shares a prefix with the row before it and adds the
rest: rollouts of one problem share its prompt, problems a system prompt. Written in that order, the added tokens are a
depth-first walk through a tree: the subtree of a token follows it without a gap, and a token attends to exactly its
ancestors and itself. A tree that is too long for one sequence continues in the next, which repeats the row from its
beginning; a sequence may hold several trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isocompute_torch.learning.layout import Layout, Rows
from isocompute_torch.policy.architecture import LONGEST_TREE
from isocompute_torch.policy.text import shared_beginning

SHORTEST = 64
"""Tokens of a sequence, unless a row needs more."""
ROOMS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
"""Lengths of sequences to choose from, in lengths of the longest row."""
ATTENTION = 2_048
"""Length of a sequence at which attention to all places costs as much as the rest of a model of width 350; less in
wider ones."""
MASKED = -1e30
"""Added to the scores of tokens that are not seen; finite, so that no row of attention weights becomes NaN."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Walk:
    """Where rows sorted by their tokens (axis W) stand."""

    known_W: Ints
    """Leading tokens of a row that the row before has written to the same sequence."""
    agreed_W: Ints
    """Leading tokens of its response that are scored with the row before."""
    sequence_W: Ints
    start_W: Ints
    """Place of the first token that the row adds to its sequence."""
    room: int
    """Tokens of the longest sequence."""

    @property
    def places(self) -> int:
        """Tokens of all sequences, padding included."""
        return (int(self.sequence_W[-1]) + 1) * self.room

    @property
    def cost(self) -> float:
        """Of a pass over the sequences, in tokens without attention."""
        return self.places * (1 + self.room / ATTENTION)


def tree_layout(
    rows: Rows, chosen_U: Tensor, pad_id: int, dtype: torch.dtype, longest_tree: int = LONGEST_TREE
) -> Layout | None:
    """The chosen rows as trees; None if they would cost as much as one sequence per row.

    Args:
        rows: distinct rollouts.
        chosen_U: indices of the rows to lay out.
        pad_id: fills the rest of a sequence.
        dtype: number format of the attention scores.
        longest_tree: most tokens of a sequence.
    """
    chosen: Ints = chosen_U.cpu().numpy()
    mask_UT = rows.mask_UT[chosen_U]
    length_U: Ints = (mask_UT > 0).sum(-1).cpu().numpy()
    width = int(length_U.max())
    mask_UT = mask_UT[:, :width]
    size_U = np.array([len(prompt) for prompt in rows.prompt_ids])[rows.prompt_index_U.cpu().numpy()[chosen]]
    # A row's last token is scored but not written.
    longest = int((size_U + length_U).max()) - 1
    if longest > longest_tree or int(length_U.min()) < 1:
        return None
    used = sorted(set(rows.prompt_index_U[chosen_U].tolist()), key=rows.prompt_ids.__getitem__)
    rank_P = np.zeros(len(rows.prompt_ids), dtype=np.int64)
    rank_P[used] = np.arange(len(used))
    rank_U: Ints = rank_P[rows.prompt_index_U.cpu().numpy()[chosen]]
    prompts = [rows.prompt_ids[i] for i in used]
    response_UT: Ints = rows.response_UT[chosen_U, :width].cpu().numpy()
    order_W = np.lexsort((*response_UT.T[::-1], rank_U))
    rank_W, response_WT, length_W = rank_U[order_W], response_UT[order_W], length_U[order_W]
    alike_W = _alike(rank_W, response_WT, length_W, prompts)
    least = max(SHORTEST, longest)
    rooms = ROOMS if least > SHORTEST else (1.0,)
    walks = [_walk(alike_W, size_U[order_W], length_W, min(int(part * least), longest_tree)) for part in rooms]
    walk = min(walks, key=lambda walk: walk.cost)
    # Plain sequences need no mask, and half of the attention.
    if walk.cost >= len(chosen) * longest * (1 + longest / ATTENTION / 2):
        return None
    return _layout(walk, order_W, [prompts[i] for i in rank_W], response_WT, length_W, pad_id, mask_UT, dtype)


def _alike(rank_W: Ints, response_WT: Ints, length_W: Ints, prompts: list[list[int]]) -> Ints:
    """Leading tokens that each row shares with the row before; those of two prompts end with the shorter one."""
    same_VT = (response_WT[1:] == response_WT[:-1]) & (rank_W[1:] == rank_W[:-1])[:, None]
    answer_V = np.minimum(np.logical_and.accumulate(same_VT, axis=1).sum(1), np.minimum(length_W[1:], length_W[:-1]))
    between = [0, *(shared_beginning(pair) for pair in pairwise(prompts))]
    size_V = np.array([len(prompt) for prompt in prompts])[rank_W[1:]]
    prompt_V = np.where(rank_W[1:] == rank_W[:-1], size_V, np.array(between)[rank_W[1:]])
    return np.concatenate(([0], prompt_V + answer_V))


def _walk(alike_W: Ints, size_W: Ints, length_W: Ints, room: int) -> _Walk:
    found: list[tuple[int, int, int, int]] = []
    sequence, used, before, longest = 0, 0, 0, 0
    for alike, size, length in zip(alike_W.tolist(), size_W.tolist(), length_W.tolist(), strict=True):
        written = size + length - 1
        known, agreed = min(alike, written, before), max(alike - size, 0)
        if used + written - known > room:
            sequence, used, known, agreed = sequence + 1, 0, 0, 0
        found.append((known, agreed, sequence, used))
        used += written - known
        before, longest = written, max(longest, used)
    known_W, agreed_W, sequence_W, start_W = np.array(found, dtype=np.int64).T
    return _Walk(known_W, agreed_W, sequence_W, start_W, max(longest, SHORTEST))


def _layout(
    walk: _Walk,
    order_W: Ints,
    prompt_W: list[list[int]],
    response_WT: Ints,
    length_W: Ints,
    pad_id: int,
    mask_UT: Tensor,
    dtype: torch.dtype,
) -> Layout:
    room, places = walk.room, walk.places
    size_W = np.array([len(prompt) for prompt in prompt_W])
    written_W = size_W + length_W - 1
    step_F, step_T = np.arange(int(written_W.max())), np.arange(response_WT.shape[1])
    # Places of a row's tokens: its own from `known` on, before that those of the last row that wrote them.
    place_WF = walk.sequence_W[:, None] * room + _from_writer(walk.start_W, walk.known_W, step_F)
    read_WF = step_F < written_W[:, None]
    added_WF = read_WF & (step_F >= walk.known_W[:, None])
    stop_W = walk.sequence_W * room + walk.start_W + written_W - walk.known_W
    token_WF = np.full(place_WF.shape, pad_id)
    for row, prompt in enumerate(prompt_W):
        token_WF[row, : len(prompt)] = prompt[: len(step_F)]
    inside_WT = step_T < (length_W - 1)[:, None]
    token_WF[inside_WT.nonzero()[0], (size_W[:, None] + step_T)[inside_WT]] = response_WT[inside_WT]
    ids_N = np.full(places, pad_id, dtype=np.int64)
    position_N = np.zeros(places, dtype=np.int64)
    end_N = np.arange(1, places + 1)
    ids_N[place_WF[added_WF]] = token_WF[added_WF]
    position_N[place_WF[added_WF]] = np.broadcast_to(step_F, added_WF.shape)[added_WF]
    # The tokens that a row adds end here; the subtrees of its ancestors reach at least as far.
    np.maximum.at(end_N, place_WF[read_WF], np.broadcast_to(stop_W[:, None], read_WF.shape)[read_WF])
    scored_WT = (step_T >= walk.agreed_W[:, None]) & (step_T < length_W[:, None])
    first_W = np.concatenate(([0], scored_WT.sum(1).cumsum()[:-1]))
    node_WT = np.where(step_T < length_W[:, None], _from_writer(first_W, walk.agreed_W, step_T), 0)
    row_K, step_K = scored_WT.nonzero()
    source_J, pick_K = np.unique(place_WF[row_K, size_W[row_K] - 1 + step_K], return_inverse=True)
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
        token_K=sent(response_WT[scored_WT]),
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
