"""The attempts of one run, from TensorBoard and the console, and the one curve that they make together.

A run that was stopped goes on after its newest checkpoint, so that some update steps are made twice: the later attempt
is the one whose weights live on. The curve takes every step from the last attempt that made it; what earlier
attempts made beyond that point was spent all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isocompute_openrlhf.console import consoles
from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import Attempt as EventAttempt
from isocompute_sdk.ingest.attempts import one_per_step
from isocompute_sdk.ingest.stores.console import Steps, read_console
from isocompute_sdk.ingest.stores.event_files import event_files, read_tensorboard
from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.store import LOG_FILE


@dataclass(frozen=True)
class Logged:
    """What one attempt of a run logged, under OpenRLHF's names without `train/` and `eval/`."""

    train: Steps = field(default_factory=dict[int, dict[str, float]])
    """What each update measured."""
    evaluation: Steps = field(default_factory=dict[int, dict[str, float]])
    """What each evaluation measured."""

    def filled_from(self, other: Logged) -> Logged:
        """These steps, and those of `other` that are not here."""
        return Logged({**other.train, **self.train}, {**other.evaluation, **self.evaluation})

    def add(self, step: int, tag: str, value: float) -> None:
        """One value by the name that it has in logs."""
        kind, _, name = tag.partition("/")
        target: Steps | None = {"train": self.train, "eval": self.evaluation}.get(kind)
        if target is not None:
            target.setdefault(step, {})[name] = value


@dataclass(frozen=True)
class Attempt:
    """One start of the run."""

    number: int
    """1 for the first."""
    from_step: int
    """Update step whose checkpoint it went on from; 0 for the base model."""
    logged: Logged
    """Everything it logged."""


@dataclass(frozen=True)
class History:
    """All attempts of a run that logged anything, in order."""

    attempts: tuple[Attempt, ...]
    notes: tuple[Note, ...]

    def surviving(self) -> Iterator[tuple[Attempt, int]]:
        """Each attempt with the last step that still belongs to the curve: a later one began there."""
        limits: list[int] = []
        limit = np.iinfo(np.int64).max
        for attempt in reversed(self.attempts):
            limits.append(int(limit))
            limit = min(limit, attempt.from_step)
        yield from zip(self.attempts, reversed(limits), strict=True)


def read_history(folder: Path, run_id: str) -> History:
    """Every attempt that a run folder tells of.

    Raises:
        RecordError: an event file cannot be opened, or TensorBoard is needed and missing.
    """
    starts = _json_lines(folder / "attempts.jsonl")
    events, notes = _from_tensorboard(folder / "tensorboard" / run_id, starts)
    console = _from_console(folder)
    if not events and not console and (folder / LOG_FILE).is_file():
        # An executor's log holds all attempts; only without events need it not be matched to them.
        console = dict(enumerate(_printed(folder / LOG_FILE), start=1))
    if not events and console:
        message = f"{folder} has no TensorBoard events: values are those that the console showed."
        notes = (*notes, Note("log-from-console", "info", message, {"folder": str(folder)}))
    resumed = {int(line["attempt"]): int(line["step"]) for line in _json_lines(folder / "resumed.jsonl")}
    attempts: list[Attempt] = []
    for number in sorted({*events, *console}):
        logged = events.get(number, Logged()).filled_from(console.get(number, Logged()))
        first = min(logged.train, default=None)
        if first is None and not logged.evaluation:
            continue
        begun = resumed.get(number, 0 if first is None else first - 1)
        attempts.append(Attempt(number, begun, logged))
    return History(tuple(attempts), notes)


def _from_tensorboard(folder: Path, starts: Sequence[Mapping[str, Any]]) -> tuple[dict[int, Logged], tuple[Note, ...]]:
    """What each attempt wrote into the event folder."""
    if not event_files(folder):
        return {}, ()
    run = read_tensorboard(folder)
    files: dict[int, list[EventAttempt]] = {}
    for position, file in enumerate(run.attempts, start=1):
        files.setdefault(_number(file.started, starts, position), []).append(file)
    return {number: _logged(group) for number, group in files.items()}, run.notes


def _number(started: float, starts: Sequence[Mapping[str, Any]], position: int) -> int:
    """The attempt that was under way when an event file was begun; without a record of starts, its position."""
    begun = [int(line["attempt"]) for line in starts if float(line["time"]) <= started]
    return max(begun, default=1) if starts else position


def _logged(files: Sequence[EventAttempt]) -> Logged:
    logged = Logged()
    for tag in sorted({tag for file in files for tag in file.series}):
        series = one_per_step([file.series[tag] for file in files if tag in file.series])
        for step, value in zip(series.step_T.tolist(), series.value_T.tolist(), strict=True):
            logged.add(step, tag, value)
    return logged


def _from_console(folder: Path) -> dict[int, Logged]:
    """What each attempt printed, from the files that the launch script keeps."""
    found: dict[int, Logged] = {}
    for number, path in consoles(folder).items():
        for part in _printed(path):
            found[number] = part.filled_from(found.get(number, Logged()))
    return found


def _printed(path: Path) -> list[Logged]:
    attempts: list[Logged] = []
    for steps in read_console(path):
        attempts.append(Logged())
        for step, values in steps.items():
            for tag, value in values.items():
                attempts[-1].add(step, tag, value)
    return attempts


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Objects of a file that the launch script appends to; a last line that is still being written is left out."""
    if not path.is_file():
        return []
    found: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        try:
            found.append(parse_json(line))
        except ValueError as error:
            raise RecordError(f"{path}:{number}: not JSON ({error})", "Remove the line.") from error
    return found
