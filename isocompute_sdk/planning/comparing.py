"""A plan compared with a configuration of the caller: at equal budget, rollouts, steps, time or batch; equal reward.

Which n looks best depends on what is held equal. At equal steps (or epochs) a larger n also gets more rollouts, at
equal rollouts fewer steps; see docs/comparing.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

import numpy as np

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.answers import Estimate, estimate_of_cost, first_reach
from isocompute_sdk.phrases import chance_text, joined
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.decide import plan_for
from isocompute_sdk.planning.plan import Plan, reward_draws
from isocompute_sdk.planning.pricing import TIMED_IN_SHELL, Candidate, Fixed, Pricing, amount_text
from isocompute_sdk.planning.questions import Answer, PlansByBudget, SavedEstimate, SavedPlan, with_reward
from isocompute_sdk.specs import Allocation
from isocompute_sdk.specs.throughput import MORE_BATCHES

MIN_SHARE, MAX_SHARE, POINTS = 1 / 32, 4.0, 29
"""Equal reward is searched between these shares of the budget, at so many amounts."""
FURTHEST_OUTSIDE = 16
"""Multiple of the n that were run up to which a configuration is judged."""
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
    reward: SavedEstimate
    difference: SavedEstimate
    """Reward of the plan less that of the configuration."""

    def described(self, plan: Plan) -> str:
        """The configuration and the difference in one line."""
        return (
            f"B_p = {self.problems_per_batch}, M = {self.update_steps:,}, C = {self.rollouts:,}: predicted "
            f"{self.reward.mean:.3f}, difference {_signed(self.difference, plan, self.reward)}"
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class PlanComparison(Answer):
    """A plan compared with a configuration."""

    plan: SavedPlan
    """That of `Planner.allocate`, or a reference."""
    group_size: int
    """n of the configuration."""
    problems_per_batch: int
    update_steps: int
    """M: as given, or the most that the budget buys."""
    costs: Mapping[str, float]
    """Cost of the configuration in every unit."""
    configuration_reward: SavedEstimate
    difference: SavedEstimate
    """Reward of the plan less that of the configuration."""
    probability: float | None
    """That the plan is better; None for fits without draws."""
    equal_reward: SavedEstimate
    """Cost, in the budget's unit, at which plans reach the configuration's reward, within the budgets searched."""
    equal_reward_bounded: bool
    """False if an end of that interval lies outside the budgets searched."""
    gpu_hours_saved: SavedEstimate | None
    """GPU-hours of the configuration less those of a plan with the same reward; None without a throughput."""
    equal: str = "budget"
    """What both have in common: the budget, what `compare` was asked for, or `nothing` if M was given."""
    at_equal: Mapping[str, AtEqual] = field(default_factory=dict[str, AtEqual])
    """The same two at equal rollouts, steps, time and batch, as far as they can be had: hours need a throughput, and an
    equal batch a B_p at most an octave outside those that were run."""
    against_plan: bool = True
    """False if `plan` is not the best plan but a reference that the caller chose."""

    def lines(self) -> list[str]:
        """The answer as text."""
        p = self.plan
        if self.identical:
            return [f"{self.verdict}: {p.sizes}"]
        rows = [(self._plan, f"{p.sizes}: predicted {p.predicted_reward:.3f}"), *self.details()]
        return [self.verdict, *(f"{label:<15} {text}" for label, text in rows)]

    def details(self) -> list[tuple[str, str]]:
        """The configuration, the same at equal quantities, and the cost of equal reward, as (label, text)."""
        if self.identical:
            return []
        unit, own = self.unit, self.costs[self.unit]
        size = f"n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}"
        size += f": predicted {self.configuration_reward.mean:.3f}, costs {amount_text(own, unit)}"
        at_equal = {name: at for name, at in self.at_equal.items() if not self._is_plan(at)}
        rows = [("configuration", size), *((f"equal {name}", at.described(self.plan)) for name, at in at_equal.items())]
        if self.about_equal:
            return rows
        same, share = amount_text(self.equal_reward.mean, unit), self.equal_reward.mean / own
        about = "" if self.equal_reward_bounded else " (one end lies outside the budgets searched)"
        ends = [amount_text(end, unit) for end in (self.equal_reward.low, self.equal_reward.high)]
        if not math.isnan(self.equal_reward.low) and ends[0] != ends[1]:
            about = f" ({ends[0].partition(' ')[0]} to {ends[1]}){about}"
        rows.append(("same reward", f"with a plan of {same}, {share:.0%} of the cost{about}"))
        if (saved := self.gpu_hours_saved) is not None:
            ends = "" if math.isnan(saved.low) else f" ({saved.low:,.1f} to {saved.high:,.1f})"
            rows.append(("GPU-hours saved", f"{saved.mean:,.1f}{ends}"))
        return rows

    @property
    def _plan(self) -> str:
        return "plan" if self.against_plan else "reference"

    @property
    def identical(self) -> bool:
        """Whether the configuration is the plan."""
        return self._is_plan(self)

    def _is_plan(self, sized: PlanComparison | AtEqual) -> bool:
        p, own = self.plan, (sized.problems_per_batch, sized.update_steps)
        return (p.group_size, p.problems_per_batch, p.update_steps) == (self.group_size, *own)

    @property
    def unit(self) -> str:
        """Unit of the budget."""
        return self.plan.budget.unit

    @property
    def verdict(self) -> str:
        """The difference of the two rewards in one sentence; which n is best at all is the plan's verdict."""
        if self.identical:
            return f"the configuration is the {self._plan}"
        where = "" if self.equal in ("budget", "nothing") else f" at equal {self.equal}"
        difference = _signed(self.difference, self.plan, self.configuration_reward)
        text = f"{self._named}{where}: {difference} of {self.metric}"
        if self.about_equal:
            text += ", about equal"
        if self.probability is not None:
            text += f", higher with probability {chance_text(self.probability)}"
        return f"{text}; {self.outside}" if self.outside else text

    @property
    def about_equal(self) -> bool:
        """Whether no difference that matters is left; what equal reward costs then hangs on the last digits."""
        d, tie = self.difference, self.plan.tolerances.equal
        return abs(d.mean) <= tie and (math.isnan(d.low) or max(abs(d.low), abs(d.high)) <= 2 * tie)

    @property
    def outside(self) -> str:
        """That the configuration's n lies outside those that were run, and what it is judged by; else empty."""
        if self.plan.fits is None:
            return ""
        smallest, largest = self.plan.fits.group_size_range
        near = min(max(self.group_size, self.plan.fits.reach[0]), self.plan.fits.reach[1])
        judged = "" if near == self.group_size else f", and is judged by the curve of n = {near}"
        return "" if smallest <= self.group_size <= largest else f"n = {self.group_size} was not run{judged}"

    @property
    def _named(self) -> str:
        """Both by what differs: n, B_p, else M; where M was given, also M and what each costs."""
        p, own = self.plan, "your " if self.against_plan else ""
        pairs = [(p.group_size, self.group_size), (p.problems_per_batch, self.problems_per_batch)]
        pairs.append((p.update_steps, self.update_steps))
        apart = self.equal == "nothing"
        names = [(name, *pair) for name, pair in zip(("n", "B_p", "M"), pairs, strict=True) if pair[0] != pair[1]]
        names = [one for one in names if apart or one[0] != "M"] or names
        one, other = (", ".join(f"{row[0]} = {row[i]:,}" for row in names) for i in (1, 2))
        if apart:
            costs = (amount_text(costs[self.unit], self.unit) for costs in (p.costs, self.costs))
            one, other = (f"{text} ({cost})" for text, cost in zip((one, other), costs, strict=True))
        return f"{one} against {own}{other}"


COMPARISON = Document("against", 1, PlanComparison, derived=("verdict", "unit"))


def parse_configuration(given: Configuration, equal: Equal | None = None) -> tuple[int, int, int | None]:
    """(n, B_p, M or None); B_p is 0 if it is left out, which only an equal batch allows."""
    if equal is not None and cast("Any", equal) not in EQUALS:
        raise PlanError(
            f"equal = {equal!r}; accepted: {', '.join(EQUALS)}", "Use one of these with <--equal | equal=>."
        )
    if isinstance(given, Allocation):
        given = (given.group_size, given.problems_per_batch, given.update_steps)
    if isinstance(given, str):
        pairs = [part.partition("=") for part in re.split(r"[,\s]+", given.strip())]
        if not all(equals for _, equals, _ in pairs):
            raise PlanError(
                f"configuration {given!r:.60}; accepted: n=N,bp=BP or n=N,bp=BP,m=M", "For example n=16,bp=32."
            )
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
    needed = ("n",) if equal == "batch" else ("n", "bp")
    if lacks := [name for name in needed if _NAMES[name] not in found]:
        raise PlanError(
            f"configuration {','.join(f'{name}={value}' for name, value in given.items())} lacks {joined(lacks)}",
            f"Give {joined(needed)}, for example n=16,bp=32 (in Python also (16, 32)).",
        )
    if equal is not None and "update_steps" in found:
        raise PlanError(
            f"configuration {dict(given)!r} with equal = {equal!r}: both fix M; accepted: one of them",
            "Leave m out, or leave <--equal | equal=> out.",
        )
    return found["group_size"], found.get("problems_per_batch", 0), found.get("update_steps")


def compare(
    plans: PlansByBudget,
    configuration: Configuration,
    *,
    equal: Equal | None = None,
    reference: Configuration | None = None,
    plan: Plan | None = None,
) -> PlanComparison:
    """A plan for `plans.like`, or a reference, compared with a configuration; arguments of `Planner.compare`."""
    n, problems, steps = parse_configuration(configuration, equal)
    budget, (smallest, largest) = plans.like, plans.basis.fits.group_size_range
    if not smallest / FURTHEST_OUTSIDE <= n <= largest * FURTHEST_OUTSIDE:
        raise PlanError(
            f"n = {n} lies more than {FURTHEST_OUTSIDE} x outside the n that were run, {smallest} to {largest}",
            "Run it for a while, and ask again.",
        )
    if reference is not None:
        plan = _reference(plans, reference)
    assert plan is not None, "the caller gives one of both"
    plan = with_reward(plan)
    fits = plan.fits or plans.basis.fits
    pricing = replace(plans.basis.pricing(budget, plans.request.evaluation_share), throughput=plan.throughput)
    if equal != "batch" and (unknown := pricing.refusal(n * (problems or plan.problems_per_batch))) is not None:
        raise PlanError(unknown, MORE_BATCHES)
    asked, shared = problems, equal or ("budget" if steps is None else "nothing")
    if equal is not None:
        problems, steps = _sized(n, problems, plan, pricing, equal)
    same = (n, problems) == (plan.group_size, plan.problems_per_batch)
    if steps is None:
        steps = plan.update_steps if same else pricing.affordable_steps(n * problems)[0]
        # Beside a plan that goes on with a run of its sizes, others do so too.
        beside = [
            one for one in plan.alternatives if plan.past and (one.group_size, one.problems_per_batch) == (n, problems)
        ]
        steps = max([steps, *(one.update_steps for one in beside if one.kind != "before-change")])
    if steps < 1:
        batch = f"n * B_p = {n * problems} rollouts at equal {shared}"
        raise PlanError(f"{pricing.budget} does not pay for one step of {batch}", "Raise the budget.")
    identical = same and steps == plan.update_steps
    costs = plan.costs if identical else pricing.all_costs(n * problems, steps)
    plan_D = plan.reward_draws()

    def drawn(size: int, bp: int, rollouts: float) -> Array:
        compute = pricing.compute(rollouts, fits.compute)
        if fits.surface is None:
            return reward_draws(fits, compute, size, bp)
        # An n further outside is judged by the outermost curves.
        return fits.surface.draws(compute, float(size), fits.reachable_problems_per_batch(bp))[:, 0]

    try:
        own_D = drawn(n, problems, n * problems * steps)
    except FitError as error:
        raise error.retyped(PlanError, f"the configuration cannot be compared: {error.message}") from error
    nothing = Estimate(0.0, 0.0, 0.0) if "gpu_hours" in costs else None
    equal_reward, saved, bounded = Estimate(*[costs[budget.unit]] * 3), nothing, True
    if not identical:
        equal_reward, saved, bounded = _equal_reward(plans, own_D, costs)
    return PlanComparison(
        metric=fits.metric,
        level=plans.level,
        plan=plan,
        notes=(
            *([] if plan.extrapolation is None else caveats.extrapolation(plan.extrapolation)),
            *caveats.beyond_grid(n, largest, smallest),
            *caveats.batch_not_observed(problems, fits),
        ),
        group_size=n,
        problems_per_batch=problems,
        update_steps=steps,
        costs=dict(costs),
        configuration_reward=plans.between(own_D),
        difference=plans.between(plan_D - own_D),
        probability=None if fits.surface is None else float(np.mean(plan_D > own_D)),
        equal_reward=equal_reward,
        equal_reward_bounded=bounded,
        gpu_hours_saved=saved,
        equal=shared,
        at_equal=_at_equal(plans, plan, (n, asked), pricing, drawn, equal),
        against_plan=reference is None,
    )


def _at_equal(
    plans: PlansByBudget,
    plan: Plan,
    size: tuple[int, int],
    pricing: Pricing,
    drawn: Callable[[int, int, float], Array],
    asked: Equal | None,
) -> dict[str, AtEqual]:
    """A configuration with each quantity as in the plan, as far as it can be had.

    Args:
        plans: plans by amount, with the level of intervals.
        plan: the plan.
        size: n and B_p of the configuration; B_p is 0 if it was left out.
        pricing: its prices.
        drawn: rewards by draw of n, B_p and rollouts.
        asked: the quantity that was asked for, which counts whatever its B_p.
    """
    (n, problems), plan_D = size, plan.reward_draws()
    found: dict[str, AtEqual] = {}
    for name in EQUALS:
        try:
            bp, m = _sized(n, problems, plan, pricing, name)
        except PlanError:
            continue
        if m >= 1 and (name == asked or plans.basis.fits.reachable_problems_per_batch(bp) in (None, bp)):
            own_D = drawn(n, bp, n * bp * m)
            found[name] = AtEqual(bp, m, n * bp * m, plans.between(own_D), plans.between(plan_D - own_D))
    return found


def _reference(plans: PlansByBudget, configuration: Configuration) -> Plan:
    """The plan of a configuration that the caller chose; without M all steps that the budget buys."""
    n, problems, steps = parse_configuration(configuration)
    basis, request = plans.basis, replace(plans.request, fixed=Fixed(), min_update_steps=1)
    pricing = basis.pricing(request.budget, request.evaluation_share)
    if (unknown := pricing.refusal(n * problems)) is not None:
        raise PlanError(unknown, MORE_BATCHES)
    most, limit = pricing.affordable_steps(n * problems)
    if most < 1:
        raise PlanError(
            f"{request.budget} does not pay for one step of n * B_p = {n * problems} rollouts", "Raise the budget."
        )
    candidate = Candidate(n, problems, steps or most, limit if steps is None else "update_steps")
    return plan_for(basis, candidate, request)


def _sized(n: int, problems: int, plan: Plan, pricing: Pricing, equal: Equal) -> tuple[int, int]:
    """B_p and M of n with one quantity as in the plan; M may be 0."""
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
    speed, hours = plan.throughput, plan.wall_hours
    for batch in (plan.rollouts_per_batch, n * problems):
        if speed is not None and (unknown := speed.refusal(batch)) is not None:
            raise PlanError(unknown, MORE_BATCHES)
    if hours is None:
        raise PlanError(
            "equal = 'time' needs the rollouts per second, which neither you nor the runs give",
            "Give throughput=Throughput(...), or measure it: Throughput.measure(runs).",
        ).in_shell(TIMED_IN_SHELL)
    if n * problems == plan.rollouts_per_batch:
        return problems, plan.update_steps
    return problems, pricing.most_steps("wall_hours", hours, n * problems)


def _equal_reward(
    plans: PlansByBudget, own_D: Array, costs: Mapping[str, float]
) -> tuple[Estimate, Estimate | None, bool]:
    """Cost at which plans reach each draw's reward, the GPU-hours saved, and whether both ends were found."""
    unit = plans.like.unit
    amounts = plans.like.committed + costs[unit] * np.geomspace(MIN_SHARE, MAX_SHARE, POINTS)
    found = [plan for plan in (plans.plan(float(amount)) for amount in amounts) if plan is not None]
    reward_DG = np.stack([plan.reward_draws() for plan in found], axis=1)
    position_D, before_D, never_D = first_reach(np.arange(len(found), dtype=float), reward_DG, own_D)

    def priced(name: str) -> Estimate:
        """Median and interval in logarithms; NaN ends for a single draw."""
        log = np.log([plan.costs[name] for plan in found])
        cost_D = np.exp(np.interp(position_D, np.arange(len(found)), log))
        return (
            Estimate(float(cost_D[0]), math.nan, math.nan)
            if len(cost_D) == 1
            else estimate_of_cost(cost_D, plans.level)
        )

    tail = (1 - plans.level) / 2
    bounded = bool(np.mean(before_D) <= tail and np.mean(never_D) <= tail)
    if any("gpu_hours" not in known for known in (costs, *(plan.costs for plan in found))):
        return priced(unit), None, bounded
    hours = priced("gpu_hours")
    saved = Estimate(*(costs["gpu_hours"] - part for part in (hours.mean, hours.high, hours.low)))
    return priced(unit), saved, bounded


def _signed(value: Estimate, plan: Plan, other: Estimate) -> str:
    """The difference of two rewards as shown, so that the three numbers agree on a screen, and its interval."""
    apart = round(plan.predicted_reward or 0.0, 3) - round(other.mean, 3)
    ends = "no interval" if math.isnan(value.low) else f"{value.low:+.3f} to {value.high:+.3f}"
    return f"{apart + 0.0:+.3f} ({ends})"
