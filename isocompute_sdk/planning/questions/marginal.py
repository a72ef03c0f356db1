"""What more budget would buy, and whether it is worth it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.fitting.surface.answers.contrast import Estimate
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.choosing.pricing import amount_text
from isocompute_sdk.planning.plan import GIVEN_FIELDS, Plan
from isocompute_sdk.planning.questions.plans_by_budget import SAVED_ESTIMATE, SAVED_PLAN, PlansByBudget
from isocompute_sdk.specs import Budget
from isocompute_sdk.tolerances import Tolerances

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
            _verdict(self),
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


DOCUMENT = Document("marginal", 1, Marginal)


def _verdict(found: Marginal) -> str:
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
