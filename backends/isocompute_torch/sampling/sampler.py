"""The protocol of samplers, their result, and the distribution that both samplers draw from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from isocompute_torch.failures import RunFailed

WHOLE = 1024
"""Largest vocabulary whose running sum is taken over all tokens at once."""
BLOCK = 128
"""Tokens of a block of a larger vocabulary."""


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
    entropy_RT: Tensor
    """Entropy in nats of the distribution that each token was drawn from, 0 after the end; where the sampler does not
    know it, an estimate without bias, -log p of the drawn token."""
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


def draw(mass_KV: Tensor, row_A: Tensor, generator: torch.Generator) -> Tensor:
    """One token for each entry of `row_A` from the probabilities in that row of `mass_KV`, shape (A,).

    By inversion: the first token at which the running sum of p exceeds a uniform number. A vocabulary above `WHOLE`
    tokens is cut into blocks: the number falls first into a block and then, where it falls in there, on a token. Sums
    are taken once per row, so that rollouts that share a row share them.

    Args:
        mass_KV: probabilities, at least float32.
        row_A: row of each draw.
        generator: gives one float64 number per draw.
    """
    uniform_A1 = torch.empty(len(row_A), 1, dtype=torch.float64, device=mass_KV.device).uniform_(generator=generator)
    if mass_KV.shape[-1] <= WHOLE:
        return _inverted(mass_KV.cumsum(-1)[row_A], uniform_A1)[0].squeeze(-1)
    mass_KBW = torch.nn.functional.pad(mass_KV, (0, -mass_KV.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
    running_AB = mass_KBW.sum(-1, dtype=torch.float64).cumsum(-1)[row_A]
    block_A1, below_A1 = _inverted(running_AB, uniform_A1)
    high_A1, low_A1 = running_AB.gather(-1, block_A1), running_AB.gather(-1, (block_A1 - 1).clamp(min=0))
    low_A1 = torch.where(block_A1 > 0, low_A1, 0.0)
    place_A1 = ((below_A1 - low_A1) / (high_A1 - low_A1)).clamp(max=1.0)
    token_A1, _ = _inverted(mass_KBW[row_A, block_A1.squeeze(-1)].cumsum(-1, dtype=torch.float64), place_A1)
    return (block_A1 * BLOCK + token_A1).squeeze(-1)


def _inverted(running_AW: Tensor, uniform_A1: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the first running sum of each row above uniform * total, and uniform * total; both (A, 1)."""
    total_A1 = running_AW[:, -1:]
    # Below the total, so that an entry of probability 0 at the end is never drawn.
    below_A1 = (uniform_A1 * total_A1.nextafter(total_A1.new_zeros(()))).to(running_AW.dtype)
    return (running_AW <= below_A1).sum(-1, keepdim=True), below_A1


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
