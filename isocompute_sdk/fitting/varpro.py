"""Variable projection on a grid: plateau and rise are linear, so only the shape is searched.

`y = plateau - rise * missing`, where the shape parameters give `missing = 1 - S`. The normal equations give the two
linear unknowns for a whole grid of shapes and a batch of weights or data vectors at once. scipy and lmfit solve one
problem per call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from isocompute_sdk.fitting.arrays import Array


class Projection(NamedTuple):
    """Best grid point per batch row."""

    plateau: Array
    """Shape (D,)."""
    rise: Array
    """Shape (D,), at least 0."""
    grid_index: np.ndarray
    """Shape (D,), row of the grid."""


def project(
    missing_GT: Array,
    y_DT: Array,
    weights_DT: Array,
    bounds: tuple[float, float],
    floor: float | None = None,
) -> Projection:
    """Weighted least squares of plateau and rise for every grid row, then the best row per batch row.

    Args:
        missing_GT: 1 - S on the grid, in [0, 1].
        y_DT: data, one row per batch member, or a single row shared by all.
        weights_DT: non-negative weights, one row per batch member, or a single row shared by all.
        bounds: plateau and floor (plateau - rise) are kept inside.
        floor: known value of plateau - rise; None to fit it.
    """
    wy = weights_DT * y_DT
    sums = _Sums(
        w=weights_DT.sum(axis=1, keepdims=True),
        s1=weights_DT @ missing_GT.T,
        s2=weights_DT @ (missing_GT**2).T,
        y1=wy.sum(axis=1, keepdims=True),
        sy=wy @ missing_GT.T,
    )
    plateau, rise = _free_floor(sums, bounds) if floor is None else _known_floor(sums, bounds, floor)
    best = np.argmin(_loss(sums, plateau, rise), axis=1)
    rows = np.arange(len(best))
    return Projection(plateau[rows, best], rise[rows, best], best)


class _Sums(NamedTuple):
    """Weighted sums of 1, missing, missing^2, y and y * missing; shapes (D, 1) or (D, G)."""

    w: Array
    s1: Array
    s2: Array
    y1: Array
    sy: Array


def _loss(sums: _Sums, plateau: Array, rise: Array) -> Array:
    """Squared error up to the part that does not depend on plateau and rise."""
    w, s1, s2, y1, sy = sums
    return plateau**2 * w - 2 * plateau * rise * s1 + rise**2 * s2 - 2 * (plateau * y1 - rise * sy)


def _known_floor(sums: _Sums, bounds: tuple[float, float], floor: float) -> tuple[Array, Array]:
    w, s1, s2, y1, sy = sums
    rise = np.clip(_ratio((y1 - sy) - floor * (w - s1), w - 2 * s1 + s2, 1e-12), 0.0, bounds[1] - floor)
    return floor + rise, rise


def _free_floor(sums: _Sums, bounds: tuple[float, float]) -> tuple[Array, Array]:
    """Least squares over the triangle rise >= 0, plateau <= upper bound, plateau - rise >= lower bound.

    The loss is convex: its minimum lies inside the triangle, or is the best point of its three sides.
    """
    w, s1, s2, y1, sy = sums
    low, high = bounds
    rise = _ratio(y1 * s1 - w * sy, w * s2 - s1**2, 1e-10 * w**2)
    plateau = (y1 + rise * s1) / w
    inside = (rise >= 0.0) & (plateau <= high) & (plateau - rise >= low)
    least = np.where(inside, _loss(sums, plateau, rise), np.inf)
    flat = np.broadcast_to(np.clip(y1 / w, low, high), rise.shape), np.zeros(rise.shape)
    at_top = np.full(rise.shape, high), np.clip(_ratio(high * s1 - sy, s2, 1e-12), 0.0, high - low)
    for side in (flat, at_top, _known_floor(sums, bounds, low)):
        loss = _loss(sums, *side)
        better = ~inside & (loss < least)
        plateau, rise = np.where(better, side[0], plateau), np.where(better, side[1], rise)
        least = np.where(better, loss, least)
    return plateau, rise


def _ratio(numerator: Array, denominator: Array, smallest: float | Array) -> Array:
    usable = denominator > smallest
    return np.divide(numerator, denominator, out=np.zeros(np.broadcast(numerator, denominator).shape), where=usable)
