"""The protocol of samplers, their result, and the distribution that both samplers draw from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from isocompute_torch.failures import RunFailed

INVERTED = 1024
"""Largest vocabulary for drawing by inversion."""


@dataclass(frozen=True)
class Samples:
    """One rollout batch: R rollouts of at most T tokens, all on one device."""

    prompt_index_R: Tensor
    """Index of each rollout's prompt, int64; the rollouts of a prompt are contiguous."""
    prompt_ids: list[list[int]]
    """Token ids of each distinct prompt, without padding."""
    response_RT: Tensor
    """Sampled token ids, int64; the padding token after the end."""
    mask_RT: Tensor
    """1 for sampled tokens including the end token, 0 after; a floating-point tensor."""
    logprob_RT: Tensor
    """Log-probability of each sampled token under the distribution it was drawn from (temperature and top_p
    applied), 0 after the end."""
    truncated_R: Tensor
    """True for responses cut at the largest number of tokens, without end token."""

    @property
    def tokens(self) -> int:
        """Number of sampled tokens."""
        return int(self.mask_RT.sum(dtype=torch.float64).item())

    def responses(self, end_ids: frozenset[int]) -> list[list[int]]:
        """Token ids of each response without its end token."""
        rows: list[list[int]] = self.response_RT.tolist()
        lengths: list[int] = self.mask_RT.sum(-1).long().tolist()
        cut = [row[:length] for row, length in zip(rows, lengths, strict=True)]
        return [row[:-1] if row and row[-1] in end_ids else row for row in cut]


class Sampler(Protocol):
    """Draws responses from the trained model."""

    def sample(
        self, prompts: Sequence[list[int]], n: int, *, temperature: float, top_p: float, max_tokens: int, seed: int
    ) -> Samples:
        """`n` responses to each prompt; the same arguments and weights give the same samples.

        Args:
            prompts: token ids of distinct prompts, none empty.
            n: responses per prompt.
            temperature: divides the logits; 0 is greedy decoding.
            top_p: nucleus mass; 1 draws from the whole distribution.
            max_tokens: longest response, its end token included.
            seed: seed of the draws.
        """
        ...

    def rest(self) -> float:
        """Free the memory that only sampling needs, until the next `sync`; returns the seconds it took."""
        ...

    def sync(self, model: torch.nn.Module) -> float:
        """Copy the model's weights into the sampler, which is ready to sample then; returns the seconds it took."""
        ...

    def close(self) -> None:
        """Release memory and processes of the sampler."""
        ...


def log_distribution(logits_KV: Tensor, temperature: float, top_p: float) -> Tensor:
    """Log p(v) = log softmax(logits / temperature), cut to the nucleus and renormalised where top_p < 1.

    The nucleus is the smallest set of most likely tokens whose mass reaches top_p (arXiv 1904.09751, section 3.1);
    tokens outside have -inf. With temperature 0 all mass is on the most likely token.

    Args:
        logits_KV: logits, at least float32, shape (K, V).
        temperature: >= 0.
        top_p: 0 < top_p <= 1.
    """
    if temperature == 0.0:
        best_K = logits_KV.argmax(-1, keepdim=True)
        return torch.full_like(logits_KV, -torch.inf).scatter_(-1, best_K, 0.0)
    scaled_KV = logits_KV if temperature == 1.0 else logits_KV / temperature
    logprob_KV = scaled_KV.log_softmax(-1)
    if top_p >= 1.0:
        return logprob_KV
    sorted_KV, order_KV = logprob_KV.sort(-1, descending=True)
    mass_KV = sorted_KV.exp()
    # A token stays while the mass before it is below top_p, so that at least one always stays.
    outside_KV = mass_KV.cumsum(-1) - mass_KV >= top_p
    kept_KV = logprob_KV.masked_fill(torch.zeros_like(outside_KV).scatter_(-1, order_KV, outside_KV), -torch.inf)
    return kept_KV - kept_KV.logsumexp(-1, keepdim=True)


def draw(logprob_RV: Tensor, generator: torch.Generator) -> Tensor:
    """One token per row from exp(logprob_RV), shape (R,).

    Up to `INVERTED` tokens by inversion: the first v at which the running sum of p exceeds a uniform number. For larger
    vocabularies, whose sums would lose precision, argmax_v log p_v - log E_v with E_v exponential: of independent
    exponential clocks with rates p_v, clock v rings first with probability p_v.
    """
    if logprob_RV.shape[-1] <= INVERTED:
        mass_RV = logprob_RV.exp().cumsum(-1)
        total_R1 = mass_RV[:, -1:]
        uniform_R1 = torch.empty_like(total_R1, dtype=torch.float64).uniform_(generator=generator)
        # Below the total, so that a token of probability 0 at the end is never drawn.
        below_R1 = (uniform_R1 * total_R1.nextafter(total_R1.new_zeros(()))).to(mass_RV.dtype)
        return (mass_RV <= below_R1).sum(-1)
    clock_RV = torch.empty_like(logprob_RV).exponential_(generator=generator)
    # A clock that rounds to 0 would let a token of probability 0 win.
    clock_RV.clamp_(min=torch.finfo(clock_RV.dtype).tiny).log_()
    return torch.sub(logprob_RV, clock_RV, out=clock_RV).argmax(-1)


def check_finite(logprob_RT: Tensor) -> None:
    """Reject samples with NaN or infinite log-probabilities.

    Raises:
        RunFailed: a log-probability is NaN or infinite.
    """
    if not bool(torch.isfinite(logprob_RT.sum())):
        raise RunFailed(
            "the model's log-probabilities are not finite: training diverged",
            "Lower the learning rate; the last checkpoint in the run folder is older than the divergence.",
        )
