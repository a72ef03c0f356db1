"""A plan compared with a configuration of the caller: at equal budget, rollouts, steps, time or batch; equal reward.

Which n looks best depends on what is held equal. At equal steps (or epochs) a larger n also gets more rollouts, at
equal rollouts fewer steps; see docs/comparing.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast, get_args

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers import Estimate, estimate, estimate_of_cost, first_reach
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_sdk.notes import Note
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.plan import Plan, reward_draws
from isocompute_sdk.planning.plans_by_budget import SAVED_ESTIMATE, SAVED_PLAN, PlansByBudget
from isocompute_sdk.planning.pricing import TIMED_IN_SHELL, Pricing, amount_text
from isocompute_sdk.planning.trials import widened
from isocompute_sdk.specs import Allocation
from isocompute_sdk.tolerances import Tolerances

LEAST, MOST, POINTS = 1 / 32, 4.0, 29
"""Equal reward is searched between these shares of the budget, at so many amounts."""
_NAMES = {
    **dict.fromkeys(("n", "group_size"), "group_size"),
    **dict.fromkeys(("bp", "Bp", "B_p", "problems_per_batch"), "problems_per_batch"),
    **dict.fromkeys(("m", "M", "update_steps"), "update_steps"),
}

Configuration = Allocation | Mapping[str, Any] | Sequence[int] | str
"""(n, B_p), (n, B_p, M), a mapping or text such as `n=16,bp=32`, or an `Allocation`."""


Equal = Literal["rollouts", "steps", "time", "batch"]
"""What the configuration has in common with the plan: C, M, wall-clock hours, or B = n B_p with M (B_p follows)."""
EQUALS: tuple[Equal, ...] = get_args(Equal)


@dataclass(frozen=True)
class AtEqual:
    """The configuration with one quantity as in the plan."""

    problems_per_batch: int
    update_steps: int
    rollouts: int
    reward: Annotated[Estimate, SAVED_ESTIMATE]
    difference: Annotated[Estimate, SAVED_ESTIMATE]
    """Reward of the plan less that of the configuration."""

    @property
    def described(self) -> str:
        """The configuration and the difference in one line."""
        return (
            f"B_p = {self.problems_per_batch}, M = {self.update_steps:,}, C = {self.rollouts:,}: predicted "
            f"{self.reward.mean:.3f}, difference {_signed(self.difference)}"
        )


@dataclass(frozen=True)
class PlanComparison(Saved):
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
    equal: str = "budget"
    """What both have in common: the budget, what `compare` was asked for, or `update_steps` that were given."""
    at_equal: Mapping[str, AtEqual] = field(default_factory=dict[str, AtEqual])
    """The same two at equal rollouts, steps, time and batch, as far as they can be had: hours need a throughput, and an
    equal batch a B_p at most an octave outside those that were run."""
    against_plan: bool = True
    """False if `plan` is not the best plan but a reference that the caller chose."""

    def summary(self) -> str:
        """The answer as text."""
        p, unit = self.plan, self.plan.budget.unit
        own = self.costs[unit]
        share = self.equal_reward.mean / own
        about = "" if self.equal_reward_bounded else " (an end of this lies outside the budgets searched)"
        lines = [
            self.verdict,
            f"{self._plan:<15} n = {p.group_size}, B_p = {p.problems_per_batch}, M = {p.update_steps:,}: predicted "
            f"{p.predicted_reward:.3f}",
            f"configuration   n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}: "
            f"predicted {self.configuration_reward.mean:.3f}, costs {amount_text(own, unit)}",
            f"difference      {_signed(self.difference)}",
            *(f"{'equal ' + name:<15} {at.described}" for name, at in self.at_equal.items()),
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
    def _plan(self) -> str:
        return "plan" if self.against_plan else "reference"

    @property
    def unit(self) -> str:
        """Unit of the budget."""
        return self.plan.budget.unit

    @property
    def verdict(self) -> str:
        """The difference in one sentence."""
        tie = Tolerances(self.plan.span).equal
        d, plan = self.difference, self._plan
        where = "" if self.equal == "budget" else f" at equal {self.equal}"
        if (self.plan.group_size, self.plan.problems_per_batch, self.plan.update_steps) == (
            self.group_size,
            self.problems_per_batch,
            self.update_steps,
        ):
            return f"the configuration is the {plan}"
        apart = d.low > 0 or d.high < 0
        if not apart and abs(d.mean) <= tie and (math.isnan(d.high) or max(abs(d.low), abs(d.high)) <= 2 * tie):
            return f"the configuration is as good as the {plan}{where}, within {tie:g} of {self.metric}"
        if not math.isnan(d.low) and d.low <= 0 <= d.high:
            return (
                f"these fits cannot decide between the configuration and the {plan}{where} ({_signed(d)} of "
                f"{self.metric})"
            )
        better, amount = (plan, d.mean) if d.mean > 0 else ("configuration", -d.mean)
        return f"the {better} is ahead by {amount:.3f} of {self.metric}{where}"


COMPARISON = Document("against", 1, PlanComparison, derived=("verdict", "unit"))


def parse_configuration(given: Configuration, equal: Equal | None = None) -> tuple[int, int, int | None]:
    """(n, B_p, M or None); B_p is 0 if it is left out, which only an equal batch allows.

    Raises:
        PlanError: something else, numbers below 1 (n below 2), or M although `equal` decides it.
    """
    if isinstance(given, Allocation):
        given = (given.group_size, given.problems_per_batch, given.update_steps)
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
    needed = {"group_size"} if equal == "batch" else {"group_size", "problems_per_batch"}
    if not needed <= set(found):
        raise PlanError(f"configuration {dict(given)!r} lacks n or bp", "For example n=16,bp=32 or (16, 32).")
    if equal is not None and "update_steps" in found:
        raise PlanError(
            f"configuration {dict(given)!r} with equal = {equal!r}: both say M; accepted: one of them",
            "Leave M out, or leave equal out.",
        ).in_shell("Leave m out, or leave --equal out.")
    return found["group_size"], found.get("problems_per_batch", 0), found.get("update_steps")


def check_equal(equal: Any) -> Equal | None:
    """One of `EQUALS`, or None.

    Raises:
        PlanError: anything else.
    """
    if equal is not None and equal not in EQUALS:
        raise PlanError(f"equal = {equal!r}; accepted: {', '.join(EQUALS)}", "Use one of these.").in_shell(
            "Use one of these with --equal."
        )
    return equal


def compare(
    plans: PlansByBudget,
    configuration: Configuration,
    pricing_like: Callable[[Plan], Pricing],
    equal: Equal | None = None,
    reference: Plan | None = None,
) -> PlanComparison:
    """The plan for `plans.like`, or a reference, compared with a configuration.

    Args:
        plans: plans by amount.
        configuration: (n, B_p), which gets all steps that the budget buys, or (n, B_p, M).
        pricing_like: prices as they hold for a plan.
        equal: what the configuration has in common with the plan; None for the budget.
        reference: what to compare with in place of the best plan.

    Raises:
        PlanError: the budget is too small for the plan or for the configuration, or no reward can be predicted.
    """
    n, problems, steps = parse_configuration(configuration, check_equal(equal))
    budget = plans.like
    plan = plans.predicted(budget.amount) if reference is None else reference
    fits = plan.fits or plans.fits
    pricing = pricing_like(plan)
    shared, asked = "budget" if steps is None else "update_steps", problems
    if equal is not None:
        problems, steps = _sized(n, problems, plan, pricing, equal)
        shared = equal
    same = (n, problems) == (plan.group_size, plan.problems_per_batch)
    if steps is None:
        steps = plan.update_steps if same else pricing.affordable_steps(n * problems)[0]
    if steps < 1:
        raise PlanError(
            f"{budget} does not pay for one step of n * B_p = {n * problems} rollouts at equal {shared}",
            "Raise the budget.",
        )
    identical = same and steps == plan.update_steps
    costs = plan.costs if identical else pricing.all_costs(n * problems, steps)
    plan_D = plan.reward_draws()

    def drawn(bp: int, m: int) -> Array:
        return reward_draws(fits, pricing.compute(n * bp * m, fits.compute), n, bp)

    try:
        own_D = drawn(problems, steps)
    except FitError as error:
        raise PlanError(f"the configuration cannot be compared: {error.message}", error.hint) from error
    at_equal: dict[str, AtEqual] = {}
    for name in EQUALS:
        try:
            bp, m = _sized(n, asked, plan, pricing, name)
        except PlanError:
            continue
        if m >= 1 and (name == equal or fits.reaches_problems_per_batch(bp)):
            other_D = drawn(bp, m)
            at_equal[name] = AtEqual(bp, m, n * bp * m, plans.between(other_D), plans.between(plan_D - other_D))
    equal_reward, saved, bounded = _identical(costs, budget.unit) if identical else _equal_reward(plans, own_D, costs)
    return PlanComparison(
        metric=fits.metric,
        level=plans.level,
        plan=plan,
        group_size=n,
        problems_per_batch=problems,
        update_steps=steps,
        costs=dict(costs),
        configuration_reward=plans.between(own_D),
        difference=plans.between(plan_D - own_D),
        equal_reward=equal_reward,
        equal_reward_bounded=bounded,
        gpu_hours_saved=saved,
        notes=(
            *(note for note in plan.notes if note.code.startswith("extrapolation")),
            *caveats.problems_not_observed(problems, fits.problems_per_batch),
        ),
        equal=shared,
        at_equal=at_equal,
        against_plan=reference is None,
    )


def _sized(n: int, problems: int, plan: Plan, pricing: Pricing, equal: Equal) -> tuple[int, int]:
    """B_p and M of n with one quantity as in the plan; M may be 0.

    Raises:
        PlanError: hours without a throughput, or a batch that n does not divide.
    """
    if equal == "batch":
        batch = plan.rollouts_per_batch
        if batch % n:
            raise PlanError(
                f"n = {n} does not divide the plan's batch of {plan.group_size} x {plan.problems_per_batch} = {batch}",
                "Compare an n that divides it, or hold something else equal.",
            )
        return batch // n, plan.update_steps
    problems = problems or plan.problems_per_batch
    if equal == "steps":
        return problems, plan.update_steps
    if equal == "rollouts":
        return problems, plan.rollouts // (n * problems)
    hours = plan.wall_hours
    if hours is None:
        raise PlanError(
            "equal = 'time' needs seconds per step, and there is no throughput",
            "Give throughput=Throughput(...), or measure it: Throughput.measure(runs).",
        ).in_shell(TIMED_IN_SHELL)
    if n * problems == plan.rollouts_per_batch:
        return problems, plan.update_steps
    return problems, pricing.most_steps("wall_hours", hours, n * problems)


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


FURTHEST, PAYBACK_POINTS = 30.0, 49
"""Payback is searched up to this multiple of the whole budget, at so many budgets."""
FURTHEST_OCTAVES = 4
"""Octaves outside the n that were run within which today's n is judged, by the prior of the surface."""


@dataclass(frozen=True)
class Judgement(Saved):
    """What a plan gains over a configuration that needs no pilot, at the same total cost."""

    metric: str
    level: float
    plan: Annotated[Plan, SAVED_PLAN]
    group_size: Annotated[int, Field(ge=1)]
    """n that is run today."""
    problems_per_batch: Annotated[int, Field(ge=1)]
    update_steps: Annotated[int, Field(ge=1)]
    """M that the whole budget buys today, the pilot's cost included."""
    pilot_cost: Annotated[float, Field(ge=0)]
    """In the budget's unit."""
    total: Annotated[float, Field(gt=0)]
    """Budget of the plan and of its pilot together, which today's configuration has to itself."""
    reward_today: Annotated[Estimate, SAVED_ESTIMATE]
    gain: Annotated[Estimate, SAVED_ESTIMATE]
    """Reward of the plan less that of today's configuration."""
    probability: Annotated[float, Field(ge=0, le=1)] | None
    """That the gain is one; None for fits without draws."""
    pays_from: Annotated[float, Field(ge=0)] | None
    """Total budget from which on the plan after its pilot is expected to do better: the lower end of the budgets around
    `total` where it does, or the first above. None if there is none up to `searched`."""
    searched: Annotated[float, Field(gt=0)]
    notes: tuple[Note, ...] = ()

    @property
    def unit(self) -> str:
        """Unit of the budget."""
        return self.plan.budget.unit

    def summary(self) -> str:
        """The answer as text."""
        p, g = self.plan, self.gain
        ends = "" if math.isnan(g.low) else f" ({self.level:.0%} interval {g.low:+.3f} to {g.high:+.3f})"
        chance = "" if self.probability is None else f", a gain with probability {self.probability:.0%}"
        after = f" after a pilot of {amount_text(self.pilot_cost, self.unit)}" if self.pilot_cost else ""
        lines = [
            f"against n = {self.group_size}, B_p = {self.problems_per_batch} for all of "
            f"{amount_text(self.total, self.unit)}: {g.mean:+.3f} of {self.metric}{ends}{chance}",
            f"plan   n = {p.group_size}, B_p = {p.problems_per_batch}, M = {p.update_steps:,}{after}: predicted "
            f"{p.predicted_reward:.3f}",
            f"today  n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}: predicted "
            f"{self.reward_today.mean:.3f}",
            self.payback,
        ]
        return "\n".join([*lines, *(f"[{note.severity}] {note.code}: {note.message}" for note in self.notes)])

    @property
    def payback(self) -> str:
        """After which budget the pilot has paid for itself, in one sentence."""
        if not self.pilot_cost:
            return "no pilot counts against this budget (--spent pilot=AMOUNT, if one does)"
        if self.pays_from is None:
            most = amount_text(self.searched, self.unit)
            return f"the pilot is not expected to pay for itself at any budget up to {most}"
        return f"the pilot pays for itself from a total budget of {amount_text(self.pays_from, self.unit)} on"


JUDGEMENT = Document("judgement", 1, Judgement, derived=("payback", "unit"))


def judge(
    plan: Plan, size: tuple[int, int], pilot_cost: float, pricing: Pricing, sizes: list[int], level: float = 0.8
) -> Judgement:
    """Judge a plan against a configuration that gets the pilot's cost as well.

    Args:
        plan: with its fits.
        size: (n, B_p) that is run today.
        pilot_cost: in the budget's unit.
        pricing: prices as they hold for the plan.
        sizes: group sizes that a plan may choose at other budgets.
        level: coverage of intervals.

    Raises:
        PlanError: the plan has no predicted reward, today's configuration cannot be predicted, or the budget does not
            pay for a step of it.
    """
    fits, (n, bp) = plan.fits, size
    if fits is None or plan.predicted_reward is None:
        raise PlanError(
            f"no reward is predicted for this plan (n = {plan.group_size}, model {plan.model}, {plan.metric})",
            "Fit runs of this model and metric.",
        )
    total = plan.budget.available + pilot_cost
    steps = _steps(pricing, total, n * bp)
    if steps < 1:
        raise PlanError(
            f"{amount_text(total, plan.budget.unit)} does not pay for one step of n * B_p = {n * bp} rollouts",
            "Raise the budget.",
        )

    surface = _reaching(fits, n)

    def drawn(group_size: int, problems: int, amount: float) -> Array:
        batch = group_size * problems
        rollouts = max(_steps(pricing, amount, batch), 0) * batch
        compute = pricing.compute(float(max(rollouts, 1)), fits.compute)
        if surface is None:
            return reward_draws(fits, compute, group_size, problems)
        reachable = fits.reachable_problems_per_batch(problems)
        return surface.draws(compute, float(group_size), reachable)[:, 0]

    try:
        today_D = drawn(n, bp, total)
    except FitError as error:
        raise PlanError(f"n = {n}, B_p = {bp} cannot be compared: {error.message}", error.hint) from error
    gain_D = plan.reward_draws() - today_D
    paired = fits.surface is not None

    def spread(value_D: Array) -> Estimate:
        return estimate(value_D, level) if paired else Estimate(float(value_D.mean()), math.nan, math.nan)

    bps = fits.reaches_problems_per_batch(plan.problems_per_batch)
    problems = plan.problems_per_batch if bps else bp
    pays_from, searched = _payback(fits, drawn, (n, bp), sizes, problems, pilot_cost, total)
    return Judgement(
        metric=fits.metric,
        level=level,
        plan=plan,
        group_size=n,
        problems_per_batch=bp,
        update_steps=steps,
        pilot_cost=pilot_cost,
        total=total,
        reward_today=spread(today_D),
        gain=spread(gain_D),
        probability=float(np.mean(gain_D > 0)) if paired else None,
        pays_from=pays_from,
        searched=searched,
        notes=(
            *(note for note in plan.notes if note.code.startswith("extrapolation")),
            *_not_run(n, fits),
            *caveats.problems_not_observed(bp, fits.problems_per_batch),
        ),
    )


def _not_run(n: int, fits: Fits) -> list[Note]:
    smallest, largest = fits.group_size_range
    if smallest <= n <= largest:
        return []
    message = (
        f"n = {n} lies outside the group sizes that were run ({smallest} to {largest}): what is predicted for it comes "
        "from the curves of the nearest ones and the prior. A short run of it would tell."
    )
    return [Note("beyond-grid", "warning", message, {"group_size": n, "grid": [smallest, largest]})]


def _reaching(fits: Fits, n: int) -> Surface | None:
    """The joint model with knots as far as n, those beyond the runs from the prior; None for fits without one.

    Raises:
        PlanError: n lies further than `FURTHEST_OCTAVES` outside the runs.
    """
    if fits.surface is None:
        return None
    first, last = (float(knot) for knot in fits.surface.layout.knots_K[[0, -1]])
    below, above = (max(0, math.ceil(gap - 1e-9)) for gap in (first - math.log2(n), math.log2(n) - last))
    if max(below, above) > FURTHEST_OCTAVES:
        low, high = 2 ** max(first - FURTHEST_OCTAVES, 1), 2 ** (last + FURTHEST_OCTAVES)
        raise PlanError(
            f"n = {n} lies more than {FURTHEST_OCTAVES} octaves outside the n that were run; accepted: {low:.0f} to "
            f"{high:.0f}",
            "Run it for a while, and ask again.",
        )
    return widened(fits.surface, below, above, np.random.default_rng(0))


def _payback(
    fits: Fits,
    drawn: Callable[[int, int, float], Array],
    today: tuple[int, int],
    sizes: list[int],
    problems: int,
    pilot_cost: float,
    total: float,
) -> tuple[float | None, float]:
    """The total budget from which on, around or above `total`, the best n after the pilot is expected to do better."""
    amounts = np.geomspace(max(1.05 * pilot_cost, total / 1e3), FURTHEST * total, PAYBACK_POINTS)
    gains: list[float] = []
    for amount in amounts:
        left = float(amount) - pilot_cost
        best = max(float(drawn(n, problems, left).mean()) for n in sizes)
        gains.append(best - float(drawn(*today, float(amount)).mean()))
    ahead = np.array(gains) > 0
    place = _at(amounts, total)
    if ahead[place]:
        while place and ahead[place - 1]:
            place -= 1
    else:
        place = next((i for i in range(place, len(ahead)) if ahead[i]), -1)
    return (float(amounts[place]) if place >= 0 else None), float(amounts[-1])


def _at(amounts: Array, total: float) -> int:
    return int(np.argmin(np.abs(np.log(amounts / total))))


def _steps(pricing: Pricing, amount: float, batch: int) -> int:
    return pricing.most_steps(pricing.budget.unit, amount, batch)
