"""Questions to a planner beside a plan: what a reward costs, and what more budget would buy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, cast

import numpy as np

from isocompute_sdk.documents import Converted, Document, Saved
from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting import arguments
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import Reached
from isocompute_sdk.fitting.surface.answers import Estimate, estimate
from isocompute_sdk.notes import Note
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.allocate import Options, Request
from isocompute_sdk.planning.basis import Basis
from isocompute_sdk.planning.decide import decide, unjudged
from isocompute_sdk.planning.plan import GIVEN_FIELDS, Plan, limits
from isocompute_sdk.planning.plan_parts import Gain, Worth
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.planning.verdict import OTHERWISE, worth_of
from isocompute_sdk.records.reward_metrics import no_rise_words
from isocompute_sdk.specs import Budget
from isocompute_sdk.tolerances import FAR

BUDGET_PRECISION = 0.01
"""Relative width to which a budget is narrowed down."""
PER_DECADE = 4
"""Budgets tried in every factor of ten."""
EXTRA = 0.25
"""The slope of the reward is measured over this share of the budget."""

SavedEstimate = Annotated[
    Estimate,
    Converted(
        lambda value: {name: part if math.isfinite(part) else None for name, part in value._asdict().items()},
        lambda raw: Estimate(*(math.nan if (part := raw[name]) is None else float(part) for name in Estimate._fields)),
    ),
]
"""An `Estimate`, saved by name; an unknown end as null."""
SavedPlan = Annotated[Plan, Converted(lambda plan: plan.to_dict(with_fits=False), Plan.from_dict)]
"""A plan, saved without its fits."""


@dataclass(frozen=True, kw_only=True)
class Answer(Saved):
    """What a planner says to a question."""

    metric: str
    level: float
    """Coverage of the intervals."""
    plan: SavedPlan | None
    """The plan that the answer is about; None without one."""
    notes: tuple[Note, ...] = ()

    def lines(self) -> list[str]:
        """The answer as text, the most important line first."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.lines()[0]}; summary() has the rest)"

    def summary(self) -> str:
        """The answer as text, with its notes."""
        return "\n".join([*self.lines(), *(one.line for one in self.notes)])


@dataclass(frozen=True)
class PlansByBudget:
    """Plans of one planner by amount, all of each amount spent, each made once.

    Raises:
        PlanError: fits without rewards, or of runs that do not rise.
    """

    basis: Basis
    request: Request
    """Gives unit, deadline and spending of the budget; its amount is replaced."""
    level: float = 0.8
    """Coverage of intervals."""
    _plans: dict[float, Plan | None] = field(default_factory=dict[float, Plan | None])

    def __post_init__(self) -> None:
        try:
            arguments.check_level(self.level)
        except FitError as error:
            raise error.retyped(PlanError, error.message) from None
        fits = self.basis.fits
        if fits.flat_runs is not None:
            seen, advice = no_rise_words(fits.metric, fits.flat_runs)
            raise PlanError(seen, advice)
        if not fits.curves:
            raise PlanError(
                f"these fits ({fits.source or fits.method}) predict no rewards, only group sizes",
                "Fit your own runs: their curves predict what a budget buys.",
            )

    @classmethod
    def of(cls, basis: Basis, budget: Budget | float | str, level: float, options: Options) -> PlansByBudget:
        """Plans with the options of `Planner.allocate`; `spend` is `all` by default."""
        request = replace(Request.of(budget, **options), spend=options.get("spend", "all"))
        basis = basis.on_gpus_of(request.budget)
        if request.n_problems is not None and basis.fits.surface is not None:
            basis, request = basis.for_problem_set(request.n_problems), replace(request, n_problems=None)
        return cls(basis, request, level)

    @property
    def like(self) -> Budget:
        """The budget whose unit, deadline and spending all have."""
        return self.request.budget

    def plan(self, amount: float) -> Plan | None:
        """The plan for an amount, with predictions only; None if it is too small for any."""
        if amount not in self._plans:
            self._plans[amount] = plan_if_enough(self._allocate, self.like.with_amount(amount))
        return self._plans[amount]

    def predicted(self, amount: float) -> Plan:
        """The whole plan for an amount, with a predicted reward.

        Raises:
            PlanError: the amount is too small, or no reward can be predicted.
        """
        return with_reward(decide(self.basis, replace(self.request, budget=self.like.with_amount(amount), slots=0)))

    def smallest(self) -> float:
        """Smallest amount that pays for a plan, rounded up to whole rollouts or tokens.

        Raises:
            PlanError: no amount does.
        """
        tiny = 1e-6
        try:
            self._allocate(self.like.with_amount(tiny))
        except PlanError as error:
            if error.smallest_budget is None:
                raise
            least = error.smallest_budget * (1 + 1e-9)
            return math.ceil(least) if self.like.unit in ("rollouts", "tokens") else least
        return tiny

    def between(self, drawn_D: Array) -> Estimate:
        """Mean and interval of draws; the ends are NaN if the fits have no paired draws."""
        if self.basis.fits.surface is None:
            return Estimate(float(drawn_D.mean()), math.nan, math.nan)
        return estimate(drawn_D, self.level)

    def _allocate(self, budget: Budget) -> Plan:
        return unjudged(self.basis, replace(self.request, budget=budget, slots=0))


def with_reward(plan: Plan) -> Plan:
    """The plan, if it has a predicted reward."""
    if plan.predicted_reward is None:
        raise PlanError(
            f"no reward is predicted for this plan (n = {plan.group_size}, model {plan.model}, {plan.metric})",
            "Fit runs of this model and metric.",
        )
    return plan


def plan_if_enough(allocate: Callable[[Budget], Plan], budget: Budget) -> Plan | None:
    """The plan for a budget; None if it is too small for any.

    Raises:
        PlanError: no budget would do.
    """
    try:
        return allocate(budget)
    except PlanError as error:
        if error.smallest_budget is None:
            raise
        return None


@dataclass(frozen=True, kw_only=True, repr=False)
class BudgetFor(Answer):
    """What a reward costs; amounts are in `unit`. `plan` is the one for the expected budget."""

    reward: float
    """The reward asked for."""
    unit: str
    expected: float | None
    """Smallest budget whose plan is predicted to reach the reward; None if no budget up to `largest` does."""
    optimistic: float | None
    """Smallest budget at which the upper end of the plan's interval reaches it; None also without intervals."""
    conservative: float | None
    """The same for the lower end: it suffices unless the prediction is off by more than its interval."""
    base_reward: float
    """Predicted reward before any training."""
    largest: float
    """Largest budget that was tried: about ten times the largest compute seen."""
    largest_reward: float
    """Predicted reward of the plan for that budget."""
    largest_reward_high: float
    """Upper end of its interval; without intervals the prediction itself."""
    has_interval: bool
    """False if the fits give no intervals."""
    reached: Reached | None = None
    """The best checkpoint of the runs so far, if it reached the reward, or as much as `largest_reward_high`."""
    limits: str = ""
    """Limits that were asked for, what they cost, and the plan without them; empty without any."""
    bet: float | None = None
    """`largest`, if its plan may reach the reward and is predicted to gain enough over the best run; else None."""

    @property
    def reachable(self) -> bool:
        """Whether a budget up to `largest` is predicted to reach the reward."""
        return self.expected is not None

    def lines(self) -> list[str]:
        """The answer as text."""
        lines = [self._sentence()]
        if self.expected is not None and self.has_interval:
            low = "less than any plan costs" if self.optimistic is None else amount_text(self.optimistic, self.unit)
            high = (
                f"more than {amount_text(self.largest, self.unit)}: not reached within the budgets tried"
                if self.conservative is None
                else amount_text(self.conservative, self.unit)
            )
            lines += [f"optimistic    {low}", f"expected      {amount_text(self.expected, self.unit)}"]
            lines += [f"conservative  {high}   (ends of the plan's {self.level:.0%} interval)"]
        elif self.expected is not None:
            lines.append("no interval: these fits have none")
        else:
            alone = "is not expected to help" if self.bet is None else "is a bet"
            alone = f"more compute alone {alone}, up to {FAR:g} x the largest run"
            lines.append(f"next          {OTHERWISE}; {alone}")
        if self.plan is not None:
            p = self.plan
            lines.append(f"plan          {p.sizes}: {p.rollouts:,} rollouts, predicted {p.predicted_reward:.3f}")
        if self.run_to_go_on is not None:
            lines.append(f"or continue   {self.run_to_go_on} from a checkpoint, which may cost less")
        if self.limits:
            lines.append(f"your limits   {self.limits}")
        return lines

    @property
    def run_to_go_on(self) -> str | None:
        """The run so far that may reach the reward for less than a new one; None if unknown, or if one reached it."""
        gain = None if self.plan is None else self.plan.gain
        return None if gain is None or self.reward <= gain.best.reward else gain.run_to_go_on

    @property
    def budget(self) -> Budget | None:
        """What to plan for the reward: the expected budget, else the largest, as a bet; None where neither helps."""
        amount = self.bet if self.expected is None else self.expected
        if amount is None or self.reward <= self.base_reward:
            return None
        exact: Any = math.ceil(amount) if self.unit in ("rollouts", "tokens") else float(f"{amount:.4g}")
        return Budget(**{self.unit: exact})

    def _sentence(self) -> str:
        wanted = f"{self.metric} {self.reward:g}"
        if self.reward <= self.base_reward:
            share = 0.0 < self.reward < 1.0 < self.base_reward < 100.0 * self.reward
            meant = f"; did you mean {100.0 * self.reward:g}?" if share else ""
            return f"{wanted} needs no training: the base model is predicted at {self.base_reward:.3f}{meant}"
        already = f"a run already reached {self.reached}; " if self.reached is not None else ""
        if self.expected is not None:
            return f"{already}{wanted} is predicted to cost a new run {amount_text(self.expected, self.unit)}"
        tried = f"within {FAR:g} x the largest run ({amount_text(self.largest, self.unit)})"
        shown = f"{self.largest_reward:.3f}"
        if float(shown) >= self.reward > self.largest_reward:
            shown = f"just below {shown}"
        end = f"the plan for that budget is predicted at {shown}, at most {self.largest_reward_high:.3f}"
        if already:
            return f"{already}the fit does not follow that run: {tried}, {end}"
        is_out = self.largest_reward_high < self.reward
        no = "out of reach of this model and recipe" if is_out else "possible, but not expected,"
        return f"{wanted} is {no} {tried}: {end}"


BUDGET_FOR = Document("budget-for", 1, BudgetFor, derived=("reachable",))


def budget_for(plans: PlansByBudget, reward: float) -> BudgetFor:
    """The smallest budget, in the unit of `plans`, whose plan is predicted to reach a reward."""
    fits, fixed = plans.basis.fits, plans.request.fixed
    if fixed.rollouts_per_batch is not None and fixed.update_steps is not None:
        cost = f"{fixed.rollouts_per_batch:,} rollouts per batch and {fixed.update_steps:,} update steps"
        raise PlanError(f"{cost} are both fixed, and with them the cost", "Leave one of them free.")
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

    best = fits.best_reached
    # The base model: the lowest of the curves just above no compute.
    base = min(float(curve.plateau - curve.rise) for curve in fits.curves.values())
    at_most = predicted(most)
    has_interval = not math.isnan(at_most[1])
    high_most = at_most[2] if has_interval else at_most[0]
    found = {
        i: _smallest(lambda amount, i=i: predicted(amount)[i] >= reward, least, most) if base < reward else None
        for i in ((0, 1, 2) if has_interval else (0,))
    }
    if plans.like.unit in ("rollouts", "tokens"):
        found = {i: None if amount is None else float(math.ceil(amount)) for i, amount in found.items()}
    plan = None if found[0] is None else plans.predicted(found[0])
    limited = plans.predicted(most) if plan is None else plan
    without = limited.unlimited
    gain = 0.0 if best is None else Gain(best, at_most[0] - best.reward, None, None).shown
    return BudgetFor(
        metric=fits.metric,
        level=plans.level,
        plan=plan,
        notes=() if plan is None else tuple(note for note in plan.notes if note.severity != "info"),
        reward=reward,
        unit=plans.like.unit,
        expected=found[0],
        optimistic=found.get(2),
        conservative=found.get(1),
        base_reward=base,
        largest=most,
        largest_reward=at_most[0],
        largest_reward_high=high_most,
        has_interval=has_interval,
        limits="" if without is None else "{}: {}; without: {}".format(*limits(limited, without)),
        bet=most if high_most >= reward and (best is None or gain >= fits.tolerances.small) else None,
        reached=best if best is not None and best.reward >= min(reward, high_most) else None,
    )


def _largest(plans: PlansByBudget, least: float) -> float:
    """A budget whose plan has `FAR` times the largest compute seen, and not much more."""
    seen = plans.basis.fits.largest_compute
    assert seen is not None, "curves have a largest compute"
    most = least
    while True:
        plan = plans.plan(most)
        if plan is not None and plan.compute >= FAR * seen:
            return most
        # Costs grow about as compute does; a little more at a time never takes many rounds.
        most *= 2.0 if plan is None else max(min(FAR * seen / plan.compute, 4.0), 1.2)


def _smallest(enough: Callable[[float], bool], least: float, most: float) -> float | None:
    """Smallest amount that is enough, within the precision; None if the largest is not.

    A plan's prediction dips a little at budgets where its n changes: there, up to a tenth less may be enough too.
    """
    count = max(math.ceil(math.log10(most / least) * PER_DECADE), 1)
    grid = [least * (most / least) ** (i / count) for i in range(count + 1)]
    first = next((i for i, amount in enumerate(grid) if enough(amount)), None)
    if not first:
        return None if first is None else grid[0]
    low, high = grid[first - 1], grid[first]
    while high / low > 1 + BUDGET_PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True, kw_only=True, repr=False)
class Marginal(Answer):
    """What more budget would buy at one budget. `plan` is the one for the budget, all of it spent."""

    plan: SavedPlan
    budget: Annotated[Budget, GIVEN_FIELDS]
    gain: SavedEstimate
    """Reward that a quarter more is predicted to add."""
    doubling: SavedEstimate
    """Reward that twice the budget is predicted to add."""
    last_half: SavedEstimate
    """Reward that the last half of the plan's steps is predicted to add."""
    worthwhile: float
    """Smallest reward that doubling must add to be worth it."""
    verdict: Worth

    def lines(self) -> list[str]:
        """The answer as text, the verdict first."""
        p, unit = self.plan, self.budget.unit
        return [
            self._sentence(),
            f"at                      {amount_text(self.budget.amount, unit)}: {p.sizes}, predicted {self.metric} "
            f"{p.predicted_reward:.3f}",
            f"last half of its steps  {_gain_text(self.last_half)}",
            f"a quarter more          {_gain_text(self.gain)}",
            f"twice as much           {_gain_text(self.doubling)}",
        ]

    def _sentence(self) -> str:
        twice = f"doubling the budget is predicted to add {_gain_text(self.doubling)}"
        least = f"{self.worthwhile:.3g} of {self.metric}"
        if self.verdict == "not-worth-it":
            return f"more budget is not worth it: {twice}, less than {least}; spend it on another recipe or other data"
        if self.verdict == "worth-it":
            return f"more budget is worth it: {twice}"
        return f"these runs do not show whether more budget is worth it ({least} or more): {twice}"


MARGINAL = Document("marginal", 1, Marginal)


def _gain_text(value: Estimate) -> str:
    if np.isnan(value.low):
        return f"{value.mean:+.3f} (these fits give no interval)"
    # Adding zero turns a rounded -0.0 into 0.0.
    mean, low, high = (round(part, 4) + 0.0 for part in value)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def marginal(plans: PlansByBudget) -> Marginal:
    """What more budget than `plans.like` would buy.

    Raises:
        PlanError: the budget is too small for a plan, or no reward can be predicted.
    """
    budget = plans.like
    plan, more, twice = (plans.predicted(budget.amount * factor) for factor in (1.0, 1.0 + EXTRA, 2.0))

    def gained(first: Plan, second: Plan) -> Estimate:
        """Reward of the second plan less that of the first, at least zero: the first stays possible."""
        drawn_D = second.reward_draws() - first.reward_draws()
        if drawn_D.mean() <= 0:
            return Estimate(0.0, 0.0, 0.0)
        # As shown, so that it is the difference of the rewards that stand beside it.
        shown = round(second.predicted_reward or 0.0, 3) - round(first.predicted_reward or 0.0, 3)
        _, low, high = plans.between(drawn_D)
        return Estimate(float(np.clip(shown, low, high)), low, high)

    gain, doubling, tolerances = gained(plan, more), gained(plan, twice), plan.tolerances
    return Marginal(
        metric=plan.metric,
        level=plans.level,
        plan=plan,
        notes=()
        if twice.extrapolation is None
        else tuple(caveats.extrapolation(twice.extrapolation, "Twice its compute")),
        budget=budget,
        gain=gain,
        doubling=doubling,
        last_half=plans.between(plan.last_half_draws()),
        worthwhile=tolerances.small,
        verdict=worth_of(doubling, tolerances),
    )
