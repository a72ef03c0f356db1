"""Parts of `Fits`: what predictions, points and draws look like, how curves are saved, and their frontier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from isocompute_sdk.errors import FieldError, FitError
from isocompute_sdk.fitting.allocation import LARGEST_OCTAVES, AllocationLaw
from isocompute_sdk.fitting.arguments import LAWS
from isocompute_sdk.fitting.arrays import Array, ComputeAxis, Count, Number, Positive, Vector
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.surface import SurfaceCurve
from isocompute_sdk.notebook import frame_of
from isocompute_sdk.phrases import short

if TYPE_CHECKING:
    from isocompute_sdk.notebook import Frame

Configuration = tuple[int, int | None]
"""(group size, problems per batch or None if the runs do not record it)."""

Method = Literal["surface", "paper", "published", "prior"]
"""`surface`: all runs fitted together; `paper`: a curve per configuration and their envelope; `published`: one law of
the paper; `prior`: hedged over all of them."""

Kind = Literal["mean", "at", "run"]
"""`mean`: noise-free reward of the best checkpoint up to C, averaged over runs; `at`: the same at C itself, after a
decline lower; `run`: one new measurement of one run."""


class Prediction(NamedTuple):
    """Predicted reward with an interval; `low` and `high` are NaN without draws."""

    mean: Array
    low: Array
    high: Array

    def to_frame(self, **beside: npt.ArrayLike) -> Frame:
        """The prediction as a polars frame: columns mean, low, high.

        Args:
            **beside: what was asked, as columns, e.g. `rollouts=C, group_size=n`; broadcast with the prediction.
        """
        return frame_of({**beside, **self._asdict()})


@dataclass(frozen=True)
class Reached:
    """The reward of a run at its best: what gains and approval are counted from."""

    group_size: Count
    problems_per_batch: Count | None
    compute: Positive
    """Compute there, on the axis of the fits."""
    reward: Number
    """Reward without the noise of one evaluation."""
    run_id: str | None = None
    """The run; None where it is that of a curve."""
    fell: bool = False
    """Whether the run fell afterwards."""
    fitted: bool = True
    """Whether `reward` is the curve's; False: the mean of the last evaluations up to there, which the curve misses."""

    def __str__(self) -> str:
        of = "" if self.problems_per_batch is None else f", B_p = {self.problems_per_batch}"
        how, then = "fitted" if self.fitted else "mean of evaluations", ", before it fell" if self.fell else ""
        return f"{self.reward:.3f} ({how} at C = {short(self.compute)}, n = {self.group_size}{of}{then})"


@dataclass(frozen=True)
class SurfacePoints:
    """Evaluations of one configuration of a surface; its curve follows from them and the surface."""

    group_size: Count
    problems_per_batch: Count | None
    compute_T: Vector
    reward_T: Vector


def fitted_curves(curves: Mapping[Configuration, RewardCurve]) -> tuple[RewardCurve, ...]:
    """Curves that are saved as they are: those of a surface are made from it."""
    return tuple(curve for curve in curves.values() if not isinstance(curve, SurfaceCurve))


def by_configuration(curves: Sequence[RewardCurve]) -> dict[Configuration, RewardCurve]:
    """Curves by configuration."""
    found = {(c.group_size, c.problems_per_batch): c for c in curves}
    if len(found) < len(curves):
        raise FieldError("", [(c.group_size, c.problems_per_batch) for c in curves], "one curve per configuration")
    return found


def check_laws(laws: Mapping[str, AllocationLaw], law_draws: Mapping[str, Array], compute: ComputeAxis) -> None:
    """Refuse laws and replicates of laws that contradict the fits."""
    for name, law in laws.items():
        x = compute if name == "group_size" else "update_steps"
        if name not in LAWS:
            raise FieldError("laws", name, f"names among {', '.join(LAWS)}")
        if law.x != x:
            raise FieldError(f"laws.{name}.x", law.x, repr(x))
    for name, draws in law_draws.items():
        if name not in LAWS:
            raise FieldError("law_draws", name, f"names among {', '.join(LAWS)}")
        octaves = draws[:, ::3] if draws.shape[1:] == (4,) else np.full((1, 2), np.inf)
        if not draws.size or np.max(np.abs(octaves)) > LARGEST_OCTAVES:
            expected = f"shape (draws, 4), L and b at most {LARGEST_OCTAVES:g} octaves"
            raise FieldError(f"law_draws.{name}", draws.shape, expected)


HANDOVER_POINTS_PER_DECADE = 400
"""Grid on which handovers are looked for before they are located."""
FRONTIER_BEGINS = 0.25
"""Share of the compute axis within which better curves may only begin; a picture's frontier starts after them."""


@dataclass(frozen=True)
class Frontier:
    """The best configuration at each compute. Unpacks as `reward, group_size = frontier`."""

    compute: Array
    """Compute asked for (rollouts or tokens)."""
    reward: Array
    """Reward of the best curve there."""
    group_size: npt.NDArray[np.int64]
    """Group size n of the best curve."""
    problems_per_batch: npt.NDArray[np.float64]
    """Problems per batch B_p of the best curve; NaN if unknown."""
    extrapolated: npt.NDArray[np.bool_]
    """True before the first and after the last evaluation of the best curve."""

    def __iter__(self) -> Iterator[npt.NDArray[np.float64] | npt.NDArray[np.int64]]:
        return iter((self.reward, self.group_size))

    def to_frame(self) -> Frame:
        """The frontier as a polars frame: one row for each compute, one column for each field."""
        return frame_of({field.name: getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class Handover:
    """A budget at which the best configuration changes."""

    compute: float
    from_group_size: int
    to_group_size: int
    from_problems_per_batch: int | None
    to_problems_per_batch: int | None


def frontier(curves: Sequence[RewardCurve], compute: npt.ArrayLike) -> Frontier:
    """Evaluate the upper envelope at `compute`.

    A curve counts from its first evaluation on. Below every first evaluation, the curve with the earliest one is used,
    and the point is marked as extrapolated.
    """
    asked = np.atleast_1d(np.asarray(compute, dtype=float))
    at = asked.ravel()
    rewards_CT = np.stack([curve.predict(at) if at.size else at for curve in curves])
    best = _winners(curves, rewards_CT, at)
    first = np.array([c.first_compute for c in curves])[best]
    last = np.array([c.last_compute for c in curves])[best]
    sizes = np.array([c.group_size for c in curves], dtype=np.int64)
    problems = np.array([np.nan if c.problems_per_batch is None else c.problems_per_batch for c in curves], dtype=float)
    extrapolated = (at < first * (1 - 1e-9)) | (at > last * (1 + 1e-9))
    return Frontier(
        compute=asked,
        reward=rewards_CT[best, np.arange(len(at))].reshape(asked.shape),
        group_size=sizes[best].reshape(asked.shape),
        problems_per_batch=problems[best].reshape(asked.shape),
        extrapolated=extrapolated.reshape(asked.shape),
    )


def handovers(curves: Sequence[RewardCurve]) -> tuple[Handover, ...]:
    """Budgets within the data at which the best configuration changes, each located to 1e-6 relative."""
    low, high = span(curves)
    grid = log_grid(low, high, HANDOVER_POINTS_PER_DECADE)
    best = _winner_at(curves, grid)
    found: list[Handover] = []
    for i in np.flatnonzero(best[1:] != best[:-1]):
        left, right = float(grid[i]), float(grid[i + 1])
        while right / left > 1 + 1e-6:
            middle = float(np.sqrt(left * right))
            if _winner_at(curves, np.array([middle]))[0] == best[i]:
                left = middle
            else:
                right = middle
        a, b = curves[int(best[i])], curves[int(best[i + 1])]
        found.append(Handover(right, a.group_size, b.group_size, a.problems_per_batch, b.problems_per_batch))
    return tuple(found)


def span(curves: Sequence[RewardCurve]) -> tuple[float, float]:
    """(First, last) compute at which any curve was observed."""
    return min(c.first_compute for c in curves), max(c.last_compute for c in curves)


def log_grid(low: float, high: float, points_per_decade: int) -> Array:
    """Log-spaced compute from `low` to `high`, both included."""
    count = max(int(np.ceil(np.log10(high / low) * points_per_decade)), 1) + 1
    return np.geomspace(low, high, count)


def _winner_at(curves: Sequence[RewardCurve], at: Array) -> npt.NDArray[np.int64]:
    return _winners(curves, np.stack([c.predict(at) for c in curves]), at)


def _winners(curves: Sequence[RewardCurve], rewards_CT: Array, at: Array) -> npt.NDArray[np.int64]:
    """The best curve at each compute, of those evaluated by then and the earliest one."""
    first_C1 = np.array([c.first_compute for c in curves])[:, None] * (1 - 1e-9)
    counts_CT = (at[None, :] >= first_C1) | (first_C1 <= first_C1.min())
    return np.argmax(np.where(counts_CT, rewards_CT, -np.inf), axis=0)


def between_levels(
    curves: Sequence[RewardCurve], compute: Array, group_size: Array, bounds: tuple[float, float]
) -> Array:
    """Curves at one B_p, interpolated in log n between the levels that were run.

    Args:
        curves: by increasing n.
        compute: C, any shape.
        group_size: n, in the same shape.
        bounds: range of the metric.
    """
    at, sizes = compute.ravel(), group_size.ravel()
    if sizes.size and (sizes.min() < curves[0].group_size or sizes.max() > curves[-1].group_size):
        raise FitError(
            f"group_size {sizes.min():g} to {sizes.max():g} lies outside the levels that were run, "
            f"{curves[0].group_size} to {curves[-1].group_size}",
            "Run such an n, or ask within this range.",
        )
    levels = np.log2([c.group_size for c in curves])
    upper = np.clip(np.searchsorted(levels, np.log2(sizes)), min(1, len(levels) - 1), len(levels) - 1)
    lower = np.maximum(upper - 1, 0)
    width = levels[upper] - levels[lower]
    share = np.divide(np.log2(sizes) - levels[lower], width, out=np.zeros(len(sizes)), where=width > 0)
    values_CT, columns = np.stack([c.predict(at) for c in curves]), np.arange(len(at))
    mean = (1 - share) * values_CT[lower, columns] + share * values_CT[upper, columns]
    return np.clip(mean, *bounds).reshape(compute.shape)
