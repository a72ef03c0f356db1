"""Plans for a range of budgets, each made as `Planner.allocate` makes it: what the slider of a report picks from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.planning.questions import plan_if_enough

STEPS = 80
"""Budgets besides that of the page."""
BELOW, ABOVE = 30.0, 6.0
"""The budgets reach from this part of the page's budget to this multiple of it."""


@dataclass(frozen=True)
class Rung:
    """One budget and the plan for it."""

    amount: float
    plan: Plan


@dataclass(frozen=True)
class Ladder:
    """Plans by increasing budget, in the unit of the page's budget."""

    rungs: tuple[Rung, ...]
    start: int
    """Position of the page's own budget."""

    @classmethod
    def around(cls, plan: Plan, planner: Planner, options: Mapping[str, Any]) -> Ladder:
        """Plans around one plan, which is among them. Amounts are round, so that people can type them."""
        here, allocate = plan.budget.amount, partial(planner.allocate, **options)
        low = max(here / BELOW, plan.budget.committed * 1.01)
        try:
            allocate(plan.budget.with_amount(low))
        except PlanError as error:
            low = max(low, error.smallest_budget or low)
        grid = np.geomspace(min(low, here), here * ABOVE, STEPS)
        rungs = {here: Rung(here, plan)}
        for amount in sorted({float(f"{value:.3g}") for value in grid} - {here}):
            found = plan_if_enough(allocate, plan.budget.with_amount(amount))
            if found is not None:
                rungs[amount] = Rung(amount, found)
        ordered = [rungs[amount] for amount in sorted(rungs)]
        return cls(tuple(ordered), [one.amount for one in ordered].index(here))

    @property
    def unit(self) -> str:
        """Unit of the budgets."""
        return self.rungs[0].plan.budget.unit

    @cached_property
    def rewards(self) -> bool:
        """Whether rewards are predicted."""
        return all(rung.plan.predicted_reward is not None for rung in self.rungs)
