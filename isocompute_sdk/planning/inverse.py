"""The inverse of a plan: the smallest budget whose plan is predicted to reach a reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.asking import FAR, Asking, check_level, compute_of, fits_of
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.specs import Budget

if TYPE_CHECKING:
    from isocompute_sdk.planning.planner import Planner

SCHEMA_VERSION = 1
TOLERANCE = 0.01
"""Relative width to which a budget is narrowed down."""
PER_DECADE = 4


@dataclass(frozen=True)
class BudgetFor:
    """What a reward costs."""

    reward: float
    """What was asked for."""
    metric: str
    level: float
    """Coverage of the interval that `optimistic` and `conservative` are the ends of."""
    unit: str
    expected: float | None
    """Smallest budget whose plan is predicted to reach the reward; None where no budget looked at does."""
    optimistic: float | None
    """Where the upper end of the plan's interval reaches it; None as well where the fits give no intervals."""
    conservative: float | None
    """Where the lower end does: a budget that suffices unless the prediction is off by more than its interval."""
    plan: Plan | None
    """The plan for the expected budget."""
    base_reward: float
    """Predicted reward before any training."""
    largest: float
    """Largest budget that was looked at: about ten times what the runs were seen at."""
    largest_reward: float
    """Predicted reward of the plan for that budget, and the upper end of its interval."""
    largest_reward_high: float
    has_interval: bool = True
    """False where the fits give no intervals (published laws)."""
    notes: tuple[Note, ...] = ()

    @property
    def reachable(self) -> bool:
        """Whether any budget looked at is predicted to do."""
        return self.expected is not None

    def summary(self) -> str:
        """The answer as text."""
        wanted = f"{self.metric} {self.reward:g}"
        lines = [_answer(self, wanted)]
        if self.expected is not None and self.has_interval:
            low = "less than any plan costs" if self.optimistic is None else amount_text(self.optimistic, self.unit)
            high = (
                f"more than {amount_text(self.largest, self.unit)}: not within reach for sure"
                if self.conservative is None
                else amount_text(self.conservative, self.unit)
            )
            lines += [f"optimistic    {low}", f"expected      {amount_text(self.expected, self.unit)}"]
            lines += [f"conservative  {high}   (ends of the plan's {self.level:.0%} interval)"]
        elif self.expected is not None:
            lines.append("no interval: these fits give none")
        if self.plan is not None:
            p = self.plan
            lines.append(
                f"plan          n = {p.group_size}, B_p = {p.problems_per_batch}, M = {p.update_steps:,}: "
                f"{p.rollouts:,} rollouts, predicted {p.predicted_reward:.3f}"
            )
        lines += [f"[{note.severity}] {note.code}: {note.message}" for note in self.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        values = {k: v for k, v in vars(self).items() if k not in ("plan", "notes")}
        return {
            "kind": "budget-for",
            "schema_version": SCHEMA_VERSION,
            **values,
            "reachable": self.reachable,
            "plan": None if self.plan is None else self.plan.to_dict(with_fits=False),
            "notes": [note.to_dict() for note in self.notes],
        }


def _answer(found: BudgetFor, wanted: str) -> str:
    if found.reward <= found.base_reward:
        return f"{wanted} needs no training: the base model is predicted at {found.base_reward:.3f}"
    if found.expected is not None:
        return f"{wanted} is predicted to cost {amount_text(found.expected, found.unit)}"
    end = f"the plan for {amount_text(found.largest, found.unit)} is predicted at {found.largest_reward:.3f}"
    if found.largest_reward_high < found.reward:
        return (
            f"{wanted} is not within reach of these runs' model and recipe at any budget looked at: {end}, at most "
            f"{found.largest_reward_high:.3f}"
        )
    return f"{wanted} is not predicted at any budget looked at, though not excluded: {end}, up to " + (
        f"{found.largest_reward_high:.3f}"
    )


def budget_for(planner: Planner, reward: float, level: float, unit: str, options: dict[str, Any]) -> BudgetFor:
    """See `Planner.budget_for`."""
    check_level(level)
    low, high = planner.fits.bounds
    value = cast("Any", reward)
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not low <= value <= high:
        raise PlanError(
            f"reward = {reward!r}; accepted: within the metric's range, {low:g} to {high:g}",
            "Ask for a reward within it.",
        )
    asking = Asking(planner, options, Budget.model_validate({unit: 1.0}))
    least, most = _ends(asking)

    def predicted(amount: float) -> tuple[float, float, float]:
        plan = asking.plan(amount)
        if plan is None or plan.predicted_reward is None:
            return -math.inf, -math.inf, -math.inf
        at = fits_of(plan).predict(compute_of(plan), plan.group_size, plan.problems_per_batch, level)
        mean = float(at.mean)
        return mean, float(at.low), float(at.high)

    base = _base_reward(planner)
    at_most = predicted(most)
    has_interval = not math.isnan(at_most[1])
    sought = (0, 1, 2) if has_interval else (0,)
    found = {
        i: _smallest(lambda amount, i=i: predicted(amount)[i] >= reward, least, most) if base < reward else None
        for i in sought
    }
    expected = found[0]
    plan = None if expected is None else asking.plan(expected)
    return BudgetFor(
        reward=reward,
        metric=planner.fits.metric,
        level=level,
        unit=unit,
        expected=expected,
        optimistic=found.get(2),
        conservative=found.get(1),
        plan=plan,
        base_reward=base,
        largest=most,
        largest_reward=at_most[0],
        largest_reward_high=at_most[2] if has_interval else at_most[0],
        has_interval=has_interval,
        notes=() if plan is None else tuple(note for note in plan.notes if note.severity != "info"),
    )


def _base_reward(planner: Planner) -> float:
    """Predicted reward without training: the lowest of the curves just above no compute."""
    return min(float(curve.plateau - curve.rise) for curve in planner.fits.curves.values())


def _ends(asking: Asking) -> tuple[float, float]:
    """Smallest budget that buys a plan, and the one that reaches `FAR` times the largest compute seen."""
    try:
        asking.planner.allocate(asking.like.replace(**{asking.like.unit: 1e-6}), **asking.options)
        least = 1e-6
    except PlanError as error:
        if error.smallest_budget is None:
            raise
        least = error.smallest_budget * (1 + 1e-9)
        least = math.ceil(least) if asking.like.unit in ("rollouts", "tokens") else least
    seen = asking.planner.fits.largest_compute
    assert seen is not None, "curves were observed somewhere"
    most = least
    while True:
        plan = asking.plan(most)
        if plan is not None and compute_of(plan) >= FAR * seen:
            return least, most
        if plan is not None:
            # Costs grow about as compute does; a little more never takes long to get there.
            most *= max(min(FAR * seen / compute_of(plan), 4.0), 1.2)
        else:
            most *= 2.0


def _smallest(enough: Callable[[float], bool], least: float, most: float) -> float | None:
    """Smallest amount that is enough, within the tolerance; None where not even the largest is.

    A plan's prediction dips a little where its n changes with the budget: there up to a tenth less may do as well.
    """
    count = max(math.ceil(math.log10(most / least) * PER_DECADE), 1)
    grid = [least * (most / least) ** (i / count) for i in range(count + 1)]
    first = next((i for i, amount in enumerate(grid) if enough(amount)), None)
    if first is None:
        return None
    if first == 0:
        return grid[0]
    low, high = grid[first - 1], grid[first]
    while high / low > 1 + TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
