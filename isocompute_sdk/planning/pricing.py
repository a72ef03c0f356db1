"""What (n, B_p, M) costs in each unit, and for each n the allocation that a budget pays for, or a reason against it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from isocompute_sdk.errors import PlanError
from isocompute_sdk.phrases import counted, joined
from isocompute_sdk.specs import Budget, Evaluation, Hardware, Throughput
from isocompute_sdk.specs.sweep import Sized

EVALUATION_SHARE = 0.05
"""Share of the training's cost that evaluations may add by default."""
ASSUMED_PROBLEMS = 300
"""Validation problems of an evaluation on a whole file of unknown size: the paper's number."""
ENDS = 2
"""The base model and the last step are always evaluated."""


def samples_per_evaluation(evaluation: Evaluation) -> int:
    """Responses sampled in one evaluation."""
    return (evaluation.n_problems or ASSUMED_PROBLEMS) * evaluation.samples


def evaluated(evaluation: Evaluation) -> str:
    """What is sampled in one evaluation, in words: `300 problems x 4`."""
    unknown = f"all problems ({ASSUMED_PROBLEMS} assumed)"
    problems = unknown if evaluation.n_problems is None else counted(evaluation.n_problems, "problem")
    return f"{problems} x {evaluation.samples}"


def evaluations(update_steps: int, every_steps: int) -> int:
    """Evaluations of a run: at step 0, then every `every_steps` steps, and after the last step."""
    return math.ceil(update_steps / every_steps) + 1


def interval(asked: int, update_steps: int, step_cost: float, evaluation_cost: float, share: float) -> int:
    """Fewest update steps between evaluations, at least `asked`, that keep their cost within the share.

    Args:
        asked: update steps between evaluations as asked for.
        update_steps: M.
        step_cost: cost of one update step.
        evaluation_cost: cost of one evaluation, in the same unit.
        share: largest cost of all evaluations, as a share of that of all steps; infinite for any.

    Returns:
        `update_steps` if the two evaluations at both ends alone cost more than the share.
    """
    if math.isinf(share):
        return min(asked, max(update_steps, 1))
    allowed = math.floor(share * update_steps * step_cost / evaluation_cost + 1e-9)
    if allowed <= ENDS:
        return max(update_steps, 1)
    return min(max(asked, math.ceil(update_steps / (allowed - 1))), max(update_steps, 1))


DEFAULT_EVALUATION = Evaluation()
FEWEST_EVALUATIONS = 10
"""Of a run that is made for them, unless somebody said how runs are evaluated: the share leaves a short run one."""
DEADLINE_ERRORS = 2.0
"""Standard errors of a measured throughput by which a deadline is kept."""
_MEASURE = "or measure the speed: isocompute run STUDY --probe, or isocompute doctor LOGS --speed --gpus N"
WORDS = {
    "rollouts_per_second": "the rollouts per second",
    "tokens_per_rollout": "the tokens per rollout",
    "usd_per_gpu_hour": "the price of a GPU-hour",
    "gpus": "the number of GPUs",
}
"""Parts of a throughput, as an error names them."""
TIMED_IN_SHELL = f"Add --rollouts-per-second, {_MEASURE}."
"""What to do at a command line without a throughput."""


UNITS = {"gpu_hours": "GPU-hours", "wall_hours": "hours"}
"""Units in words, where they differ from their names."""


DAYS_FROM = 48.0
"""Hours from which they are shown as days too."""


def amount_text(value: float, unit: str) -> str:
    """An amount with its unit: `1,200 rollouts`, `25.3 GPU-hours`, `$75.00`."""
    if unit == "usd":
        return f"${value:,.0f}" if value >= 100 else f"${value:,.2f}"
    if 0 < value < 0.0005 and unit not in ("rollouts", "tokens"):
        return f"<0.001 {UNITS.get(unit, unit)}"
    # As rounded: 0.9996 is 1.0.
    digits = 0 if unit in ("rollouts", "tokens") or round(value, 1) >= 100 else 1 if round(value, 3) >= 1 else 3
    also = ""
    if unit == "wall_hours" and value >= DAYS_FROM:
        also = f" ({value / 24:,.1f} days)"
    elif unit == "wall_hours" and 1 / 60 <= value < 1:
        also = f" ({value * 60:.2g} minutes)"
    return f"{value:,.{digits}f} {UNITS.get(unit, unit)}{also}"


def bare(value: float, unit: str) -> str:
    """The same where the unit stands beside it."""
    return amount_text(value, unit).partition(" ")[0]


def part_of(part: float, whole: float, unit: str) -> str:
    """A part beside the whole: `4.2 of 25.1 hours`."""
    return f"{bare(part, unit)} of {amount_text(whole, unit)}"


class Bill(NamedTuple):
    """What one allocation costs."""

    cost: float
    """In the budget's unit."""
    costs: dict[str, float]
    """In every known unit."""
    parts: dict[str, dict[str, float]]
    """By purpose and unit, including parts that the budget does not pay."""
    every_steps: int
    """Update steps between evaluations."""


@dataclass(frozen=True)
class Pricing:
    """A budget with the throughput that converts its unit.

    Rollouts and tokens count training alone: they are the axis of every curve. Hours and money also count the start
    of the run and its evaluations.

    Raises:
        PlanError: the budget's unit or its deadline needs a throughput, or a part of it that is unknown.
    """

    budget: Budget
    throughput: Throughput | None = None
    evaluation: Evaluation = DEFAULT_EVALUATION
    """How the run is evaluated if the share allows it."""
    evaluation_share: float = EVALUATION_SHARE
    fewest_evaluations: int = 1
    """Of a run, whatever their share."""
    past: Mapping[str, float] = field(default_factory=dict[str, float])
    """By unit: the part of an allocation's cost, at these prices, that the run from whose checkpoint it goes on has
    trained already, and which is no longer to be paid."""

    def __post_init__(self) -> None:
        budget, throughput = self.budget, self.throughput
        if self.unit == "rollouts" and budget.deadline_hours is None:
            return
        unit = {"usd": "dollars"}.get(budget.unit, UNITS.get(budget.unit, budget.unit))
        what = f"a budget in {unit}" if budget.unit != "rollouts" else "a deadline"
        needs = ["rollouts_per_second"] if budget.timed else []
        needs += {"tokens": ["tokens_per_rollout"], "usd": ["usd_per_gpu_hour"]}.get(budget.unit, [])
        missing = [name for name in needs if throughput is None or getattr(throughput, name) is None]
        missing += ["gpus"] if budget.unit in ("gpu_hours", "usd") and self.gpus is None else []
        if not missing:
            return
        speed = "rollouts_per_second" in missing
        flags = [f"--{name.replace('_', '-')}" for name in missing]
        named = "; a GPU's name does not give its speed" if speed and budget.gpus is not None else ""
        raise PlanError(
            f"{what} needs {joined([WORDS[name] for name in missing])}, which neither you nor the runs give{named}",
            f"Give Throughput({', '.join(f'{name}=...' for name in missing)})"
            + (", or measure it: Throughput.measure(runs)." if speed else "."),
        ).in_shell(f"Add {joined(flags)}{', ' + _MEASURE if speed else ''}.", [f"{flag} NUMBER" for flag in flags])

    @cached_property
    def unit(self) -> str:
        """The budget's own unit."""
        return self.budget.unit

    @cached_property
    def available(self) -> float:
        """What the planned run may cost in that unit: what the budget leaves, and what is past."""
        return self.budget.available + self.past.get(self.unit, 0.0)

    @cached_property
    def gpus(self) -> int | None:
        """GPUs that the run occupies; None if unknown."""
        return self.budget.gpus if self.throughput is None else self.throughput.gpus or self.budget.gpus

    def at_gpus(self, gpus: int) -> Pricing:
        """Pricing with another number of GPUs."""
        return replace(self, throughput=self._throughput().at_gpus(gpus))

    def going_on(self, rollouts_per_batch: int, begins: int) -> Pricing:
        """Prices of an allocation that goes on with a pilot run of so many steps: only the others are still to pay."""
        return replace(self, past=self.all_costs(rollouts_per_batch, begins))

    def cost(self, rollouts_per_batch: int, update_steps: int) -> float:
        """Cost in the budget's unit."""
        return self.cost_in(self.unit, rollouts_per_batch, update_steps)

    def to_pay(self, rollouts_per_batch: int, update_steps: int) -> float:
        """What of that is not past."""
        return self.cost(rollouts_per_batch, update_steps) - self.past.get(self.unit, 0.0)

    def cost_in(self, unit: str, rollouts_per_batch: int, update_steps: int) -> float:
        """Cost in one unit, as it counts against a budget in that unit."""
        rollouts = rollouts_per_batch * update_steps
        if unit == "rollouts":
            return float(rollouts)
        throughput = self._throughput()
        if unit == "tokens":
            return float(throughput.tokens(rollouts))
        hours = throughput.wall_hours(rollouts_per_batch, update_steps) + throughput.startup_seconds / 3600.0
        return self._of_hours(unit, hours + self.evaluation_hours(rollouts_per_batch, update_steps))

    def bill(self, rollouts_per_batch: int, update_steps: int) -> Bill:
        """Everything that one allocation costs."""
        every = self.every_steps(rollouts_per_batch, update_steps)
        costs = self.all_costs(rollouts_per_batch, update_steps)
        return Bill(costs[self.unit], costs, self.parts(rollouts_per_batch, update_steps, every), every)

    def all_costs(self, rollouts_per_batch: int, update_steps: int) -> dict[str, float]:
        """Cost in every known unit."""
        units = self._units(rollouts_per_batch)
        return {unit: self.cost_in(unit, rollouts_per_batch, update_steps) for unit in units}

    def parts(self, rollouts_per_batch: int, update_steps: int, every_steps: int) -> dict[str, dict[str, float]]:
        """Cost of training, evaluation and start in every known unit, including parts that the budget does not pay."""
        throughput, steps = self.throughput, update_steps
        sampled = evaluations(steps, every_steps)
        sampled *= samples_per_evaluation(self.evaluation)
        rollouts = rollouts_per_batch * steps
        found = {"training": {"rollouts": float(rollouts)}, "evaluation": {"rollouts": float(sampled)}}
        if throughput is None:
            return found
        hours: dict[str, float] = {}
        units = [unit for unit in self._units(rollouts_per_batch) if unit not in ("rollouts", "tokens")]
        if units:
            hours["training"] = throughput.wall_hours(rollouts_per_batch, steps)
            hours["evaluation"] = self.evaluation_hours(rollouts_per_batch, steps)
        if units and throughput.startup_seconds > 0:
            hours["start"] = throughput.startup_seconds / 3600.0
        for part, spent in hours.items():
            timed = {unit: self._of_hours(unit, spent) for unit in units}
            found[part] = {**found.get(part, {}), **timed}
        if throughput.tokens_per_rollout is not None:
            found["training"]["tokens"] = throughput.tokens(rollouts)
            found["evaluation"]["tokens"] = sampled * throughput.tokens_per_rollout * throughput.mean_length(rollouts)
        return found

    def every_steps(self, rollouts_per_batch: int, update_steps: int) -> int:
        """Update steps between evaluations: as asked, or more to stay within the share; fewer for the fewest."""
        samples = samples_per_evaluation(self.evaluation)
        step, one = float(rollouts_per_batch), float(samples)
        if self.throughput is not None and self._knows_hours(rollouts_per_batch):
            length = self.throughput.mean_length(rollouts_per_batch * update_steps)
            step = self.throughput.step_seconds(rollouts_per_batch, length)
            one = self.throughput.evaluation_seconds(samples, length)
        every = interval(self.evaluation.interval(update_steps), update_steps, step, one, self.evaluation_share)
        return min(every, max(math.ceil(update_steps / self.fewest_evaluations), 1))

    def evaluation_hours(self, rollouts_per_batch: int, update_steps: int) -> float:
        """Wall-clock hours of all evaluations of a run."""
        throughput = self._throughput()
        count = evaluations(update_steps, self.every_steps(rollouts_per_batch, update_steps))
        length = throughput.mean_length(rollouts_per_batch * update_steps)
        return count * throughput.evaluation_seconds(samples_per_evaluation(self.evaluation), length) / 3600.0

    def affordable_steps(self, rollouts_per_batch: int) -> tuple[int, str]:
        """Most steps within budget and deadline, and the limit that is reached first (`budget` or `deadline`)."""
        steps, limit = self.most_steps(self.unit, self.available, rollouts_per_batch), "budget"
        if self.deadline is not None:
            within = self.most_steps("wall_hours", self.deadline, rollouts_per_batch)
            if within < steps:
                return within, "deadline"
        return steps, limit

    def added(self, rollouts_per_batch: int, begins: int, steps: int) -> float:
        """Cost of going on with a run up to so many steps."""
        return self._added_in(self.unit, rollouts_per_batch, begins, steps)

    def _added_in(self, unit: str, rollouts_per_batch: int, begins: int, steps: int) -> float:
        spent = self.cost_in(unit, rollouts_per_batch, begins) if begins else 0.0
        return self.cost_in(unit, rollouts_per_batch, steps) - spent

    def share(self, rollouts_per_batch: int, begins: int, steps: int) -> float:
        """The same as a share of the budget left or of the hours to the deadline, whichever is larger."""
        share = self.added(rollouts_per_batch, begins, steps) / self.available
        if self.deadline is None:
            return share
        return max(share, self._added_in("wall_hours", rollouts_per_batch, begins, steps) / self.deadline)

    def lengths(self, rollouts_per_batch: int, begins: int, shares: Sequence[float], min_steps: int) -> list[int]:
        """Update steps at the end of a run, for each share of what is left that pays for `min_steps` more."""
        found = list[int]()
        one = max(self.share(rollouts_per_batch, begins, begins + min_steps), 1e-12) / min_steps
        for share in shares:
            steps = begins + math.floor(share / one)
            while steps > begins and self.share(rollouts_per_batch, begins, steps) > share * (1 + 1e-9):
                steps -= max(1, (steps - begins) // 50)
            if steps - begins >= min_steps:
                found.append(steps)
        return found

    def steps_for(self, shares: Sequence[float], rollouts_per_batch: int) -> list[int]:
        """Update steps, those that are past too, within each share of what is left of budget and hours."""
        limits = {self.unit: self.available} | ({} if self.deadline is None else {"wall_hours": self.deadline})
        parts = [(unit, self.past.get(unit, 0.0), most) for unit, most in limits.items()]
        return [
            min(self.most_steps(unit, past + share * (most - past), rollouts_per_batch) for unit, past, most in parts)
            for share in shares
        ]

    def within(self, rollouts_per_batch: int, update_steps: int) -> bool:
        """Whether so many steps fit budget and deadline."""
        cost = self.cost(rollouts_per_batch, update_steps)
        return cost <= self.available and self.in_time(rollouts_per_batch, update_steps)

    @cached_property
    def timed(self) -> bool:
        """Whether the budget depends on time."""
        return self.budget.timed

    def refusal(self, rollouts_per_batch: int) -> str | None:
        """Why hours of this batch are unknown, of a budget that depends on time; None if they are known."""
        return self.throughput.refusal(rollouts_per_batch) if self.timed and self.throughput is not None else None

    def _knows_hours(self, rollouts_per_batch: int) -> bool:
        """Whether hours of this batch are known."""
        speed = self.throughput
        return speed is not None and speed.rollouts_per_second is not None and speed.refusal(rollouts_per_batch) is None

    @cached_property
    def deadline(self) -> float | None:
        """Wall-clock hours that an allocation may take, with a margin for the error of a measured throughput."""
        hours, throughput = self.budget.deadline_hours, self.throughput
        if hours is None:
            return None
        if throughput is not None and throughput.measured is not None:
            hours /= 1.0 + DEADLINE_ERRORS * throughput.measured.relative_error
        return hours + self.past.get("wall_hours", 0.0)

    def in_time(self, rollouts_per_batch: int, update_steps: int) -> bool:
        """Whether so many steps fit the deadline."""
        deadline = self.deadline
        return deadline is None or self.cost_in("wall_hours", rollouts_per_batch, update_steps) <= deadline

    def compute(self, rollouts: float, variable: str) -> float:
        """Rollouts on the compute axis of a law: rollouts or tokens."""
        if variable != "log10_tokens":
            return rollouts
        if self.throughput is None or self.throughput.tokens_per_rollout is None:
            raise PlanError(
                "these fits count compute in tokens, and the tokens per rollout are unknown",
                "Add <--tokens-per-rollout | tokens_per_rollout=>, or fit on rollouts.",
            )
        return float(self.throughput.tokens(rollouts))

    def _units(self, rollouts_per_batch: int) -> list[str]:
        throughput = self.throughput
        if throughput is None:
            return ["rollouts"]
        tokens = ["tokens"] if throughput.tokens_per_rollout is not None else []
        if not self._knows_hours(rollouts_per_batch):
            return ["rollouts", *tokens]
        by_gpus = ["gpu_hours"] if self.gpus is not None else []
        usd = ["usd"] if by_gpus and throughput.usd_per_gpu_hour else []
        return ["rollouts", "wall_hours", *by_gpus, *tokens, *usd]

    def _of_hours(self, unit: str, wall_hours: float) -> float:
        if unit == "wall_hours":
            return float(wall_hours)
        assert self.gpus is not None, "without them neither unit is known"
        gpu_hours = self.gpus * wall_hours
        return float(gpu_hours if unit == "gpu_hours" else self._throughput().price() * gpu_hours)

    def most_steps(self, unit: str, amount: float, rollouts_per_batch: int) -> int:
        """Most steps that cost at most the amount: a bracket around the proportional guess, then bisection."""

        def cost(steps: int) -> float:
            return self.cost_in(unit, rollouts_per_batch, steps)

        if unit == "rollouts":
            return max(int(amount // rollouts_per_batch), 0)
        if cost(1) > amount:
            return 0
        low = max(1, math.floor(amount / cost(1)))
        while cost(low) > amount:
            low = max(1, low // 2 if cost(low) > 2 * amount else low - max(1, low // 1000))
        width, high = 1, low + 1
        while cost(high) <= amount:
            low, width = high, 2 * width
            high = low + width
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if cost(middle) <= amount else (low, middle)
        return low

    def _throughput(self) -> Throughput:
        if self.throughput is None:
            raise PlanError(
                "costs in other units than rollouts need a throughput", "Add <--throughput FILE | throughput=>."
            )
        return self.throughput


@dataclass(frozen=True)
class Fixed:
    """The values that the caller fixed; None leaves one free (the paper's settings fix B_p, B and M, or none)."""

    problems_per_batch: int | None = None
    update_steps: int | None = None
    rollouts_per_batch: int | None = None

    @property
    def free(self) -> bool:
        """Whether nothing is fixed."""
        return self.problems_per_batch is None and self.update_steps is None and self.rollouts_per_batch is None


@dataclass(frozen=True)
class Limits:
    """The limits of every candidate."""

    pricing: Pricing
    hardware: Hardware
    fixed: Fixed
    floor: int
    """Smallest B_p."""
    min_update_steps: int
    n_problems: int | None = None
    """Distinct training problems D, which no batch exceeds; None if unknown."""
    continued: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """By (n, B_p): update steps of the pilot run from whose checkpoint such an allocation goes on."""

    @cached_property
    def divisor(self) -> int:
        """The number of which every batch must be a multiple."""
        return self.hardware.divisor

    def pricing_of(self, n: int, problems: int) -> Pricing:
        """Prices of one allocation: the steps of the pilot run that it continues are part of its own."""
        begins = self.continued.get((n, problems), 0)
        return self.pricing.going_on(n * problems, begins) if begins else self.pricing

    def unit(self, n: int) -> int:
        """Smallest B_p for which n * B_p is a multiple of that."""
        return self.divisor // math.gcd(n, self.divisor)

    def smallest_problems(self, n: int, least: int) -> int:
        """The smallest such B_p from `least` up, or the largest that the problems allow where it is more."""
        unit = self.unit(n)
        smallest = math.ceil(least / unit) * unit
        return smallest if self.n_problems is None else min(smallest, self.n_problems // unit * unit) or smallest


@dataclass(frozen=True)
class Candidate(Sized):
    """One executable allocation."""

    group_size: int
    problems_per_batch: int
    update_steps: int
    ends_by: str
    """What limits M: `budget`, `deadline`, `update_steps` (fixed) or `worthwhile` (more steps add almost nothing)."""


@dataclass(frozen=True)
class Rejection:
    """Why a group size has no executable allocation."""

    group_size: int
    constraint: str
    """Name of the constraint: `budget`, `deadline`, `min_update_steps`, `max_rollouts_per_batch`, `divisible_by`,
    `rollouts_per_batch`, `problems_per_batch`, `n_problems`, `throughput` (seconds for this batch would be a guess)."""
    reason: str
    smallest_budget: float | None = None
    """Smallest amount, in the budget's unit, that pays for one; None if no budget helps."""


def candidates(group_sizes: Sequence[int], limits: Limits) -> tuple[list[Candidate], list[Rejection]]:
    """Candidates for the group sizes that have one, and rejections for the others."""
    found = [_candidate(n, limits) for n in group_sizes]
    return [c for c in found if isinstance(c, Candidate)], [r for r in found if isinstance(r, Rejection)]


def what_works(group_sizes: Sequence[int], limits: Limits) -> tuple[str, float] | None:
    """The option, and its smallest value, that alone gives one of these n an allocation; None if none does."""
    found: dict[str, float] = {}
    for n in group_sizes:
        for name, value, relaxed in _relaxed(n, limits):
            if candidates([n], relaxed)[0]:
                found[name] = min(value, found.get(name, math.inf))
    return next(iter(found.items()), None)


def _relaxed(n: int, limits: Limits) -> Iterator[tuple[str, float, Limits]]:
    """Each option that limits an n, with the least value that may do, and the limits with it."""
    fixed, pricing = limits.fixed, limits.pricing
    problems = limits.smallest_problems(n, fixed.problems_per_batch or limits.floor)
    batch = fixed.rollouts_per_batch or n * problems
    if limits.hardware.max_rollouts_per_batch is not None:
        hardware = limits.hardware.replace(max_rollouts_per_batch=batch)
        yield "max_rollouts_per_batch", batch, replace(limits, hardware=hardware)
    for name, value in (("rollouts_per_batch", n * problems), ("problems_per_batch", problems)):
        if getattr(fixed, name) is not None:
            yield name, value, replace(limits, fixed=replace(fixed, **{name: value}))
    if pricing.deadline is not None and pricing.budget.deadline_hours is not None:
        hours = pricing.cost_in("wall_hours", batch, fixed.update_steps or limits.min_update_steps)
        hours = math.ceil(100 * hours * pricing.budget.deadline_hours / pricing.deadline) / 100
        budget = pricing.budget.replace(deadline_hours=hours)
        yield "deadline_hours", hours, replace(limits, pricing=replace(pricing, budget=budget))


def _candidate(n: int, limits: Limits) -> Candidate | Rejection:
    """The allocation for one group size: the smallest B_p allowed and the most steps that the budget buys.

    If M is fixed and B free, B_p is the largest that the budget buys instead.
    """
    problems = _problems_per_batch(n, limits)
    if isinstance(problems, Rejection):
        return problems
    if limits.n_problems is not None and problems > limits.n_problems:
        return Rejection(n, "n_problems", f"B_p = {problems} is more than the {limits.n_problems} training problems")
    if refused := _refused_by_hardware(n, problems, limits):
        return refused
    return _steps(n, problems, replace(limits, pricing=limits.pricing_of(n, problems)))


def _problems_per_batch(n: int, limits: Limits) -> int | Rejection:
    fixed = limits.fixed
    if fixed.rollouts_per_batch is not None:
        return _from_fixed_batch(n, fixed.rollouts_per_batch, limits)
    if fixed.problems_per_batch is not None:
        return fixed.problems_per_batch
    unit, smallest = limits.unit(n), limits.smallest_problems(n, limits.floor)
    if fixed.update_steps is None:
        return smallest
    refused = _refused_by_hardware(n, smallest, limits) or _unaffordable(n, smallest, fixed.update_steps, limits)
    return refused or _largest_problems(n, fixed.update_steps, limits) // unit * unit


def _from_fixed_batch(n: int, batch: int, limits: Limits) -> int | Rejection:
    problems, rest = divmod(batch, n)
    wanted = limits.fixed.problems_per_batch
    if rest or problems < 1:
        return Rejection(n, "rollouts_per_batch", f"n = {n} does not divide rollouts_per_batch = {batch}")
    if wanted is not None and wanted != problems:
        return Rejection(n, "rollouts_per_batch", f"n = {n} gives B_p = {batch} / {n} = {problems}, not {wanted}")
    if wanted is None and problems < limits.floor:
        return Rejection(
            n,
            "problems_per_batch",
            f"n = {n} leaves B_p = {batch} / {n} = {problems}, below the recipe's floor of {limits.floor}",
        )
    return problems


def _largest_problems(n: int, steps: int, limits: Limits) -> int:
    """Largest B_p with which `steps` steps fit the budget and the batch fits the hardware."""
    limit = limits.hardware.max_rollouts_per_batch
    if limits.n_problems is not None:
        limit = min(limit or limits.n_problems * n, limits.n_problems * n)
    high = 1
    while limits.pricing.within(2 * high * n, steps) and (limit is None or 2 * high * n <= limit):
        high *= 2
    if high == 1 and not limits.pricing.within(n, steps):
        return 0
    low, high = high, 2 * high
    if limit is not None:
        high = min(high, limit // n + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if limits.pricing.within(middle * n, steps) else (low, middle)
    return low


def ends_batch(n: int, problems: int, steps: int, limits: Limits) -> str:
    """What limits B_p if M is fixed: `max_rollouts_per_batch`, `deadline` or `budget`."""
    larger = n * (problems + limits.unit(n))
    limit = limits.hardware.max_rollouts_per_batch
    if limit is not None and larger > limit:
        return "max_rollouts_per_batch"
    return "budget" if limits.pricing.in_time(larger, steps) else "deadline"


def _refused_by_hardware(n: int, problems: int, limits: Limits) -> Rejection | None:
    batch, limit = n * problems, limits.hardware.max_rollouts_per_batch
    if (unknown := limits.pricing.refusal(batch)) is not None:
        return Rejection(n, "throughput", unknown)
    too_large = limit is not None and batch > limit
    if not too_large and batch % limits.divisor == 0:
        return None
    constraint = "max_rollouts_per_batch" if too_large else "divisible_by"
    return Rejection(n, constraint, limits.hardware.refusal(batch) or "")


def _unaffordable(n: int, problems: int, needed: int, limits: Limits) -> Rejection | None:
    """Why `needed` steps exceed budget or deadline; None if they do not."""
    pricing, batch = limits.pricing, n * problems
    steps = f"{counted(needed, 'step')} of n * B_p = {n} * {problems} = {batch} rollouts"
    if not pricing.in_time(batch, needed):
        wall = pricing.cost_in("wall_hours", batch, needed)
        latest = pricing.budget.deadline_hours
        return Rejection(n, "deadline", f"{steps} take {wall:,.2f} hours, past the deadline of {latest:,g} hours")
    if pricing.within(batch, needed):
        return None
    cost, unit = pricing.to_pay(batch, needed), pricing.budget.unit
    constraint = "min_update_steps" if limits.fixed.update_steps is None else "budget"
    reason = f"{steps} cost {amount_text(cost, unit)}, more than {amount_text(pricing.budget.available, unit)}"
    return Rejection(n, constraint, reason, cost + pricing.budget.committed)


def _steps(n: int, problems: int, limits: Limits) -> Candidate | Rejection:
    wanted = limits.fixed.update_steps
    refused = _unaffordable(n, problems, limits.min_update_steps if wanted is None else wanted, limits)
    if refused is not None:
        return refused
    if wanted is not None:
        return Candidate(n, problems, wanted, "update_steps")
    steps, ends_by = limits.pricing.affordable_steps(n * problems)
    return Candidate(n, problems, steps, ends_by)
