"""Differences between two places of a surface: paired over its draws, so that what both share cancels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.least_squares.batched import Mask
from isocompute_sdk.fitting.surface.surface import Surface


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
    return estimate(draws_at(surface, first) - draws_at(surface, second), level)


def estimate(drawn_D: npt.ArrayLike, level: float = 0.8) -> Estimate:
    """Mean and interval of draws.

    Args:
        drawn_D: draws of one number, shape (D,).
        level: coverage asked for.
    """
    values = np.asarray(drawn_D, dtype=float)
    mean = float(values.mean())
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    # Of skewed draws the mean may lie outside their quantiles.
    return Estimate(mean, min(float(low), mean), max(float(high), mean))


def estimate_of_cost(cost_D: Array, level: float) -> Estimate:
    """Median and interval of drawn costs, taken in logarithms.

    Args:
        cost_D: draws of one cost, positive, shape (D,).
        level: coverage asked for.
    """
    log = np.log(cost_D)
    low, high = np.quantile(log, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(np.exp(float(np.median(log)))), float(np.exp(low)), float(np.exp(high)))


def first_reach(log_G: Array, reward_DG: Array, target_D: Array) -> tuple[Array, Mask, Mask]:
    """Where each draw first reaches its target along a path, interpolated between its points.

    Args:
        log_G: increasing positions, such as logarithms of compute.
        reward_DG: rewards at them; they need not increase, since who has reached a reward keeps the checkpoint.
        target_D: reward to reach.

    Returns:
        Positions by draw, and which draws reach it before the path begins, and which never.
    """
    kept_DG = np.maximum.accumulate(reward_DG, axis=1)
    reached_DG = kept_DG >= target_D[:, None]
    some_D: Mask = np.asarray(reached_DG.any(axis=1))
    first_D = np.where(some_D, reached_DG.argmax(axis=1), len(log_G) - 1)
    before_D = np.maximum(first_D - 1, 0)
    rows = np.arange(len(target_D))
    lower, upper = kept_DG[rows, before_D], kept_DG[rows, first_D]
    share = np.divide(target_D - lower, upper - lower, out=np.ones(len(rows)), where=upper > lower)
    found_D = log_G[before_D] + np.clip(share, 0.0, 1.0) * (log_G[first_D] - log_G[before_D])
    at_once_D: Mask = np.asarray(some_D & (first_D == 0))
    never_D: Mask = np.asarray(np.logical_not(some_D))
    return found_D, at_once_D, never_D
