"""Plans of one planner for many budgets in one unit, each made once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from isocompute_sdk.documents import Converted
from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting import arguments
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers import Estimate, estimate
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.specs import Budget


@dataclass(frozen=True)
class PlansByBudget:
    """Plans by amount, all of each amount spent.

    Raises:
        PlanError: fits without rewards.
    """

    fits: Fits
    allocate: Callable[[Budget], Plan]
    like: Budget
    """Gives unit, deadline and spending; its amount is replaced."""
    level: float = 0.8
    """Coverage of intervals."""
    _plans: dict[float, Plan | None] = field(default_factory=dict[float, Plan | None])

    def __post_init__(self) -> None:
        try:
            arguments.check_level(self.level)
        except FitError as error:
            raise PlanError(error.message, error.hint) from None
        if not self.fits.curves:
            raise PlanError(
                f"these fits ({self.fits.source or self.fits.method}) predict no rewards, only group sizes",
                "Fit runs of your own: their curves predict what a budget buys.",
            )

    def plan(self, amount: float) -> Plan | None:
        """The plan for an amount; None if it is too small for any."""
        if amount not in self._plans:
            self._plans[amount] = plan_if_enough(self.allocate, self.like.with_amount(amount))
        return self._plans[amount]

    def predicted(self, amount: float) -> Plan:
        """The plan for an amount, with a predicted reward.

        Raises:
            PlanError: the amount is too small, or no reward can be predicted.
        """
        plan = self.allocate(self.like.with_amount(amount))
        if plan.predicted_reward is None:
            raise PlanError(
                f"no reward is predicted for this plan (n = {plan.group_size}, model {plan.model}, {plan.metric})",
                "Fit runs of this model and metric.",
            )
        return plan

    def smallest(self) -> float:
        """Smallest amount that pays for a plan, rounded up to whole rollouts or tokens.

        Raises:
            PlanError: no amount does.
        """
        tiny = 1e-6
        try:
            self.allocate(self.like.with_amount(tiny))
        except PlanError as error:
            if error.smallest_budget is None:
                raise
            least = error.smallest_budget * (1 + 1e-9)
            return math.ceil(least) if self.like.unit in ("rollouts", "tokens") else least
        return tiny

    def between(self, drawn_D: Array) -> Estimate:
        """Mean and interval of draws; the ends are NaN if the fits have no paired draws."""
        if self.fits.surface is None:
            return Estimate(float(drawn_D.mean()), math.nan, math.nan)
        return estimate(drawn_D, self.level)


def plan_if_enough(allocate: Callable[[Budget], Plan], budget: Budget) -> Plan | None:
    """The plan for a budget; None if it is too small for any.

    Raises:
        PlanError: no budget would do.
    """
    try:
        return allocate(budget)
    except PlanError as error:
        if error.smallest_budget is None:
            raise
        return None


def _to_json(value: Estimate) -> dict[str, float | None]:
    return {name: part if math.isfinite(part) else None for name, part in value._asdict().items()}


def _from_json(raw: dict[str, float | None]) -> Estimate:
    return Estimate(*(math.nan if (part := raw[name]) is None else float(part) for name in Estimate._fields))


SAVED_ESTIMATE = Converted(_to_json, _from_json)
"""Saves an `Estimate` by name, an unknown end as null."""
SAVED_PLAN = Converted(lambda plan: plan.to_dict(with_fits=False), Plan.from_dict)
"""Saves a plan without its fits."""
