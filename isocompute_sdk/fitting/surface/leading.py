"""best@k as a leading sign of avg@k: a problem is solved now and then before it is solved each time.

A surface counts the mean of a rise that begins again (`Surface.late`) with the probability that best@k still rises:

    R -> R + f s (top - R),   s = u p(x) min(log2(C / C_seen) / 2, 1) (E R_late - E R)+ / (top - E R)

so that the mean moves from one rise to the other over two doublings. The factor f of a draw is exponential. u is 1
until three quarters of any curve's rise were seen and falls to 0: a plateau that was seen mostly goes on. One u for
all n leaves their order alone. Without best@k, and where it falls, nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Vector
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.misfit import plateau_open
from isocompute_sdk.fitting.surface.model import Layout
from isocompute_sdk.metrics import LEADING

if TYPE_CHECKING:
    pass

WITHIN, FEWEST = 3.0, 5
"""Evaluations of best@k within this factor of the last compute tell its change, from so many on."""
LEAST_ERROR = 0.002
"""Least standard error of that change per doubling, as a share of the metric's range."""
BETWEEN_SIZES = 0.01
"""Standard deviation of that change between n, as a share of the range: noise of one slope should not decide between
two n. On other tasks of the built-in one choices lose .0001 / .0002 / .0057 at 2x / 3x / 8x with it, .0004 / .0006 /
.0062 without, with equal errors."""
DOUBLINGS = 2.0
"""Doublings beyond the runs over which the late rise enters the mean. On ten other sets of the built-in task its best
weight, each set left out in turn, was .59, .75 and 1.18 at 1, 1.6 and 3 doublings."""
GOLDEN = (5.0**0.5 - 1.0) / 2.0
"""Multiples of it, less their whole parts, are spread evenly over 0 to 1 in any stretch of the draws."""


def change_per_doubling(compute_T: Array, best_T: Array, last: float) -> tuple[float, float] | None:
    """Slope of best@k per doubling of compute up to `last`, and its standard error; None with too few evaluations."""
    near = (compute_T > 0) & (compute_T <= last * 1.0001) & (compute_T >= last / WITHIN)
    if np.count_nonzero(near) < FEWEST:
        return None
    doublings = np.log2(compute_T[near] / last)
    (slope, _), residual, *_ = np.polyfit(doublings, best_T[near], 1, full=True)
    off = doublings - doublings.mean()
    variance = float(residual[0]) / (len(off) - 2) / float(off @ off) if len(residual) else 0.0
    return float(slope), float(np.sqrt(variance))


def changes_by_size(runs: Sequence[PreparedRun]) -> dict[int, list[tuple[float, float]]]:
    """`change_per_doubling` of the runs of each n, before they fell; of those with evaluations enough."""
    changes: dict[int, list[tuple[float, float]]] = {}
    for run in runs:
        if run.best is not None:
            end = run.last_compute if run.fault_compute is None else run.fault_compute
            change = change_per_doubling(run.best.compute_T, run.best.value_T, end)
            if change is not None:
                changes.setdefault(run.group_size, []).append(change)
    return changes


@dataclass(frozen=True)
class Leading:
    """What best@k says about the end of the runs."""

    metric: str
    """best@4, or what was recorded in its place."""
    rising_K: Annotated[Vector, Field(alias="rising")]
    """Probability that it still rises, at the knots."""
    unseen: Annotated[float, Field(ge=0, le=1)]
    """u: what the share of the rise that was seen leaves of a rise that begins again."""

    def __post_init__(self) -> None:
        if np.any((self.rising_K < 0) | (self.rising_K > 1)):
            raise FieldError("rising", self.rising_K, "probabilities")

    @classmethod
    def of(cls, runs: Sequence[PreparedRun], layout: Layout, seen: float) -> Leading | None:
        """From the runs of each n, with n between and beyond them as the nearest; None where no run tells it.

        Args:
            runs: prepared runs.
            layout: of the surface.
            seen: largest share of a rise that was seen, a late one counted in.
        """
        changes = changes_by_size(runs)
        if not changes:
            return None
        sizes = sorted(changes)
        rising = rising_by_size([changes[n] for n in sizes], layout.top - layout.floor)
        name = min((run.best.metric for run in runs if run.best is not None), key=LEADING.index)
        return cls(name, np.interp(layout.knots_K, np.log2(sizes), rising), float(plateau_open(np.array(seen))))

    def rising(self, group_size: float, layout: Layout) -> float:
        """Probability that best@k still rises at this n."""
        return float(layout.hats(np.log2([group_size]))[0] @ self.rising_K)

    def share(self, hats_QK: Array, doublings_Q: Array, usual_Q: Array, late_Q: Array, top: float) -> Array:
        """s: share of the room above the mean reward that the late rise adds, shape (Q,).

        Args:
            hats_QK: weights of the knots at each place.
            doublings_Q: log2 of compute over that of the runs.
            usual_Q: mean reward without it.
            late_Q: mean reward of the late rise.
            top: upper bound of the metric.
        """
        weight_Q = self.unseen * (hats_QK @ self.rising_K) * np.clip(doublings_Q / DOUBLINGS, 0.0, 1.0)
        return weight_Q * np.maximum(late_Q - usual_Q, 0.0) / np.maximum(top - usual_Q, 1e-9)


def factors(draws: int) -> Array:
    """Factor f of each draw: exponential with mean 1, spread evenly over the draws, shape (draws,)."""
    factor_D = -np.log1p(-((np.arange(draws) + 0.5) * GOLDEN % 1.0))
    return np.asarray(factor_D / factor_D.mean(), dtype=float)


def rising_by_size(changes: Sequence[Sequence[tuple[float, float]]], span: float) -> list[float]:
    """Probability that best@k rises at each n, its slope drawn towards that of all n.

    Args:
        changes: slope and standard error of the runs of each n.
        span: width of the metric's range.
    """
    slope_N = np.array([np.mean([slope for slope, _ in runs]) for runs in changes])
    error_N = np.array([np.sqrt(sum(error**2 for _, error in runs)) / len(runs) for runs in changes])
    variance_N, between = error_N**2 + (LEAST_ERROR * span) ** 2, (BETWEEN_SIZES * span) ** 2
    weight_N = 1.0 / (variance_N + between)
    common, own_N = weight_N @ slope_N / weight_N.sum(), between * weight_N
    drawn_N = common + own_N * (slope_N - common)
    variance_N = own_N * variance_N + (1.0 - own_N) ** 2 / weight_N.sum()
    return [NormalDist().cdf(float(z)) for z in drawn_N / np.sqrt(variance_N)]
