"""`Plan`: one executable allocation, what it rests on and what else was close."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isocompute_sdk import files
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.passport import Backtest, Passport
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.optima import Optimum
from isocompute_sdk.planning.verdict import Verdict, verdict_of
from isocompute_sdk.specs import Budget, Evaluation, Hardware, Recipe, Sweep, Throughput

SCHEMA_VERSION = 2


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
    budget: Budget
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
    pilot: Sweep | None = None
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
    fits: Fits | None = field(default=None, repr=False, compare=False)
    """What the plan was made from, without the table of runs."""
    saved_verdict: Verdict | None = field(default=None, repr=False, compare=False)
    """The verdict of a plan that was read from a file; None in older ones."""

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
        return files.save_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read what `save` wrote.

        Raises:
            IsoComputeError: missing file, other content, another schema version.
        """
        return files.load_json(path, _plan_from, kind="plan", schema_version=SCHEMA_VERSION)

    def to_dict(self, *, with_fits: bool = True) -> dict[str, Any]:
        """JSON form; `with_fits=False` leaves out what plots of the plan need."""
        fits = self.fits.to_dict(with_runs=False) if with_fits and self.fits is not None else None
        return {
            "kind": "plan",
            "schema_version": SCHEMA_VERSION,
            "verdict": vars(self.verdict),
            "group_size": self.group_size,
            "problems_per_batch": self.problems_per_batch,
            "update_steps": self.update_steps,
            "rollouts_per_batch": self.rollouts_per_batch,
            "rollouts": self.rollouts,
            "learning_rate": self.learning_rate,
            "epochs": self.epochs,
            "cost": self.cost,
            "costs": dict(self.costs),
            "gpus": self.gpus,
            "wall_hours": self.wall_hours,
            "gpu_hours": self.gpu_hours,
            "usd": self.usd,
            "breakdown": {part: dict(amounts) for part, amounts in self.breakdown.items()},
            "optima": [vars(optimum) for optimum in self.optima],
            "evaluation": None if self.evaluation is None else self.evaluation.model_dump(mode="json"),
            "evaluation_counted": self.evaluation_counted,
            "metric": self.metric,
            "model": self.model,
            "n_problems": self.n_problems,
            "predicted_reward": self.predicted_reward,
            "reward_interval": None if self.reward_interval is None else list(self.reward_interval),
            "group_size_interval": None if self.group_size_interval is None else list(self.group_size_interval),
            "law_group_size": self.law_group_size,
            "extrapolation": self.extrapolation,
            "binding": list(self.binding),
            "alternatives": [vars(a) for a in self.alternatives],
            "other_metrics": dict(self.other_metrics),
            "notes": [note.to_dict() for note in self.notes],
            "budget": self.budget.model_dump(mode="json", exclude_none=True),
            "recipe": self.recipe.model_dump(mode="json"),
            "hardware": self.hardware.model_dump(mode="json"),
            "throughput": None if self.throughput is None else self.throughput.model_dump(mode="json"),
            "pilot": None if self.pilot is None else self.pilot.model_dump(mode="json", exclude_none=True),
            "passport": None if self.passport is None else asdict(self.passport),
            "fits": fits,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Plan:
        """Inverse of `to_dict`.

        Raises:
            IsoComputeError: not what `to_dict` returns.
        """
        return files.build_saved(raw, _plan_from, kind="plan", schema_version=SCHEMA_VERSION)


def _plan_from(raw: Mapping[str, Any]) -> Plan:
    _check_saved(raw)
    return Plan(
        group_size=raw["group_size"],
        problems_per_batch=raw["problems_per_batch"],
        update_steps=raw["update_steps"],
        budget=Budget.model_validate(raw["budget"]),
        cost=raw["cost"],
        costs=raw["costs"],
        recipe=Recipe.model_validate(raw["recipe"]),
        hardware=Hardware.model_validate(raw["hardware"]),
        throughput=None if raw["throughput"] is None else Throughput.model_validate(raw["throughput"]),
        metric=raw["metric"],
        model=raw["model"],
        n_problems=raw["n_problems"],
        predicted_reward=raw["predicted_reward"],
        reward_interval=_pair(raw["reward_interval"]),
        group_size_interval=_pair(raw["group_size_interval"]),
        law_group_size=raw["law_group_size"],
        extrapolation=raw["extrapolation"],
        binding=tuple(raw["binding"]),
        alternatives=tuple(Alternative(**a) for a in raw["alternatives"]),
        notes=tuple(Note.from_dict(note) for note in raw["notes"]),
        pilot=None if raw["pilot"] is None else Sweep.model_validate(raw["pilot"]),
        other_metrics=raw["other_metrics"],
        passport=None if raw["passport"] is None else _passport(raw["passport"]),
        # The rest is not in plans that were saved before time was planned.
        evaluation=None if raw.get("evaluation") is None else Evaluation.model_validate(raw["evaluation"]),
        evaluation_counted=raw.get("evaluation_counted", False),
        breakdown=raw.get("breakdown", {}),
        optima=tuple(Optimum(**optimum) for optimum in raw.get("optima", ())),
        fits=None if raw["fits"] is None else Fits.from_dict(raw["fits"]),
        saved_verdict=None if raw.get("verdict") is None else Verdict(**raw["verdict"]),
    )


def _check_saved(raw: Mapping[str, Any]) -> None:
    """Refuse numbers that are none: a plan is shown and trained long after it was read.

    Raises:
        ValueError: naming the part.
    """
    whole = {name: raw[name] for name in ("group_size", "problems_per_batch", "update_steps")}
    whole |= {name: raw[name] for name in ("n_problems",) if raw[name] is not None}
    real = {name: raw[name] for name in ("predicted_reward", "law_group_size", "extrapolation")}
    real = {name: value for name, value in real.items() if value is not None} | {"cost": raw["cost"]}
    bad = [name for name, value in whole.items() if type(value) is not int or value < 1]
    bad += [name for name, value in real.items() if type(value) not in (int, float) or not math.isfinite(value)]
    parts = {"costs": raw["costs"], "other_metrics": raw["other_metrics"], "breakdown": raw.get("breakdown", {})}
    bad += [name for name, value in parts.items() if not isinstance(value, Mapping)]
    if bad:
        raise ValueError(f"in {', '.join(bad)}")


def _pair(value: Any) -> Any:
    return None if value is None else (value[0], value[1])


def _passport(raw: Mapping[str, Any]) -> Passport:
    values: dict[str, Any] = dict(raw)
    values |= {name: tuple(raw[name]) for name in ("rise_seen", "unstable_problems_per_batch")}
    values["backtest"] = None if raw["backtest"] is None else Backtest(**raw["backtest"])
    return Passport(**values)
