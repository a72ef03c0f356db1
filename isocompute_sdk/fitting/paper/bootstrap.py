"""Bootstrap over evaluations, for intervals of curves and laws. These intervals are too narrow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocompute_sdk.fitting.allocation import LawVariable, sigmoid, steepest, to_x
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.frontier import taking_part
from isocompute_sdk.fitting.paper.reward_curve import SHAPES, Points, RewardCurve, evaluate, profile
from isocompute_sdk.fitting.varpro import project
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
