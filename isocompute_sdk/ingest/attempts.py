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
from numpy.typing import NDArray

from isocompute_sdk.ingest.formats.log_format import LOOKS_LIKE_EVALUATION, TRAIN_SET, Framework, framework_of, meanings
from isocompute_sdk.notes import Note


@dataclass(frozen=True)
class ScalarSeries:
    """Values of one tag, in the order in which they were written; arrays of equal length."""

    step_T: NDArray[np.int64]
    """Step that the program gave each value."""
    wall_time_T: NDArray[np.float64]
    """When each was written, seconds since 1970."""
    value_T: NDArray[np.float64]
    """The values; not-a-number and infinities are kept as they were logged."""

    def where(self, mask_T: NDArray[np.bool_]) -> ScalarSeries:
        """The values at which the mask is true."""
        return ScalarSeries(self.step_T[mask_T], self.wall_time_T[mask_T], self.value_T[mask_T])


@dataclass(frozen=True)
class Attempt:
    """The scalars of one event file: of one attempt, where a run writes one file each time it is started."""

    path: Path
    series: dict[str, ScalarSeries]
    """Tag -> its values, every one that was written, repeats included."""
    started: float
    """When its first record was written, seconds since 1970."""
    purge_step: int | None
    """The step from which the writer declared earlier files void, where it did so (`purge_step` of a writer)."""
    notes: tuple[Note, ...]
    """What could not be read: `log-cut-off`, `log-damaged`."""

    @property
    def first_step(self) -> int | None:
        """The smallest step of any tag; None in a file without scalars."""
        return min((int(series.step_T.min()) for series in self.series.values()), default=None)

    @property
    def last_step(self) -> int | None:
        """The largest step of any tag; None in a file without scalars."""
        return max((int(series.step_T.max()) for series in self.series.values()), default=None)


def one_per_step(parts: Sequence[ScalarSeries]) -> ScalarSeries:
    """Several series as one, sorted by step, keeping of every step the value that was written last."""
    step = np.concatenate([part.step_T for part in parts])
    # np.unique returns first occurrences: reversed, those are the last ones.
    _, last = np.unique(step[::-1], return_index=True)
    rows = len(step) - 1 - last
    return ScalarSeries(
        step[rows],
        np.concatenate([part.wall_time_T for part in parts])[rows],
        np.concatenate([part.value_T for part in parts])[rows],
    )


@dataclass(frozen=True)
class RunLog:
    """The scalars that one run logged."""

    name: str
    """Name of the run, from its folder, file or column."""
    source: Path
    """Folder or file that it was read from."""
    format: str
    """How it was read: a member of `paths.FORMATS`."""
    attempts: tuple[Attempt, ...]
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
) -> tuple[Attempt, ...]:
    """Rows of a log in the order of the file: a new attempt begins wherever the step goes down.

    Args:
        path: the file.
        steps: step of each row.
        rows: tag -> value, for each row.
        notes: what could not be read; they go with the last attempt.
    """
    bounds = [*split_attempts(np.array(steps, dtype=np.float64)), len(steps)]
    found: list[Attempt] = []
    for begin, end in pairwise(bounds):
        columns: dict[str, tuple[list[float], list[float]]] = {}
        for step, row in zip(steps[begin:end], rows[begin:end], strict=True):
            for tag, value in row.items():
                at, values = columns.setdefault(tag, ([], []))
                at.append(step)
                values.append(value)
        series = {tag: scalar_series(at, values) for tag, (at, values) in columns.items()}
        found.append(Attempt(path, series, float(len(found)), None, notes if end == len(steps) else ()))
    return tuple(found)


def attempts_from_series(path: Path, series: Mapping[str, ScalarSeries]) -> tuple[Attempt, ...]:
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
    return tuple(Attempt(path, part, float(i), None, ()) for i, part in enumerate(parts))


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


Array = NDArray[np.float64]


@dataclass(frozen=True)
class Counter:
    """Rollouts that a run has generated up to any step: linear between the ends of its pieces."""

    end_P: Array
    """Last step of each piece, increasing; beyond the last one its rate goes on."""
    rate_P: Array
    """Rollouts generated by every update of the piece."""

    @classmethod
    def of_pieces(cls, starts: Sequence[float], rates: Sequence[float]) -> Counter:
        """A counter whose rate changes after the steps `starts`, the first of which is 0."""
        return cls(np.array([*starts[1:], np.inf], dtype=np.float64), np.array(rates, dtype=np.float64))

    @classmethod
    def of_totals(cls, step_T: Array, total_T: Array, rate: float) -> Counter:
        """A counter through given totals at increasing steps, straight between them, from 0 at step 0 on.

        Args:
            step_T: steps at which a total is known.
            total_T: rollouts generated up to there.
            rate: rollouts of every update after the last of them.
        """
        above = step_T > 0
        end_P, sum_P = step_T[above], total_T[above]
        rate_P = np.diff(sum_P, prepend=0.0) / np.diff(end_P, prepend=0.0)
        return cls(np.append(end_P, np.inf), np.append(rate_P, rate))

    def refined(self, step_T: Array, rate_T: Array) -> Counter:
        """This counter where nothing was logged, and logged rates where they were.

        Args:
            step_T: increasing steps at which a rate was logged; each holds back to the one before it, or to as far
                as that is usual in this log for the first.
            rate_T: rollouts per update, logged there.
        """
        if not len(step_T):
            return self
        usual = float(np.median(np.diff(step_T))) if len(step_T) > 1 else 1.0
        first = max(0.0, float(step_T[0]) - usual)
        before = self.end_P[self.end_P < first]
        after = self.end_P[self.end_P > step_T[-1]]
        lead = [first] if first > 0 else []
        end_P = np.concatenate([before, lead, step_T, after])
        own = [self.rate_at(end) for end in (*before, *lead)]
        return Counter(end_P, np.concatenate([own, rate_T, [self.rate_at(end) for end in after]]))

    def rate_at(self, step: float) -> float:
        """Rollouts of the update that leads to `step`."""
        return float(self.rate_P[min(int(np.searchsorted(self.end_P, step)), len(self.rate_P) - 1)])

    def at(self, step_T: Array) -> Array:
        """Rollouts generated up to each step of one path through training, without repeats."""
        finite = self.end_P[:-1]
        begin_P = np.concatenate([[0.0], finite])
        total_P = np.concatenate([[0.0], np.cumsum(np.diff(begin_P) * self.rate_P[:-1])])
        piece_T = np.searchsorted(finite, step_T)
        return total_P[piece_T] + (step_T - begin_P[piece_T]) * self.rate_P[piece_T]


@dataclass(frozen=True)
class Extent:
    """The steps of one attempt."""

    start: float
    """Step it went on from: 0, or that of the checkpoint it was resumed from."""
    last: float
    """Last step it logged."""


def limits(attempts: Sequence[Extent]) -> Array:
    """Up to which step each attempt's measurements count: those of weights that a later one gave up do not."""
    starts = [attempt.start for attempt in attempts]
    return np.array([min(starts[i + 1 :], default=np.inf) for i in range(len(starts))])


def wasted_before(attempts: Sequence[Extent], counter: Counter) -> Array:
    """Rollouts that had been given up when each attempt began: sampled, but not part of its path.

    An attempt gives up what the path before it had reached beyond the step it starts from.
    """
    wasted = np.zeros(len(attempts))
    reached = 0.0
    for i, attempt in enumerate(attempts):
        if i:
            lost = max(0.0, reached - attempt.start)
            ends = counter.at(np.array([reached - lost, reached]))
            wasted[i] = wasted[i - 1] + ends[1] - ends[0]
        reached = max(attempt.start, attempt.last)
    return wasted


def attempt_at(step_T: Array, attempts: Sequence[Extent]) -> NDArray[np.intp]:
    """The attempt that made each step of the final path: the last one that began before it."""
    found = np.zeros(len(step_T), dtype=np.intp)
    for i, attempt in enumerate(attempts):
        found[step_T > attempt.start] = i
    return found


def split_attempts(step_T: Array) -> NDArray[np.intp]:
    """Where in a log that was appended to a new attempt begins: wherever the step goes down. The first entry is 0."""
    return np.concatenate([[0], np.flatnonzero(np.diff(step_T) < 0) + 1]).astype(np.intp)
