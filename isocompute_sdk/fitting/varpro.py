"""Variable projection on a grid: plateau and rise are linear, so only the shape has to be searched.

`y = plateau - rise * missing`, with `missing = 1 - S` fixed by the shape parameters: for a whole grid of
shapes and a whole batch of weightings or data vectors the two linear unknowns follow from the normal equations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from isocompute_sdk.fitting.shapes import Array


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
        bounds: the plateau is kept inside, the rise within their distance.
        floor: known value of plateau - rise; None to fit it.
    """
    w = weights_DT.sum(axis=1, keepdims=True)
    s1, s2 = weights_DT @ missing_GT.T, weights_DT @ (missing_GT**2).T
    wy = weights_DT * y_DT
    y1, y2 = wy.sum(axis=1, keepdims=True), (wy * y_DT).sum(axis=1, keepdims=True)
    sy = wy @ missing_GT.T
    if floor is None:
        plateau, rise = _free_floor(w, s1, s2, y1, sy, bounds)
    else:
        normal, right = w - 2 * s1 + s2, (y1 - sy) - floor * (w - s1)
        rise = np.clip(_ratio(right, normal, 1e-12), 0.0, bounds[1] - floor)
        plateau = floor + rise
    sse = y2 - 2 * (plateau * y1 - rise * sy) + plateau**2 * w - 2 * plateau * rise * s1 + rise**2 * s2
    best = np.argmin(sse, axis=1)
    rows = np.arange(len(best))
    return Projection(plateau[rows, best], rise[rows, best], best)


def _free_floor(
    w: Array, s1: Array, s2: Array, y1: Array, sy: Array, bounds: tuple[float, float]
) -> tuple[Array, Array]:
    span = bounds[1] - bounds[0]
    rise = np.clip(_ratio(y1 * s1 - w * sy, w * s2 - s1**2, 1e-10 * w**2), 0.0, span)
    plateau = np.clip((y1 + rise * s1) / w, *bounds)
    # A plateau on its bound changes the best rise.
    rise_there = np.clip(_ratio(plateau * s1 - sy, s2, 1e-12), 0.0, span)
    return plateau, np.where(plateau >= bounds[1], rise_there, rise)


def _ratio(numerator: Array, denominator: Array, smallest: float | Array) -> Array:
    usable = denominator > smallest
    return np.divide(numerator, denominator, out=np.zeros(np.broadcast(numerator, denominator).shape), where=usable)
