"""How sure the best group size is: probability of being best and expected regret of every n at one compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.shapes import Array
from isocompute_sdk.fitting.surface.surface import Surface

SET_COVERAGE_TO_MASS = {0.8: 0.9}
"""Posterior mass that a set needs so that its simulated coverage is the nominal one; others are taken as they are."""


@dataclass(frozen=True)
class GroupSizeOdds:
    """What the fits know about every candidate n at one compute. Arrays have one entry per group size."""

    compute: float
    group_size: npt.NDArray[np.int64]
    reward: Array
    """Expected reward."""
    spread: Array
    """Its posterior standard deviation."""
    probability_best: Array
    """Share of the draws in which this n is the best of them."""
    expected_regret: Array
    """Mean over draws of the reward lost against the best n of that draw."""
    gain_over: Array
    """Mean over draws, in units of its standard deviation, of the reward gained over the best n on the grid; 0 there."""

    def best(self) -> int:
        """The n with the largest expected reward."""
        return int(self.group_size[int(np.argmax(self.reward))])

    def interval(self, level: float = 0.8) -> tuple[int, int]:
        """Smallest range of neighbouring n that holds the best one with this probability, and the most probable one."""
        mass = SET_COVERAGE_TO_MASS.get(level, level)
        total = np.concatenate([[0.0], np.cumsum(self.probability_best)])
        for width in range(1, len(self.group_size) + 1):
            held = total[width:] - total[:-width]
            first = int(np.argmax(held))
            if held[first] >= mass - 1e-9:
                return int(self.group_size[first]), int(self.group_size[first + width - 1])
        return int(self.group_size[0]), int(self.group_size[-1])


def group_size_odds(
    surface: Surface,
    compute: float,
    group_sizes: npt.ArrayLike,
    problems_per_batch: float | None,
    largest_on_grid: int,
    compute_of_each: npt.ArrayLike | None = None,
) -> GroupSizeOdds:
    """Ask the surface about several n at once.

    Args:
        surface: the fit.
        compute: the budget.
        group_sizes: candidates, increasing.
        problems_per_batch: B_p of all of them; None for the smallest that was run.
        largest_on_grid: largest n that was run.
        compute_of_each: what each candidate really spends, where that is not `compute`.
    """
    sizes = np.asarray(group_sizes, dtype=np.int64)
    spent = np.full(len(sizes), compute) if compute_of_each is None else np.asarray(compute_of_each, dtype=float)
    drawn_DN = surface.draws(spent, sizes, problems_per_batch)
    reward = drawn_DN.mean(axis=0)
    best_D = drawn_DN.max(axis=1, keepdims=True)
    on_grid = sizes <= largest_on_grid
    reference = int(np.argmax(np.where(on_grid, reward, -np.inf))) if on_grid.any() else 0
    ahead_DN = drawn_DN - drawn_DN[:, [reference]]
    return GroupSizeOdds(
        compute=compute,
        group_size=sizes,
        reward=reward,
        spread=drawn_DN.std(axis=0),
        probability_best=np.bincount(np.argmax(drawn_DN, axis=1), minlength=len(sizes)) / len(drawn_DN),
        expected_regret=(best_D - drawn_DN).mean(axis=0),
        gain_over=ahead_DN.mean(axis=0) / np.maximum(ahead_DN.std(axis=0), 1e-12),
    )
