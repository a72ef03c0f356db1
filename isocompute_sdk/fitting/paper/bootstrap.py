"""Bootstrap over evaluations, for intervals of curves and laws. These intervals are too narrow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.allocation import LawVariable, sigmoid, steepest, to_x
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.frontier import taking_part
from isocompute_sdk.fitting.least_squares import project
from isocompute_sdk.fitting.paper.reward_curve import SHAPES, Points, RewardCurve, evaluate, profile
from isocompute_sdk.notes import Note

MEASURED_COVERAGE = (0.25, 0.34)
"""Coverage of n* by nominal 80 % intervals in simulation. Resampling evaluations misses the differences between runs,
and the best n is known at the levels of the grid only."""


def curve_draws(
    curve: RewardCurve, points: Points, draws: int, bounds: tuple[float, float], rng: np.random.Generator
) -> Array:
    """Parameters (plateau, rise, shape parameters ...) of curves fitted to resampled evaluations.

    Returns:
        Shape (draws, 2 + P).
    """
    count = len(points.reward_T)
    weights_DT = rng.multinomial(count, np.full(count, 1.0 / count), size=draws).astype(float)
    return profile(SHAPES[curve.shape], points, weights_DT, bounds)


def reward_draws(curve: RewardCurve, parameters: Array, compute: Array) -> Array:
    """Rewards of shape (draws, T) of the drawn curves at `compute`."""
    return evaluate(SHAPES[curve.shape], compute, parameters)


def best_draws(
    curves: Sequence[RewardCurve], parameters: Sequence[Array], compute_T: Array, *, whole: bool = False
) -> np.ndarray:
    """Index of the best curve in every draw at every compute, shape (draws, T).

    `whole`: curves also count before their first evaluation.
    """
    allowed_CT = np.full((len(curves), len(compute_T)), True) if whole else taking_part(curves, compute_T)
    best_DT = np.zeros((len(parameters[0]), len(compute_T)), dtype=np.int64)
    highest_DT = np.full(best_DT.shape, -np.inf)
    for index, (curve, drawn) in enumerate(zip(curves, parameters, strict=True)):
        reward_DT = np.where(allowed_CT[index], reward_draws(curve, drawn, compute_T), -np.inf)
        better = reward_DT > highest_DT
        best_DT[better] = index
        highest_DT = np.where(better, reward_DT, highest_DT)
    return best_DT


def law_draws(values_T: Array, octaves_DT: Array, x: LawVariable, *, rising: bool = False) -> Array:
    """Allocation laws refitted on a grid of slopes and midpoints, one per draw.

    Args:
        values_T: raw compute, or M.
        octaves_DT: log2 of the best size in each draw.
        x: variable of the law.
        rising: only laws that rise with x.

    Returns:
        Shape (draws, 4): L, k, midpoint, b.
    """
    at = to_x(values_T, x)
    low, high = float(at.min()), float(at.max())
    slopes = np.geomspace(1.0 / (high - low), steepest(x, low, high), 24)
    midpoints = np.linspace(low - 0.3 * (high - low), high + 0.3 * (high - low), 49)
    rises_D = np.full(len(octaves_DT), True) if rising else _rises(octaves_DT)
    drawn = np.empty((len(octaves_DT), 4))
    for sign in (1.0, -1.0):
        rows = rises_D if sign > 0 else ~rises_D
        if not rows.any():
            continue
        k_G, middle_G = (a.ravel() for a in np.meshgrid(sign * slopes, midpoints, indexing="ij"))
        missing_GT = 1.0 - sigmoid(at[None, :], 1.0, k_G[:, None], middle_G[:, None], 0.0)
        best = project(missing_GT, octaves_DT[rows], np.ones((1, len(at))), (0.0, 24.0))
        drawn[rows] = np.column_stack(
            [best.rise, k_G[best.grid_index], middle_G[best.grid_index], best.plateau - best.rise]
        )
    return drawn


def uncalibrated() -> Note:
    """Note that intervals of the bootstrap are too narrow."""
    low, high = MEASURED_COVERAGE
    return Note(
        "interval-uncalibrated",
        "warning",
        "Intervals come from a bootstrap over evaluations. In simulation these 80 % intervals contained the best n in "
        f"{low:.0%} to {high:.0%} of cases: the real uncertainty is larger.",
        {"measured_coverage": list(MEASURED_COVERAGE), "nominal": 0.8},
    )


def _rises(octaves_DT: Array) -> np.ndarray:
    half = octaves_DT.shape[1] // 2
    return octaves_DT[:, half:].mean(axis=1) >= octaves_DT[:, :half].mean(axis=1)


def between_levels(
    curves: Sequence[RewardCurve],
    draws: Sequence[Array | None],
    compute: Array,
    group_size: Array,
    *,
    level: float,
    kind: Literal["mean", "at", "run"],
    bounds: tuple[float, float],
) -> tuple[Array, Array, Array]:
    """Curves at one B_p, interpolated in log n between the levels that were run.

    Args:
        curves: by increasing n.
        draws: replicates of each curve's parameters; a None gives NaN intervals.
        compute: C, any shape.
        group_size: n, in the same shape.
        level: coverage of the interval.
        kind: `mean` or `at`, which are the same on curves that only rise; `run` adds the noise of one measurement.
        bounds: range of the metric.

    Returns:
        Mean, low and high, in the shape of `compute`.

    Raises:
        FitError: an n outside the levels that were run.
    """
    at, sizes = compute.ravel(), group_size.ravel()
    if sizes.size and (sizes.min() < curves[0].group_size or sizes.max() > curves[-1].group_size):
        raise FitError(
            f"group_size {sizes.min():g} to {sizes.max():g} lies outside the levels that were run, "
            f"{curves[0].group_size} to {curves[-1].group_size}",
            "Run a level there, or ask within the grid.",
        )
    levels = np.log2([c.group_size for c in curves])
    upper = np.clip(np.searchsorted(levels, np.log2(sizes)), 1, max(len(levels) - 1, 1))
    lower = upper - 1 if len(levels) > 1 else upper * 0
    upper = np.minimum(upper, len(levels) - 1)
    width = levels[upper] - levels[lower]
    share = np.divide(np.log2(sizes) - levels[lower], width, out=np.zeros(len(sizes)), where=width > 0)
    columns = np.arange(len(at))

    def blend(values_CT: Array) -> Array:
        return (1 - share) * values_CT[..., lower, columns] + share * values_CT[..., upper, columns]

    mean = np.clip(blend(np.stack([c.predict(at) for c in curves])), *bounds)
    known = [(curve, drawn) for curve, drawn in zip(curves, draws, strict=True) if drawn is not None]
    if len(known) < len(curves):
        unknown = np.full(compute.shape, np.nan)
        return mean.reshape(compute.shape), unknown, unknown.copy()
    drawn_DCT = np.stack([reward_draws(curve, drawn, at) for curve, drawn in known], axis=1)
    low, high = np.quantile(blend(drawn_DCT), [(1 - level) / 2, (1 + level) / 2], axis=0)
    below, above = np.maximum(mean - low, 0.0), np.maximum(high - mean, 0.0)
    if kind == "run":
        rms = np.array([c.rms for c in curves])
        noise = NormalDist().inv_cdf((1 + level) / 2) * ((1 - share) * rms[lower] + share * rms[upper])
        below, above = np.hypot(below, noise), np.hypot(above, noise)
    low, high = np.clip(mean - below, *bounds), np.clip(mean + above, *bounds)
    return mean.reshape(compute.shape), low.reshape(compute.shape), high.reshape(compute.shape)
