"""A surface with more knots: what the fit and its prior say of group sizes beyond those that plans may use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.model import Prior
from isocompute_sdk.fitting.surface.surface import DEFAULT_PRIOR, Surface


def widened(
    surface: Surface, below: int, above: int, rng: np.random.Generator, prior: Prior = DEFAULT_PRIOR
) -> Surface:
    """The surface with so many more octaves of knots on each side, drawn from the prior given the outermost ones.

    Args:
        surface: the fit.
        below: octaves below its first knot; none is put below n = 1.
        above: octaves above its last knot.
        rng: the randomness of what is not known there.
        prior: what is assumed of steps and bends along n.
    """
    layout = surface.layout
    below = min(below, int(layout.knots_K[0]))
    if below + above == 0:
        return surface
    count = len(layout.knots_K)

    theta_DP = surface.parameters_DP
    parts = theta_DP[:, 1 : 1 + count], theta_DP[:, 1 + count : 1 + 2 * count]
    share = _longer(parts[0], below, above, prior.share_step, prior.share_bend_sd, rng)
    midpoint = _longer(parts[1], below, above, prior.midpoint_step, prior.midpoint_bend_sd, rng)
    theta_DP = np.hstack([theta_DP[:, :1], share, midpoint, theta_DP[:, 1 + 2 * count :]])
    first, last = layout.knots_K[0] - below, layout.knots_K[-1] + above
    return replace(surface, layout=replace(layout, knots_K=np.arange(first, last + 1.0)), parameters_DP=theta_DP)


def _longer(
    value_DK: Array,
    below: int,
    above: int,
    step: tuple[float, float],
    bend_sd: float,
    rng: np.random.Generator,
) -> Array:
    for _ in range(above):
        before = value_DK[:, -2] if value_DK.shape[1] > 1 else None
        value_DK = np.hstack([value_DK, _next(value_DK[:, -1], before, step[0], step[1], bend_sd, rng)])
    for _ in range(below):
        after = value_DK[:, 1] if value_DK.shape[1] > 1 else None
        value_DK = np.hstack([_next(value_DK[:, 0], after, -step[0], step[1], bend_sd, rng), value_DK])
    return value_DK


def _next(
    last_D: Array,
    before_D: Array | None,
    step: float,
    step_sd: float,
    bend_sd: float,
    rng: np.random.Generator,
) -> Array:
    """One more knot, shape (D, 1): the product of what its step and its bend say."""
    mean_D, precision = last_D + step, 1.0 / step_sd**2
    if before_D is not None:
        weight = 1.0 / bend_sd**2
        mean_D = (precision * mean_D + weight * (2.0 * last_D - before_D)) / (precision + weight)
        precision += weight
    return (mean_D + rng.standard_normal(len(last_D)) / np.sqrt(precision))[:, None]
