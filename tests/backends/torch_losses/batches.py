"""Random rollout batches from a table of logits, and the gradient of any loss in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from isocompute_torch.losses import (
    Aggregation,
    Estimator,
    Loss,
    cispo_loss,
    entropy_loss,
    grpo_loss,
    kl_loss,
    ppo_loss,
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


def _policy(function: Callable[..., Loss], advantage: str, off_policy: bool) -> Callable[..., Loss]:
    def loss(batch: Batch, **how: Any) -> Loss:
        return function(
            batch.logprob_RT(),
            batch.sampled_RT,
            getattr(batch, advantage),
            batch.mask_RT,
            clip=0.2,
            tis_cap=1.5,
            old_logprob_RT=batch.old_RT if off_policy else None,
            **how,
        )

    return loss


def _kl(estimator: Estimator) -> Callable[..., Loss]:
    def loss(batch: Batch, **how: Any) -> Loss:
        return kl_loss(batch.logprob_RT(), batch.reference_RT, batch.mask_RT, estimator=estimator, **how)

    return loss


def _value(batch: Batch, **how: Any) -> Loss:
    return value_loss(batch.value_RT, batch.old_value_RT, batch.advantage_RT, batch.mask_RT, clip=0.5, **how)


def _entropy(batch: Batch, **how: Any) -> Loss:
    return entropy_loss(token_entropy(batch.logits_RTV.log_softmax(-1)), batch.mask_RT, **how)


TERMS: dict[str, Callable[..., Loss]] = {
    "grpo": _policy(grpo_loss, "advantage_R", False),
    "grpo off-policy": _policy(grpo_loss, "advantage_R", True),
    "cispo": _policy(cispo_loss, "advantage_R", False),
    "cispo off-policy": _policy(cispo_loss, "advantage_R", True),
    "ppo": _policy(ppo_loss, "advantage_RT", False),
    "ppo off-policy": _policy(ppo_loss, "advantage_RT", True),
    "value": _value,
    "kl k1": _kl("k1"),
    "kl k2": _kl("k2"),
    "kl k3": _kl("k3"),
    "entropy": _entropy,
}
"""Every term of the loss as a function of a batch and of how it is aggregated."""


def gradient(value: Tensor, batch: Batch) -> Tensor:
    """Gradient in the logits and the values of the batch, flattened into one vector; 0 where not reached."""
    leaves = (batch.logits_RTV, batch.value_RT)
    found = torch.autograd.grad(value, leaves, materialize_grads=True)
    return torch.cat([grad.flatten() for grad in found])
