"""Samplers: their protocol and result, the distribution they draw from, and the sampler in torch.

The model reads what all prompts begin with once, then each distinct prompt once, and its cache is copied to the n
rollouts. Rows of finished rollouts leave the cache. With `merge`, rollouts with the same tokens so far share one row:
the model reads every distinct prefix once, which changes results by rounding only.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from isocompute_torch.configuration import RunFailed, is_out_of_memory
from isocompute_torch.policy import Policy, at_least_float32
from isocompute_torch.problems import shared_beginning

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

    def measures(self) -> dict[str, float]:
        """Mean response length in tokens, and the share of truncated responses."""
        share = float(self.truncated_R.double().mean())
        return {"response_length": self.tokens / len(self.truncated_R), "truncated_share": share}

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
    """Reject samples with NaN or infinite log-probabilities."""
    if not bool(torch.isfinite(logprob_RT.sum())):
        raise RunFailed(
            "the model's log-probabilities are not finite: training diverged",
            "Lower the learning rate; the last checkpoint in the run folder is older than the divergence.",
        )


CACHE_BYTES_CPU = 2 * 2**30
CACHE_SHARE_CUDA = 0.35
"""Largest KV cache as a share of the GPU's total memory; a share of the free memory would vary between steps."""
LOGITS_AT_ONCE = 2**28
"""Most logits computed at once, rows times vocabulary."""
SHORTEST_BEGINNING = 16
"""Tokens that all prompts must share to be read once: one more call of the model costs as much as a few tokens."""
COMPACT_BELOW = 0.75
"""Share of live rows at which finished ones are removed from the cache; copying it costs as much as a token."""


class _Drawn:
    """Samples of R rollouts, at most T tokens each, filled token by token."""

    def __init__(self, rollouts: int, max_tokens: int, pad_id: int, dtype: torch.dtype, device: torch.device) -> None:
        self.response_RT = torch.full((rollouts, max_tokens), pad_id, device=device)
        self.logprob_RT = torch.zeros(rollouts, max_tokens, dtype=dtype, device=device)
        self.entropy_RT = torch.zeros_like(self.logprob_RT)
        self.length_R = torch.full((rollouts,), max_tokens, device=device)
        self.truncated_R = torch.ones(rollouts, dtype=torch.bool, device=device)


class TorchSampler:
    """Samples from a policy in this process.

    Args:
        policy: the model, shared with the trainer.
        rows_at_once: largest number of rollouts in the cache; halved after an out-of-memory error.
        merge: let the model read equal prefixes once.
    """

    def __init__(self, policy: Policy, *, rows_at_once: int = 4096, merge: bool = True) -> None:
        self.policy = policy
        self.rows_at_once = rows_at_once
        self.merge = merge

    @torch.no_grad()
    def sample(
        self, prompts: Sequence[list[int]], n: int, *, temperature: float, top_p: float, max_tokens: int, seed: int
    ) -> Samples:
        """`n` responses to each prompt; see `Sampler.sample`. After an out-of-memory error with half the rows at once.

        Raises:
            RunFailed: the model's log-probabilities are not finite.
        """
        while True:
            try:
                return self._sampled(prompts, n, temperature, top_p, max_tokens, seed)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or self.rows_at_once <= 1:
                    raise
            self.rows_at_once = min(self.rows_at_once, len(prompts) * n) // 2 or 1
            gc.collect()
            if self.policy.device.type == "cuda":
                torch.cuda.empty_cache()

    def _sampled(
        self, prompts: Sequence[list[int]], n: int, temperature: float, top_p: float, max_tokens: int, seed: int
    ) -> Samples:
        device = self.policy.device
        generator = torch.Generator(device).manual_seed(seed)
        dtype = at_least_float32(torch.empty(0, dtype=self.policy.dtype)).dtype
        drawn = _Drawn(len(prompts) * n, max_tokens, self.policy.codec.pad_id, dtype, device)
        # Prompts of about the same length are decoded together, rollouts of one prompt side by side.
        rows = [i * n + k for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])) for k in range(n)]
        room = self._room(max(map(len, prompts)) + max_tokens)
        for chunk in (rows[first : first + room] for first in range(0, len(rows), room)):
            counts = Counter(row // n for row in chunk)
            decoder = _Decoder(self.policy, [prompts[i] for i in counts], list(counts.values()), max_tokens, self.merge)
            decoder.run(temperature, top_p, generator, drawn, torch.tensor(chunk, device=device))
        longest = int(drawn.length_R.max())
        check_finite(drawn.logprob_RT)
        mask_RT = torch.arange(longest, device=device) < drawn.length_R.unsqueeze(-1)
        return Samples(
            prompt_index_R=torch.arange(len(prompts), device=device).repeat_interleave(n),
            prompt_ids=list(prompts),
            response_RT=drawn.response_RT[:, :longest].contiguous(),
            mask_RT=mask_RT.to(drawn.logprob_RT.dtype),
            logprob_RT=drawn.logprob_RT[:, :longest].contiguous(),
            entropy_RT=drawn.entropy_RT[:, :longest].contiguous(),
            truncated_R=drawn.truncated_R,
        )

    def rest(self) -> float:
        """Returns 0: the sampler holds no memory between calls."""
        return 0.0

    def sync(self, model: torch.nn.Module) -> float:
        """Returns 0: the sampler uses the trained weights themselves."""
        return 0.0

    def close(self) -> None:
        """Does nothing: the sampler holds no memory between calls."""

    def _room(self, tokens: int) -> int:
        """Most rollouts of this length, prompt included, whose cache and logits fit in memory."""
        device, cache = self.policy.device, float(CACHE_BYTES_CPU)
        if device.type == "cuda":
            cache = CACHE_SHARE_CUDA * torch.cuda.get_device_properties(device).total_memory
        rows = int(cache) // (tokens * self.policy.cache_bytes)
        return max(1, min(self.rows_at_once, rows, LOGITS_AT_ONCE // self.policy.vocabulary))


class _Decoder:
    """Decodes one chunk; keeps track of the row of the cache that each live rollout reads."""

    def __init__(
        self, policy: Policy, prompts: list[list[int]], counts: list[int], max_tokens: int, merge: bool
    ) -> None:
        self.policy = policy
        self.max_tokens = max_tokens
        self.merge = merge
        self.device = policy.device
        self.cache = policy.new_cache()
        longest = max(len(prompt) for prompt in prompts)
        begun = self._begin(prompts) if merge and longest + max_tokens <= policy.architecture.longest_tree else 0
        prompts, longest = [prompt[begun:] for prompt in prompts], longest - begun
        padded = [[policy.codec.pad_id] * (longest - len(prompt)) + prompt for prompt in prompts]
        self.input_ids_KL = torch.tensor(padded, device=self.device)
        self.mask_KL: Tensor | None = None
        self.position_ids_KL: Tensor | None = None
        if any(len(prompt) < longest for prompt in prompts):
            missing_K = torch.tensor([longest - len(prompt) for prompt in prompts], device=self.device)
            position_KL = torch.arange(longest, device=self.device) - missing_K.unsqueeze(-1)
            self.mask_KL = torch.nn.functional.pad((position_KL >= 0).long(), (begun, 0), value=1)
            self.position_ids_KL = begun + position_KL.clamp(min=0)
        self.state_A = torch.arange(len(prompts), device=self.device).repeat_interleave(
            torch.tensor(counts, device=self.device)
        )
        self._distinct = False
        """Whether no two rollouts read the same row."""
        self.ends = torch.tensor(sorted(policy.codec.eos_ids), device=self.device)

    def _begin(self, prompts: list[list[int]]) -> int:
        """Read the tokens that all prompts begin with, such as a system prompt, once; returns how many they are."""
        shared = min(shared_beginning(prompts), *(len(prompt) - 1 for prompt in prompts))
        if len(prompts) == 1 or shared < SHORTEST_BEGINNING:
            return 0
        self.policy.next_logits(torch.tensor([prompts[0][:shared]], device=self.device), self.cache)
        self.cache.batch_select_indices(torch.zeros(len(prompts), dtype=torch.long, device=self.device))
        return shared

    def run(self, temperature: float, top_p: float, generator: torch.Generator, drawn: _Drawn, row_A: Tensor) -> None:
        """Sample token after token into these rows until every rollout has ended or reached the limit."""
        for t in range(self.max_tokens):
            logits_KV = self.policy.next_logits(self.input_ids_KL, self.cache, self.mask_KL, self.position_ids_KL)
            logprob_KV = log_distribution(logits_KV, temperature, top_p)
            mass_KV = logprob_KV.exp()
            token_A = draw(mass_KV, self.state_A, generator)
            drawn.response_RT[row_A, t] = token_A
            drawn.logprob_RT[row_A, t] = logprob_KV[self.state_A, token_A]
            # In place; the smallest number instead of -inf, because 0 * -inf would be NaN.
            entropy_K = -mass_KV.mul_(logprob_KV.clamp_(min=torch.finfo(logprob_KV.dtype).min)).sum(-1)
            drawn.entropy_RT[row_A, t] = entropy_K[self.state_A]
            ended_A = token_A == self.ends if len(self.ends) == 1 else torch.isin(token_A, self.ends)
            if self.policy.codec.stop:
                first = max(0, t + 1 - self.policy.codec.stop_tokens)
                tails = drawn.response_RT[row_A, first : t + 1].tolist()
                ended_A = ended_A | torch.tensor(self.policy.codec.stopped(tails), device=self.device)
            if bool(ended_A.any()):
                drawn.length_R[row_A[ended_A]] = t + 1
                drawn.truncated_R[row_A[ended_A]] = False
                live_A = ~ended_A
                row_A, token_A, self.state_A = row_A[live_A], token_A[live_A], self.state_A[live_A]
            if len(row_A) == 0 or t + 1 == self.max_tokens:
                break
            self._advance(token_A)

    def _advance(self, token_A: Tensor) -> None:
        """Prepare the cache for the next token: copy, share or drop its rows."""
        rows, live = self.input_ids_KL.shape[0], len(self.state_A)
        if self.merge:
            width = int(token_A.max()) + 1
            key_K, shared_A = torch.unique(self.state_A * width + token_A, return_inverse=True)
            if len(key_K) < live:
                self.state_A = shared_A
                self._extend(key_K // width, key_K % width)
                return
            # Rollouts that all differ can never become equal again.
            self.merge = False
        if not self._distinct or live <= COMPACT_BELOW * rows:
            self._extend(self.state_A, token_A)
            self.state_A = torch.arange(live, device=self.device)
            self._distinct = True
        elif live == rows:
            self._extend(None, token_A)
        else:
            token_K = torch.full((rows,), self.policy.codec.pad_id, device=self.device)
            token_K[self.state_A] = token_A
            self._extend(None, token_K)

    def _extend(self, parent_K: Tensor | None, token_K: Tensor) -> None:
        """Set the next input, one token per row; each row copies the cache of its parent (None keeps its own)."""
        if parent_K is not None:
            self.cache.batch_select_indices(parent_K)
        self.input_ids_KL = token_K.unsqueeze(-1)
        if self.mask_KL is not None and self.position_ids_KL is not None:
            position_K1 = self.position_ids_KL[:, -1:] + 1
            mask_KL = torch.nn.functional.pad(self.mask_KL, (0, 1), value=1)
            chosen = slice(None) if parent_K is None else parent_K
            self.mask_KL, self.position_ids_KL = mask_KL[chosen], position_K1[chosen]
