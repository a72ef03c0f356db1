"""The attempts of a run, made of rows and files, and the rollouts that they sampled: on the final path and beside it.

A run that is stopped goes on after its newest checkpoint, so that some update steps are made twice: the weights of the
later attempt live on. The curve takes every step from the last attempt that made it; what earlier attempts sampled
beyond that point was paid for all the same. Every log format is brought into this form, so that resumes are treated
alike everywhere.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.ingest.formats.log_format import (
    TRAIN_SET,
    Attempt,
    Extent,
    RunLog,
    ScalarSeries,
    one_per_step,
)
from isocompute_sdk.ingest.tables import damaged
from isocompute_sdk.notes import Note

Rows = NDArray[np.intp]
MANY_FALLS = 100
"""Places where the step goes down from which the rows between them are counted."""
MIN_ROWS = 3
"""Rows of each start of a run whose steps begin anew; with fewer on average the rows are in no order."""


_UPDATES_DONE = re.compile(r"train(ing|er)?/global_step")


def counted_from_one(log: RunLog) -> RunLog:
    """A log whose steps are updates done, and with the rollouts of each update where its format logs them."""
    form = log.framework
    if form is None:
        return log
    log = log if form.one_unit is None else form.one_unit(log)
    training = {tag for tag, meaning in log.meanings().items() if meaning.eval_set == TRAIN_SET}
    training |= {form.rollouts_tag} if form.rollouts_tag in log.tags else set[str]()
    # A log that says the updates done counts as it says.
    told = any(_UPDATES_DONE.fullmatch(tag) for tag in log.tags)
    at_zero = not told and any(
        (a.series[tag].step_T == 0).any() for a in log.attempts for tag in training & a.series.keys()
    )
    if form.from_zero in ("training", "all rows") or (form.from_zero in ("updates", "rows") and at_zero):
        every = form.from_zero.endswith("rows")
        attempts = [_later(one, training | set(one.series) if every else training, training) for one in log.attempts]
        log = replace(log, attempts=tuple(attempts))
    if form.rollouts_tag in log.tags:
        sampled = log.series(str(form.rollouts_tag))
        log = replace(log, rollouts=replace(sampled, value_T=np.cumsum(sampled.value_T)))
    return log


def _later(one: Attempt, tags: set[str], training: set[str]) -> Attempt:
    """An attempt with the steps of these tags one later, but for a first evaluation at step 0."""
    series = dict(one.series)
    for tag in tags & series.keys():
        own = series[tag]
        step_T = own.step_T + 1
        if tag not in training and own.step_T[0] == 0:
            # With copies of its line.
            step_T[(own.step_T == 0) & (own.value_T == own.value_T[0])] = 0
        series[tag] = replace(own, step_T=step_T)
    return replace(one, series=series)


def attempts_from_rows(
    path: Path, steps: Sequence[float], rows: Sequence[dict[str, float]], notes: tuple[Note, ...] = ()
) -> tuple[Attempt, ...]:
    """Rows of a log in the order of the file as the attempts that they are of, see `starts`."""
    found: list[Attempt] = []
    for begin, end in pairwise([*starts(steps, rows), len(steps)]):
        order = sorted(range(begin, end), key=steps.__getitem__)
        series = _columns((steps[i], rows[i]) for i in order)
        found.append(Attempt(path, series, float(len(found)), None, notes if end == len(steps) else ()))
    return tuple(found)


def starts(steps: Sequence[float], rows: Sequence[Mapping[str, float]], *, repeats: bool = False) -> list[int]:
    """The row at which each attempt begins: the first one, and where the step goes down and steps are made again.

    Where most steps are not, the rows are in no order, and rows that repeat earlier ones word for word are copies.

    Args:
        steps: step of each row.
        rows: what each row measured.
        repeats: whether a step that is made again at once begins an attempt too.
    """
    falls = [i for i in range(1, len(steps)) if steps[i] < steps[i - 1] or (repeats and steps[i] == steps[i - 1])]
    found = [0]
    if not falls or (len(falls) >= MANY_FALLS and MIN_ROWS * len(falls) > len(steps)):
        return found
    before: dict[float, list[int]] = {}
    ordered: list[float] = []

    def is_copy(row: int) -> bool:
        # As text, in which not-a-number equals itself.
        return any(str(rows[row]) == str(rows[other]) for other in before.get(steps[row], ()))

    for begin, end in pairwise([0, *falls, len(steps)]):
        part = {*steps[begin:end]}
        if begin:
            # Both go as far as here.
            last = min(steps[end - 1], ordered[-1])
            mine = sum(step <= last for step in part)
            shared = sum(step in before for step in part)
            theirs = bisect_right(ordered, last) - bisect_left(ordered, steps[begin])
            if 2 * shared > mine + theirs - shared and not all(map(is_copy, range(begin, end))):
                found.append(begin)
        for step in part:
            if step not in before:
                insort(ordered, step)
        for i in range(begin, end):
            before.setdefault(steps[i], []).append(i)
    return found


def attempts_from_columns(path: Path, columns: Mapping[str, tuple[Rows, ScalarSeries]]) -> tuple[Attempt, ...]:
    """Columns of a table as attempts, see `numbered_starts`."""
    held = {tag: one for tag, one in columns.items() if len(one[0])}
    numbers = numbered_starts([(rows, series.step_T) for rows, series in held.values()])
    parts: dict[int, dict[str, ScalarSeries]] = {}
    for (tag, (_, series)), number_T in zip(held.items(), numbers, strict=True):
        for number in np.unique(number_T).tolist():
            parts.setdefault(number, {})[tag] = series.where(number_T == number)
    return tuple(Attempt(path, parts[number], float(number), None, ()) for number in sorted(parts))


def numbered_starts(columns: Sequence[tuple[Rows, NDArray[Any]]]) -> list[NDArray[np.int64]]:
    """For every value of every column the number of the start of its run that logged it, from 0 on.

    A new start shows where the steps of a column go down. Columns may stand beside each other or one below the other.
    Rows in no order, from the last step to the first, or that make no step again, are one start.
    """
    if not columns:
        return []
    own = [np.cumsum(np.diff(step_T, prepend=step_T[:1]) < 0, dtype=np.int64) for _, step_T in columns]
    row_V, number_V = np.concatenate([rows for rows, _ in columns]), np.concatenate(own)
    unordered = MIN_ROWS * (number_V.max() + 1) > max(len(rows) for rows, _ in columns)
    if unordered or all(len(np.unique(step_T)) == len(step_T) for _, step_T in columns):
        return [np.zeros(len(rows), dtype=np.int64) for rows, _ in columns]
    of_row = np.zeros(row_V.max() + 1, dtype=np.int64)
    of_row[row_V] = number_V
    if len({int(number_T[-1]) for number_T in own}) == 1 and (of_row[row_V] == number_V).all():
        return own
    # A column that is measured less often goes down later, at the same start.
    falls = [(rows[i + 1], rows[i]) for rows, step_T in columns for i in np.flatnonzero(np.diff(step_T) < 0)]
    starts = [0]
    for row, before in sorted(falls):
        if before >= starts[-1]:
            starts.append(int(row))
    return [np.searchsorted(starts, rows, side="right") - 1 for rows, _ in columns]


def attempt_of_steps(path: Path, rows: Iterable[tuple[float, Mapping[str, float]]]) -> Attempt:
    """An attempt from steps with what was logged at each, tag -> value."""
    return Attempt(path, _columns(sorted(rows, key=lambda row: row[0])), 0.0, None, ())


def _columns(rows: Iterable[tuple[float, Mapping[str, float]]]) -> dict[str, ScalarSeries]:
    """Steps with their values as one series for each tag."""
    columns: dict[str, tuple[list[float], list[float]]] = {}
    for step, row in rows:
        for tag, value in row.items():
            at, values = columns.setdefault(tag, ([], []))
            at.append(step)
            values.append(value)
    return {tag: scalar_series(*column) for tag, column in columns.items()}


def joined(one: Attempt, other: Attempt) -> Attempt:
    """Two records of one attempt; where both have a value, that of `other`."""
    series = dict(one.series)
    for tag, more in other.series.items():
        series[tag] = one_per_step([series[tag], more]) if tag in series else more
    return replace(one, series=series, notes=(*one.notes, *other.notes))


def in_order(files: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """Files of one run, each by one writer, as attempts in the order in which they were begun.

    A file without any tag of the one before it is by another writer of the same attempt.
    """
    attempts: list[Attempt] = []
    for one in sorted(files, key=lambda one: (one.started, one.path.name)):
        beside = attempts and one.series and attempts[-1].series.keys().isdisjoint(one.series)
        if beside and one.purge_step is None:
            attempts[-1] = joined(attempts[-1], one)
        else:
            attempts.append(one)
    return tuple(attempts)


def scalar_series(steps: Any, values: Any) -> ScalarSeries:
    """Values without a clock; steps may be fractional."""
    step_T = np.asarray(steps, dtype=np.float64)
    return ScalarSeries(step_T, np.full(len(step_T), np.nan), np.asarray(values, dtype=np.float64))  # pyright: ignore[reportArgumentType]


def numeric(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one logged record.

    Left out are null, which writers use for not-a-number, texts, and whole numbers that no float holds.
    """
    return {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)
    }


def numbers_of(
    path: Path, rows: Sequence[Mapping[str, Any]], lines: Sequence[int | str], needed: tuple[str, ...] = ()
) -> tuple[list[dict[str, float]], tuple[Note, ...]]:
    """The numbers of logged records, and a note if one has something else where others have a number.

    Args:
        path: the file of the records.
        rows: the records.
        lines: the line of each, or its name in the file.
        needed: keys that every record has to have.
    """
    found = [numeric(row) for row in rows]
    known = {key for one in found for key in one}
    lost = [
        (line, f"{key} is {row.get(key)!r:.60}, not a number, and is left out")
        for row, one, line in zip(rows, found, lines, strict=True)
        if len(one) < len(row) or not one.keys() >= {*needed}
        for key in dict.fromkeys((*row, *needed))
        if key not in one and (key in needed or (key in known and row[key] is not None))
    ]
    return found, damaged(path, lost)


Array = NDArray[np.float64]


@dataclass(frozen=True)
class Counter:
    """Rollouts that a run has generated up to any step: linear between the ends of its pieces."""

    end_P: Array
    """Last step of each piece, increasing; beyond the last one its rate goes on."""
    rate_P: Array
    """Rollouts generated by every update of the piece."""

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
        """This counter, replaced by logged rates at the steps that have one.

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
        return float(self.rate_P[np.searchsorted(self.end_P, step)])

    def at(self, step_T: Array) -> Array:
        """Rollouts generated up to each step of one path through training, without repeats."""
        finite = self.end_P[:-1]
        begin_P = np.concatenate([[0.0], finite])
        total_P = np.concatenate([[0.0], np.cumsum(np.diff(begin_P) * self.rate_P[:-1])])
        piece_T = np.searchsorted(finite, step_T)
        return total_P[piece_T] + (step_T - begin_P[piece_T]) * self.rate_P[piece_T]


def wasted_before(attempts: Sequence[Extent], paths: Sequence[Counter]) -> Array:
    """Rollouts that had been given up when each attempt began: sampled, but not part of its path.

    An attempt gives up what the path before it had reached beyond the step it starts from.
    """
    wasted = np.zeros(len(attempts))
    for i in range(1, len(attempts)):
        before, start = attempts[i - 1], attempts[i].start
        # Where a later attempt goes on, the one before it has been, logged or not.
        kept, reached = paths[i - 1].at(np.array([start, max(before.last, start)]))
        wasted[i] = wasted[i - 1] + reached - kept
    return wasted


def running_total(step_T: Array, amount_T: Array, at_T: Array) -> Array:
    """Sum of the amounts of updates 1, 2, ... up to each step; those that a log left out lie between their neighbours.

    NaN behind the last known one, and everywhere if the first lies further from the start than they usually lie apart.

    Args:
        step_T: updates with a known amount, increasing.
        amount_T: amount of each.
        at_T: steps to add up to.
    """
    known = np.isfinite(amount_T) & (step_T >= 1)
    step_T, amount_T = step_T[known], amount_T[known]
    usual = float(np.median(np.diff(step_T))) if len(step_T) > 1 else 1.0
    whole = int(step_T[-1]) if len(step_T) and step_T[0] <= usual else 0
    total = np.concatenate([[0.0], np.cumsum(np.interp(np.arange(1, whole + 1), step_T, amount_T)) if whole else []])
    inside = (at_T <= whole) & (at_T == np.floor(at_T))
    return np.where(inside, total[np.where(inside, at_T, 0).astype(np.intp)], np.nan)


def attempt_at(step_T: Array, attempts: Sequence[Extent]) -> NDArray[np.intp]:
    """The attempt that made each step of the final path: the last one that began before it."""
    found = np.zeros(len(step_T), dtype=np.intp)
    for i, attempt in enumerate(attempts):
        found[step_T > attempt.start] = i
    return found
