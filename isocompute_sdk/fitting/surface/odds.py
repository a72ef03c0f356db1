"""How sure the best group size is: probability of being best and expected regret of every n at one compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.shapes import Array
from isocompute_sdk.fitting.surface.surface import Surface

CONSERVATIVE_SPREAD = 0.5
"""Conservative: expected reward less this many posterior standard deviations."""
BEYOND_GRID_MARGIN = 1.0
"""An n that nobody ran is chosen only where its expected gain over the best n on the grid is at least this many of
the gain's standard deviations. On simulated sweeps one octave beyond the grid lost more than it won without it."""
NEAR_BEST = 0.005
"""Share of the gain within which an n counts as good as the best."""
LEVEL_TO_MASS = 1.05
"""Posterior mass that a set needs, over its nominal coverage: sets of .84 held the best n in about 80 % of simulated
sweeps (tuning seeds of benchmarks/allocation.py)."""
STEPS_PER_OCTAVE = 4
FEWEST_UPDATES = 5
"""An n that leaves fewer updates is no candidate for the best."""


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
    on_grid: npt.NDArray[np.bool_]
    """False above the largest n that was run."""
    gain_over: Array
    """Mean reward gained over the best n on the grid, in units of its standard deviation over draws; 0 there."""

    def best(self, *, conservative: bool = False) -> int:
        """Position of the n with the largest expected reward, or the largest conservative one.

        An n that nobody ran is taken only where it is ahead of the grid by `BEYOND_GRID_MARGIN`.
        """
        score = self.reward - (CONSERVATIVE_SPREAD * self.spread if conservative else 0.0)
        if self.on_grid.any():
            score = np.where(self.on_grid | (self.gain_over >= BEYOND_GRID_MARGIN), score, -np.inf)
        return int(np.argmax(np.round(score, 12)))


def best_size_interval(
    surface: Surface, compute: float, sizes: tuple[float, float], problems_per_batch: float | None, level: float
) -> tuple[float, float]:
    """Smallest range of n that holds, with this probability, an n as good as the best one.

    Args:
        surface: the fit.
        compute: the budget.
        sizes: smallest and largest n allowed.
        problems_per_batch: B_p; None for the smallest that was run.
        level: coverage asked for.
    """
    low, high = np.log2(sizes)
    grid = 2.0 ** np.linspace(low, high, max(int(np.ceil((high - low) * STEPS_PER_OCTAVE)), 1) + 1)
    bp = surface.layout.problems_reference if problems_per_batch is None else problems_per_batch
    affordable = grid * bp * FEWEST_UPDATES <= compute
    grid = grid[affordable] if affordable.any() else grid[:1]
    drawn_DN = surface.draws(compute, grid, problems_per_batch)
    gain = max(float(drawn_DN.mean(axis=0).max() - surface.parameters_DP[:, 0].mean()), 0.0)
    good_DN = drawn_DN.max(axis=1, keepdims=True) - drawn_DN <= NEAR_BEST * gain
    seen_DN = np.concatenate([np.zeros((len(drawn_DN), 1)), np.cumsum(good_DN, axis=1)], axis=1)
    for width in range(1, len(grid) + 1):
        held = np.mean(seen_DN[:, width:] - seen_DN[:, :-width] > 0, axis=0)
        first = int(np.argmax(held))
        if held[first] >= min(LEVEL_TO_MASS * level, 0.995) - 1e-9:
            return float(grid[first]), float(grid[first + width - 1])
    return float(grid[0]), float(grid[-1])


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
        on_grid=on_grid,
        probability_best=np.bincount(np.argmax(drawn_DN, axis=1), minlength=len(sizes)) / len(drawn_DN),
        expected_regret=(best_D - drawn_DN).mean(axis=0),
        gain_over=ahead_DN.mean(axis=0) / np.maximum(ahead_DN.std(axis=0), 1e-12),
    )
