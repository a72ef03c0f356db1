"""What a log has lost, from the console and the dumps beside it: earlier attempts, steps that were never written.

An attempt that the console shows is the attempt of the log with the same values at the same steps; if there is none,
the log does not know it. The order in the console says which came first; an attempt that shares its file with
none of the log came before it, since what loses attempts is a logger that empties its file at every start. So nothing
is counted twice: an attempt that both know stays one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from isocompute_sdk.ingest.attempts import Attempt, RunLog, attempt_of_steps, filled
from isocompute_sdk.ingest.formats.log_format import LOOKS_LIKE_EVALUATION, TRAIN_SET, LogFormat
from isocompute_sdk.ingest.stores.console import Steps, read_console
from isocompute_sdk.ingest.stores.packed import CUT_PACKING, is_damaged
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import listed

SAME = 0.9
"""Share of common values that have to agree for two records of one attempt: some agree by chance, some are rounded."""
_FLOAT32 = 1e-5
_NO_MEASUREMENT = re.compile(r"training/.*(step|epoch)|.*(lr|kl_coef|learning_rate)")


@dataclass
class _Found:
    """What was learnt from one file or folder."""

    source: Path
    attempts: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """First and last step of attempts that the log does not know."""
    filled: int = 0
    """Steps added to attempts that it knows."""
    certain: bool = True
    """False for a console that shares no attempt with the log, so that it may be that of another run."""


def recover(log: RunLog, consoles: Sequence[Path], dumps: Sequence[Path]) -> RunLog:
    """A log with what the console and the dumps of its run know beside it, and a note that says what that was.

    Logs of unknown frameworks, and of those whose consoles and dumps are not read, are returned as they are.
    """
    form = log.framework
    if form is None:
        return log
    attempts = list(log.attempts)
    found: list[_Found] = []
    front = 0
    for path in sorted(consoles if form.console is not None else (), key=_order):
        assert form.console is not None
        printed = [_attempt(path, steps, log.format) for steps in read_console(path, form.console)]
        printed = [one for one in printed if form.writes(one.series) and _has_updates(one, form)]
        if printed:
            found.append(_Found(path))
            front += _merge(attempts, printed, front, found[-1])
    notes = tuple(_cut(log.name, path) for path in consoles if form.console is not None and is_damaged(path))
    log = replace(log, attempts=tuple(attempts), notes=(*log.notes, *notes))
    if dumps and form.dumps is not None:
        added = form.dumps.add(log, dumps)
        log = replace(log, attempts=tuple(added.attempts), notes=(*log.notes, *added.notes))
        found += [_Found(folder, [span]) for folder, span in added.recovered.items()]
    return replace(log, notes=(*log.notes, *_notes(log.name, found)))


def agreement(one: Attempt, other: Attempt) -> int:
    """How many measurements of updates two records share; 0 where they are of two attempts.

    Counters and settings are the same in every attempt and are skipped. Evaluations of few problems are equal by
    chance: where one attempt ends, the next may begin with the same. Whole numbers, such as a share of 0,
    count only if there is nothing else.
    """
    fractions: list[bool] = []
    wholes: list[bool] = []
    for tag in one.series.keys() & other.series.keys():
        if _NO_MEASUREMENT.fullmatch(tag) or LOOKS_LIKE_EVALUATION.fullmatch(tag):
            continue
        mine, theirs = one.series[tag], other.series[tag]
        _, i, j = np.intersect1d(mine.step_T, theirs.step_T, return_indices=True)
        a, b = mine.value_T[i], theirs.value_T[j]
        known = np.isfinite(a) & np.isfinite(b)
        close = np.abs(a - b) <= _FLOAT32 * np.maximum(np.abs(a), np.abs(b))
        whole = (a == np.floor(a)) & (b == np.floor(b))
        fractions += close[known & ~whole].tolist()
        wholes += close[known & whole].tolist()
    told = fractions or wholes
    return sum(told) if sum(told) >= SAME * len(told) else 0


def _merge(attempts: list[Attempt], printed: Sequence[Attempt], front: int, told: _Found) -> int:
    """Put the attempts of one console into `attempts`; returns how many came before all that the log has.

    Args:
        attempts: of the log, and of consoles before this one.
        printed: of the console, in order.
        front: how many of `attempts` came before all that the log has.
        told: collects what was added.
    """
    matches: list[list[int]] = []
    begin = 0
    for one in printed:
        matches.append(_matches(one, attempts, begin))
        begin = matches[-1][-1] if matches[-1] else begin
    known = [i for found in matches for i in found]
    told.certain = bool(known)
    before = 0
    # From the end, so that places already found stay where they are.
    for k in reversed(range(len(printed))):
        if matches[k]:
            told.filled += _fill(attempts, matches[k], printed[k])
            continue
        later = [i for found in matches[k + 1 :] for i in found]
        place = later[0] if later else known[-1] + 1 if known else front
        before += place <= front
        attempts.insert(place, printed[k])
        told.attempts.insert(0, _span(printed[k]))
    return before


def _matches(printed: Attempt, attempts: Sequence[Attempt], begin: int) -> list[int]:
    """The attempts from `begin` on that one of the console is: one of them, or several that follow each other.

    If a run goes on exactly at the step where it stopped, the steps on the console never go back, and nothing there
    separates the attempts.
    """
    shared = {i: agreement(printed, attempts[i]) for i in range(begin, len(attempts))}
    alike = [i for i, count in shared.items() if count]
    if not alike:
        return []
    best = max(alike, key=lambda i: shared[i])
    found = [best]
    for i in alike:
        if i > best and _span(attempts[i])[0] > _span(attempts[found[-1]])[1]:
            found.append(i)
    for i in reversed(alike):
        if i < best and _span(attempts[i])[1] < _span(attempts[found[0]])[0]:
            found.insert(0, i)
    return found


def _fill(attempts: list[Attempt], matches: Sequence[int], printed: Attempt) -> int:
    """Give attempts, each its own part, what the console says of their steps; returns how many steps they lacked."""
    added = 0
    for i, end in zip(matches, (*matches[1:], None), strict=True):
        low = -np.inf if i == matches[0] else _span(attempts[i])[0]
        high = np.inf if end is None else _span(attempts[end])[0]
        parts = {tag: one.where((one.step_T >= low) & (one.step_T < high)) for tag, one in printed.series.items()}
        attempts[i], more = filled(attempts[i], replace(printed, series=parts))
        added += more
    return added


def _attempt(path: Path, steps: Steps, store: str) -> Attempt:
    """One attempt of a console as the log would have it: only event files hold what is not a number."""
    if store != "tensorboard":
        steps = {step: {tag: v for tag, v in values.items() if np.isfinite(v)} for step, values in steps.items()}
    return attempt_of_steps(path, steps)


def _has_updates(one: Attempt, form: LogFormat) -> bool:
    """False for a start that only evaluated what it went on from, which sampled nothing to train on."""
    return any(meaning.eval_set == TRAIN_SET for meaning in form.meanings(tuple(one.series)).values())


def _span(one: Attempt) -> tuple[float, float]:
    steps = [series.step_T for series in one.series.values()]
    return min(float(s.min()) for s in steps), max(float(s.max()) for s in steps)


def _order(path: Path) -> tuple[list[int], float, str]:
    """Consoles of attempts in their order: by the numbers in the name, then by the time of the last change."""
    return [int(number) for number in re.findall(r"\d+", path.stem)], path.stat().st_mtime, path.name


def _cut(name: str, console: Path) -> Note:
    told = CUT_PACKING.format(path=console)
    message = f"run {name!r}: {told}; what stands before the damage was read. Copy it again if you can."
    return Note("log-damaged", "warning", message, {"run_id": name, "file": str(console)})


def _notes(name: str, found: Sequence[_Found]) -> list[Note]:
    notes: list[Note] = []
    earlier = [(one.source, *span) for one in found for span in one.attempts]
    if earlier:
        told = listed([f"steps {first:g} to {last:g} from {source}" for source, first, last in earlier], 4, ";")
        message = (
            f"run {name!r}: what its log has lost was recovered beside it: {told}. What those attempts sampled "
            "is counted, and their measurements are on the curve as far as later attempts went on from them. Move a "
            "file away that is not of this run."
        )
        if any(source.is_dir() for source, *_ in earlier):
            message += " Dumps do not tell how many attempts there were: what was spent is a lower limit."
        data = {
            "run_id": name,
            "attempts": [{"source": str(source), "first": first, "last": last} for source, first, last in earlier],
        }
        doubtful = any(one.attempts and not one.certain for one in found)
        notes.append(Note("attempts-recovered", "warning" if doubtful else "info", message, data))
    filled = {str(one.source): one.filled for one in found if one.filled}
    if filled:
        message = (
            f"run {name!r}: {sum(filled.values())} steps that are missing from its log were read from "
            f"{', '.join(filled)}."
        )
        notes.append(Note("log-filled", "info", message, {"run_id": name, "steps": filled}))
    return notes
