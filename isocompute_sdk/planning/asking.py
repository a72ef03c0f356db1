"""A planner asked again and again: plans by amount, and what the fits' draws say of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting import arguments
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.contrast import Estimate, Place, draws_at, estimate
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.specs import Budget

if TYPE_CHECKING:
    from isocompute_sdk.planning.planner import Planner

FAR = 10.0
"""Beyond this many times the largest compute seen nothing is promised."""


@dataclass
class Asking:
    """One planner with fixed options, asked for many amounts of one unit."""

    planner: Planner
    options: Mapping[str, Any]
    like: Budget
    """Gives unit and deadline."""
    plans: dict[float, Plan | None] = field(default_factory=dict[float, Plan | None])

    def __post_init__(self) -> None:
        if not self.planner.fits.curves:
            raise PlanError(
                f"these fits ({self.planner.fits.source or self.planner.fits.method}) predict no rewards, only group "
                "sizes",
                "Fit runs of your own: their curves say what a budget buys.",
            )

    def plan(self, amount: float) -> Plan | None:
        """The plan for an amount, all of it spent; None where it is too small for any."""
        if amount not in self.plans:
            try:
                budget = self.like.replace(**{self.like.unit: amount})
                self.plans[amount] = self.planner.allocate(budget, **self._spending)
            except PlanError as error:
                if error.smallest_budget is None:
                    raise
                self.plans[amount] = None
        return self.plans[amount]

    @property
    def _spending(self) -> dict[str, Any]:
        return {"spend": "all", **self.options}

    def known(self, amount: float) -> Plan:
        """The plan for an amount that must have one, with a predicted reward.

        Raises:
            PlanError: too small, or no reward can be predicted.
        """
        budget = self.like.replace(**{self.like.unit: amount})
        plan = self.planner.allocate(budget, **self._spending)
        if plan.predicted_reward is None:
            raise PlanError(
                f"no reward is predicted for this plan (n = {plan.group_size}, model {plan.model}, {plan.metric})",
                "Fit runs of this model and metric.",
            )
        return plan


def compute_of(plan: Plan) -> float:
    """A plan's compute on the axis of its fits."""
    fits = fits_of(plan)
    return float(plan.costs["tokens"] if fits.compute == "log10_tokens" else plan.rollouts)


def fits_of(plan: Plan) -> Fits:
    """The fits that a plan was made from."""
    assert plan.fits is not None, "a plan that was just made carries its fits"
    return plan.fits


def place_of(fits: Fits, compute: float, group_size: int, problems_per_batch: int) -> Place:
    """Where a surface is asked for a configuration: B_p at most an octave outside those that were run."""
    return Place(compute, float(group_size), fits.reachable_problems_per_batch(problems_per_batch))


def reward_draws(fits: Fits, compute: float, group_size: int, problems_per_batch: int) -> Array:
    """Rewards of a configuration by draw; the one prediction where the fits have no paired draws.

    Raises:
        FitError: a group size outside what the fits can answer for.
    """
    predicted = fits.predict(compute, group_size, problems_per_batch)
    if fits.surface is None:
        return np.array([float(predicted.mean)])
    return draws_at(fits.surface, place_of(fits, compute, group_size, problems_per_batch))


def plan_draws(plan: Plan) -> Array:
    """Rewards of a plan by draw."""
    return reward_draws(fits_of(plan), compute_of(plan), plan.group_size, plan.problems_per_batch)


def between(fits: Fits, drawn_D: Array, level: float) -> Estimate:
    """Mean and interval of draws; NaN ends where there is only one."""
    if fits.surface is None:
        return Estimate(float(drawn_D.mean()), math.nan, math.nan)
    return estimate(drawn_D, level)


def plain(value: Estimate | None) -> dict[str, float | None] | None:
    """JSON form: an end that is not known is None."""
    if value is None:
        return None
    return {name: part if math.isfinite(part) else None for name, part in value._asdict().items()}


def check_level(level: float) -> None:
    """Refuse a coverage that is none."""
    try:
        arguments.check_level(level)
    except FitError as error:
        raise PlanError(error.message, error.hint) from None
