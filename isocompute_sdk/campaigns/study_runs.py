"""`StudyRuns`: where the runs of a study lie, what they have cost, and which of their measurements are fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocompute_sdk import api
from isocompute_sdk.errors import FitError, IsoComputeError, PlanError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning import Planner
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import store
from isocompute_sdk.run_folders.store import RunStatus
from isocompute_sdk.specs import RunSpec, Study, Throughput
from isocompute_sdk.timing.spending import spending
from isocompute_sdk.training.backend import Backend, follow, run_folder


@dataclass(frozen=True)
class Cost:
    """What runs have cost. Amounts are None if neither logged nor known from a throughput."""

    rollouts: float = 0.0
    tokens: float | None = None
    gpu_hours: float | None = None
    usd: float | None = None

    def __add__(self, other: Cost) -> Cost:
        def both(one: float | None, two: float | None) -> float | None:
            return None if one is None and two is None else (one or 0.0) + (two or 0.0)

        return Cost(
            self.rollouts + other.rollouts,
            both(self.tokens, other.tokens),
            both(self.gpu_hours, other.gpu_hours),
            both(self.usd, other.usd),
        )


MIN_SLOWER = 1.05
"""Time of updates over the time that a stated speed says from which they count as slower."""

SPEED = ("step_overhead_seconds", "latency_floor_seconds", "rollouts_per_second", "startup_seconds", "gpus")
"""Parts of a throughput that are measured together; what a study states besides, such as a price, stays."""


@dataclass(frozen=True)
class StudyRuns:
    """The runs of one study."""

    study: Study
    backend: Backend
    origin: Path
    """Folder to which the paths of the runs are relative."""
    metric: str
    eval_set: str | None = "validation"
    fit_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of `fit`."""

    def place(self, run: RunSpec) -> Path:
        """The folder of a run."""
        return self.origin / run_folder(run)

    def kept(self, runs: Sequence[RunSpec]) -> list[RunSpec]:
        """Those that were not given up."""
        return [run for run in runs if not store.read_abandoned(self.place(run))]

    def records(self, runs: Sequence[RunSpec]) -> RunSet:
        """All that these runs have logged: their measurements, and the seconds and lengths of their updates."""
        first, *others = (self.backend.read_records(self.place(run)) for run in runs)
        return first.concat(*others)

    def fit(self, records: RunSet) -> Fits:
        """A fit of these measurements; all follow the study's recipe."""
        # Also where too few batches show the rule of its learning rate, unless the sweep states that rule.
        swept = self.study.sweep is not None and self.study.sweep.learning_rate_anchor is not None
        pooled: dict[str, Any] = {} if swept else {"pool": ("learning_rate",)}
        return api.fit(records, self.metric, self.eval_set, **{**pooled, **self.fit_options})

    def planner(self, fits: Fits, runs: Sequence[RunSpec]) -> Planner:
        """The planner of the study, with the speed of these runs where the study needs one."""
        return Planner.for_study(fits, self.study, self.throughput(runs))

    def throughput(self, runs: Sequence[RunSpec]) -> Throughput | None:
        """The study's throughput; for a budget in time as slow as these runs, and their speed where it states none.

        Raises:
            PlanError: these runs do not tell the speed that the study leaves out.
        """
        study, stated = self.study, self.study.throughput
        if study.budget is None or not study.budget.timed:
            return stated
        begun = [run for run in self.kept(runs) if store.has_begun(self.place(run))]
        if stated is not None and stated.rollouts_per_second is not None:
            ratio = self._slower(begun)
            times = {"step_overhead_seconds": ratio, "latency_floor_seconds": ratio, "rollouts_per_second": 1.0 / ratio}
            given = {name: getattr(stated, name) for name in stated.model_fields_set & times.keys()}
            return stated.model_copy(update={name: value * times[name] for name, value in given.items() if value})
        if not begun:
            raise PlanError(
                f"a budget of {study.budget} needs the speed of the machines, and nothing has run yet",
                "Add throughput: to the study (isocompute run --probe measures it).",
            )
        try:
            return self._measured(begun)
        except FitError as error:
            raise PlanError(error.message, self._to_write(begun)) from None

    def _measured(self, runs: Sequence[RunSpec]) -> Throughput:
        """The speed that these runs logged, with what the study states besides."""
        stated = self.study.throughput
        kept = {} if stated is None else {name: getattr(stated, name) for name in stated.model_fields_set}
        measured = Throughput.measure(self.records(runs), gpus=max(self.study.hardware.gpu_counts))
        return measured.replace(**{name: kept[name] for name in kept if name not in (*SPEED, "measured")})

    def slowdown(self, runs: Sequence[RunSpec]) -> str:
        """In words, how much slower than the study's throughput these runs were; empty if they were not."""
        stated, budget = self.study.throughput, self.study.budget
        if stated is None or stated.rollouts_per_second is None or budget is None or not budget.timed:
            return ""
        ratio = self._slower(runs)
        took = f"updates took {ratio:.3g} times as long as the study's throughput says; the plan uses that"
        return took if ratio > 1.0 else ""

    def _slower(self, runs: Sequence[RunSpec]) -> float:
        """Time that updates took over the time that the stated speed says; 1 where they were not slower."""
        stated, gpus = self.study.throughput, max(self.study.hardware.gpu_counts)
        assert stated is not None, "asked only about a stated speed"
        speed = stated if stated.gpu_exponent is None else stated.at_gpus(gpus)
        taken = expected = 0.0
        for run in self.kept(runs):
            steps, hours = self._updates(run)
            taken += hours
            expected += speed.wall_hours(run.rollouts_per_batch, steps)
        return taken / expected if taken > MIN_SLOWER * expected else 1.0

    def _updates(self, run: RunSpec) -> tuple[int, float]:
        """Updates of a run, and the hours that they took; (0, 0.0) if unknown."""
        status = follow(self.backend, self.place(run)).status()
        hours = spending([status.folder]).training_hours
        return (status.step, hours) if hours and status.step else (0, 0.0)

    def _to_write(self, runs: Sequence[RunSpec]) -> str:
        """A safe speed to write into a study that leaves it out, where its runs do not tell it."""
        updates = [(run.rollouts_per_batch, *self._updates(run)) for run in runs]
        slowest = max((3600 * hours / steps for _, steps, hours in updates if steps), default=0.0)
        if not slowest:
            return "Add throughput: to the study (isocompute run --probe measures it), and start again."
        # Twice the slowest update at their largest batch.
        rate = max(batch for batch, *_ in updates) / slowest
        found = (self.study.throughput or Throughput()).replace(
            step_overhead_seconds=slowest, rollouts_per_second=rate, gpus=max(self.study.hardware.gpu_counts)
        )
        names = [*SPEED, *(self.study.throughput.model_fields_set if self.study.throughput is not None else ())]
        values = {name: getattr(found, name) for name in dict.fromkeys(names) if name != "measured"}
        written = {name: f"{value:.3g}" if value < 100 else f"{value:.0f}" for name, value in values.items() if value}
        text = ", ".join(f"{name}: {value}" for name, value in written.items())
        return (
            "These batches do not show how seconds grow. Write a cautious, low speed into the study and start again: "
            f"throughput: {{{text}}}"
        )

    def cost(self, run: RunSpec) -> float:
        """What a run has cost, in the unit of the study's budget; 0 if nothing tells. Rollouts without a budget."""
        status, budget = follow(self.backend, self.place(run)).status(), self.study.budget
        if budget is None or budget.unit == "rollouts":
            return float(status.rollouts)
        training, evaluation = self.costs(status)
        return getattr(training + evaluation, budget.unit) or 0.0

    def costs(self, status: RunStatus) -> tuple[Cost, Cost]:
        """What a run has cost: its training with start and lost attempts, and its evaluations.

        Hours on the CPU count against a budget in hours only.
        """
        study = self.study
        spent, gpus, throughput = spending([status.folder]), max(study.hardware.gpu_counts), study.throughput
        evaluation = Cost(spent.evaluation_rollouts)
        if not status.rollouts:
            return Cost(0.0, 0.0, 0.0, 0.0), evaluation
        tokens, seconds = self._logged(status.folder)
        if tokens is None and throughput is not None and throughput.tokens_per_rollout is not None:
            tokens = throughput.tokens(status.rollouts)
        hours = seconds / 3600 if seconds is not None else spent.hours * gpus if spent.hours else None
        if hours is None and throughput is not None and status.step:
            with suppress(IsoComputeError):
                batch = (status.group_size or 1) * (status.problems_per_batch or 1)
                hours = (throughput.gpus or gpus) * throughput.wall_hours(batch, status.step)
        timed = study.budget is not None and study.budget.timed
        if hours is None or (spent.cpu_hours and not timed):
            return Cost(float(status.rollouts), tokens), evaluation
        price = None if throughput is None else throughput.usd_per_gpu_hour
        evaluating = min(spent.evaluation_hours * gpus, hours)

        def priced(rollouts: float, tokens: float | None, hours: float) -> Cost:
            return Cost(rollouts, tokens, hours, None if price is None else price * hours)

        training = priced(float(status.rollouts), tokens, hours - evaluating)
        return training, priced(spent.evaluation_rollouts, None, evaluating)

    def _logged(self, folder: Path) -> tuple[float | None, float | None]:
        """Tokens and GPU-seconds by the run's own records."""
        try:
            table = self.backend.read_records(folder).to_polars()
        except IsoComputeError:
            return None, None
        tokens, seconds = (table[name].max() if name in table.columns else None for name in ("tokens", "gpu_seconds"))
        return (None if tokens is None else float(str(tokens))), (None if seconds is None else float(str(seconds)))
