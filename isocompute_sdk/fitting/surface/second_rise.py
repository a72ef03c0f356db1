"""A rise that begins again beyond the data, and what best@k says about its probability.

    R -> R + w H(u) (top - R),    H(u) = (s(h (u - m)) - s(-h m)) / (1 - s(-h m)),    u = ln(C / C_seen) > 0

w is the share of the remaining room that it wins in the end, m the distance at which half of it is won, s the logistic
function. Nothing in a sweep of one shape says that it comes, so that its probability is a prior's, the same for all n;
best@k beside avg@k changes it: a problem is solved now and then before it is solved each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Vector
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.model import Prior, logistic
from isocompute_sdk.metrics import LEADING

WITHIN, MIN_NEAR = 3.0, 5
"""Evaluations of best@k within this factor of the last compute tell its change, from so many on."""
MIN_ERROR = 0.002
"""Least standard error of that change per doubling, as a share of the metric's range."""
OPEN = 0.75
"""Share of the first rise up to which a second one has its full probability; it falls to 0 where all of it was seen."""


@dataclass(frozen=True)
class SecondRise:
    """Draws of the second rise."""

    share_D: Annotated[Vector, Field(alias="share")]
    """w; 0 in draws without one."""
    midpoint_D: Annotated[Vector, Field(alias="midpoint")]
    """m."""
    slope: float
    """h."""
    probability: Annotated[float, Field(ge=0, le=1)]
    metric: str | None = None
    """best@k that decided about the probability; None without one."""

    def __post_init__(self) -> None:
        if len(self.share_D) != len(self.midpoint_D):
            raise FieldError("midpoint", len(self.midpoint_D), f"{len(self.share_D)}, one for each draw")

    @classmethod
    def sample(
        cls, prior: Prior, probability: float, metric: str | None, draws: int, rng: np.random.Generator
    ) -> SecondRise:
        """Draws from the prior.

        Args:
            prior: size, place and steepness of the rise.
            probability: that there is one.
            metric: best@k that decided about it.
            draws: number of draws.
            rng: their randomness.
        """
        # Evenly over the draws, so that few of them hold the right share.
        rises_D = rng.permutation((np.arange(draws) + rng.random()) / draws < probability)
        share_D = logistic(prior.second_share[0] + prior.second_share[1] * rng.standard_normal(draws))
        midpoint_D = prior.second_midpoint[0] + prior.second_midpoint[1] * rng.standard_normal(draws)
        return cls(np.where(rises_D, share_D, 0.0), midpoint_D, prior.second_slope, probability, metric)

    def added(self, reward_DQ: Array, beyond_DQ: Array, top: float) -> Array:
        """Rewards with the second rise.

        Args:
            reward_DQ: rewards without it.
            beyond_DQ: u, at least 0.
            top: upper bound of the metric.
        """
        start_D1 = logistic(-self.slope * self.midpoint_D)[:, None]
        won_DQ = (logistic(self.slope * (beyond_DQ - self.midpoint_D[:, None])) - start_D1) / (1.0 - start_D1)
        return reward_DQ + self.share_D[:, None] * won_DQ * (top - reward_DQ)


def change_per_doubling(compute_T: Array, best_T: Array, last: float) -> tuple[float, float] | None:
    """Slope of best@k per doubling of compute up to `last`, and its standard error; None with too few evaluations."""
    near = (compute_T > 0) & (compute_T <= last * 1.0001) & (compute_T >= last / WITHIN)
    if np.count_nonzero(near) < MIN_NEAR:
        return None
    doublings = np.log2(compute_T[near] / last)
    (slope, _), residual, *_ = np.polyfit(doublings, best_T[near], 1, full=True)
    off = doublings - doublings.mean()
    variance = float(residual[0]) / (len(off) - 2) / float(off @ off) if len(residual) else 0.0
    return float(slope), float(np.sqrt(variance))


def best_rises(runs: Sequence[PreparedRun], span: float) -> tuple[float, str] | None:
    """Probability that best@k still rises, over all runs, and its name; None where no run tells it.

    Args:
        runs: prepared runs; after a fall their best@k does not count.
        span: width of the metric's range.
    """
    found: list[tuple[float, float]] = []
    names: list[str] = []
    for run in runs:
        if run.best is not None:
            end = run.last_compute if run.fault_compute is None else run.fault_compute
            change = change_per_doubling(run.best.compute_T, run.best.value_T, end)
            if change is not None:
                found.append(change)
                names.append(run.best.metric)
    if not found:
        return None
    slope_R, error_R = np.array(found).T
    weight_R = 1.0 / (error_R**2 + (MIN_ERROR * span) ** 2)
    spread = float(np.sqrt(weight_R @ (slope_R - weight_R @ slope_R / weight_R.sum()) ** 2 / weight_R.sum()))
    error = np.hypot(1.0 / np.sqrt(weight_R.sum()), spread / np.sqrt(len(found)))
    mean = float(weight_R @ slope_R / weight_R.sum())
    return NormalDist().cdf(mean / float(error)), min(names, key=LEADING.index)
