"""Questions to `Fits` that a surface answers: rewards, intervals, the best n and the odds of every n."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arguments import check_reach, increasing_sizes, one_positive, positive
from isocompute_sdk.fitting.levels import within_reach
from isocompute_sdk.fitting.prediction import Kind, Prediction
from isocompute_sdk.fitting.shapes import Array
from isocompute_sdk.fitting.surface.curves import curve_of
from isocompute_sdk.fitting.surface.odds import GroupSizeOdds, best_size_interval, group_size_odds
from isocompute_sdk.fitting.surface.surface import Surface

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits

SIZES_PER_OCTAVE = 4
"""Density of the real-valued n among which a surface's best one is looked for."""


def predicted(
    fits: Fits, surface: Surface, at: Array, sizes: Array, problems_per_batch: int | None, level: float, kind: Kind
) -> Prediction:
    """See `Fits.predict`; `at` and `sizes` of one shape."""
    smallest, largest = fits.group_size_range
    check_reach(sizes, smallest, 2 * largest)
    point = (at.ravel(), sizes.ravel(), within_reach(fits.problems_per_batch, problems_per_batch))
    return Prediction(*(part.reshape(at.shape) for part in surface.interval(kind, level, *point)))


def odds(
    fits: Fits,
    compute: object,
    group_sizes: npt.ArrayLike | None,
    problems_per_batch: int | None,
    compute_of_each: npt.ArrayLike | None,
) -> GroupSizeOdds:
    """See `Fits.group_size_odds`."""
    if fits.surface is None:
        raise FitError(
            f"method {fits.method!r} gives no odds for group sizes; accepted: fits of method 'surface'",
            "Fit with method='surface', or look at law_interval().",
        )
    smallest, largest = fits.group_size_range
    if group_sizes is None:
        powers = {2**i for i in range(1, 31) if smallest <= 2**i <= largest}
        group_sizes = sorted(powers | set(fits.group_sizes))
    sizes = increasing_sizes(group_sizes, smallest, 2 * largest)
    spent = None if compute_of_each is None else np.atleast_1d(positive(compute_of_each))
    if spent is not None and spent.shape != sizes.shape:
        raise FitError(
            f"compute_of_each: {spent.size} amounts for {len(sizes)} group sizes; accepted: one for each",
            "Give what each candidate spends, in the order of group_sizes.",
        )
    bp = within_reach(fits.problems_per_batch, problems_per_batch)
    return group_size_odds(fits.surface, one_positive(compute, "compute"), sizes, bp, largest, spent)


def reward_by_size(fits: Fits, compute: npt.ArrayLike, problems_per_batch: int | None) -> tuple[Array, Array]:
    """See `Fits.reward_by_size`."""
    if fits.surface is None:
        raise FitError(
            f"method {fits.method!r} has no surface; use frontier() or law()",
            "Fit your runs with method='surface'.",
        )
    compute_T = np.atleast_1d(positive(compute)).ravel()
    low, high = np.log2(fits.group_size_range)
    sizes_N = 2.0 ** np.linspace(low, high, max(int(np.ceil((high - low) * SIZES_PER_OCTAVE)), 1) + 1)
    mesh_T, mesh_N = np.meshgrid(compute_T, sizes_N, indexing="ij")
    bp = within_reach(fits.problems_per_batch, problems_per_batch)
    reward_TN = fits.surface.predict(mesh_T.ravel(), mesh_N.ravel(), bp).reshape(mesh_T.shape)
    # Where a level had no evaluation yet, its reward there is the prior's guess.
    first_C, size_C = np.array([[curve.first_compute, curve.group_size] for curve in fits.curves.values()]).T
    begun_TC = first_C <= np.maximum(compute_T, first_C.min())[:, None]
    reach_T = np.where(begun_TC, size_C, 0).max(axis=1)
    return sizes_N, np.where(mesh_N <= reach_T[:, None] * (1 + 1e-9), reward_TN, -np.inf)


def best_size_intervals(fits: Fits, surface: Surface, compute_T: Array, level: float) -> tuple[Array, Array]:
    """Interval of the best n at each compute, up to an octave above the levels that were run."""
    smallest, largest = fits.group_size_range
    found = [best_size_interval(surface, float(c), (smallest, 2 * largest), None, level) for c in compute_T]
    return np.array([low for low, _ in found], dtype=float), np.array([high for _, high in found], dtype=float)


def for_problem_set(fits: Fits, surface: Surface, n_problems: int) -> Fits:
    """See `Fits.for_problem_set`; of a surface whose runs vary D."""
    other = replace(surface, n_problems=one_positive(n_problems, "n_problems"))
    curves = {key: curve_of(other, key, c.compute_T, c.reward_T) for key, c in fits.curves.items()}
    return replace(fits, surface=other, curves=curves, laws={}, unsupported={}, n_problems=n_problems)
