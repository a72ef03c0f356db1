"""A plan against a configuration that somebody has in mind: reward at equal budget, cost of equal reward."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.contrast import Estimate, estimate_of_cost, first_reach
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.asking import (
    Asking,
    between,
    check_level,
    fits_of,
    plain,
    plan_draws,
    reward_draws,
)
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.pricing import DEFAULT_EVALUATION, Pricing, amount_text
from isocompute_sdk.planning.question import TIE
from isocompute_sdk.planning.schedule import EVALUATION_SHARE
from isocompute_sdk.specs import Allocation, Budget

if TYPE_CHECKING:
    from isocompute_sdk.planning.planner import Planner

SCHEMA_VERSION = 1
LEAST, MOST, POINTS = 1 / 32, 4.0, 29
"""Equal reward is looked for between these shares of the budget, at so many amounts."""
_NAMES = {
    **dict.fromkeys(("n", "group_size"), "group_size"),
    **dict.fromkeys(("bp", "Bp", "B_p", "problems_per_batch"), "problems_per_batch"),
    **dict.fromkeys(("m", "M", "update_steps"), "update_steps"),
}

Configuration = Allocation | Mapping[str, Any] | Sequence[int] | str
"""(n, B_p), (n, B_p, M), a mapping or text such as `n=16,bp=32`, or an `Allocation`."""


@dataclass(frozen=True)
class Against:
    """A plan against a configuration."""

    metric: str
    level: float
    plan: Plan
    """The best plan for the budget, all of it spent."""
    group_size: int
    """n of the configuration."""
    problems_per_batch: int
    update_steps: int
    """M: as given, or all that the budget buys."""
    costs: Mapping[str, float]
    """Cost of the configuration in every unit."""
    configuration_reward: Estimate
    difference: Estimate
    """Reward of the plan less that of the configuration."""
    equal_reward: Estimate
    """Cost, in the budget's unit, at which plans reach the configuration's reward; bounded by what was looked at."""
    equal_reward_bounded: bool
    """False where an end of that interval lies outside what was looked at."""
    gpu_hours_saved: Estimate | None
    """GPU-hours of the configuration less those of the plan with the same reward; None without a throughput."""
    notes: tuple[Note, ...] = ()

    def summary(self) -> str:
        """The answer as text."""
        p, unit = self.plan, self.plan.budget.unit
        own = self.costs[unit]
        share = self.equal_reward.mean / own
        about = "" if self.equal_reward_bounded else " (an end of this lies outside what was looked at)"
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
    def verdict(self) -> str:
        """The difference in one sentence."""
        span = TIE * (fits_of(self.plan).bounds[1] - fits_of(self.plan).bounds[0])
        d = self.difference
        if (self.plan.group_size, self.plan.problems_per_batch, self.plan.update_steps) == (
            self.group_size,
            self.problems_per_batch,
            self.update_steps,
        ):
            return "the configuration is the plan"
        if abs(d.mean) <= span and (math.isnan(d.high) or max(abs(d.low), abs(d.high)) <= 2 * span):
            return f"the configuration is as good as the plan, within {span:g} of {self.metric}"
        if not math.isnan(d.low) and d.low <= 0 <= d.high:
            return f"these fits cannot tell the configuration from the plan ({_signed(d)} of {self.metric})"
        better, amount = ("plan", d.mean) if d.mean > 0 else ("configuration", -d.mean)
        return f"the {better} is ahead by {amount:.3f} of {self.metric}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        estimates = ("configuration_reward", "difference", "equal_reward", "gpu_hours_saved")
        names = ("metric", "level", "verdict", "group_size", "problems_per_batch", "update_steps")
        return {
            "kind": "against",
            "schema_version": SCHEMA_VERSION,
            **{name: getattr(self, name) for name in names},
            "unit": self.plan.budget.unit,
            "costs": dict(self.costs),
            **{name: plain(getattr(self, name)) for name in estimates},
            "equal_reward_bounded": self.equal_reward_bounded,
            "plan": self.plan.to_dict(with_fits=False),
            "notes": [note.to_dict() for note in self.notes],
        }


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


def against(
    planner: Planner, configuration: Configuration, budget: Budget | float | str, level: float, options: dict[str, Any]
) -> Against:
    """See `Planner.compare`."""
    check_level(level)
    n, problems, steps = parse_configuration(configuration)
    parsed = Budget.parse(budget)
    asking = Asking(planner, options, parsed)
    plan = asking.known(parsed.amount)
    # Its evaluations are bought by the same rule as the plan's, or two costs could not be compared.
    measured = planner.evaluation or DEFAULT_EVALUATION
    share = float(options.get("evaluation_share", EVALUATION_SHARE))
    fits = fits_of(plan)
    pricing = Pricing(parsed, plan.throughput, measured, share, evaluation_counts=plan.evaluation_counted)
    same = (n, problems) == (plan.group_size, plan.problems_per_batch)
    if steps is None:
        steps = plan.update_steps if same else pricing.affordable_steps(n * problems)[0]
    if steps < 1:
        raise PlanError(f"{parsed} does not pay for one step of n * B_p = {n * problems} rollouts", "Raise the budget.")
    identical = same and steps == plan.update_steps
    costs = plan.costs if identical else pricing.all_costs(n * problems, steps)
    at = pricing.compute(n * problems * steps, fits.compute)
    try:
        own_D = reward_draws(fits, at, n, problems)
    except FitError as error:
        raise PlanError(f"the configuration cannot be compared: {error.message}", error.hint) from error
    equal, saved, bounded = _equal_reward(asking, own_D, costs, level, plan if identical else None)
    return Against(
        metric=fits.metric,
        level=level,
        plan=plan,
        group_size=n,
        problems_per_batch=problems,
        update_steps=steps,
        costs=dict(costs),
        configuration_reward=between(fits, own_D, level),
        difference=between(fits, plan_draws(plan) - own_D, level),
        equal_reward=equal,
        equal_reward_bounded=bounded,
        gpu_hours_saved=saved,
        notes=tuple(note for note in plan.notes if note.code.startswith("extrapolation")),
    )


def _equal_reward(
    asking: Asking, own_D: Array, costs: Mapping[str, float], level: float, plan: Plan | None
) -> tuple[Estimate, Estimate | None, bool]:
    """Cost at which plans reach each draw's reward, and GPU-hours saved."""
    unit = asking.like.unit
    timed = "gpu_hours" in costs
    if plan is not None:
        zero = Estimate(0.0, 0.0, 0.0)
        return Estimate(*[costs[unit]] * 3), zero if timed else None, True
    amounts = costs[unit] * np.geomspace(LEAST, MOST, POINTS)
    plans = [found for found in (asking.plan(float(amount)) for amount in amounts) if found is not None]
    reward_DG = np.stack([plan_draws(found) for found in plans], axis=1)
    position_D, before_D, never_D = first_reach(np.arange(len(plans), dtype=float), reward_DG, own_D)

    def priced(name: str) -> Array:
        log = np.log([found.costs[name] for found in plans])
        return np.exp(np.interp(position_D, np.arange(len(plans)), log))

    tail = (1 - level) / 2
    bounded = bool(np.mean(before_D) <= tail and np.mean(never_D) <= tail)
    equal = _spread(priced(unit), level)
    if not timed:
        return equal, None, bounded
    hours = _spread(priced("gpu_hours"), level)
    saved = Estimate(*(costs["gpu_hours"] - part for part in (hours.mean, hours.high, hours.low)))
    return equal, saved, bounded


def _spread(cost_D: Array, level: float) -> Estimate:
    """Median and interval, in logarithms; no interval from a single draw."""
    if len(cost_D) == 1:
        return Estimate(float(cost_D[0]), math.nan, math.nan)
    return estimate_of_cost(cost_D, level)


def _signed(value: Estimate) -> str:
    if math.isnan(value.low):
        return f"{value.mean:+.3f}, no interval"
    return f"{value.mean:+.3f}, {value.low:+.3f} to {value.high:+.3f}"


def _range(value: Estimate, unit: str) -> str:
    return f"{amount_text(value.low, unit)} to {amount_text(value.high, unit)}"
