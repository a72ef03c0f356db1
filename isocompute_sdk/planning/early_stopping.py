"""`prospects`: which runs of a pilot may still change the plan for the target budget."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.tolerances import MIN_LEVELS, MIN_UPDATES

LOOKS = (0.2, 0.5)
"""Parts of a run's way at which it is judged. A third look saves hardly more, and each look costs a restart."""
CHANCE = 0.07
"""Probability to be the best at the target below which a run is hopeless. The draws are too modest: on the same seeds
.5 % of the winners that trailed were lost by it, and 2 % by .1."""
TIED = 0.003
"""Share of the metric's range: a configuration has a share of a draw in proportion to exp(-loss / `TIED`). On the same
seeds this halved the lost winners at equal savings."""


@dataclass(frozen=True)
class Prospect:
    """What a pilot run may still become."""

    chance: float
    """Probability that its configuration is the best at the target budget, among those that are not hopeless."""
    hopeless: bool
    """Whether going on can no longer change the plan."""


def prospects(
    fits: Fits,
    runs: Sequence[tuple[int, int, float]],
    budget: float,
    ended: Collection[tuple[int, int]] = (),
) -> tuple[Prospect, ...]:
    """Which runs to stop, judged at the target budget and never at their current compute.

    Small n lead early and lose later; only what the draws of the surface predict at the target counts, compared within
    each draw. The least probable configuration is dropped first, then the others are compared again: of two that are
    equally good, one stays. Data of a stopped run still count in every fit.

    Args:
        fits: of all runs so far.
        runs: those that go on: group size, problems per batch, and rollouts so far.
        budget: the target, in rollouts: what the plan will spend.
        ended: (group size, problems per batch) of finished runs that were not stopped.

    Returns:
        One for each run, in the same order.

    Raises:
        PlanError: fits without a surface, no runs, or values that are not positive.
    """
    if fits.surface is None:
        raise PlanError(
            f"fits of method {fits.method!r} have no draws to judge a run by", "Fit with method='surface'."
        ).in_shell("Fit with --method surface.")
    if not runs or budget <= 0 or any(min(n, bp) <= 0 or done < 0 for n, bp, done in runs):
        raise PlanError(
            f"runs = {runs!r}, budget = {budget!r}; accepted: at least one (group size, problems per batch, rollouts "
            "so far), all positive",
            "Correct them.",
        )
    going = list(dict.fromkeys((n, bp) for n, bp, _ in runs))
    early = {(n, bp) for n, bp, done in runs if not _judged(fits, n, bp, done)}
    left = list(dict.fromkeys([*going, *ended]))
    able = set(left) - early
    size_J, problems_J = np.array(left, dtype=float).T
    reward_DJ = fits.surface.draws(np.full(len(left), float(budget)), size_J, problems_J)
    tied = TIED * (fits.surface.layout.top - fits.surface.layout.floor)
    dropped: dict[tuple[int, int], float] = {}
    while True:
        chances = dict(zip(left, _chances(reward_DJ, tied), strict=True))
        worst = min((one for one in left if one in able), key=lambda one: chances[one], default=None)
        if worst is None or chances[worst] >= CHANCE or len(left) == 1:
            break
        dropped[worst] = chances[worst]
        reward_DJ = np.delete(reward_DJ, left.index(worst), axis=1)
        left.remove(worst)
    return tuple(Prospect((chances | dropped)[n, bp], (n, bp) in dropped) for n, bp, _ in runs)


def _chances(reward_DJ: Array, tied: float) -> list[float]:
    """Share of the draws in which each is the best; those that are nearly as good share a draw."""
    weight_DJ = np.exp((reward_DJ - reward_DJ.max(axis=1, keepdims=True)) / tied)
    return (weight_DJ / weight_DJ.sum(axis=1, keepdims=True)).mean(axis=0).tolist()


def _judged(fits: Fits, n: int, problems: int, done: float) -> bool:
    """Whether a run and its rivals have gone far enough."""
    seen = sum(1 for (_, bp), curve in fits.curves.items() if bp in (None, problems) and curve.last_compute >= done / 2)
    return done >= MIN_UPDATES * n * problems and seen >= MIN_LEVELS
