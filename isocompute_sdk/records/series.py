"""What a `RunSet` hands out about one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RunInfo:
    """One run of a `RunSet`: its configuration and how far it has got."""

    run_id: str
    """Name of the run."""
    group_size: int
    """Rollouts per problem in one update, n."""
    problems_per_batch: int | None
    """Problems per update, B_p; None where unknown."""
    seed: int | None
    """Seed; None where unknown."""
    rollouts: float
    """Compute at the last evaluation, C in rollouts."""
    evaluations: int
    """Number of values measured, over all metrics."""
    context: Mapping[str, Any]
    """Every context field; None where unknown."""
    rollouts_spent: float | None = None
    """Compute paid for up to the last evaluation, attempts that were given up included; None where unknown."""


@dataclass(frozen=True, eq=False)
class RunSeries:
    """One metric of one run over time; all arrays float64, sorted by `rollouts_T`."""

    run_id: str
    """Name of the run."""
    group_size: int
    """Rollouts per problem in one update, n."""
    problems_per_batch: int | None
    """Problems per update, B_p; None where unknown."""
    seed: int | None
    """Seed; None where unknown."""
    step_T: NDArray[np.float64]
    """Update steps done; may be fractional, NaN where unknown."""
    rollouts_T: NDArray[np.float64]
    """Compute C in rollouts."""
    value_T: NDArray[np.float64]
    """Measured values."""
    tokens_T: NDArray[np.float64] | None
    """Tokens sampled so far, NaN where unknown; None where the run has none."""
    context: Mapping[str, Any]
    """Every context field; None where unknown."""
