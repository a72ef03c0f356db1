"""Differences between two places of a surface: paired over its draws, so that what both share cancels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.shapes import Array
from isocompute_sdk.fitting.surface.surface import BASE_SPREAD, LARGEST_SPREAD, SPREAD_ABOVE, Surface


class Estimate(NamedTuple):
    """A number with an interval."""

    mean: float
    low: float
    high: float


class Place(NamedTuple):
    """Where a surface is asked: compute, group size, problems per batch and problem set (None: the surface's own)."""

    compute: float
    group_size: float
    problems_per_batch: float | None = None
    n_problems: float | None = None


def draws_at(surface: Surface, place: Place) -> Array:
    """Noise-free reward at one place, shape (draws,)."""
    return surface.draws(*place)[:, 0]


def difference(surface: Surface, first: Place, second: Place, level: float = 0.8) -> Estimate:
    """Reward at `first` less reward at `second`, with the interval of the difference.

    Args:
        surface: the fit.
        first: one place.
        second: the other.
        level: coverage asked for.
    """
    beyond = max(first.compute, second.compute) / surface.largest_compute
    return estimate(draws_at(surface, first) - draws_at(surface, second), level, beyond)


def estimate(drawn_D: npt.ArrayLike, level: float = 0.8, beyond: float = 1.0) -> Estimate:
    """Mean and interval of draws, widened as a surface's own intervals are.

    Args:
        drawn_D: draws of one number, shape (D,).
        level: coverage asked for.
        beyond: compute asked about over the largest that was seen.
    """
    values = np.asarray(drawn_D, dtype=float)
    mean = float(values.mean())
    reach = min(float(np.log(max(beyond, 1.0))), LARGEST_SPREAD)
    off = (values - mean) * (BASE_SPREAD + SPREAD_ABOVE * reach)
    low, high = np.quantile(mean + off, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(mean, float(low), float(high))
