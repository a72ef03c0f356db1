"""The law that is shown beside a surface: a sigmoid through its best n, where the best n has one direction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.allocation import AllocationLaw
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.frontier import log_grid, span
from isocompute_sdk.notes import Note

POINTS_PER_DECADE = 24
IMMATERIAL = 0.005
"""Reward, as a share of the metric's range, that a turn of n* must be worth to count as one. Before any n has
learnt something all are alike, and which of them is ahead by a hair says nothing."""


def with_law(fits: Fits) -> Fits:
    """The fits with the display law, fitted to the surface's own n*(C) over the compute that was seen."""
    if len(fits.group_sizes) < 2:
        return replace(fits, unsupported={"group_size": "one group size was run; the best n cannot be seen in one"})
    low, high = span(fits.select())
    if high <= low:
        return replace(fits, unsupported={"group_size": "all evaluations are at one compute"})
    compute_T = log_grid(low, high, POINTS_PER_DECADE)
    sizes_N, reward_TN = fits.reward_by_size(compute_T)
    path_T, lost = one_way(reward_TN)
    if lost > IMMATERIAL * (fits.bounds[1] - fits.bounds[0]):
        reason = "the best n goes up and down with compute: no sigmoid describes it"
        return replace(fits, unsupported={"group_size": reason}, notes=(*fits.notes, _not_monotone()))
    return replace(fits, laws={"group_size": AllocationLaw.fit(compute_T, sizes_N[path_T], fits.compute)})


def one_way(reward_TN: Array) -> tuple[npt.NDArray[np.intp], float]:
    """The path over n that only rises, or only falls, with compute and loses least reward.

    Args:
        reward_TN: reward at T computes (increasing) and N group sizes (increasing); -inf for sizes out of reach.

    Returns:
        Index of n at each compute, shape (T,), and the largest reward that it loses anywhere against the best n.
    """
    loss_TN = reward_TN.max(axis=1, keepdims=True) - reward_TN
    rising, falling = _rising(loss_TN), loss_TN.shape[1] - 1 - _rising(loss_TN[:, ::-1])
    row = np.arange(len(loss_TN))
    path = min(rising, falling, key=lambda one: float(loss_TN[row, one].sum()))
    return path, float(loss_TN[row, path].max())


def _rising(loss_TN: Array) -> npt.NDArray[np.intp]:
    """Dynamic programme: the cheapest way to each (compute, n) from those at most as large just before."""
    total_TN = np.empty_like(loss_TN)
    came_TN = np.zeros(loss_TN.shape, dtype=np.intp)
    total_TN[0] = loss_TN[0]
    for t in range(1, len(loss_TN)):
        cheapest = np.minimum.accumulate(total_TN[t - 1])
        # Where several are as cheap the largest is kept, so that n* moves no earlier than it has to.
        at_N = np.where(total_TN[t - 1] <= cheapest, np.arange(loss_TN.shape[1]), 0)
        came_TN[t] = np.maximum.accumulate(at_N)
        total_TN[t] = loss_TN[t] + total_TN[t - 1][came_TN[t]]
    path = np.empty(len(loss_TN), dtype=np.intp)
    path[-1] = int(np.argmin(total_TN[-1]))
    for t in range(len(loss_TN) - 1, 0, -1):
        path[t - 1] = came_TN[t, path[t]]
    return path


def _not_monotone() -> Note:
    """The best n is not a sigmoid of compute."""
    return Note(
        "not-monotone-in-compute",
        "warning",
        "The best n goes up and down with compute: no law is fitted, and plans ask the surface itself.",
    )
