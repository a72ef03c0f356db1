"""Micro-batches by token budget, and their layout: the rows of a forward pass, and the place of each token's score.

A row is a prompt and its response without the last token, padded on the right. Attention is causal, so padding does not
change the tokens before it, and no mask is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isocompute_torch.sampling.sampler import Samples


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


def unmerged(samples: Samples) -> Rows:
    """One row per rollout."""
    every_R = torch.arange(len(samples.prompt_index_R), device=samples.prompt_index_R.device)
    return Rows(
        samples.prompt_index_R,
        samples.response_RT,
        samples.mask_RT,
        samples.logprob_RT,
        samples.entropy_RT,
        every_R,
        every_R,
        samples.prompt_ids,
    )


def merged(samples: Samples, reward_R: Tensor) -> Rows:
    """Rollouts with the same prompt, response and reward as one row.

    Args:
        samples: the rollout batch.
        reward_R: rewards, float64; NaN equals NaN here.
    """
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
    first_U = torch.from_numpy(first[order]).to(reward_R.device)
    return Rows(
        samples.prompt_index_R[first_U],
        samples.response_RT[first_U],
        samples.mask_RT[first_U],
        samples.logprob_RT[first_U],
        samples.entropy_RT[first_U],
        first_U,
        torch.from_numpy(rank[row]).to(reward_R.device),
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
