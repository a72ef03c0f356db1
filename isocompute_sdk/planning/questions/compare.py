"""A plan compared with a configuration of the caller: reward at equal budget, cost at equal reward."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.contrast import Estimate, estimate_of_cost, first_reach
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.plan import Plan, reward_draws
from isocompute_sdk.planning.pricing import Pricing, amount_text
from isocompute_sdk.planning.questions.plans_by_budget import SAVED_ESTIMATE, SAVED_PLAN, PlansByBudget
from isocompute_sdk.planning.verdict import TIE
from isocompute_sdk.specs import Allocation

LEAST, MOST, POINTS = 1 / 32, 4.0, 29
"""Equal reward is searched between these shares of the budget, at so many amounts."""
_NAMES = {
    **dict.fromkeys(("n", "group_size"), "group_size"),
    **dict.fromkeys(("bp", "Bp", "B_p", "problems_per_batch"), "problems_per_batch"),
    **dict.fromkeys(("m", "M", "update_steps"), "update_steps"),
}

Configuration = Allocation | Mapping[str, Any] | Sequence[int] | str
"""(n, B_p), (n, B_p, M), a mapping or text such as `n=16,bp=32`, or an `Allocation`."""


@dataclass(frozen=True)
class PlanComparison:
    """A plan compared with a configuration."""

    metric: str
    level: float
    plan: Annotated[Plan, SAVED_PLAN]
    """The best plan for the budget, all of it spent."""
    group_size: int
    """n of the configuration."""
    problems_per_batch: int
    update_steps: int
    """M: as given, or the most that the budget buys."""
    costs: Mapping[str, float]
    """Cost of the configuration in every unit."""
    configuration_reward: Annotated[Estimate, SAVED_ESTIMATE]
    difference: Annotated[Estimate, SAVED_ESTIMATE]
    """Reward of the plan less that of the configuration."""
    equal_reward: Annotated[Estimate, SAVED_ESTIMATE]
    """Cost, in the budget's unit, at which plans reach the configuration's reward, within the budgets searched."""
    equal_reward_bounded: bool
    """False if an end of that interval lies outside the budgets searched."""
    gpu_hours_saved: Annotated[Estimate, SAVED_ESTIMATE] | None
    """GPU-hours of the configuration less those of a plan with the same reward; None without a throughput."""
    notes: tuple[Note, ...] = ()

    def summary(self) -> str:
        """The answer as text."""
        p, unit = self.plan, self.plan.budget.unit
        own = self.costs[unit]
        share = self.equal_reward.mean / own
        about = "" if self.equal_reward_bounded else " (an end of this lies outside the budgets searched)"
        lines = [
            self.verdict,
            f"plan            n = {p.group_size}, B_p = {p.problems_per_batch}, M = {p.update_steps:,}: predicted "
            f"{p.predicted_reward:.3f}",
            f"configuration   n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}: "
            f"predicted {self.configuration_reward.mean:.3f}, costs {amount_text(own, unit)}",
            f"difference      {_signed(self.difference)}",
            f"equal reward    {amount_text(self.equal_reward.mean, unit)}, {share:.0%} of it"
            + ("" if math.isnan(self.equal_reward.low) else f" ({_range(self.equal_reward, unit)})")
            + about,
        ]
        if self.gpu_hours_saved is not None:
            saved = self.gpu_hours_saved
            ends = "" if math.isnan(saved.low) else f" ({saved.low:,.4g} to {saved.high:,.4g})"
            lines.append(f"GPU-hours saved {saved.mean:,.4g}{ends}")
        lines += [f"[{note.severity}] {note.code}: {note.message}" for note in self.notes]
        return "\n".join(lines)

    @property
    def unit(self) -> str:
        """Unit of the budget."""
        return self.plan.budget.unit

    @property
    def verdict(self) -> str:
        """The difference in one sentence."""
        tie = TIE * self.plan.span
        d = self.difference
        if (self.plan.group_size, self.plan.problems_per_batch, self.plan.update_steps) == (
            self.group_size,
            self.problems_per_batch,
            self.update_steps,
        ):
            return "the configuration is the plan"
        if abs(d.mean) <= tie and (math.isnan(d.high) or max(abs(d.low), abs(d.high)) <= 2 * tie):
            return f"the configuration is as good as the plan, within {tie:g} of {self.metric}"
        if not math.isnan(d.low) and d.low <= 0 <= d.high:
            return f"these fits cannot decide between the configuration and the plan ({_signed(d)} of {self.metric})"
        better, amount = ("plan", d.mean) if d.mean > 0 else ("configuration", -d.mean)
        return f"the {better} is ahead by {amount:.3f} of {self.metric}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return DOCUMENT.to_dict(self)


DOCUMENT = Document("against", 1, PlanComparison, derived=("verdict", "unit"))


def parse_configuration(given: Configuration) -> tuple[int, int, int | None]:
    """(n, B_p, M or None).

    Raises:
        PlanError: something else, or numbers below 1 (n below 2).
    """
    if isinstance(given, Allocation):
        return given.group_size, given.problems_per_batch, given.update_steps
    if isinstance(given, str):
        pairs = [part.partition("=") for part in re.split(r"[,\s]+", given.strip())]
        given = {name: value for name, _, value in pairs}
    if not isinstance(given, Mapping):
        parts = tuple(given) if isinstance(cast("Any", given), Iterable) else ()
        if not 0 < len(parts) <= 3:
            raise PlanError(
                f"configuration {given!r:.60}; accepted: (n, B_p) or (n, B_p, M)", "For example n=16,bp=32 or (16, 32)."
            )
        given = dict(zip(("n", "bp", "m"), parts, strict=False))
    found: dict[str, int] = {}
    for name, value in given.items():
        text = str(value)
        if (
            name not in _NAMES
            or not re.fullmatch("[0-9]{1,18}", text)
            or int(text) < (2 if _NAMES[name] == "group_size" else 1)
        ):
            raise PlanError(
                f"configuration {name} = {value!r}; accepted: n (2 or more), bp and optionally m, whole numbers",
                "For example n=16,bp=32 or (16, 32).",
            )
        found[_NAMES[name]] = int(text)
    if not {"group_size", "problems_per_batch"} <= set(found):
        raise PlanError(f"configuration {dict(given)!r} lacks n or bp", "For example n=16,bp=32 or (16, 32).")
    return found["group_size"], found["problems_per_batch"], found.get("update_steps")


def compare(
    plans: PlansByBudget, configuration: Configuration, pricing_like: Callable[[Plan], Pricing]
) -> PlanComparison:
    """The plan for `plans.like` compared with a configuration.

    Args:
        plans: plans by amount.
        configuration: (n, B_p), which gets all steps that the budget buys, or (n, B_p, M).
        pricing_like: prices as they hold for a plan.

    Raises:
        PlanError: the budget is too small for the plan or for the configuration, or no reward can be predicted.
    """
    n, problems, steps = parse_configuration(configuration)
    budget, fits = plans.like, plans.fits
    plan = plans.predicted(budget.amount)
    pricing = pricing_like(plan)
    same = (n, problems) == (plan.group_size, plan.problems_per_batch)
    if steps is None:
        steps = plan.update_steps if same else pricing.affordable_steps(n * problems)[0]
    if steps < 1:
        raise PlanError(f"{budget} does not pay for one step of n * B_p = {n * problems} rollouts", "Raise the budget.")
    identical = same and steps == plan.update_steps
    costs = plan.costs if identical else pricing.all_costs(n * problems, steps)
    at = pricing.compute(n * problems * steps, fits.compute)
    try:
        own_D = reward_draws(fits, at, n, problems)
    except FitError as error:
        raise PlanError(f"the configuration cannot be compared: {error.message}", error.hint) from error
    equal, saved, bounded = _identical(costs, budget.unit) if identical else _equal_reward(plans, own_D, costs)
    return PlanComparison(
        metric=fits.metric,
        level=plans.level,
        plan=plan,
        group_size=n,
        problems_per_batch=problems,
        update_steps=steps,
        costs=dict(costs),
        configuration_reward=plans.between(own_D),
        difference=plans.between(plan.reward_draws() - own_D),
        equal_reward=equal,
        equal_reward_bounded=bounded,
        gpu_hours_saved=saved,
        notes=tuple(note for note in plan.notes if note.code.startswith("extrapolation")),
    )


def _identical(costs: Mapping[str, float], unit: str) -> tuple[Estimate, Estimate | None, bool]:
    return Estimate(*[costs[unit]] * 3), Estimate(0.0, 0.0, 0.0) if "gpu_hours" in costs else None, True


def _equal_reward(
    plans: PlansByBudget, own_D: Array, costs: Mapping[str, float]
) -> tuple[Estimate, Estimate | None, bool]:
    """Cost at which plans reach each draw's reward, the GPU-hours saved, and whether both ends were found."""
    unit = plans.like.unit
    amounts = costs[unit] * np.geomspace(LEAST, MOST, POINTS)
    found = [plan for plan in (plans.plan(float(amount)) for amount in amounts) if plan is not None]
    reward_DG = np.stack([plan.reward_draws() for plan in found], axis=1)
    position_D, before_D, never_D = first_reach(np.arange(len(found), dtype=float), reward_DG, own_D)

    def priced(name: str) -> Array:
        log = np.log([plan.costs[name] for plan in found])
        return np.exp(np.interp(position_D, np.arange(len(found)), log))

    tail = (1 - plans.level) / 2
    bounded = bool(np.mean(before_D) <= tail and np.mean(never_D) <= tail)
    equal = _spread(priced(unit), plans.level)
    if "gpu_hours" not in costs:
        return equal, None, bounded
    hours = _spread(priced("gpu_hours"), plans.level)
    return equal, Estimate(*(costs["gpu_hours"] - part for part in (hours.mean, hours.high, hours.low))), bounded


def _spread(cost_D: Array, level: float) -> Estimate:
    """Median and interval in logarithms; NaN ends for a single draw."""
    if len(cost_D) == 1:
        return Estimate(float(cost_D[0]), math.nan, math.nan)
    return estimate_of_cost(cost_D, level)


def _signed(value: Estimate) -> str:
    if math.isnan(value.low):
        return f"{value.mean:+.3f}, no interval"
    return f"{value.mean:+.3f}, {value.low:+.3f} to {value.high:+.3f}"


def _range(value: Estimate, unit: str) -> str:
    return f"{amount_text(value.low, unit)} to {amount_text(value.high, unit)}"
