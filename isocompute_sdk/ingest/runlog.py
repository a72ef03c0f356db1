"""`RunLog`: what one run logged, whichever program wrote it, attempt by attempt.

Attempts are those of `event_file`: tag -> values with steps. Other log formats are brought into the same form, so that
resumes are treated alike everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from isocompute_sdk.ingest.counting import Extent, limits, split_attempts
from isocompute_sdk.ingest.event_file import EventFile, ScalarSeries
from isocompute_sdk.ingest.tags import LOOKS_LIKE_EVALUATION, TRAIN_SET, Framework, framework_of, meanings
from isocompute_sdk.ingest.tensorboard import one_per_step
from isocompute_sdk.notes import Note


@dataclass(frozen=True)
class RunLog:
    """The scalars that one run logged."""

    name: str
    """Name of the run, from its folder, file or column."""
    source: Path
    """Folder or file that it was read from."""
    format: str
    """How it was read: a member of `paths.FORMATS`."""
    attempts: tuple[EventFile, ...]
    """One for each time the run was started, in that order; each holds every value, repeats included."""
    notes: tuple[Note, ...] = ()
    """What could not be read."""
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields that the file gives beside the measurements, such as a column `group_size`."""
    step_name: str = "step"
    """What the log calls its step."""
    rollouts: ScalarSeries | None = None
    """Rollouts sampled so far, where the file counts them itself: one value per step, in order."""
    other_extents: tuple[Extent, ...] = ()
    """Attempts as another log of the same run tells them, where this one keeps only what counts."""

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Every tag, sorted."""
        return tuple(sorted({tag for attempt in self.attempts for tag in attempt.series}))

    @cached_property
    def framework(self) -> Framework | None:
        """The framework that wrote the log, by its tags."""
        return framework_of(self.tags)

    @cached_property
    def extents(self) -> tuple[Extent, ...]:
        """From where to where each attempt went. Where it went on from is seen from its first logged update."""
        return self.other_extents or self._own_extents

    @cached_property
    def _own_extents(self) -> tuple[Extent, ...]:
        return tuple(self._extent(i) for i in range(len(self.attempts)))

    @property
    def first_step(self) -> float:
        """Where the log begins: 0 for one that is whole, the step before its first update for one that is not."""
        return self.extents[0].start

    def series(self, tag: str) -> ScalarSeries:
        """One value per step: the last attempt's where several measured it, none of weights that were given up."""
        ends = limits(self._own_extents)
        found = [(a.series[tag], end) for a, end in zip(self.attempts, ends, strict=True) if tag in a.series]
        return one_per_step([one.where(one.step_T <= end) for one, end in found])

    @cached_property
    def _update_tags(self) -> tuple[str, ...]:
        """Tags that are logged with updates only; programs log counters of their own at evaluations too."""
        known = meanings(self.tags, self.framework)
        found = tuple(tag for tag, meaning in known.items() if meaning.eval_set == TRAIN_SET)
        return found or tuple(tag for tag in self.tags if not LOOKS_LIKE_EVALUATION.fullmatch(tag))

    @cached_property
    def _logs_updates(self) -> bool:
        return any(tag in attempt.series for attempt in self.attempts for tag in self._update_tags)

    def _extent(self, index: int) -> Extent:
        attempt = self.attempts[index]
        if not attempt.series:
            return Extent(0.0, 0.0)
        updates = [attempt.series[tag].step_T for tag in self._update_tags if tag in attempt.series]
        every = [s.step_T for s in attempt.series.values()]
        first_update = min((float(step.min()) for step in updates), default=np.inf)
        first_any = min(float(step.min()) for step in every)
        if not updates and self._logs_updates and all(float(step.max()) == first_any for step in every):
            # It was evaluated where it went on from, and died before its first update.
            return Extent(first_any, first_any)
        spacing = _spacing(updates or every)
        # An evaluation before the first update tells exactly where it began.
        start = min(first_any, max(0.0, first_update - spacing)) if updates else max(0.0, first_any - spacing)
        if attempt.purge_step is not None:
            start = min(start, attempt.purge_step - 1.0)
        return Extent(max(0.0, start), max(float(step.max()) for step in every))


def _spacing(steps: Iterable[np.ndarray[Any, Any]]) -> float:
    """Usual distance between logged steps; 1 where nothing was logged twice."""
    distances = [float(np.median(np.diff(np.unique(step)))) for step in steps if len(np.unique(step)) > 1]
    return min(distances, default=1.0)


def attempts_from_rows(
    path: Path, steps: Sequence[float], rows: Sequence[dict[str, float]], notes: tuple[Note, ...] = ()
) -> tuple[EventFile, ...]:
    """Rows of a log in the order of the file: a new attempt begins wherever the step goes down.

    Args:
        path: the file.
        steps: step of each row.
        rows: tag -> value, for each row.
        notes: what could not be read; they go with the last attempt.
    """
    bounds = [*split_attempts(np.array(steps, dtype=np.float64)), len(steps)]
    found: list[EventFile] = []
    for begin, end in pairwise(bounds):
        columns: dict[str, tuple[list[float], list[float]]] = {}
        for step, row in zip(steps[begin:end], rows[begin:end], strict=True):
            for tag, value in row.items():
                at, values = columns.setdefault(tag, ([], []))
                at.append(step)
                values.append(value)
        series = {tag: scalar_series(at, values) for tag, (at, values) in columns.items()}
        found.append(EventFile(path, series, float(len(found)), None, notes if end == len(steps) else ()))
    return tuple(found)


def attempts_from_series(path: Path, series: Mapping[str, ScalarSeries]) -> tuple[EventFile, ...]:
    """Columns of a table in the order of its rows: a new attempt begins wherever the step of a column goes down."""
    parts: list[dict[str, ScalarSeries]] = []
    for tag, one in series.items():
        bounds = [*split_attempts(one.step_T.astype(np.float64)), len(one.step_T)]
        for i, (begin, end) in enumerate(pairwise(bounds)):
            if len(parts) <= i:
                parts.append({})
            rows = np.zeros(len(one.step_T), dtype=np.bool_)
            rows[begin:end] = True
            parts[i][tag] = one.where(rows)
    return tuple(EventFile(path, part, float(i), None, ()) for i, part in enumerate(parts))


def scalar_series(steps: Any, values: Any) -> ScalarSeries:
    """Values without a clock; steps may be fractional."""
    step_T = np.asarray(steps, dtype=np.float64)
    return ScalarSeries(step_T, np.full(len(step_T), np.nan), np.asarray(values, dtype=np.float64))  # pyright: ignore[reportArgumentType]


def numeric(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of one logged record; null, which writers use for not-a-number, and texts are left out."""
    return {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
