"""Micro-batches by token budget, and their layout: the rows of a forward pass, and the place of each token's score.

A row is a prompt and its response without the last token, padded on the right. Attention is causal, so padding does not
change the tokens before it, and no mask is needed.

Trees of shared prefixes give the same scores up to rounding, from fewer tokens. Rows, prompts included, are sorted by
their tokens, so that each row shares a prefix with the row before it and adds the rest: rollouts of one problem share
its prompt, problems a system prompt. Written in that order, the added tokens are a
depth-first walk through a tree: the subtree of a token follows it without a gap, and a token attends to exactly its
ancestors and itself. A tree that is too long for one sequence continues in the next, which repeats the row from its
beginning; a sequence may hold several trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isocompute_torch.policy import LONGEST_TREE
from isocompute_torch.problems import shared_beginning
from isocompute_torch.sampler import Samples


@dataclass(frozen=True)
class Rows:
    """The distinct rollouts of a batch."""

    prompt_index_U: Tensor
    """Prompt of each row, shape (U,)."""
    response_UT: Tensor
    """Sampled tokens, shape (U, T)."""
    mask_UT: Tensor
    """1 for sampled tokens."""
    sampled_logprob_UT: Tensor
    """Log-probabilities from the sampler."""
    entropy_UT: Tensor
    """Entropies of the distributions that the tokens were drawn from, from the sampler."""
    first_U: Tensor
    """Index of one of the rollouts that each row represents."""
    row_R: Tensor
    """Index of the row that represents each rollout, shape (R,)."""
    prompt_ids: list[list[int]]
    """Token ids of each distinct prompt."""

    def __len__(self) -> int:
        return len(self.prompt_index_U)

    def summed(self, weight_R: Tensor) -> Tensor:
        """Weights of rollouts summed over the row that represents them, shape (U,)."""
        return torch.zeros(len(self), dtype=weight_R.dtype, device=weight_R.device).index_add_(0, self.row_R, weight_R)


@dataclass(frozen=True)
class Layout:
    """One forward pass over S sequences of L tokens, and the places of the scores of U rows in it."""

    input_ids_SL: Tensor
    """Token ids, padded on the right."""
    attention_mask: Tensor | None
    """Additive mask of shape (S, 1, L, L); None for plain causal attention."""
    position_ids_SL: Tensor | None
    """Positions; None if they count up from 0."""
    source_J: Tensor
    """Flat positions (of S times L) whose next-token distribution is needed."""
    pick_K: Tensor | None
    """Index of the distribution, of J, that each of K scored tokens is drawn from; None if it is one each, in order."""
    token_K: Tensor
    """The scored tokens."""
    node_UT: Tensor
    """Index of the scored token, of K, at each place of the rows; 0 where masked."""
    mask_UT: Tensor
    """1 for sampled tokens."""

    def to_rows(self, value_K: Tensor) -> Tensor:
        """Values per scored token, as (U, T) with 0 where masked."""
        return torch.where(self.mask_UT > 0, value_K[self.node_UT], 0.0)

    def source_values_to_rows(self, value_SL: Tensor) -> Tensor:
        """Values per position of the forward pass, as (U, T): the value of the state before each token."""
        value_J = value_SL.flatten()[self.source_J]
        return self.to_rows(value_J if self.pick_K is None else value_J[self.pick_K])


def distinct(samples: Samples, reward_R: Tensor, *, merge: bool) -> Rows:
    """Rollouts with the same prompt, response and reward as one row; one row per rollout without `merge`.

    Args:
        samples: the rollout batch.
        reward_R: rewards, float64; NaN equals NaN here.
        merge: whether equal rollouts share a row.
    """
    first_U = row_R = torch.arange(len(reward_R), device=reward_R.device)
    if merge:
        # Rewards are compared by their bits, so that NaN equals NaN; whole rows are compared as bytes.
        token_RT = torch.where(samples.mask_RT > 0, samples.response_RT + 1, 0)
        bits_R = reward_R.to(torch.float64).view(torch.int64)
        key_RC = torch.cat((bits_R.unsqueeze(-1), samples.prompt_index_R.unsqueeze(-1), token_RT), dim=1).cpu().numpy()
        bytes_R = np.ascontiguousarray(key_RC).view(np.dtype((np.void, key_RC.itemsize * key_RC.shape[1]))).ravel()
        _, first, row = np.unique(bytes_R, return_index=True, return_inverse=True)
        # Rows in the order of their first rollouts keep the order of the prompts.
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first_U, row_R = (torch.from_numpy(one).to(reward_R.device) for one in (first[order], rank[row]))
    return Rows(
        samples.prompt_index_R[first_U],
        samples.response_RT[first_U],
        samples.mask_RT[first_U],
        samples.logprob_RT[first_U],
        samples.entropy_RT[first_U],
        first_U,
        row_R,
        samples.prompt_ids,
    )


def micro_batches(rows: Rows, chosen_U: Tensor, token_budget: int, longest_tree: int = 0) -> list[Tensor]:
    """Indices of the chosen rows in groups whose padded size is within the budget.

    The shortest rows come first; rows of at most `longest_tree` tokens stay in their order, by prompt, so that they can
    share it. A row that exceeds the budget alone forms its own group.
    """
    prompt_P = torch.tensor([len(prompt) for prompt in rows.prompt_ids], device=rows.prompt_index_U.device)
    length_U = prompt_P[rows.prompt_index_U] + rows.mask_UT.sum(-1).long()
    lengths: list[int] = length_U[chosen_U].tolist()
    order = list(range(len(lengths)))
    if max(lengths, default=0) > longest_tree:
        order.sort(key=lengths.__getitem__)
    groups: list[list[int]] = []
    current: list[int] = []
    longest = 0
    for i in order:
        longest = max(longest, lengths[i])
        if current and (len(current) + 1) * longest > token_budget:
            groups.append(current)
            current, longest = [], lengths[i]
        current.append(i)
    if current:
        groups.append(current)
    # The original order within a group keeps rows of one prompt together.
    return [chosen_U[torch.tensor(sorted(group), device=chosen_U.device)] for group in groups]


def plain_layout(rows: Rows, chosen_U: Tensor, pad_id: int) -> Layout:
    """Each chosen row as one sequence."""
    device = chosen_U.device
    prompt_index_U = rows.prompt_index_U[chosen_U]
    mask_UT = rows.mask_UT[chosen_U]
    length_U = mask_UT.sum(-1).long()
    longest = int(length_U.max())
    mask_UT, response_UT = mask_UT[:, :longest], rows.response_UT[chosen_U, :longest]
    prompt_PL, start_P = padded(rows.prompt_ids, pad_id, device)
    start_U = start_P[prompt_index_U]
    width = int((start_U + length_U).max()) - 1
    position_L = torch.arange(width, device=device)
    offset_UL = position_L - start_U.unsqueeze(-1)
    from_prompt_UL = prompt_PL[prompt_index_U][:, position_L.clamp(max=prompt_PL.shape[1] - 1)]
    from_response_UL = response_UT.gather(1, offset_UL.clamp(0, longest - 1))
    input_ids_UL = torch.where(offset_UL < 0, from_prompt_UL, from_response_UL)
    input_ids_UL = input_ids_UL.masked_fill(offset_UL >= length_U.unsqueeze(-1), pad_id)
    kept = (mask_UT > 0).flatten().nonzero().squeeze(-1)
    node_UT = torch.zeros(mask_UT.numel(), dtype=torch.long, device=device)
    node_UT[kept] = torch.arange(len(kept), device=device)
    base_U = torch.arange(len(chosen_U), device=device) * width + start_U - 1
    source_UT = base_U.unsqueeze(-1) + torch.arange(longest, device=device)
    return Layout(
        input_ids_SL=input_ids_UL,
        attention_mask=None,
        position_ids_SL=None,
        source_J=source_UT.flatten()[kept],
        pick_K=None,
        token_K=response_UT.flatten()[kept],
        node_UT=node_UT.view_as(mask_UT),
        mask_UT=mask_UT,
    )


def padded(prompt_ids: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Prompts padded on the right, shape (P, L), and their lengths, shape (P,)."""
    lengths = [len(prompt) for prompt in prompt_ids]
    longest = max(lengths)
    table = [list(prompt) + [pad_id] * (longest - len(prompt)) for prompt in prompt_ids]
    return torch.tensor(table, device=device), torch.tensor(lengths, device=device)


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
