"""How sure the best group size is: probability of being best and expected regret of every n at one compute."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.least_squares import Mask
from isocompute_sdk.fitting.surface.surface import Surface, mean_and_interval
from isocompute_sdk.tolerances import MIN_UPDATES, Tolerances

STEPS_PER_OCTAVE = 4
MIN_TRAINED = 5
"""An n that leaves fewer updates is no candidate for the best."""


@dataclass(frozen=True)
class GroupSizeOdds:
    """What the fits know about every candidate n at one compute. Arrays have one entry per group size."""

    compute: float
    group_size: npt.NDArray[np.int64]
    reward: Array
    """Expected reward."""
    probability_best: Array
    """Share of the draws in which this n is the best, one octave above the grid included where the budget leaves it
    enough updates: the sum may be less than 1."""
    expected_regret: Array
    """Reward expected to be lost against the best n of each draw, the same octave included."""
    near_best: Array
    """Share of the draws in which this n is equal to the best n (`Tolerances.equal`)."""
    on_grid: npt.NDArray[np.bool_]
    """False above the largest n that was run."""
    above_ahead: float
    """Share of the draws in which it is ahead of all others by more than equal."""

    def best(self) -> int:
        """Position of the n with the largest expected reward."""
        return int(np.argmax(np.round(self.reward, 12)))


def best_size_interval(
    surface: Surface, compute: float, sizes: tuple[float, float], level: float
) -> tuple[float, float]:
    """Smallest range of n around the one expected to be best that holds, with this probability, a best one.

    Args:
        surface: the fit; asked at the smallest B_p that was run.
        compute: the budget.
        sizes: smallest and largest n allowed.
        level: coverage asked for.
    """
    low, high = np.log2(sizes)
    grid = 2.0 ** np.linspace(low, high, max(int(np.ceil((high - low) * STEPS_PER_OCTAVE)), 1) + 1)
    affordable = grid * surface.layout.problems_reference * MIN_TRAINED <= compute
    grid = grid[affordable] if affordable.any() else grid[:1]
    drawn_DN = surface.draws(compute, grid)
    close = surface.tolerances.nothing
    good_DN = drawn_DN.max(axis=1, keepdims=True) - drawn_DN <= close
    seen_DN = np.concatenate([np.zeros((len(drawn_DN), 1)), np.cumsum(good_DN, axis=1)], axis=1)
    expected = int(np.argmax(drawn_DN.mean(axis=0)))
    for width in range(1, len(grid) + 1):
        lowest = max(expected - width + 1, 0)
        held = np.mean(seen_DN[:, width:] - seen_DN[:, :-width] > 0, axis=0)[lowest : expected + 1]
        first = lowest + int(np.argmax(held))
        if held.max() >= level - 1e-9:
            return float(grid[first]), float(grid[first + width - 1])
    return float(grid[0]), float(grid[-1])


def group_size_odds(
    surface: Surface,
    compute: float,
    group_sizes: npt.ArrayLike,
    problems_per_batch: float | None,
    largest_on_grid: int,
) -> GroupSizeOdds:
    """Ask the surface about several n at once.

    Args:
        surface: the fit.
        compute: the budget.
        group_sizes: candidates, increasing.
        problems_per_batch: B_p of all of them; None for the smallest that was run.
        largest_on_grid: largest n that was run.
    """
    sizes = np.asarray(group_sizes, dtype=np.int64)
    drawn_DN = surface.draws(np.full(len(sizes), compute), sizes, problems_per_batch)
    return odds_of_draws(surface, compute, sizes, problems_per_batch, largest_on_grid, drawn_DN)


def odds_of_draws(
    surface: Surface,
    compute: float,
    sizes: npt.NDArray[np.int64],
    problems_per_batch: float | None,
    largest_on_grid: int,
    drawn_DN: Array,
) -> GroupSizeOdds:
    """The odds of candidates whose rewards were drawn; arguments as of `group_size_odds`."""
    reward = drawn_DN.mean(axis=0)
    on_grid = sizes <= largest_on_grid
    asked_N, reward_DN = _with_octave_above(surface, compute, sizes, problems_per_batch, largest_on_grid, drawn_DN)
    best_D = reward_DN.max(axis=1, keepdims=True)
    equal = surface.tolerances.equal
    above_N = asked_N > largest_on_grid
    ahead_D = reward_DN[:, above_N].max(axis=1, initial=-np.inf) - reward_DN[:, ~above_N].max(axis=1, initial=-np.inf)
    chance_N = np.bincount(np.argmax(reward_DN, axis=1), minlength=len(asked_N)) / len(drawn_DN)
    return GroupSizeOdds(
        compute=compute,
        group_size=sizes,
        reward=reward,
        near_best=np.mean(best_D - drawn_DN <= equal, axis=0),
        on_grid=on_grid,
        probability_best=chance_N[: len(sizes)],
        above_ahead=float(np.mean(ahead_D > equal)) if above_N.any() else 0.0,
        expected_regret=(best_D - drawn_DN).mean(axis=0),
    )


def _with_octave_above(
    surface: Surface,
    compute: float,
    sizes: npt.NDArray[np.int64],
    problems_per_batch: float | None,
    largest_on_grid: int,
    drawn_DN: Array,
) -> tuple[npt.NDArray[np.int64], Array]:
    """The candidates with the octave above a grid that they reach the top of, and the rewards of all of them."""
    above = 2 * largest_on_grid
    bp = surface.layout.problems_reference if problems_per_batch is None else problems_per_batch
    tops_grid = largest_on_grid < 2 * sizes.max() <= above
    if not tops_grid or above * bp * MIN_TRAINED > compute:
        return sizes, drawn_DN
    return np.append(sizes, above), np.hstack([drawn_DN, surface.draws(compute, above, problems_per_batch)])


def planned_of(reward_J: Array, was_run_J: Sequence[bool], tolerances: Tolerances) -> int:
    """Position of the largest expected reward; an n that was not run must be better as rewards are shown."""
    shown_J, exact_J = tolerances.shown(reward_J), np.round(reward_J, 12)
    return max(range(len(reward_J)), key=lambda j: (shown_J[j], was_run_J[j], exact_J[j]))


def chosen_sizes(
    surface: Surface,
    compute_T: Array,
    group_sizes: Sequence[int],
    were_run: Collection[int],
    problems_per_batch: Sequence[int | None],
    *,
    in_rollouts: bool,
) -> Array:
    """The n that a plan chooses at each budget, shape (T,), by the expected reward of whole steps (`planned_of`).

    Args:
        surface: the fit.
        compute_T: budgets, positive.
        group_sizes: candidates, increasing.
        were_run: group sizes that were run.
        problems_per_batch: B_p to choose from, increasing; None for the smallest that was run.
        in_rollouts: whether compute counts rollouts, so that a plan spends whole steps of it.
    """
    reference = surface.layout.problems_reference
    levels = np.array([reference if bp is None else bp for bp in problems_per_batch], dtype=float)
    problems_J, sizes_J = (axis.ravel() for axis in np.meshgrid(levels, np.asarray(group_sizes), indexing="ij"))
    batch_J = problems_J * sizes_J
    chosen_T = np.full(len(compute_T), float(group_sizes[0]))
    for t, compute in enumerate(compute_T.tolist()):
        steps_J = np.floor(compute / batch_J + 1e-9)
        able_J = steps_J >= MIN_UPDATES if in_rollouts else np.ones(len(batch_J), dtype=bool)
        if able_J.any():
            spent_J = (steps_J * batch_J)[able_J] if in_rollouts else np.full(len(batch_J), compute)
            reward_J = surface.predict(spent_J, sizes_J[able_J], problems_J[able_J])
            able = sizes_J[able_J].tolist()
            chosen_T[t] = able[planned_of(reward_J, [n in were_run for n in able], surface.tolerances)]
    return chosen_T


class Estimate(NamedTuple):
    """A number with an interval."""

    mean: float
    low: float
    high: float


def estimate(drawn_D: npt.ArrayLike, level: float = 0.8) -> Estimate:
    """Mean and interval of draws.

    Args:
        drawn_D: draws of one number, shape (D,).
        level: coverage asked for.
    """
    return Estimate(*(float(one) for one in mean_and_interval(np.asarray(drawn_D, dtype=float), level)))


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
