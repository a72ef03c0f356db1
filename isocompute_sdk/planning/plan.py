"""`Plan`: one executable allocation, the numbers behind it, near-ties and notes; saved as JSON, shown as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, PlainSerializer

from isocompute_sdk import notebook
from isocompute_sdk.documents import Converted, Document
from isocompute_sdk.errors import FieldError, PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers.contrast import Place, draws_at
from isocompute_sdk.fitting.surface.answers.passport import Passport
from isocompute_sdk.notes import Note, by_severity
from isocompute_sdk.planning.assessment.alternatives import Alternative, Optimum
from isocompute_sdk.planning.assessment.verdict import Verdict
from isocompute_sdk.planning.choosing.pricing import DEFAULT_EVALUATION, Pricing, amount_text
from isocompute_sdk.planning.inheritance import Setting
from isocompute_sdk.specs import Budget, Evaluation, Hardware, Recipe, Sweep, Throughput
from isocompute_sdk.specs.sweep import Sized

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 2
SLACK = 1e-9
"""Relative difference that rounding may make between two ways to compute one cost."""

GIVEN_FIELDS = PlainSerializer(lambda spec: spec.model_dump(mode="json", exclude_none=True))
"""Saves a spec without the fields that are None."""


def _fits_to_json(fits: Fits | None) -> dict[str, Any] | None:
    return None if fits is None else fits.to_dict(with_runs=False)


def _fits_from_json(raw: Any) -> Fits | None:
    return None if raw is None else Fits.from_dict(raw)


def _check_amounts(where: str, received: Mapping[str, float], expected: Mapping[str, float], why: str) -> None:
    """Raise a FieldError at the first amount that is not the expected one."""
    for name in [*expected, *received]:
        path = f"{where}.{name}" if where else name
        if name not in expected:
            raise FieldError(path, received[name], f"only {', '.join(expected)}")
        amount = received.get(name)
        if amount is None or abs(amount - expected[name]) > SLACK * abs(expected[name]):
            raise FieldError(path, amount, f"{expected[name]:,.12g}: {why} {expected[name]:,.12g}")


@dataclass(frozen=True, kw_only=True)
class Plan(Sized):
    """How to spend a budget: C = group_size * problems_per_batch * update_steps rollouts."""

    saved_verdict: Annotated[Verdict | None, Field(alias="verdict")] = field(default=None, repr=False, compare=False)
    """The verdict of a plan that was read from a file; None in older files and in new plans."""
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
    """Cost in every unit that the throughput can express. Rollouts and tokens are those of training."""
    recipe: Recipe
    hardware: Hardware
    throughput: Throughput | None
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
    """80 % band of the best n; None without draws."""
    law_group_size: float | None
    """Real-valued n of the law at this compute, before constraints and rounding; None without a law."""
    extrapolation: float | None
    """Planned compute over the largest compute seen; None without runs."""
    binding: tuple[str, ...]
    """Constraints that limited the plan: `budget`, `deadline`, `max_rollouts_per_batch`, ..."""
    alternatives: tuple[Alternative, ...]
    notes: tuple[Note, ...]
    settings: tuple[Setting, ...] = ()
    """Recipe of the runs and of this plan side by side; empty without runs and in plans of earlier releases."""
    pilot: Annotated[Sweep, GIVEN_FIELDS] | None = None
    """A sweep that would narrow the answer; None for plans from runs of the user's own."""
    other_metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    """Best n for the other metrics of a `FitsSet`."""
    passport: Passport | None = None
    """How far the fits extrapolate; None without a surface."""
    evaluation: Evaluation | None = None
    """How the run is evaluated: as often as asked, within the share of cost allowed. None in older plans."""
    evaluation_counted: bool = False
    """Whether hours and money in `cost` and `costs` include the evaluations."""
    breakdown: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    """Cost by purpose (training, evaluation, start, and what the budget has already spent) and unit, including parts
    that the budget does not pay."""
    optima: tuple[Optimum, ...] = ()
    """Best per rollout and best per GPU-hour for what this plan spends."""
    fits: Annotated[Fits | None, Converted(_fits_to_json, _fits_from_json)] = field(
        default=None, repr=False, compare=False
    )
    """The fits behind the plan, without their table of runs; None if they were not saved with it."""

    def __post_init__(self) -> None:
        for name, least in (("group_size", 2), ("problems_per_batch", 1), ("update_steps", 1), ("n_problems", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise FieldError(name, value, f"a whole number, {least} or more")
        self._check_costs()
        self._check_answers()

    def _check_costs(self) -> None:
        """The costs follow from n, B_p, M, budget and throughput, and the machines can pay for and hold them.

        Raises:
            FieldError: another number.
        """
        refusal = self.hardware.refusal(self.rollouts_per_batch)
        if refusal is not None:
            raise FieldError(
                "rollouts_per_batch", self.rollouts_per_batch, f"a batch that the hardware takes: {refusal}"
            )
        pricing = Pricing(
            self.budget, self.throughput, self.evaluation or DEFAULT_EVALUATION, 1.0, self.evaluation_counted
        )
        expected = pricing.all_costs(self.rollouts_per_batch, self.update_steps)
        where = f"group_size = {self.group_size} x problems_per_batch = {self.problems_per_batch} x update_steps = "
        where += f"{self.update_steps:,} costs"
        _check_amounts("costs", self.costs, expected, where)
        _check_amounts("", {"cost": self.cost}, {"cost": expected[self.budget.unit]}, where)
        if self.breakdown:
            parts = pricing.parts(self.rollouts_per_batch, self.update_steps)
            for part, amounts in parts.items():
                _check_amounts(f"breakdown.{part}", self.breakdown.get(part, {}), amounts, where)
        limits = [("cost", self.cost, self.budget.available, f"budget of {self.budget}")]
        if self.budget.deadline_hours is not None:
            limits.append(("wall_hours", self.costs["wall_hours"], self.budget.deadline_hours, "deadline"))
        for name, spent, limit, what in limits:
            if spent > limit * (1 + SLACK):
                raise FieldError(name, spent, f"at most {limit:,.12g}, the {what}")

    def _check_answers(self) -> None:
        """Predictions lie within the metric's range, and intervals are ordered.

        Raises:
            FieldError: another number.
        """
        low, high = (-math.inf, math.inf) if self.fits is None else self.fits.bounds
        slack = SLACK * self.span
        rewards = {"predicted_reward": self.predicted_reward}
        rewards |= {f"reward_interval[{i}]": end for i, end in enumerate(self.reward_interval or ())}
        rewards |= {f"alternatives[{i}].predicted_reward": a.predicted_reward for i, a in enumerate(self.alternatives)}
        for name, reward in rewards.items():
            if reward is not None and not low - slack <= reward <= high + slack:
                raise FieldError(name, reward, f"within the range of {self.metric}, {low:g} to {high:g}")
        for name, interval in (
            ("reward_interval", self.reward_interval),
            ("group_size_interval", self.group_size_interval),
        ):
            if interval is not None and interval[0] > interval[1]:
                raise FieldError(name, interval, "the lower end first")
        positive = {"group_size_interval[0]": (self.group_size_interval or (1,))[0]}
        positive |= {f"other_metrics.{metric}": n for metric, n in self.other_metrics.items()}
        for name, value in (
            *positive.items(),
            ("law_group_size", self.law_group_size),
            ("extrapolation", self.extrapolation),
        ):
            if value is not None and value <= 0:
                raise FieldError(name, value, "above 0")

    @property
    def learning_rate(self) -> float:
        """Peak learning rate for this batch by the recipe's rule."""
        return self.recipe.learning_rate(self.rollouts_per_batch)

    @property
    def epochs(self) -> float | None:
        """Passes over the training problems, M B_p / D; None without `n_problems`."""
        return None if self.n_problems is None else self.update_steps * self.problems_per_batch / self.n_problems

    @property
    def verdict(self) -> Verdict:
        """How decisively the data support n."""
        return self.saved_verdict if self.saved_verdict is not None else Verdict.of(self)

    @property
    def unused_share(self) -> float:
        """Share of the available budget that the plan leaves."""
        return 1.0 - self.cost / self.budget.available

    @property
    def gpus(self) -> int:
        """GPUs that the run occupies."""
        return self.throughput.gpus if self.throughput is not None else max(self.hardware.gpu_counts)

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
    def span(self) -> float:
        """Width of the metric's range."""
        return 1.0 if self.fits is None else self.fits.bounds[1] - self.fits.bounds[0]

    @property
    def compute(self) -> float:
        """The plan's compute on the axis of its fits: rollouts or tokens."""
        in_tokens = self.fits is not None and self.fits.compute == "log10_tokens"
        return float(self.costs["tokens"] if in_tokens else self.rollouts)

    def reward_draws(self) -> Array:
        """Predicted rewards by draw of the fits.

        Raises:
            PlanError: the plan was saved without its fits.
            FitError: the fits cannot predict this n.
        """
        if self.fits is None:
            raise PlanError("this plan was saved without its fits", "Load one that Plan.save wrote.")
        return reward_draws(self.fits, self.compute, self.group_size, self.problems_per_batch)

    def launch_script(self, backend: str = "openrlhf", *, model: str | None = None, **options: Any) -> str:
        """A bash script that trains this plan; see `isocompute_sdk.api.launch_script` for the options."""
        from isocompute_sdk.api import launch_script

        return launch_script(self, backend, model=model, **options)

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
        """Table of the plan, its alternatives, its notes and its pilot."""
        lines = [f"{label:<24} {text}" for label, text in self.rows()]
        lines += [f"{a.kind:<24} {describe(a)}" for a in self.alternatives if a.kind != "other"]
        lines += [f"[{note.severity}] {note.code}: {note.message}" for note in by_severity(self.notes)]
        if self.pilot is not None:
            lines.append(describe_pilot(self.pilot))
        return "\n".join(lines)

    def rows(self) -> list[tuple[str, str]]:
        """The plan as (label, text) pairs in reading order, the verdict first."""
        n, problems, steps = self.group_size, self.problems_per_batch, self.update_steps
        spent, available = (amount_text(part, self.budget.unit) for part in (self.cost, self.budget.available))
        whence = {row.name: row.source for row in self.settings}.get("learning_rate", "preset")
        origin = {"runs": "from the runs", "given": "given", "preset": self.recipe.name}[whence]
        rule = f"{self.recipe.learning_rate_rule} rule, {origin}"
        found = [
            ("verdict", f"{self.verdict.kind}: {self.verdict.sentence}"),
            ("group size n", _group_size(self)),
            ("problems per batch B_p", f"{problems}"),
            ("update steps M", f"{steps:,}"),
            ("rollouts C", f"{self.rollouts:,} = {n} x {problems} x {steps:,}"),
            ("rollouts per batch B", f"{self.rollouts_per_batch:,}"),
            ("learning rate", f"{self.learning_rate:.3g} ({rule})"),
            ("cost", f"{spent} of {available} ({1 - self.unused_share:.1%})"),
            *_expenses(self),
        ]
        if self.epochs is not None:
            found.append(("epochs", f"{self.epochs:.2f} over {self.n_problems:,} problems"))
        found.append((f"predicted {self.metric}", _reward(self)))
        if self.extrapolation is not None:
            found.append(("extrapolation", f"{self.extrapolation:.2g} x the largest compute seen"))
        found.append(("ends by", ", ".join(self.binding)))
        unlike = [row for row in self.settings if row.differs]
        found += [("unlike the runs" if i == 0 else "", f"{row.name}: {row.described}") for i, row in enumerate(unlike)]
        found += [(f"best n for {metric}", str(n)) for metric, n in self.other_metrics.items()]
        lines = () if self.passport is None else self.passport.lines()
        return found + [("passport" if i == 0 else "", line) for i, line in enumerate(lines)]

    def __repr__(self) -> str:
        expected = "" if self.predicted_reward is None else f"; predicted {self.metric} {self.predicted_reward:.3f}"
        if self.reward_interval is not None:
            expected += " ({:.3f} to {:.3f})".format(*self.reward_interval)
        return (
            f"Plan(n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}; "
            f"{self.rollouts:,} rollouts for a budget of {self.budget}{expected}; {self.verdict.kind}; "
            f"{len(self.notes)} notes)"
        )

    def _repr_html_(self) -> str:
        return notebook.pairs(self.rows()) + notebook.notes(self.notes)

    def save(self, path: str | Path) -> Path:
        """Write as JSON; a kill leaves the old file or the new one.

        Raises:
            IsoComputeError: the file cannot be written.
        """
        return DOCUMENT.save(path, self._complete())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read what `save` wrote.

        Raises:
            IsoComputeError: no such file, other content, another schema version, or a number that was changed after
                saving or contradicts another.
        """
        return DOCUMENT.load(path)

    def to_dict(self, *, with_fits: bool = True) -> dict[str, Any]:
        """JSON form; `with_fits=False` leaves out the fits, which plots and `change_plan` need."""
        plan = self._complete()
        return DOCUMENT.to_dict(plan if with_fits else replace(plan, fits=None))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Plan:
        """Inverse of `to_dict`.

        Raises:
            IsoComputeError: as `load`.
        """
        return DOCUMENT.from_dict(raw)

    def _complete(self) -> Plan:
        """With the verdict, which needs the fits and must outlive them."""
        return replace(self, saved_verdict=self.verdict)


DOCUMENT = Document(
    "plan",
    SCHEMA_VERSION,
    Plan,
    derived=("rollouts_per_batch", "rollouts", "learning_rate", "epochs", "gpus", "wall_hours", "gpu_hours", "usd"),
    digest=True,
    remedy="Restore the saved file, or change the plan with: isocompute launch PLAN --change group_size=...",
)


def reward_draws(fits: Fits, compute: float, group_size: int, problems_per_batch: int) -> Array:
    """Predicted rewards of a configuration by draw; a single one if the fits have no paired draws.

    Raises:
        FitError: a group size that the fits cannot predict.
    """
    predicted = fits.predict(compute, group_size, problems_per_batch)
    if fits.surface is None:
        return np.array([float(predicted.mean)])
    # B_p is asked at most an octave outside those that were run.
    problems = fits.reachable_problems_per_batch(problems_per_batch)
    return draws_at(fits.surface, Place(compute, float(group_size), problems))


def describe(alternative: Alternative) -> str:
    """One alternative on one line."""
    a = alternative
    text = f"n = {a.group_size}, B_p = {a.problems_per_batch}, M = {a.update_steps:,}"
    if a.predicted_reward is not None:
        text += f", predicted {a.predicted_reward:.3f}"
    if a.expected_loss is not None:
        text += f" ({-a.expected_loss:+.3f})"
    return text


def describe_pilot(pilot: Sweep) -> str:
    """A pilot sweep in one sentence."""
    sizes = ", ".join(map(str, pilot.group_size))
    return (
        f"A pilot that would narrow this: n = {sizes} at B_p = {pilot.problems_per_batch[0]}, "
        f"{pilot.rollouts:,} rollouts each, then fit and plan again."
    )


def _group_size(plan: Plan) -> str:
    text = str(plan.group_size)
    if plan.law_group_size is not None:
        text += f" (law: {plan.law_group_size:.0f})"
    if plan.group_size_interval is not None:
        low, high = plan.group_size_interval
        text += f", 80 % band {low} to {high}"
    return text


def _reward(plan: Plan) -> str:
    if plan.predicted_reward is None:
        return "not predicted: no reward curve for this n, model and metric"
    text = f"{plan.predicted_reward:.3f}"
    if plan.reward_interval is not None:
        low, high = plan.reward_interval
        text += f" (80 % interval {low:.3f} to {high:.3f}, see notes)"
    return text


def _expenses(plan: Plan) -> list[tuple[str, str]]:
    """Rows on time and money: the totals, the cost by purpose, and both optima."""
    found: list[tuple[str, str]] = []
    if plan.wall_hours is not None:
        units = [unit for unit in ("gpu_hours", "usd", "rollouts", "tokens") if unit in plan.costs]
        together = [f"{amount_text(plan.wall_hours, 'wall_hours')} on {plan.gpus} GPU(s)"]
        found.append(("in all", ", ".join(together + [amount_text(plan.costs[unit], unit) for unit in units])))
    if plan.evaluation is not None and "evaluation" in plan.breakdown:
        found.append(("evaluation", _evaluation(plan)))
    parts = {part: a for part, a in plan.breakdown.items() if part not in ("training", "evaluation")}
    found += [
        (label, ", ".join(amount_text(value, unit) for unit, value in amounts.items()))
        for label, amounts in parts.items()
    ]
    texts = [_optimum(o) for o in plan.optima]
    if texts and len(set(texts)) == 1:
        return [*found, ("best per both", f"rollout and GPU-hour: {texts[0]}")]
    return found + [(f"best per {o.per.replace('_', '-')}", text) for o, text in zip(plan.optima, texts, strict=True)]


def _evaluation(plan: Plan) -> str:
    evaluation, spent = plan.evaluation, plan.breakdown["evaluation"]
    assert evaluation is not None, "checked by the caller"
    unit = "gpu_hours" if "gpu_hours" in spent else "rollouts"
    share = spent[unit] / plan.breakdown["training"][unit]
    problems = "all problems" if evaluation.n_problems is None else f"{evaluation.n_problems} problems"
    placed = "included above" if plan.evaluation_counted else "not included above"
    return (
        f"every {evaluation.every_steps:,} steps, {problems} x {evaluation.samples}: {amount_text(spent[unit], unit)}, "
        f"{share:.1%} of training, {placed}"
    )


def _optimum(optimum: Optimum) -> str:
    o = optimum
    reached = "none" if o.reward_at_equal_gpu_hours is None else f"{o.reward_at_equal_gpu_hours:.3f}"
    return (
        f"n = {o.group_size}, B_p = {o.problems_per_batch}, {o.gpus} GPU(s): {o.reward_at_equal_rollouts:.3f} with the "
        f"plan's rollouts ({amount_text(o.gpu_hours_at_equal_rollouts, 'gpu_hours')}), {reached} in its GPU-hours "
        f"({o.rollouts_at_equal_gpu_hours:,} rollouts)"
    )
