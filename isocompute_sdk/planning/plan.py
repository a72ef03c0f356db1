"""`Plan`: one executable allocation, what it rests on and what else was close."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainSerializer

from isocompute_sdk.documents import Converted, Document
from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.passport import Passport
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.optima import Optimum
from isocompute_sdk.planning.pricing import DEFAULT_EVALUATION, Pricing
from isocompute_sdk.planning.verdict import Verdict, verdict_of
from isocompute_sdk.specs import Budget, Evaluation, Hardware, Recipe, Sweep, Throughput

SCHEMA_VERSION = 2
SLACK = 1e-9
"""Relative difference that rounding may make between two ways to compute one cost."""

_GIVEN_FIELDS = PlainSerializer(lambda spec: spec.model_dump(mode="json", exclude_none=True))
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


@dataclass(frozen=True)
class Alternative:
    """Another allocation worth knowing about, at the same budget."""

    kind: str
    """`near-tie`, `on-grid`, `conservative`, `best-by-curves` or `next-power-of-two`."""
    group_size: int
    problems_per_batch: int
    update_steps: int
    predicted_reward: float | None = None
    """Predicted reward, where the fits can tell."""
    expected_loss: float | None = None
    """Predicted reward (or, for a prior, share of the gain) lost against the plan; negative where it is better."""

    @property
    def rollouts(self) -> int:
        """C = n B_p M."""
        return self.group_size * self.problems_per_batch * self.update_steps


@dataclass(frozen=True)
class Plan:
    """How to spend a budget: C = group_size * problems_per_batch * update_steps rollouts."""

    group_size: int
    """Rollouts per problem, n."""
    problems_per_batch: int
    """Problems per update batch, B_p."""
    update_steps: int
    """Policy updates, M."""
    budget: Annotated[Budget, _GIVEN_FIELDS]
    cost: float
    """Cost in the budget's own unit, at most what the budget has left."""
    costs: Mapping[str, float]
    """Cost in every unit that the throughput can express. Rollouts and tokens are those of training."""
    recipe: Recipe
    hardware: Hardware
    throughput: Throughput | None
    metric: str
    model: str | None
    """Model that the plan is for; None where nobody said."""
    n_problems: int | None
    """Distinct training problems, where known."""
    predicted_reward: float | None
    """Reward of the best checkpoint, noise-free; None where the fits hold no reward data for it."""
    reward_interval: tuple[float, float] | None
    """80 % interval for `predicted_reward`; None where it cannot be given."""
    group_size_interval: tuple[int, int] | None
    """80 % band of the best n, rounded outward to powers of two; None where it cannot be given."""
    law_group_size: float | None
    """Real-valued n that the law gives at this compute, before constraints and rounding."""
    extrapolation: float | None
    """Planned compute over the largest compute seen; None where there is nothing to compare with."""
    binding: tuple[str, ...]
    """What stopped the plan from doing better: `budget`, `deadline`, `max_rollouts_per_batch`, ..."""
    alternatives: tuple[Alternative, ...]
    notes: tuple[Note, ...]
    pilot: Annotated[Sweep, _GIVEN_FIELDS] | None = None
    """A sweep that would narrow the answer, for plans without data of their own."""
    other_metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    """Best n for the other metrics of a `FitsSet`."""
    passport: Passport | None = None
    """How far the fits carry, their backtest first; None for a law without runs of one's own."""
    evaluation: Evaluation | None = None
    """How the run is measured: as often as asked, but within the share of cost allowed. None in older plans."""
    evaluation_counted: bool = False
    """Whether hours and money in `cost` and `costs` hold the evaluations."""
    breakdown: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    """Cost by purpose (training, evaluation, start; pilot, labelling, probes and lost attempts as the budget says) and
    unit, whether counted or not."""
    optima: tuple[Optimum, ...] = ()
    """Best per rollout and best per GPU-hour, at what this plan spends."""
    fits: Annotated[Fits | None, Converted(_fits_to_json, _fits_from_json)] = field(
        default=None, repr=False, compare=False
    )
    """What the plan was made from, without the table of runs."""
    saved_verdict: Annotated[Verdict | None, Field(alias="verdict")] = field(default=None, repr=False, compare=False)
    """The verdict of a plan that was read from a file; None in older ones."""

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
        rewards = {"predicted_reward": self.predicted_reward}
        rewards |= {f"reward_interval[{i}]": end for i, end in enumerate(self.reward_interval or ())}
        rewards |= {f"alternatives[{i}].predicted_reward": a.predicted_reward for i, a in enumerate(self.alternatives)}
        for name, reward in rewards.items():
            if reward is not None and not low <= reward <= high:
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
    def rollouts_per_batch(self) -> int:
        """B = n B_p."""
        return self.group_size * self.problems_per_batch

    @property
    def rollouts(self) -> int:
        """C = n B_p M."""
        return self.rollouts_per_batch * self.update_steps

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
        """What the plan amounts to: a clear n, a tie, or a question instead of an answer."""
        return self.saved_verdict if self.saved_verdict is not None else verdict_of(self)

    @property
    def unused_share(self) -> float:
        """Share of the budget that the plan leaves."""
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
        """Price of the run in US dollars; None where no price is known."""
        return self.costs.get("usd")

    def launch_script(self, backend: str = "openrlhf", *, model: str | None = None, **options: Any) -> str:
        """A bash script that trains this plan; see `isocompute_sdk.api.launch_script` for the options."""
        from isocompute_sdk.api import launch_script

        return launch_script(self, backend, model=model, **options)

    def summary(self) -> str:
        """The plan as text."""
        from isocompute_sdk.planning.report import summarise

        return summarise(self)

    def _repr_html_(self) -> str:
        from isocompute_sdk.planning.report import to_html

        return to_html(self)

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
        """JSON form; `with_fits=False` leaves out the fits, which plots and `change` need."""
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
    remedy="A plan is not edited by hand. For other numbers: isocompute launch PLAN --change group_size=...",
)
