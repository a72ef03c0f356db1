"""Random rollout batches from a table of logits, and the gradient of any loss in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from isocompute_torch.losses import (
    Aggregation,
    Loss,
    Mean,
    Seen,
    cispo_loss,
    entropy_loss,
    kl_loss,
    surrogate_loss,
    token_entropy,
    value_loss,
)

AGGREGATIONS: tuple[Aggregation, ...] = ("token-mean", "seq-mean-token-mean")
seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Batch:
    """Rollouts whose policy is one free logit per (row, position, token): a leaf tensor to take gradients in."""

    logits_RTV: Tensor
    value_RT: Tensor
    token_RT: Tensor
    sampled_RT: Tensor
    old_RT: Tensor
    reference_RT: Tensor
    advantage_R: Tensor
    advantage_RT: Tensor
    old_value_RT: Tensor
    mask_RT: Tensor

    def logprob_RT(self) -> Tensor:
        return self.logits_RTV.log_softmax(-1).gather(-1, self.token_RT.unsqueeze(-1)).squeeze(-1)

    def seen(self, *, per_token: bool = False, off_policy: bool = False) -> Seen:
        """What the terms of the loss read of it."""
        return Seen(
            logprob_RT=self.logprob_RT(),
            sampled_logprob_RT=self.sampled_RT,
            advantage=self.advantage_RT if per_token else self.advantage_R,
            mask_RT=self.mask_RT,
            old_logprob_RT=self.old_RT if off_policy else None,
            reference_logprob_RT=self.reference_RT,
            entropy_RT=token_entropy(self.logits_RTV.log_softmax(-1)),
            value_RT=self.value_RT,
            old_value_RT=self.old_value_RT,
            return_RT=self.advantage_RT,
        )

    def rows(self, index: Any) -> Batch:
        """Some of the rows, cut from the same leaves, so that gradients land in the full batch."""
        return replace(self, **{name: getattr(self, name)[index] for name in self.__dataclass_fields__})


def random_batch(seed: int, rows: int = 6, dtype: torch.dtype = torch.float64) -> Batch:
    length, vocab = 5, 4
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    logits = normal(rows, length, vocab)
    token = torch.randint(vocab, (rows, length), generator=generator)
    logprob = logits.log_softmax(-1).gather(-1, token.unsqueeze(-1)).squeeze(-1)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    return Batch(
        logits_RTV=logits.requires_grad_(),
        value_RT=normal(rows, length).requires_grad_(),
        token_RT=token,
        sampled_RT=logprob.detach() + 0.5 * normal(rows, length),
        old_RT=logprob.detach() + 0.3 * normal(rows, length),
        reference_RT=logprob.detach() + 0.5 * normal(rows, length),
        advantage_R=normal(rows),
        advantage_RT=normal(rows, length),
        old_value_RT=normal(rows, length),
        mask_RT=(torch.arange(length) < lengths.unsqueeze(-1)).to(dtype),
    )


TERMS: dict[str, Callable[[Seen, Mean], Loss]] = {
    "surrogate": partial(surrogate_loss, clip=0.2, tis_cap=1.5),
    "cispo": partial(cispo_loss, clip=0.2, tis_cap=1.5),
    "value": partial(value_loss, clip=0.5),
    "kl k1": partial(kl_loss, estimator="k1"),
    "kl k2": partial(kl_loss, estimator="k2"),
    "kl k3": partial(kl_loss, estimator="k3"),
    "entropy": entropy_loss,
}
"""Every term of the loss as a function of what it sees and how it is averaged."""
VARIANTS = {
    **{name: name for name in TERMS},
    "surrogate per token": "surrogate",
    "surrogate off-policy": "surrogate",
    "surrogate per token off-policy": "surrogate",
    "cispo off-policy": "cispo",
}
"""The terms again, and the policy losses with one advantage per token and on a later update of a batch."""


def term(variant: str, batch: Batch, mean: Mean) -> Loss:
    """A term of the loss on a batch."""
    return TERMS[VARIANTS[variant]](batch.seen(per_token="token" in variant, off_policy="off-policy" in variant), mean)


def seen(logprob_RT: Tensor, **given: Any) -> Seen:
    """A batch of which only these parts matter: on-policy, advantages 0, nothing masked."""
    plain = {
        "sampled_logprob_RT": logprob_RT.detach(),
        "advantage": torch.zeros(len(logprob_RT)),
        "mask_RT": torch.ones(logprob_RT.shape),
    }
    return Seen(logprob_RT, **{**plain, **given})


def token_mean(weight_R: Tensor | int, normaliser: float | None = None) -> Mean:
    """The mean over all tokens with these weights, or of so many rows of weight 1; divided by their number."""
    if isinstance(weight_R, int):
        weight_R = torch.ones(weight_R)
    return Mean("token-mean", float(weight_R.sum()) if normaliser is None else normaliser, weight_R)


def gradient(value: Tensor, batch: Batch) -> Tensor:
    """Gradient in the logits and the values of the batch, flattened into one vector; 0 where not reached."""
    leaves = (batch.logits_RTV, batch.value_RT)
    found = torch.autograd.grad(value, leaves, materialize_grads=True)
    return torch.cat([grad.flatten() for grad in found])
