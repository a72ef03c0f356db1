"""`hopeless`: whether going on with a pilot run can still change the plan for the target budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.fits import Fits

NEAR = 0.02
"""Share of the metric's range within which a configuration counts as near to the best."""
CHANCE = 0.2
"""Probability of being that near at the target below which a run is hopeless. The draws are too modest: on simulated
pilots (tuning seeds of benchmarks/decisions/early_stopping.py) this stopped 1.3 % of the winners that trailed, .3 three
times as many."""
FEWEST_STEPS = 20
"""Update steps before which no run is judged: it has hardly left its warm-up."""
FEWEST_LEVELS = 3
"""Group sizes that must have been run as far: fewer leave the dependence on n to the prior."""


@dataclass(frozen=True)
class Prospect:
    """What a pilot run may still become. True in a condition if it is hopeless."""

    chance: float
    """Probability that its configuration comes near to the best n at the target budget."""
    judged: bool
    """Whether the run and its rivals have gone far enough to be judged."""

    @property
    def hopeless(self) -> bool:
        """Whether going on can no longer change the plan."""
        return self.judged and self.chance < CHANCE

    def __bool__(self) -> bool:
        """As `hopeless`."""
        return self.hopeless


def hopeless(fits: Fits, run: tuple[int, int, float], budget: float) -> Prospect:
    """Whether to stop a pilot run, judged at the target budget and never at its current compute.

    Small n lead early and lose later; only what the draws of the surface predict at the target counts. The data of a
    stopped run still count in every fit.

    Args:
        fits: of all runs so far, this one included.
        run: its group size, problems per batch, and rollouts so far.
        budget: the target, in rollouts: what the plan will spend.

    Raises:
        PlanError: fits without a surface, or values that are not positive.
    """
    if fits.surface is None:
        raise PlanError(
            f"fits of method {fits.method!r} have no draws to judge a run by", "Fit with method='surface'."
        ).in_shell("Fit with --method surface.")
    n, problems, done = run
    if min(n, problems, budget) <= 0 or done < 0:
        raise PlanError(
            f"run = {run!r}, budget = {budget!r}; accepted: (group size, problems per batch, rollouts so far), all "
            "positive",
            "Correct them.",
        )
    surface = fits.surface
    smallest, largest = fits.group_size_range
    sizes = sorted({2**k for k in range(1, 31) if smallest <= 2**k <= largest} | set(fits.group_sizes) | {n})
    reward_DN = surface.draws(np.full(len(sizes), float(budget)), np.array(sizes, dtype=float), float(problems))
    near = NEAR * (surface.layout.top - surface.layout.floor)
    loss_D = reward_DN.max(axis=1) - reward_DN[:, sizes.index(n)]
    seen = sum(1 for (_, bp), curve in fits.curves.items() if bp in (None, problems) and curve.last_compute >= done / 2)
    judged = done >= FEWEST_STEPS * n * problems and seen >= FEWEST_LEVELS
    return Prospect(float(np.mean(loss_D <= near)), judged)
