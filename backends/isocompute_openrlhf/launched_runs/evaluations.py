"""What the records of single samples add to a log: exact metrics, checked against what was logged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from isocompute_openrlhf.launched_runs.samples import PATTERN, Samples
from isocompute_openrlhf.request import RunInputs
from isocompute_sdk.ingest.attempts import Attempt, Extent, RunLog, limits, with_exact
from isocompute_sdk.ingest.formats.log_format import TRAIN_SET, ZERO_VARIANCE_SHARE, Measure
from isocompute_sdk.metrics import k_metrics
from isocompute_sdk.notes import Note

LOGGED_SET = re.compile(r"eval/eval_(?!unknown_)(.+)_pass1")
TOLERANCE = 1e-4
"""Largest difference between a logged and an exact value, relative to the larger of it and 1: the log keeps 32 bits."""


@dataclass(frozen=True)
class Difference:
    """A logged value that the records contradict."""

    step: int
    eval_set: str
    metric: str
    exact: float
    logged: float


@dataclass
class Agreement:
    """How the records of one run compare with its log."""

    different: list[Difference] = field(default_factory=list[Difference])
    """Every logged value that disagrees."""
    without_records: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Step and set of evaluations whose records are incomplete."""
    compared: int = 0

    def holds(self, step: int, eval_set: str, exact: Mapping[str, float], logged: Mapping[str, float]) -> bool:
        """Whether the log agrees with exact metrics; collects the differences."""
        self.compared += len(logged)
        different = [
            Difference(step, eval_set, metric, exact[metric], value)
            for metric, value in logged.items()
            if not abs(exact[metric] - value) <= TOLERANCE * max(1.0, abs(value))
        ]
        self.different += different
        return not different

    def notes(self, run_id: str) -> tuple[Note, ...]:
        """Coded notes on both."""
        notes: list[Note] = []
        if self.different:
            one = self.different[0]
            message = (
                f"run {run_id!r}: {len(self.different)} of {self.compared} logged values differ from the records of "
                f"single samples, first at update step {one.step}: {one.metric} on {one.eval_set} is {one.logged:.6g} "
                f"in the log and {one.exact:.6g} by the records. The logged ones are used, and worst@k is left out "
                "there. Prompts that were cut on the left are missing from OpenRLHF's means (eval_unknown in its log); "
                "lost records do the same to ours."
            )
            data = {"run_id": run_id, "values": len(self.different), "compared": self.compared, **asdict(one)}
            notes.append(Note("records-disagree-with-log", "warning", message, data))
        if self.without_records:
            step, name = self.without_records[0]
            message = (
                f"run {run_id!r}: {len(self.without_records)} evaluations have no complete records of single samples "
                f"(first {name} at update step {step}): their avg@k and best@k are the logged ones, and worst@k is "
                "unknown."
            )
            data = {"run_id": run_id, "evaluations": len(self.without_records)}
            notes.append(Note("records-incomplete", "info", message, data))
        return tuple(notes)


def add_samples(log: RunLog, samples: Samples, request: RunInputs) -> RunLog:
    """The log of a run with what its samples say: exact metrics, groups of equal rewards, failed rewards."""
    run, agreement = request.run, Agreement()
    ends = limits(log.extents)
    attempts: list[Attempt] = []
    for attempt, extent, last in zip(log.attempts, log.extents, ends, strict=True):
        found = _evaluations(attempt, extent, last, samples, request, agreement)
        shares = samples.zero_variance_shares(attempt.number, run.rollouts_per_batch)
        for index, share in enumerate(shares, start=1):
            step = extent.start + index
            if step <= extent.last:
                found.setdefault(int(step), {})[Measure(ZERO_VARIANCE_SHARE, TRAIN_SET)] = share
        attempts.append(with_exact(attempt, found))
    notes = (*agreement.notes(log.name), *_sample_notes(log.name, samples))
    return replace(log, attempts=tuple(attempts), notes=(*log.notes, *notes))


def _evaluations(
    attempt: Attempt, extent: Extent, last: float, samples: Samples, request: RunInputs, agreement: Agreement
) -> dict[int, dict[Measure, float]]:
    """Exact values of every evaluation of an attempt up to step `last`: step -> measure -> value."""
    plan, found = request.run.evaluation, dict[int, dict[Measure, float]]()
    exact: dict[tuple[float, str], NDArray[np.float64]] = {}
    first = (extent.start // plan.every_steps + 1) * plan.every_steps
    for name, ids in request.problems.items():
        blocks = samples.evaluations(name, attempt.number, ids, plan.samples)
        exact |= {(first + index * plan.every_steps, name): block for index, block in enumerate(blocks)}
    logged = {
        (float(step), match[1]): i
        for tag, series in attempt.series.items()
        if (match := LOGGED_SET.fullmatch(tag))
        for i, step in enumerate(series.step_T.tolist())
    }
    for step, name in sorted({*exact, *logged}):
        if step > last:
            continue
        if (step, name) not in exact:
            agreement.without_records.append((int(step), name))
            continue
        metrics = k_metrics(exact[step, name])
        if agreement.holds(int(step), name, metrics, _logged(attempt, step, name, plan.samples)):
            found.setdefault(int(step), {}).update({Measure(k, name): v for k, v in metrics.items()})
    return found


def _logged(attempt: Attempt, step: float, name: str, k: int) -> dict[str, float]:
    """avg@k and best@k as they were logged at one step."""
    found: dict[str, float] = {}
    for metric, passes in ((f"avg@{k}", 1), *([(f"best@{k}", k)] if k > 1 else [])):
        series = attempt.series.get(f"eval/eval_{name}_pass{passes}")
        values = [] if series is None else series.value_T[series.step_T == step].tolist()
        if values:
            found[metric] = values[-1]
    return found


def _sample_notes(run_id: str, samples: Samples) -> list[Note]:
    """Failures of the reward function, and lines that were lost."""
    notes: list[Note] = []
    failed, total = int(samples.frame["failed"].sum()), len(samples.frame)
    if failed:
        message = (
            f"run {run_id!r}: the reward function failed for {failed} of {total} samples, which scored 0.0. The field "
            f"error of {PATTERN} says why."
        )
        notes.append(Note("reward-errors", "warning", message, {"run_id": run_id, "failed": failed, "samples": total}))
    if samples.unreadable:
        message = f"run {run_id!r}: {samples.unreadable} lines of {PATTERN} cannot be read, as after a kill."
        notes.append(Note("log-damaged", "warning", message, {"run_id": run_id, "lines": samples.unreadable}))
    return notes
