"""How sure the best group size is: probability of being best and expected regret of every n at one compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.surface import Surface

PER_SQUARED_OCTAVE = 0.5
"""Share of the doubt that a candidate is charged per squared octave from where each draw has its good n, on average
over draws. The doubt is what the best single n is expected to lose for want of knowing which draw is true: without
doubt nothing is charged. Draws put the best n now at one end of the grid, now at the other, where the truth mostly lies
between: on simulated sweeps (tuning seeds of benchmarks/decisions/allocation.py) expected reward alone lost a tenth
more."""
SPREAD = 1.0
"""In each draw an n counts for where the good ones lie by exp(-loss / (`SPREAD` doubt)). On the same sweeps 0.5 did as
well, and 2 lost .001 to .002 more at 3x to 30x."""
NEAR_BEST = 0.0125
"""Share of the gain within which an n counts as good as the best of a draw: then sets hold an n within .005 of the true
best about as often as they say, on the same sweeps."""
NEAR = 0.01
"""Share of the metric's range within which a reward counts as equal to the best of a draw."""
DOUBT_COMES_TRUE = (0.32, 0.4, 0.47)
"""Share of the doubt that was lost on simulated tasks, with its 95 % interval: draws disagree more than the truth
allows. About the same at all distances, for wide, narrow and designed sweeps (`benchmarks/decisions/next_runs.py`,
tuning seeds; docs/pilot.md)."""
UNSEEN_COMES_TRUE = (0.75, 0.9, 1.05)
"""The same of what draws say that n more than an octave above the runs gain."""
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
    """Share of the draws in which this n is the best, one octave above the grid included where the budget leaves it
    enough updates: the sum may be less than 1."""
    expected_regret: Array
    """Reward expected to be lost against the best n, the same octave included (`expected_loss`)."""
    near_best: Array
    """Share of the draws in which this n loses at most `NEAR` of the metric's range against the best n."""
    on_grid: npt.NDArray[np.bool_]
    """False above the largest n that was run."""
    probability_above: float
    """Share of the draws in which the octave above the grid is the best."""
    doubt: float
    """Expected regret of the best single n, one octave above the grid included where the budget leaves it enough
    updates."""
    squared_octaves: Array
    """Mean over draws of the squared distance, in octaves, to the centre of the n that are good there (`SPREAD`), of
    the same n as for `doubt`."""

    def best(self, *, conservative: bool = False) -> int:
        """Position of the n to choose: large expected reward, near to what the draws call good.

        Each squared octave from the centre of a draw's good n costs `PER_SQUARED_OCTAVE` of the doubt. Conservative:
        no n above the grid, unless all are.
        """
        score = np.round(self.reward - PER_SQUARED_OCTAVE * self.doubt * self.squared_octaves, 12)
        if conservative and self.on_grid.any():
            score[~self.on_grid] = -np.inf
        return int(np.argmax(score))


def expected_loss(behind: Array, doubt: float, unseen: float = 0.0) -> tuple[Array, Array, Array]:
    """Reward expected to be lost against the best n: lower end, mean and upper end by what came true.

    Args:
        behind: how far the expected reward of an n is behind the best expected reward.
        doubt: by how much the best reward of each draw is ahead of the best expected reward, on average.
        unseen: how much further ahead n are that no run is near to, on average.
    """
    low, mean, high = (
        behind + share * doubt + above * unseen
        for share, above in zip(DOUBT_COMES_TRUE, UNSEEN_COMES_TRUE, strict=True)
    )
    return low, mean, high


def best_size_interval(
    surface: Surface, compute: float, sizes: tuple[float, float], problems_per_batch: float | None, level: float
) -> tuple[float, float]:
    """Smallest range of n around the one expected to be best that holds, with this probability, a best one.

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
    on_grid = sizes <= largest_on_grid
    asked_N, reward_DN = _with_octave_above(surface, compute, sizes, problems_per_batch, largest_on_grid, drawn_DN)
    best_D = reward_DN.max(axis=1, keepdims=True)
    loss_DN = best_D - reward_DN
    doubt = float(loss_DN.mean(axis=0).min())
    behind = (best_D - drawn_DN).mean(axis=0) - doubt
    centre_D = _centres(np.log2(asked_N), loss_DN, doubt)
    chance_N = np.bincount(np.argmax(reward_DN, axis=1), minlength=len(asked_N)) / len(drawn_DN)
    return GroupSizeOdds(
        compute=compute,
        group_size=sizes,
        reward=reward,
        spread=drawn_DN.std(axis=0),
        near_best=np.mean(best_D - drawn_DN <= NEAR * (surface.layout.top - surface.layout.floor), axis=0),
        on_grid=on_grid,
        probability_best=chance_N[: len(sizes)],
        probability_above=float(chance_N[asked_N > largest_on_grid].sum()),
        expected_regret=expected_loss(behind, doubt)[1],
        doubt=doubt,
        squared_octaves=np.mean((np.log2(sizes)[None, :] - centre_D[:, None]) ** 2, axis=0),
    )


def _centres(octave_N: Array, loss_DN: Array, doubt: float) -> Array:
    """Per draw, the mean log2 n of the sizes that are good there, each for the octaves that it stands for."""
    weight_DN = np.exp(-loss_DN / max(SPREAD * doubt, 1e-12))
    if len(octave_N) > 1:
        weight_DN *= np.maximum(np.gradient(octave_N), 1e-9)
    return np.asarray((weight_DN @ octave_N) / weight_DN.sum(axis=1), dtype=float)


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
    if not tops_grid or above * bp * FEWEST_UPDATES > compute:
        return sizes, drawn_DN
    return np.append(sizes, above), np.hstack([drawn_DN, surface.draws(compute, above, problems_per_batch)])
