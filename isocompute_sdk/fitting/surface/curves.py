"""A surface seen along one configuration: the reward curve that frontier, plots and planner ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.arrays import Array, FitStatus
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.data import SurfaceRun
from isocompute_sdk.fitting.surface.model import logistic
from isocompute_sdk.fitting.surface.surface import Surface

SHAPE = "surface"
GRID = 96
"""Points at which a curve is evaluated before it is interpolated at its evaluations."""
SEEN = 0.7
"""Share of the rise that must have been seen before a plateau counts as identified."""


@dataclass(frozen=True, eq=False)
class SurfaceCurve(RewardCurve):
    """One (n, B_p) of a surface; `parameters` holds the decimal logarithm of its half-way compute."""

    surface: Surface | None = field(default=None, repr=False)
    rise_seen: float = 1.0
    """Share of the whole rise that is predicted for the last compute observed."""

    @property
    def half_compute(self) -> float:
        """Compute at which half of the rise is reached."""
        return float(10.0 ** self.parameters[0])

    @property
    def plateau_identified(self) -> bool:
        """Whether most of the rise was seen."""
        return self.rise_seen >= SEEN

    def predict(self, compute: npt.ArrayLike) -> Array:
        """Expected reward at `compute` (any shape); the base model's at 0."""
        assert self.surface is not None, "a surface's curve belongs to its surface"
        at = np.asarray(compute, dtype=float)
        bp = None if self.problems_per_batch is None else float(self.problems_per_batch)
        values = self.surface.predict(np.maximum(at.ravel(), 1e-9), float(self.group_size), bp)
        return values.reshape(at.shape)


def surface_curves(surface: Surface, runs: Sequence[SurfaceRun]) -> dict[tuple[int, int | None], RewardCurve]:
    """The curve of every (n, B_p) that was run, with all its evaluations."""
    cells: dict[tuple[int, int | None], list[SurfaceRun]] = {}
    for run in runs:
        cells.setdefault((run.group_size, run.problems_per_batch), []).append(run)
    found: dict[tuple[int, int | None], RewardCurve] = {}
    for key in sorted(cells, key=lambda k: (k[0], k[1] or 0)):
        compute = np.concatenate([run.compute_T for run in cells[key]])
        reward = np.concatenate([run.reward_T for run in cells[key]])
        if not np.any(compute > 0):
            continue
        order = np.argsort(compute, kind="stable")
        found[key] = curve_of(surface, key, compute[order], reward[order])
    return found


def _on_grid(curve: SurfaceCurve, compute_T: Array) -> Array:
    """The curve at many evaluations, interpolated between few: thousands would each cost all draws."""
    trained = compute_T > 0
    if not trained.any():
        return curve.predict(compute_T)
    low, high = compute_T[trained].min(), compute_T[trained].max()
    grid = np.geomspace(low, high, GRID) if high > low else np.array([low])
    values = np.interp(np.log(np.maximum(compute_T, low)), np.log(grid), curve.predict(grid))
    return np.where(trained, values, float(curve.predict(0.0)))


def curve_of(surface: Surface, key: tuple[int, int | None], compute_T: Array, reward_T: Array) -> SurfaceCurve:
    """One configuration's curve, with the evaluations that belong to it."""
    nan = float("nan")
    design = surface.layout.design(np.log2([key[0]]), np.array([key[1] or nan], dtype=float), np.array([nan]))
    curves_D4 = np.einsum("cp,dp->dc", design[0], surface.parameters_DP)
    base = curves_D4[:, 0]
    rise = float(np.mean((surface.layout.top - base) * logistic(curves_D4[:, 1])))
    at_base = reward_T[compute_T == 0]
    curve = SurfaceCurve(
        group_size=key[0],
        problems_per_batch=key[1],
        shape=SHAPE,
        plateau=float(np.mean(base)) + rise,
        rise=rise,
        parameters=(float(np.median(curves_D4[:, 2]) / np.log(10.0)),),
        status=FitStatus.CONVERGED,
        at_bound=(),
        stderr={},
        rms=0.0,
        aicc=float("inf"),
        compute_T=compute_T,
        reward_T=reward_T,
        base_reward=float(at_base.mean()) if at_base.size else None,
        surface=surface,
    )
    residual = reward_T - _on_grid(curve, compute_T)
    # Frozen, but complete only once it can be asked.
    object.__setattr__(curve, "rms", float(np.sqrt(np.mean(residual**2))))
    gained = float(curve.predict(curve.last_compute)) - (curve.plateau - rise)
    object.__setattr__(curve, "rise_seen", float(np.clip(gained / rise, 0.0, 1.0)) if rise > 0 else 1.0)
    return curve
