"""Predicted rewards between the levels of n that were run, interpolated between their curves."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.paper.bootstrap import reward_draws
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve


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
