"""The smallest budget whose plan is predicted to reach a reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import numpy as np

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.surface.answers import Estimate
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.plan import GIVEN_FIELDS, Plan
from isocompute_sdk.planning.plans_by_budget import SAVED_ESTIMATE, SAVED_PLAN, PlansByBudget
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.specs import Budget
from isocompute_sdk.tolerances import Tolerances

TOLERANCE = 0.01
"""Relative width to which a budget is narrowed down."""
PER_DECADE = 4
"""Budgets tried in every factor of ten."""
REACH = 10.0
"""Budgets are tried up to this many times the largest compute seen."""


@dataclass(frozen=True)
class BudgetFor(Saved):
    """What a reward costs; amounts are in `unit`."""

    reward: float
    """The reward asked for."""
    metric: str
    level: float
    """Coverage of the interval whose ends are `optimistic` and `conservative`."""
    unit: str
    expected: float | None
    """Smallest budget whose plan is predicted to reach the reward; None if no budget up to `largest` does."""
    optimistic: float | None
    """Smallest budget at which the upper end of the plan's interval reaches it; None also without intervals."""
    conservative: float | None
    """The same for the lower end: it suffices unless the prediction is off by more than its interval."""
    plan: Annotated[Plan, SAVED_PLAN] | None
    """The plan for the expected budget."""
    base_reward: float
    """Predicted reward before any training."""
    largest: float
    """Largest budget that was tried: about ten times the largest compute seen."""
    largest_reward: float
    """Predicted reward of the plan for that budget."""
    largest_reward_high: float
    """Upper end of its interval; without intervals the prediction itself."""
    has_interval: bool = True
    """False if the fits give no intervals."""
    notes: tuple[Note, ...] = ()

    @property
    def reachable(self) -> bool:
        """Whether a budget up to `largest` is predicted to reach the reward."""
        return self.expected is not None

    def summary(self) -> str:
        """The answer as text."""
        wanted = f"{self.metric} {self.reward:g}"
        lines = [_budget_sentence(self, wanted)]
        if self.expected is not None and self.has_interval:
            low = "less than any plan costs" if self.optimistic is None else amount_text(self.optimistic, self.unit)
            high = (
                f"more than {amount_text(self.largest, self.unit)}: not certain within the budgets tried"
                if self.conservative is None
                else amount_text(self.conservative, self.unit)
            )
            lines += [f"optimistic    {low}", f"expected      {amount_text(self.expected, self.unit)}"]
            lines += [f"conservative  {high}   (ends of the plan's {self.level:.0%} interval)"]
        elif self.expected is not None:
            lines.append("no interval: these fits have none")
        if self.plan is not None:
            p = self.plan
            lines.append(
                f"plan          n = {p.group_size}, B_p = {p.problems_per_batch}, M = {p.update_steps:,}: "
                f"{p.rollouts:,} rollouts, predicted {p.predicted_reward:.3f}"
            )
        lines += [f"[{note.severity}] {note.code}: {note.message}" for note in self.notes]
        return "\n".join(lines)


BUDGET_FOR = Document("budget-for", 1, BudgetFor, derived=("reachable",))


def _budget_sentence(found: BudgetFor, wanted: str) -> str:
    if found.reward <= found.base_reward:
        return f"{wanted} needs no training: the base model is predicted at {found.base_reward:.3f}"
    if found.expected is not None:
        return f"{wanted} is predicted to cost {amount_text(found.expected, found.unit)}"
    end = f"the plan for {amount_text(found.largest, found.unit)} is predicted at {found.largest_reward:.3f}"
    if found.largest_reward_high < found.reward:
        return (
            f"{wanted} is out of reach of this model and recipe at every budget tried: {end}, at most "
            f"{found.largest_reward_high:.3f}"
        )
    return f"{wanted} is not predicted at any budget tried, but not excluded: {end}, up to " + (
        f"{found.largest_reward_high:.3f}"
    )


def budget_for(plans: PlansByBudget, reward: float) -> BudgetFor:
    """The smallest budget, in the unit of `plans`, whose plan is predicted to reach a reward.

    Raises:
        PlanError: a reward outside the metric's range.
    """
    fits = plans.fits
    low, high = fits.bounds
    value = cast("Any", reward)
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not low <= value <= high:
        raise PlanError(
            f"reward = {reward!r}; accepted: within the metric's range, {low:g} to {high:g}",
            "Ask for a reward within it.",
        )
    least = plans.smallest()
    most = _largest(plans, least)

    def predicted(amount: float) -> tuple[float, float, float]:
        plan = plans.plan(amount)
        if plan is None or plan.predicted_reward is None:
            return -math.inf, -math.inf, -math.inf
        at = fits.predict(plan.compute, plan.group_size, plan.problems_per_batch, plans.level)
        return float(at.mean), float(at.low), float(at.high)

    # The base model: the lowest of the curves just above no compute.
    base = min(float(curve.plateau - curve.rise) for curve in fits.curves.values())
    at_most = predicted(most)
    has_interval = not math.isnan(at_most[1])
    found = {
        i: _smallest(lambda amount, i=i: predicted(amount)[i] >= reward, least, most) if base < reward else None
        for i in ((0, 1, 2) if has_interval else (0,))
    }
    plan = None if found[0] is None else plans.plan(found[0])
    return BudgetFor(
        reward=reward,
        metric=fits.metric,
        level=plans.level,
        unit=plans.like.unit,
        expected=found[0],
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


def _largest(plans: PlansByBudget, least: float) -> float:
    """A budget whose plan has `REACH` times the largest compute seen, and not much more."""
    seen = plans.fits.largest_compute
    assert seen is not None, "curves have a largest compute"
    most = least
    while True:
        plan = plans.plan(most)
        if plan is not None and plan.compute >= REACH * seen:
            return most
        # Costs grow about as compute does; a little more at a time never takes many rounds.
        most *= 2.0 if plan is None else max(min(REACH * seen / plan.compute, 4.0), 1.2)


def _smallest(enough: Callable[[float], bool], least: float, most: float) -> float | None:
    """Smallest amount that is enough, within the tolerance; None if the largest is not.

    A plan's prediction dips a little at budgets where its n changes: there, up to a tenth less may be enough too.
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


EXTRA = 0.25
"""The slope is measured over this share of the budget."""

Worth = Literal["worth-it", "not-worth-it", "cannot-tell"]
"""Whether doubling the budget is predicted to add as much as the last half of a plan's budget must add."""


@dataclass(frozen=True)
class Marginal(Saved):
    """What more budget would buy at one budget."""

    metric: str
    level: float
    budget: Annotated[Budget, GIVEN_FIELDS]
    plan: Annotated[Plan, SAVED_PLAN]
    """The plan for the budget, all of it spent."""
    next_plan: Annotated[Plan, SAVED_PLAN]
    """The plan for a quarter more."""
    gain: Annotated[Estimate, SAVED_ESTIMATE]
    """Reward that a quarter more is predicted to add."""
    per_million_rollouts: Annotated[Estimate, SAVED_ESTIMATE]
    """That gain per million rollouts."""
    per_thousand_gpu_hours: Annotated[Estimate, SAVED_ESTIMATE] | None
    """That gain per 1,000 GPU-hours; None without a throughput."""
    doubling: Annotated[Estimate, SAVED_ESTIMATE]
    """Reward that twice the budget is predicted to add."""
    last_half: Annotated[Estimate, SAVED_ESTIMATE]
    """Reward that the last half of the budget is predicted to add; NaN if half of it buys no plan."""
    worthwhile: float
    """Smallest reward that doubling must add to be worth it."""
    verdict: Worth
    notes: tuple[Note, ...] = ()

    def summary(self) -> str:
        """The answer as text, the verdict first."""
        unit = self.budget.unit
        p = self.plan
        lines = [
            _marginal_sentence(self),
            f"at                      {amount_text(self.budget.amount, unit)}: n = {p.group_size}, "
            f"B_p = {p.problems_per_batch}, M = {p.update_steps:,}, predicted {self.metric} {p.predicted_reward:.3f}",
            f"last half               {_text(self.last_half)}",
            f"a quarter more          {_text(self.gain)}",
            f"twice as much           {_text(self.doubling)}",
            f"per million rollouts    {_text(self.per_million_rollouts)}{_slope(p.rollouts, 1e6)}",
        ]
        if self.per_thousand_gpu_hours is not None:
            hours = _slope(p.costs["gpu_hours"], 1e3)
            lines.append(f"per 1,000 GPU-hours     {_text(self.per_thousand_gpu_hours)}{hours}")
        lines += [f"[{note.severity}] {note.code}: {note.message}" for note in self.notes]
        return "\n".join(lines)


MARGINAL = Document("marginal", 1, Marginal)


def _marginal_sentence(found: Marginal) -> str:
    twice = f"doubling the budget is predicted to add {_text(found.doubling)}"
    least = f"{found.worthwhile:.3g} of {found.metric}"
    match found.verdict:
        case "not-worth-it":
            return f"more budget is not worth it: {twice}, less than {least}; spend it on another recipe or other data"
        case "worth-it":
            return f"more budget pays: {twice}"
        case _:
            return f"these fits cannot tell whether more budget pays ({least} or more): {twice}"


def _slope(spent: float, unit: float) -> str:
    return "" if unit <= spent else ", as a slope: the whole budget is smaller than that"


def _text(value: Estimate) -> str:
    if np.isnan(value.mean):
        return "not known"
    if np.isnan(value.low):
        return f"{value.mean:+.4f} (no interval: these fits have no paired draws)"
    # Adding zero turns a rounded -0.0 into 0.0.
    mean, low, high = (round(part, 4) + 0.0 for part in value)
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


def marginal(plans: PlansByBudget) -> Marginal:
    """What more budget than `plans.like` would buy.

    Raises:
        PlanError: the budget is too small for a plan, or no reward can be predicted.
    """
    budget, fits = plans.like, plans.fits
    plan = plans.predicted(budget.amount)
    more = plans.predicted(budget.amount * (1 + EXTRA))
    twice = plans.predicted(budget.amount * 2)
    half = plans.plan(budget.amount / 2)
    gain, doubling = _gain(plans, plan, more), _gain(plans, plan, twice)
    least = Tolerances(plan.span).small
    timed = "gpu_hours" in plan.costs
    hours = (more.costs["gpu_hours"] - plan.costs["gpu_hours"]) / 1e3 if timed else 0.0
    return Marginal(
        metric=fits.metric,
        level=plans.level,
        budget=budget,
        plan=plan,
        next_plan=more,
        gain=gain,
        per_million_rollouts=_per(gain, (more.rollouts - plan.rollouts) / 1e6),
        per_thousand_gpu_hours=_per(gain, hours) if timed else None,
        doubling=doubling,
        last_half=Estimate(np.nan, np.nan, np.nan) if half is None else _gain(plans, half, plan),
        worthwhile=least,
        verdict=_worth(doubling, least),
        notes=tuple(note for note in twice.notes if note.code.startswith("extrapolation")),
    )


def _gain(plans: PlansByBudget, first: Plan, second: Plan) -> Estimate:
    """Reward of the second plan less that of the first, at least zero: the first stays possible."""
    drawn_D = second.reward_draws() - first.reward_draws()
    return plans.between(drawn_D) if drawn_D.mean() > 0 else Estimate(0.0, 0.0, 0.0)


def _per(gain: Estimate, amount: float) -> Estimate:
    return Estimate(*(part / amount for part in gain)) if amount > 0 else Estimate(0.0, 0.0, 0.0)


def _worth(doubling: Estimate, least: float) -> Worth:
    if np.isnan(doubling.low):
        return "worth-it" if doubling.mean >= least else "not-worth-it"
    if doubling.low >= least:
        return "worth-it"
    # Twice the threshold, because a rule that is right more often than not would always give a verdict.
    return "not-worth-it" if doubling.high < 2 * least and doubling.mean < least else "cannot-tell"
