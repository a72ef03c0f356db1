"""`Plan`: one executable allocation, the numbers behind it, near-ties and notes; saved as JSON, shown as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import PlainSerializer

from isocompute_sdk import notebook, upward
from isocompute_sdk.documents import Converted, Document, Saved
from isocompute_sdk.errors import FieldError, PlanError, python_form
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.passport import Passport
from isocompute_sdk.notes import Note, by_severity
from isocompute_sdk.phrases import chance_text, counted, joined, multiple, small
from isocompute_sdk.planning.inheritance import RECIPE_FIELDS, Setting, assumed, shown
from isocompute_sdk.planning.next_runs import NextRun, NextRuns, worth
from isocompute_sdk.planning.plan_parts import Alternative, Approval, Gain, Odds, Stopping, Unlimited, Verdict
from isocompute_sdk.planning.pricing import Pricing, amount_text, bare, evaluated, part_of
from isocompute_sdk.specs import Budget, Evaluation, Hardware, Recipe, Throughput
from isocompute_sdk.specs.sweep import Sized
from isocompute_sdk.tolerances import Tolerances

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 3
SLACK = 1e-9
"""Relative difference that rounding may make between a cost and its limit."""

GIVEN_FIELDS = PlainSerializer(lambda spec: spec.model_dump(mode="json", exclude_none=True))
"""Saves a spec without the fields that are None."""
TYPED_FIELDS = PlainSerializer(lambda spec: spec.model_dump(mode="json", exclude_unset=True))
"""Saves a spec without the fields that nobody gave, which what is read back would take for given."""

SavedFits = Annotated[Fits, Converted(lambda fits: fits.trimmed.to_dict(), Fits.from_dict)]
"""Fits, saved with what was fitted of their runs."""


@dataclass(frozen=True, kw_only=True)
class Plan(Sized, Saved):
    """How to spend a budget: C = group_size * problems_per_batch * update_steps rollouts."""

    verdict: Verdict
    """How decisively the data support n."""
    group_size: int
    """Rollouts per problem, n."""
    problems_per_batch: int
    """Problems per update batch, B_p."""
    update_steps: int
    """Policy updates, M."""
    budget: Annotated[Budget, GIVEN_FIELDS]
    cost: float
    """Cost in the budget's own unit, at most what the budget has left."""
    costs: Mapping[str, float]
    """Cost in every unit that the throughput can express; hours and money include evaluations, rollouts and tokens are
    those of training."""
    recipe: Recipe
    hardware: Annotated[Hardware, TYPED_FIELDS]
    throughput: Annotated[Throughput, TYPED_FIELDS] | None
    metric: str
    model: str | None
    """Model to be trained; None if unspecified."""
    n_problems: int | None
    """Distinct training problems D; None if unknown."""
    predicted_reward: float | None
    """Noise-free reward of the best checkpoint; None if the fits cannot predict it."""
    reward_interval: tuple[float, float] | None
    """80 % interval of `predicted_reward`; None without draws."""
    group_size_interval: tuple[int, int] | None
    """A narrow range that holds, with 80 % probability, an n nearly as good as the best; None without draws."""
    law_group_size: float | None
    """Real-valued n of the law at this compute, before constraints and rounding; None without a law."""
    extrapolation: float | None
    """Planned compute over the largest compute seen; None without runs."""
    binding: tuple[str, ...]
    """Constraints that limited the plan: `budget`, `deadline`, `max_rollouts_per_batch`, ..."""
    alternatives: tuple[Alternative, ...]
    notes: tuple[Note, ...]
    evaluation: Evaluation
    """How the run is evaluated: as often as asked, within the share of cost allowed."""
    asked_evaluation: Annotated[Evaluation, TYPED_FIELDS] | None
    """How evaluations were asked for; None for the default."""
    breakdown: Mapping[str, Mapping[str, float]]
    """Cost by purpose (training, evaluation, start, and what the budget has already spent) and unit, including parts
    that the budget does not pay."""
    past: Mapping[str, float] = field(default_factory=dict[str, float])
    """By unit: the part of its costs, at its prices, that the run from whose checkpoint it goes on has trained already,
    and which is no longer to be paid; empty where it begins anew."""
    settings: tuple[Setting, ...] = ()
    """Recipe of the runs and of this plan side by side, each value with its source."""
    odds: Odds | None = None
    """How good its n is with the whole budget; None without a surface."""
    other_metrics: Mapping[str, int | str] = field(default_factory=dict[str, int | str])
    """Best n for the other metrics of a `FitsSet`."""
    passport: Passport | None = None
    """How far the fits extrapolate; None without a surface."""
    stopping: Stopping | None = None
    """What it leaves of the budget because that would add almost nothing; None if it leaves nothing for that reason."""
    last_half: float | None = None
    """Reward that the last half of its steps is predicted to add, if that is not worth it (`worth_of`)."""
    gain: Gain | None = None
    """What it gains over the best checkpoint of the runs so far; None without runs of one's own, or if none rises."""
    approval: Approval | None = None
    """What whoever pays is asked to do; None for a plan that a person changed."""
    backend: str | None = None
    """Backend of the framework of its runs; None if unknown, or without one."""
    unlimited: Unlimited | None = None
    """What the budget would buy without the limits that were asked for; None without any."""
    next_runs: NextRuns | None = None
    """Runs to make before this plan, none of them where none is worth its cost; None if they were not looked for: fits
    without draws, or M or B fixed."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """Arguments of `Planner.allocate` besides the budget that are not its defaults."""
    compared_with: str | None = field(default=None, compare=False)
    """Configuration that it was compared with, such as n=16,bp=32; None if with none."""
    fits: SavedFits | None = field(default=None, repr=False, compare=False)
    """The fits behind the plan; None if they were not saved with it."""

    def __post_init__(self) -> None:
        """The budget pays for n, B_p and M, and the hardware takes the batch."""
        for name, least in (("group_size", 2), ("problems_per_batch", 1), ("update_steps", 1), ("n_problems", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise FieldError(name, value, f"a whole number, {least} or more")
        batch, rollouts = self.group_size * self.problems_per_batch, self.rollouts
        if (refusal := self.hardware.refusal(batch)) is not None:
            raise FieldError("rollouts_per_batch", batch, f"a batch that the hardware takes: {refusal}")
        if self.costs["rollouts"] != rollouts:
            raise FieldError("costs.rollouts", self.costs["rollouts"], f"n x B_p x M = {rollouts:,}")
        available, deadline = self.budget.available, self.budget.deadline_hours
        if self.to_pay(self.budget.unit) > available * (1 + SLACK):
            raise FieldError("cost", self.cost, f"at most {available:,.12g}, the budget of {self.budget}")
        if deadline is not None and (hours := self.to_pay("wall_hours")) > deadline * (1 + SLACK):
            raise FieldError("wall_hours", hours, f"at most {deadline:,.12g}, the deadline")

    @property
    def assumed(self) -> tuple[str, ...]:
        """Settings that neither a person nor the runs gave, by column of a `RunSet`."""
        return tuple(row.name for row in assumed(self.settings))

    @property
    def learning_rate(self) -> float:
        """Peak learning rate for this batch by the recipe's rule."""
        return self.recipe.learning_rate(self.rollouts_per_batch)

    @property
    def epochs(self) -> float | None:
        """Passes over the training problems, M B_p / D; None without `n_problems`."""
        return None if self.n_problems is None else self.update_steps * self.problems_per_batch / self.n_problems

    @property
    def unused_share(self) -> float:
        """Share of the available budget that the plan leaves."""
        return 1.0 - self.to_pay(self.budget.unit) / self.budget.available

    @property
    def gpus(self) -> int | None:
        """GPUs that the run occupies; None if nobody said."""
        if self.throughput is not None and self.throughput.gpus is not None:
            return self.throughput.gpus
        return max(self.hardware.gpu_counts) if "gpus" in self.hardware.model_fields_set else self.budget.gpus

    @property
    def wall_hours(self) -> float | None:
        """Wall-clock hours of the run; None without a throughput."""
        return self.costs.get("wall_hours")

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours of the run; None without a throughput."""
        return self.costs.get("gpu_hours")

    @property
    def usd(self) -> float | None:
        """Price of the run in US dollars; None without a price per GPU-hour."""
        return self.costs.get("usd")

    @property
    def about_equal(self) -> tuple[int, ...]:
        """The other n that are as good as the plan's, increasing."""
        return tuple(sorted(one.group_size for one in self.alternatives if one.kind == "near-tie"))

    @property
    def tolerances(self) -> Tolerances:
        """What counts as equal on the scale of its metric."""
        return Tolerances() if self.fits is None else self.fits.tolerances

    @property
    def compute(self) -> float:
        """The plan's compute on the axis of its fits: rollouts or tokens."""
        in_tokens = self.fits is not None and self.fits.compute == "log10_tokens"
        return float(self.costs["tokens"] if in_tokens else self.rollouts)

    @property
    def logged_speed(self) -> frozenset[str]:
        """What of its throughput the logs of the runs said: `rollouts_per_second`, `tokens_per_rollout`."""
        return frozenset(key for note in self.notes if note.code == "speed-from-runs" for key in note.data)

    @property
    def assumed_of_time(self) -> tuple[tuple[str, str], ...]:
        """What its hours assume because nobody said it, each with what says it, as options."""
        speed, found = self.throughput, list[tuple[str, str]]()
        if speed is None or self.wall_hours is None:
            return ()
        if speed.measured is not None and (speed.gpus is None or speed.measured.gpus_assumed):
            same = "as many GPUs as the runs had"
            what = same if speed.gpus is None else f"the runs had {counted(speed.gpus, 'GPU')} too"
            found.append((what, "<--set gpus=NUMBER | set={'gpus': NUMBER}> or a column gpus"))
        if speed.measured is not None and speed.measured.gpus_chosen and "gpus" not in self.hardware.model_fields_set:
            found.append(("the number of GPUs that most of the runs had", "<--gpus | hardware=>"))
        others = [str(gpus) for gpus in self.hardware.gpu_counts if gpus != speed.gpus]
        if speed.gpus is not None and speed.gpu_exponent is None and len(self.hardware.gpu_counts) > 1:
            why = f"{counted(speed.gpus, 'GPU')}, since the speed on {' or '.join(others)} is unknown"
            found.append((why, "<--gpu-exponent | gpu_exponent=>"))
        if speed.measured is not None and speed.measured.kind_assumed:
            found.append(
                ("GPUs as fast as those of the runs", "<--rollouts-per-second | Throughput(rollouts_per_second=...)>")
            )
        if speed.is_stated_without("step_overhead_seconds"):
            found.append(
                (
                    "seconds in proportion to rollouts",
                    "<--step-overhead-seconds | Throughput(step_overhead_seconds=...)>",
                )
            )
        return tuple(found)

    @property
    def runs_first(self) -> tuple[NextRun, ...]:
        """Runs to make before it; empty where none is worth its cost, or none was looked for."""
        return () if self.next_runs is None else tuple(self.next_runs.runs)

    @property
    def gains_nothing(self) -> bool:
        """Whether it is predicted to reach, as rewards are shown, less than `Tolerances.small` above a run so far."""
        return self.gain is not None and self.gain.shown < self.tolerances.small

    @property
    def approved_steps(self) -> int:
        """Update steps that its script trains: M, or those up to the check of a plan that is approved in part."""
        approval = self.approval
        return approval.step if approval and approval.kind == "part" and approval.step else self.update_steps

    @property
    def approved_costs(self) -> Mapping[str, float]:
        """What they cost, in the units of `costs`."""
        return self.costs_after(self.approved_steps)

    def to_pay(self, unit: str) -> float:
        """What it still costs in a unit of `costs`: of a run that it goes on with, only the rest."""
        return max(self.costs[unit] - self.past.get(unit, 0.0), 0.0)

    def costs_after(self, steps: int) -> Mapping[str, float]:
        """What its first update steps cost, in the units of `costs`."""
        if steps == self.update_steps:
            return self.costs
        pricing = Pricing(self.budget, self.throughput, self.evaluation, math.inf)
        return pricing.all_costs(self.rollouts_per_batch, steps)

    @property
    def approved_cost(self) -> str:
        """The same beside the whole, in words; empty where all of it is approved, or nothing."""
        part, whole = self.approved_costs, self.costs
        units = dict.fromkeys((self.budget.unit, "rollouts", "wall_hours", "usd")) if part is not whole else {}
        # What is trained is said once, in the budget's unit; time and money are those still to be paid.
        gone = {unit: self.past.get(unit, 0.0) for unit in units if unit not in (self.budget.unit, "rollouts")}
        owed = {
            unit: (part[unit] - gone.get(unit, 0.0), whole[unit] - gone.get(unit, 0.0))
            for unit in units
            if unit in whole
        }
        shown = [part_of(max(of_part, 0.0), of_whole, unit) for unit, (of_part, of_whole) in owed.items()]
        if shown and (past := self.past.get(self.budget.unit)):
            shown[0] += f", {bare(past, self.budget.unit)} of them trained"
            shown[-1] += " still to pay" if any(gone.get(unit) for unit in owed) else ""
        return ", ".join(shown)

    @property
    def check(self) -> str:
        """Where to look while it trains, what should be found there, and what its script trains; empty if nowhere."""
        if self.approval is None or self.approval.step is None:
            return ""
        text, steps = f"{self.approval.label}: {self.approval.finding}", self.approved_steps
        if steps == self.update_steps:
            return text
        trained = f"the script trains {steps:,} of {self.update_steps:,} steps"
        return f"{text}; {trained} (all: --change update_steps={self.update_steps})"

    def reward_draws(self) -> Array:
        """Predicted rewards by draw of the fits.

        Raises:
            PlanError: the plan was saved without its fits.
            FitError: the fits cannot predict this n.
        """
        if self.fits is None:
            raise PlanError("this plan was saved without its fits", "Load one that Plan.save wrote.")
        return reward_draws(self.fits, self.compute, self.group_size, self.problems_per_batch)

    def last_half_draws(self) -> Array:
        """Reward that the last half of the steps is predicted to add, by draw; errors as of `reward_draws`."""
        last_D, half = self.reward_draws(), self.compute * (self.update_steps // 2 or 0.5) / self.update_steps
        assert self.fits is not None, "it has draws"
        return last_D - reward_draws(self.fits, half, self.group_size, self.problems_per_batch)

    def launch_script(self, backend: str = "openrlhf", *, model: str | None = None, **options: Any) -> str:
        """A bash script that trains this plan; see `isocompute_sdk.api.launch_script` for the options."""
        script: str = upward.call("launch_script", self, backend, model=model, **options)
        return script

    def to_frame(self) -> pl.DataFrame:
        """The plan and its alternatives as a polars frame, one row each; the plan comes first, with kind `plan`."""
        import polars as pl

        names = ("group_size", "problems_per_batch", "update_steps", "rollouts", "predicted_reward")
        rows: list[dict[str, Any]] = [{"kind": "plan", "expected_loss": 0.0} | {n: getattr(self, n) for n in names}]
        for one in self.alternatives:
            rows.append({"kind": one.kind, "expected_loss": one.expected_loss} | {n: getattr(one, n) for n in names})
        return pl.DataFrame(
            rows, schema_overrides={"expected_loss": pl.Float64, "predicted_reward": pl.Float64}
        ).select("kind", *names, "expected_loss")

    def summary(self) -> str:
        """Verdict, plan, cost, reward and what else was close; then notes by severity, details and pilot."""
        lines = [f"{label:<24} {python_form(text)}" for label, text in answer(self)]
        lines += [note.line for note in by_severity(self.notes)]
        lines += [f"{label:<24} {text}" for label, text in details(self)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        expected = "" if self.predicted_reward is None else f"; predicted {self.metric} {self.predicted_reward:.3f}"
        if self.reward_interval is not None:
            expected += " ({:.3f} to {:.3f})".format(*self.reward_interval)
        return (
            f"Plan({self.sizes}; {self.rollouts:,} rollouts for a budget of {self.budget}{expected}; "
            f"{self.verdict.kind}; {counted(len(self.notes), 'note')})"
        )

    def _repr_html_(self) -> str:
        shown = [(label, python_form(text)) for label, text in answer(self)]
        return notebook.pairs(shown) + notebook.notes(self.notes) + notebook.pairs(details(self))

    def to_dict(self, *, with_fits: bool = True) -> dict[str, Any]:
        """JSON form; `with_fits=False` leaves out the fits, which plots and `change_plan` need."""
        return DOCUMENT.to_dict(self if with_fits else replace(self, fits=None))


DOCUMENT = Document(
    "plan",
    SCHEMA_VERSION,
    Plan,
    derived=("rollouts_per_batch", "rollouts", "learning_rate", "epochs", "gpus", "wall_hours", "gpu_hours", "usd"),
    remedy="To write one: <isocompute allocate RUNS --budget 3M --output FILE | plan.save(path)>. "
    "To change one: <isocompute launch PLAN --change NAME=VALUE | change_plan(plan, {'name': value})>.",
)


def reward_draws(fits: Fits, compute: float, group_size: int, problems_per_batch: int | None) -> Array:
    """Predicted rewards of a configuration by draw; a single one if the fits have no paired draws.

    Raises:
        FitError: a group size that the fits cannot predict.
    """
    if fits.surface is None:
        return np.array([float(fits.predict(compute, group_size, problems_per_batch).mean)])
    return fits.draws(compute, group_size, problems_per_batch)[:, 0]


VERDICTS = {
    "clear": "Decided",
    "tie": "A tie",
    "hardly-matters": "n hardly matters",
    "likely": "Our pick",
    "measure-first": "Measure first",
    "undecided": "Not decided by these runs",
    "stop-spending": "Stop early",
    "borrowed": "Not from your runs",
}
"""Kinds of verdicts in words."""
ALTERNATIVES = {
    "near-tie": "about equal",
    "close": "above those that were run",
    "on-grid": "best up to the largest that was run",
    "beyond-grid": "predicted better, never run",
    "best-by-curves": "best by the curves alone",
    "next-power-of-two": "next power of two",
    "before-change": "before the change",
    "other": "another n",
}
"""Kinds of alternatives in words."""
LIMITS = {
    "budget": "the budget",
    "deadline": "the deadline",
    "update_steps": "M, which is fixed",
    "worthwhile": "the reward: more steps add almost nothing",
    "min_update_steps": "the smallest M allowed",
    "max_rollouts_per_batch": "the largest batch allowed",
    "divisible_by": "multiples of the GPU count",
    "rollouts_per_batch": "the batch, which is fixed",
    "problems_per_batch": "B_p, which is fixed",
    "throughput": "the batches that were timed",
    "group_size_grid": "the group sizes that were run",
}
"""What ends or limits a plan, in words."""
UNITS = ("gpu_hours", "usd", "rollouts", "tokens")
"""What a plan costs beside time, in the order in which it is shown."""
CAPS = ("max_rollouts_per_batch", "divisible_by", "throughput")
"""Those of them that keep a batch from being larger."""


def answer(plan: Plan) -> list[tuple[str, str]]:
    """What decides, as (label, text): verdict, n, B_p and M, cost, reward, what else was close.

    Where no run rises there is no plan to train, only the verdict.
    """
    decided = [
        ("verdict", f"{VERDICTS.get(plan.verdict.kind, plan.verdict.kind)}: {plan.verdict.sentence}"),
        *([("odds", plan.verdict.odds)] if plan.verdict.odds else []),
        *_asked(plan),
    ]
    if plan.fits is not None and plan.fits.no_rise:
        return decided
    n, problems, steps = plan.group_size, plan.problems_per_batch, plan.update_steps
    values, yours = assumed_values(plan), f"<--recipe-value NAME=VALUE, or --recipe {plan.recipe.based_on} | recipe=>"
    cap = [LIMITS[name] for name in plan.binding if name in CAPS]
    if plan.unlimited is not None:
        cap = [one for one in cap if one not in (LIMITS["max_rollouts_per_batch"], LIMITS["throughput"])]
    if problems == plan.n_problems:
        cap.append(f"the problem set: B_p is all {problems} of it")
    found = [
        *decided,
        ("plan", f"n = {n} rollouts for each of B_p = {counted(problems, 'problem')}, M = {steps:,} steps"),
        ("rollouts", f"{plan.rollouts:,} = {n} x {problems} x {steps:,}; {plan.rollouts_per_batch:,} per batch"),
        *([("batch capped by", "; ".join(cap))] if cap else []),
        *(
            [("your limits", "{}: {}; without: {}".format(*limits(plan, plan.unlimited)))]
            if plan.unlimited is not None
            else []
        ),
        ("learning rate", learning_rate(plan)),
        *([("assumed", f"{values}; to change: {yours}")] if values else []),
        *([("problem set", sets)] if (sets := problem_sets(plan)) else []),
        ("cost", _cost(plan)),
        *_total(plan),
        (f"predicted {plan.metric}", _reward(plan)),
        *_gain(plan),
    ]
    if plan.odds is None and (sizes := best_sizes(plan)):
        found.append(("best n", f"{sizes}, with 80 % probability"))
    found += [(f"best n for {metric}", str(size)) for metric, size in plan.other_metrics.items()]
    return [*found, *_under("also close", _close(plan))]


def limits(plan: Plan, without: Unlimited) -> tuple[str, str, str]:
    """The limits that were asked for, what they cost by the rewards as shown, and the plan without them."""
    free = without.plan
    if free.sizes == plan.sizes:
        return joined(without.asked), "costs nothing", "the same plan"
    if free.predicted_reward is None or plan.predicted_reward is None:
        return joined(without.asked), "cost not predicted", free.sizes
    lost = round(round(free.predicted_reward, 3) - round(plan.predicted_reward, 3), 3)
    costs = f"costs {lost:.3f} of reward" if lost > 0 else "costs nothing"
    return joined(without.asked), costs, f"{free.sizes} ({free.predicted_reward:.3f})"


def _asked(plan: Plan) -> list[tuple[str, str]]:
    """The approval, and what to run first unless the verdict leaves no question."""
    approval, first, found = plan.approval, plan.next_runs, list[tuple[str, str]]()
    if approval is not None:
        finding = f"; {approval.finding}" if approval.finding else ""
        label = approval.label + (f" ({plan.approved_cost})" if plan.approved_cost else "")
        told = approval.reason == plan.verdict.sentence
        found.append(("approval", label if told else f"{label}: {approval.reason}{finding}"))
    if first is not None and first.reason not in (plan.verdict.sentence, approval and approval.reason):
        runs = [run.describe(first.unit) for run in first.runs]
        found += [("run first", text) for text in runs or ["no pilot run is worth its cost"]]
        if len(runs) > 1 and first.saving:
            cost = amount_text(first.cost, first.unit)
            found.append(("together", f"{cost}, {first.share:.1%} of the budget, {worth(first.saving)}"))
    return found


def _close(plan: Plan) -> list[str]:
    """The alternatives worth knowing about, by what makes them so: those of a tie by n and reward alone."""
    order, by_words = [*ALTERNATIVES], dict[str, list[Alternative]]()
    for one in sorted(plan.alternatives, key=lambda one: (order.index(one.kind), one.group_size)):
        by_words.setdefault(ALTERNATIVES[one.kind], []).append(one)
    by_words.pop(ALTERNATIVES["other"], None)
    texts = list[str]()
    for words, same in by_words.items():
        listed = [describe(one) for one in same]
        if same[0].kind in ("near-tie", "close") and plan.predicted_reward is not None:
            listed = ["n = " + ", ".join(f"{one.group_size} ({one.predicted_reward:.3f})" for one in same)]
        texts += [f"{text}, {words}" for text in listed]
    return texts


def best_sizes(plan: Plan) -> str:
    """The plan's n with those about equal to it; of a law, the band of the best one (80 %); empty if one n was run."""
    if plan.fits is not None and plan.fits.only_size:
        return ""
    if plan.odds is not None:
        return ", ".join(map(str, sorted([plan.group_size, *plan.about_equal])))
    if plan.group_size_interval is None:
        return ""
    low, high = plan.group_size_interval
    return f"{low} to {high}" if low < high else str(low)


def learning_rate(plan: Plan) -> str:
    """The learning rate and where it comes from; that it is unknown where neither the runs nor a person gave one."""
    sources = {row.name: row.source for row in plan.settings}
    whence = sources.get("learning_rate", "assumed")
    if whence == "assumed":
        given = (
            "<--recipe-value learning_rate=RATE | recipe=Recipe(learning_rate_anchor=RATE, "
            "learning_rate_rule='constant')>"
        )
        return f"unknown, {plan.learning_rate:.3g} assumed: give that of your runs ({given})"
    origin = {"runs": "from the runs", "given": "given", "preset": plan.recipe.name}[whence]
    rule = f"{plan.recipe.learning_rate_rule} rule"
    how = f"{origin}; {rule} assumed" if sources.get("learning_rate_rule") == "assumed" else f"{rule}, {origin}"
    return f"{plan.learning_rate:.3g} ({how})"


def assumed_values(plan: Plan) -> str:
    """Settings of the plan that neither its runs nor a person gave, by their recipe fields; empty without any."""
    rows = [row for row in assumed(plan.settings) if row.name != "learning_rate"]
    # What changes the loss first: a narrow screen ends the list early.
    rows.sort(key=lambda row: not row.name.endswith("_coef"))
    values = [f"{RECIPE_FIELDS.get(row.name, row.name)} = {shown((row.plan,))}" for row in rows]
    fits = plan.fits
    if fits is not None and fits.curves and not fits.problems_per_batch and "problems_per_batch" not in plan.options:
        values.insert(0, f"B_p = {plan.problems_per_batch} (if the runs had another: --set problems_per_batch=BP)")
    return ", ".join(values)


def details(plan: Plan) -> list[tuple[str, str]]:
    """The rest, as (label, text): what limits the plan, evaluations and other costs, recipe, passport."""
    found = [("limited by", ", ".join(LIMITS.get(name, name.replace("_", " ")) for name in plan.binding))]
    if plan.predicted_reward is not None:
        # Without a reward they were described in full.
        same = [one for one in plan.alternatives if one.kind in ("near-tie", "close")]
        found += _under("other n", map(describe, same))
    if plan.law_group_size is not None:
        found.append(("n by the law", f"{plan.law_group_size:.0f}"))
    if plan.epochs is not None:
        found.append(("epochs", f"{plan.epochs:.2f} over {plan.n_problems:,} problems"))
    found.append(("evaluation", _evaluation(plan)))
    parts = {part: a for part, a in plan.breakdown.items() if part not in ("training", "evaluation")}
    found += [
        (label, ", ".join(amount_text(value, unit) for unit, value in amounts.items()))
        for label, amounts in parts.items()
    ]
    unlike = [f"{row.name}: {row.described}" for row in plan.settings if row.differs]
    lines = () if plan.passport is None else plan.passport.lines()
    return [*found, *_under("unlike the runs", unlike), *_under("fit checks", lines)]


def _under(label: str, lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Lines, the first of them with the label."""
    return zip(chain([label], repeat("")), lines, strict=False)


def describe(alternative: Alternative) -> str:
    """One alternative on one line."""
    text, reward, loss = alternative.sizes, alternative.predicted_reward, alternative.expected_loss
    if reward is None:
        return text if loss is None else f"{text} ({-loss:+.3f} of the gain)"
    # The difference of the rewards as shown.
    lost = "" if loss is None else f" ({round(reward, 3) - round(reward + loss, 3):+.3f})"
    return f"{text}: {reward:.3f}{lost}"


def problem_sets(plan: Plan) -> str:
    """For how many training problems the plan is, where its runs had several numbers of them."""
    sets = next((row.runs for row in plan.settings if row.name == "n_problems"), ())
    if plan.n_problems is None or len(sets) < 2:
        return ""
    return f"{plan.n_problems:,} training problems; the runs had {shown(sets)}: <--n-problems D | n_problems=>"


def _cost(plan: Plan) -> str:
    budget, unit = plan.budget, plan.budget.unit
    text, late = to_pay(plan), "; the deadline allows no more" * ("deadline" in plan.binding)
    if budget.spent:
        spent = amount_text(budget.committed, unit)
        return f"{text} left ({amount_text(budget.amount, unit)} less {spent} spent){late}"
    share = 1 - plan.unused_share
    if plan.stopping is not None:
        rest = f"the rest{' within the deadline' if late else ''} adds {small(plan.stopping.gain)}"
        return f"{text} ({share:.0%}); {rest} (to spend it: <--spend all | spend='all'>)"
    return f"{text}, {share:.1%} of the budget{late}"


def to_pay(plan: Plan) -> str:
    """What is still to be paid for it beside what is left of the budget, in words."""
    return part_of(plan.to_pay(plan.budget.unit), plan.budget.available, plan.budget.unit)


def _total(plan: Plan) -> list[tuple[str, str]]:
    """Time, and the cost in every unit; nothing without a throughput."""
    if plan.wall_hours is None:
        return []
    units = [unit for unit in UNITS if unit in plan.costs]
    gpus = None if plan.throughput is None else plan.throughput.gpus
    together = [amount_text(plan.wall_hours, "wall_hours") + ("" if gpus is None else f" on {counted(gpus, 'GPU')}")]
    words = {"rollouts_per_second": "speed", "tokens_per_rollout": "lengths"}
    read = [what for key, what in words.items() if key in plan.logged_speed]
    said = [f"{joined(read)} from the logs of the runs"] if read else []
    if assumed := plan.assumed_of_time:
        said.append(f"assumed: {'; '.join(f'{what}: {remedy}' for what, remedy in assumed)}")
    together[0] += f" ({'; '.join(said)})" if said else ""
    of, unit = plan.breakdown["evaluation"], "wall_hours" if gpus is None else "gpu_hours"
    evaluations = amount_text(of[unit], unit)
    text = ", ".join(together + [amount_text(plan.costs[unit], unit) for unit in units])
    if plan.asked_evaluation is None:
        evaluations += f"; assumed: {evaluated(plan.evaluation)}: <--evaluation | evaluation=>"
    time = "hours and dollars" if "usd" in units else "hours"
    counts = "rollouts and tokens" if "tokens" in units else "rollouts"
    return [("in total", f"{text}; {time} include evaluations ({evaluations}), {counts} do not")]


def _reward(plan: Plan) -> str:
    if plan.predicted_reward is not None:
        text = f"{plan.predicted_reward:.3f}{scale_of(plan)} on average over runs"
    elif plan.fits is not None and plan.fits.curves and plan.fits.model:
        text = f"not predicted: the runs are of {plan.fits.model}"
    else:
        text = "not predicted: no reward curve for this n, model and metric"
    if plan.reward_interval is not None:
        text += " (80 % interval {:.3f} to {:.3f})".format(*plan.reward_interval)
    if plan.extrapolation is not None:
        text += f", at {multiple(plan.extrapolation)} x the largest run"
    return text


def scale_of(plan: Plan) -> str:
    """Lowest and highest value of the metric, where that is not the usual 0 to 1."""
    low, high = (0.0, 1.0) if plan.fits is None else plan.fits.bounds
    return "" if (low, high) == (0, 1) else f" (of {low:g} to {high:g})"


def _gain(plan: Plan) -> list[tuple[str, str]]:
    """What the plan gains over the best run so far, as rewards are shown; not where it is nothing or runs come first.

    Of a plan that is approved in part, what that part gains stands before it.
    """
    refused = plan.approval is not None and plan.approval.kind == "do-not"
    if plan.gain is None or (refused and (plan.gains_nothing or plan.runs_first)):
        return []
    # As shown: the rewards on the screen differ by it.
    best = round(plan.gain.best.reward, 3)
    ends = [round(reward, 3) - best for reward in plan.reward_interval or ()]
    part = None if plan.approval is None else plan.approval.gain
    over = "over the best run so far"
    text = f"{plan.gain.shown:+.3f} {over}"
    if part is not None:
        text = f"{part.shown:+.3f} {over} at step {plan.approved_steps:,}; {plan.gain.shown:+.3f} with the whole plan"
    if ends and plan.gain.probability is not None:
        text += " (80 % interval {:+.3f} to {:+.3f}; higher with probability {})".format(
            *ends, chance_text(plan.gain.probability)
        )
    return [("gain", text)]


def _evaluation(plan: Plan) -> str:
    evaluation, spent = plan.evaluation, plan.breakdown["evaluation"]
    unit = next(unit for unit in ("gpu_hours", "wall_hours", "rollouts") if unit in spent)
    share = spent[unit] / plan.breakdown["training"][unit]
    return (
        f"every {counted(evaluation.every_steps, 'step')}, {evaluated(evaluation)}: "
        f"{amount_text(spent[unit], unit)}, {share:.1%} of training"
    )
