"""Random batches of values and advantages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

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
