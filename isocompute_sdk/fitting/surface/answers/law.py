"""The law that is shown beside a surface: a sigmoid through the n that plans choose, if that only rises or falls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.allocation_laws.allocation import AllocationLaw
from isocompute_sdk.fitting.allocation_laws.frontier import log_grid, span
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers.odds import best_size_interval
from isocompute_sdk.notes import Note
from isocompute_sdk.tolerances import Tolerances

POINTS_PER_DECADE = 24
LAW_POINTS_PER_DECADE = 6
REACH = 10.0
"""The law and the picture of n* reach this many times beyond the runs."""
LEVEL = 0.8
"""Coverage of the set of n* that the law is drawn into."""
ROUNDS = 8
INSIDE = 0.05
"""Rounds in which a law is drawn into the set of n*, and octaves by which it is to keep inside."""


def with_law(fits: Fits) -> Fits:
    """The fits with a law through n*(C) of the data and `REACH` times beyond, or with the reason for its absence."""
    if len(fits.group_sizes) < 2:
        return replace(fits, unsupported={"group_size": "only one group size was run"})
    low, high = span(fits.select())
    if high <= low:
        return replace(fits, unsupported={"group_size": "all evaluations are at one compute"})
    compute_T = log_grid(low, high, POINTS_PER_DECADE)
    _, reward_TN = fits.reward_by_size(compute_T)
    _, lost = one_way(reward_TN)
    if lost > Tolerances(fits.bounds[1] - fits.bounds[0]).small:
        reason = "the best n rises and falls with compute, which no sigmoid describes"
        return replace(fits, unsupported={"group_size": reason}, notes=(*fits.notes, _not_monotone()))
    return replace(fits, laws={"group_size": _through(fits, log_grid(low, REACH * high, LAW_POINTS_PER_DECADE))})


def _through(fits: Fits, compute_T: Array) -> AllocationLaw:
    """The sigmoid nearest to n*(C) that keeps within its set as far as a sigmoid can (alternating projections)."""
    octave_T = np.log2(fits.best_group_size(compute_T))
    assert fits.surface is not None, "checked by the caller"
    smallest, largest = fits.group_size_range
    ends = [best_size_interval(fits.surface, float(c), (smallest, 2 * largest), None, LEVEL) for c in compute_T]
    low_T, high_T = np.log2(np.array(ends, dtype=float)).T
    low_T, high_T = np.minimum(low_T, octave_T), np.maximum(high_T, octave_T)
    margin_T = np.minimum(INSIDE, (high_T - low_T) / 2)
    law = AllocationLaw.fit(compute_T, 2.0**octave_T, fits.compute)
    for _ in range(ROUNDS):
        drawn_T = law.log2(compute_T)
        wanted_T = np.clip(drawn_T, low_T + margin_T, high_T - margin_T)
        if np.max(np.abs(wanted_T - drawn_T)) <= INSIDE:
            break
        law = AllocationLaw.fit(compute_T, 2.0**wanted_T, fits.compute)
    return law


def one_way(reward_TN: Array) -> tuple[npt.NDArray[np.intp], float]:
    """The monotone path of n over compute that loses least reward.

    Args:
        reward_TN: reward at T computes (increasing) and N group sizes (increasing); -inf for sizes out of reach.

    Returns:
        Index of n at each compute, shape (T,), and its largest loss of reward against the best n.
    """
    loss_TN = reward_TN.max(axis=1, keepdims=True) - reward_TN
    rising, falling = _rising(loss_TN), loss_TN.shape[1] - 1 - _rising(loss_TN[:, ::-1])
    row = np.arange(len(loss_TN))
    path = min(rising, falling, key=lambda one: float(loss_TN[row, one].sum()))
    return path, float(loss_TN[row, path].max())


def _rising(loss_TN: Array) -> npt.NDArray[np.intp]:
    """The rising path with the smallest total loss (dynamic programming over compute and n)."""
    total_TN = np.empty_like(loss_TN)
    came_TN = np.zeros(loss_TN.shape, dtype=np.intp)
    total_TN[0] = loss_TN[0]
    for t in range(1, len(loss_TN)):
        cheapest = np.minimum.accumulate(total_TN[t - 1])
        # Of equal losses the largest n wins, so that n* changes as late as possible.
        at_N = np.where(total_TN[t - 1] <= cheapest, np.arange(loss_TN.shape[1]), 0)
        came_TN[t] = np.maximum.accumulate(at_N)
        total_TN[t] = loss_TN[t] + total_TN[t - 1][came_TN[t]]
    path = np.empty(len(loss_TN), dtype=np.intp)
    path[-1] = int(np.argmin(total_TN[-1]))
    for t in range(len(loss_TN) - 1, 0, -1):
        path[t - 1] = came_TN[t, path[t]]
    return path


def _not_monotone() -> Note:
    return Note(
        "not-monotone-in-compute",
        "warning",
        "The best n rises and falls with compute, so no law is fitted. Plans use the surface itself.",
    )
