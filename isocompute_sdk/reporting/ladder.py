"""Plans for a range of budgets, each made as `Planner.allocate` makes it: what the slider of a report picks from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.specs import Budget

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
        here = plan.budget.amount
        low = max(here / BELOW, plan.budget.committed * 1.01)
        try:
            planner.allocate(like(plan.budget, low), **options)
        except PlanError as error:
            low = max(low, error.smallest_budget or low)
        grid = np.geomspace(min(low, here), here * ABOVE, STEPS)
        rungs = {here: Rung(here, plan)}
        for amount in sorted({float(f"{value:.3g}") for value in grid} - {here}):
            try:
                rungs[amount] = Rung(amount, planner.allocate(like(plan.budget, amount), **options))
            except PlanError as error:
                if error.smallest_budget is None:
                    raise
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


def like(budget: Budget, amount: float) -> Budget:
    """A budget with another amount, everything else the same."""
    return budget.replace(**{budget.unit: amount})
