"""Time and rollouts that runs have used, by purpose: training, evaluation, start, and lost attempts."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import PlanError, RecordError
from isocompute_sdk.files import open_input
from isocompute_sdk.ingest.formats.isocompute import Stopwatch
from isocompute_sdk.ingest.formats.log_format import (
    EVALUATION_ROLLOUTS,
    EVALUATION_SECONDS,
    STARTUP_SECONDS,
    STEP_SECONDS,
)
from isocompute_sdk.run_folders.journal_records import ATTEMPTS_FILE, Start, read_starts
from isocompute_sdk.run_folders.progress import JOURNAL, record_of
from isocompute_sdk.run_folders.store import METRICS_FILE, RunStatus, read_spec
from isocompute_sdk.specs import Budget

RECENT = 20
"""Updates whose mean time is that of the ones to come."""


@dataclass(frozen=True)
class Spending:
    """Wall-clock hours and rollouts of one run or several together."""

    training_hours: float = 0.0
    evaluation_hours: float = 0.0
    start_hours: float = 0.0
    lost_hours: float = 0.0
    """Hours between the starts of two attempts without a surviving record: lost, or idle."""
    rollouts: float = 0.0
    """Sampled in training."""
    evaluation_rollouts: float = 0.0
    cpu_hours: float = 0.0
    """Those of all hours that a run used no GPU, by its own record."""

    def __add__(self, other: Spending) -> Spending:
        return Spending(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def hours(self) -> float:
        """Sum of all hours."""
        return self.training_hours + self.evaluation_hours + self.start_hours + self.lost_hours

    def summary(self) -> str:
        """Minutes and rollouts by purpose, on one line."""
        parts = {
            "training": self.training_hours,
            "evaluation": self.evaluation_hours,
            "start": self.start_hours,
            "lost or idle": self.lost_hours,
        }
        listed = ", ".join(f"{name} {60 * hours:.1f}" for name, hours in parts.items())
        return (
            f"{60 * self.hours:.1f} minutes: {listed}; {self.rollouts:,.0f} rollouts in training and "
            f"{self.evaluation_rollouts:,.0f} in evaluations"
        )


def spending(folders: Iterable[str | Path]) -> Spending:
    """Time and rollouts of the runs in these folders, from their metrics.jsonl; zero for a run that has not begun."""
    return sum((_of_run(Path(folder)) for folder in folders), Spending())


def elapsed(hours: Sequence[float], at_once: int) -> float:
    """Hours until runs of these hours have ended, so many at the same time: not before the longest of them."""
    return max(sum(hours) / at_once, max(hours, default=0.0))


def in_time_left(budget: Budget, folders: Iterable[str | Path], at_once: int) -> Budget:
    """A budget with the hours that the runs of these folders leave until its deadline, so many training at once.

    Raises:
        PlanError: they leave none.
    """
    deadline = budget.deadline_hours
    if deadline is None:
        return budget
    gone = elapsed([spending([folder]).hours for folder in folders], at_once)
    if gone >= deadline:
        raise PlanError(
            f"the runs so far have taken {gone:,.1f} of {deadline:,g} hours: none are left for the plan",
            "Raise deadline_hours in the study, and start again.",
        )
    return budget.replace(deadline_hours=deadline - gone)


def _of_run(folder: Path) -> Spending:
    records = _lines(folder / METRICS_FILE)
    stopwatch, total = Stopwatch(), dict[str, float]()
    for record in records:
        for name, value in stopwatch.read(record).items():
            total[name] = total.get(name, 0.0) + value
    found = Spending(
        training_hours=total.get(STEP_SECONDS, 0.0) / 3600,
        evaluation_hours=total.get(EVALUATION_SECONDS, 0.0) / 3600,
        start_hours=total.get(STARTUP_SECONDS, 0.0) / 3600,
        lost_hours=_lost(read_starts(folder / ATTEMPTS_FILE), records) / 3600,
        rollouts=max((float(r.get("rollouts", 0)) for r in records), default=0.0),
        evaluation_rollouts=total.get(EVALUATION_ROLLOUTS, 0.0),
    )
    on_cpu = bool(records) and records[0].get("device") == "cpu"
    return replace(found, cpu_hours=found.hours) if on_cpu else found


def seconds_left(statuses: Sequence[RunStatus]) -> float | None:
    """Until all of these runs are done; None if none goes on, or none has logged the time of an update.

    Updates to come take as long as the newest ones of their run, and evaluations as long as its last one. Other runs
    take as long per rollout as those seen. One that waits begins when the first of those before it ends.
    """
    per_rollout, going, waiting = list[float](), list[tuple[float, float | None]](), list[float]()
    for status in statuses:
        rollouts = float((status.update_steps or 0) * (status.group_size or 0) * (status.problems_per_batch or 0))
        seen = _time_of(status) if rollouts else None
        if seen is not None:
            per_rollout.append(sum(seen) / rollouts)
        if status.state == "running":
            going.append((rollouts, None if seen is None else seen[1]))
        elif status.state == "waiting":
            waiting.append(rollouts)
    if not going or not per_rollout:
        return None
    usual = sum(per_rollout) / len(per_rollout)
    ends = [rollouts * usual if left is None else left for rollouts, left in going]
    heapq.heapify(ends)
    for rollouts in waiting:
        heapq.heapreplace(ends, ends[0] + rollouts * usual)
    return max(ends)


def seconds_for(rollouts: float, statuses: Sequence[RunStatus]) -> float | None:
    """Until so many rollouts are done at the speed of `seconds_left`; None if no run that is under way says it."""
    speed = 0.0
    for status in statuses:
        seen = _time_of(status) if status.state == "running" and status.step else None
        if seen is not None and seen[1]:
            steps = (status.update_steps or 0) - status.step
            speed += steps * (status.group_size or 0) * (status.problems_per_batch or 0) / seen[1]
    return rollouts / speed if speed else None


def _time_of(status: RunStatus) -> tuple[float, float] | None:
    """Seconds that a run has used, and those to come; None before its first update, or without a length."""
    records, spec = _lines(status.folder / METRICS_FILE), read_spec(status.folder)
    if spec is None or status.update_steps is None:
        return None
    stopwatch, steps, evaluations = Stopwatch(), list[float](), dict[float, float]()
    for record in records:
        found = stopwatch.read(record)
        if STEP_SECONDS in found:
            steps.append(found[STEP_SECONDS])
        if EVALUATION_SECONDS in found:
            evaluations[record["step"]] = evaluations.get(record["step"], 0.0) + found[EVALUATION_SECONDS]
    if not steps:
        return None
    planned = records[0].get("evaluations") or len(spec.evaluation.steps(status.update_steps))
    to_come = sum(steps[-RECENT:]) / len(steps[-RECENT:]) * max(status.update_steps - status.step, 0)
    to_come += next(reversed(evaluations.values()), 0.0) * max(planned - len(evaluations), 0)
    return sum(steps) + sum(evaluations.values()), to_come


def _lost(attempts: list[Start], records: list[dict[str, Any]]) -> float:
    """Seconds of all attempts but the last that no surviving record covers."""
    kept: dict[int, float] = {}
    for record in records:
        number = int(record.get("attempt", 1))
        kept[number] = max(kept.get(number, 0.0), float(record.get("wall_seconds", 0.0)))
    pairs = itertools.pairwise(attempts)
    return sum(max(after.started - one.started - kept.get(one.attempt, 0.0), 0.0) for one, after in pairs)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Records of a JSON-lines file; none if it is missing. Bad lines are skipped here and reported by the reader."""
    if not path.exists():
        return []
    with open_input(path, what=JOURNAL, error=RecordError) as file:
        return [record for line in file.read().split(b"\n")[:-1] if (record := record_of(line))]
