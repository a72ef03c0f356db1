"""Random batches of values and advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from isocompute_torch.losses import Mean, Seen

seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Batch:
    """Rollouts of different lengths."""

    advantage_RT: Tensor
    old_value_RT: Tensor
    mask_RT: Tensor


def random_batch(seed: int, rows: int = 6) -> Batch:
    length, generator = 5, torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (rows, 1), generator=generator)
    return Batch(
        torch.randn(rows, length, generator=generator, dtype=torch.float64),
        torch.randn(rows, length, generator=generator, dtype=torch.float64),
        (torch.arange(length) < lengths).to(torch.float64),
    )


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
