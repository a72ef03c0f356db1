"""The n*(C) of a surface: what a plan chooses at each budget, without limits of hardware or batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.answers.odds import group_size_odds
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_sdk.tolerances import Tolerances

FEWEST_PLANNED_UPDATES = 20
"""Fewest updates of a plan by default: twice the warm-up of the paper's recipe."""


def chosen_sizes(
    surface: Surface,
    compute_T: Array,
    group_sizes: Sequence[int],
    problems_per_batch: Sequence[int | None],
    largest_on_grid: int,
    *,
    in_rollouts: bool,
) -> Array:
    """The n that a plan chooses at each budget, shape (T,).

    Args:
        surface: the fit.
        compute_T: budgets, positive.
        group_sizes: candidates, increasing.
        problems_per_batch: B_p to choose from, increasing; None for the smallest that was run.
        largest_on_grid: largest n that was run.
        in_rollouts: whether compute counts rollouts, so that a plan spends whole steps of it.
    """
    tolerance = Tolerances(surface.layout.top - surface.layout.floor).small
    found_T = np.full(len(compute_T), float(group_sizes[0]))
    for t, compute in enumerate(compute_T.tolist()):
        best: list[tuple[int, float]] = []
        for bp in problems_per_batch:
            batch_N = np.array(group_sizes) * float(surface.layout.problems_reference if bp is None else bp)
            steps_N = np.floor(compute / batch_N + 1e-9)
            able_N = steps_N >= FEWEST_PLANNED_UPDATES if in_rollouts else np.ones(len(batch_N), dtype=bool)
            if not able_N.any():
                continue
            sizes = np.array(group_sizes)[able_N]
            spent = (steps_N * batch_N)[able_N] if in_rollouts else np.full(len(sizes), compute)
            odds = group_size_odds(surface, float(spent.max()), sizes, bp, largest_on_grid, spent)
            chosen = odds.best()
            best.append((int(sizes[chosen]), float(odds.reward[chosen])))
        enough = max((reward for _, reward in best), default=0.0) - tolerance
        found_T[t] = next((n for n, reward in best if reward >= enough), group_sizes[0])
    return found_T
