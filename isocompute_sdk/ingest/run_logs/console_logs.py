"""Consoles as the only log of a run: what was printed for each step, and the configuration that was printed before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import Attempt, RunLog, attempt_of_steps
from isocompute_sdk.ingest.formats.log_format import LogFormat
from isocompute_sdk.ingest.formats.registry import formats
from isocompute_sdk.ingest.stores.console import read_console, shows_steps
from isocompute_sdk.ingest.stores.printed import PrintedRun, printed_configurations, printed_runs, prints_rows
from isocompute_sdk.ingest.stores.saved_config import find_config, flat, translate

Settings = tuple[tuple[Path, Mapping[str, Any]], ...]
CONSOLE = "console"
"""Store of captured consoles."""
_INTERVAL = "logging_steps"


def is_console_log(path: Path) -> bool:
    """Whether a console holds the steps of a run, not only messages."""
    try:
        return any(shows_steps(path, one.console) for one in formats() if one.console is not None) or (
            prints_rows(path) and bool(printed_runs(path))
        )
    except (OSError, RecordError):
        return False


def read_console_log(path: Path, name: str, launch: int | None = None) -> RunLog:
    """The run that a console shows.

    Args:
        path: the console.
        name: name of the run.
        launch: number of a launch, from 0 on, if the console shows several, see `launches`; None for all of it.

    Raises:
        RecordError: it shows no step of a known framework, or rows without a step and nothing says how far they are
            apart.
    """
    stamp = path.stat()
    seen = _read(path, stamp.st_mtime_ns, stamp.st_size)
    attempts = seen.attempts or tuple(_attempts(path, seen))
    log = RunLog(name, path, CONSOLE, attempts, known_format=seen.form, settings=seen.settings)
    return _of_launch(log, launch)


@dataclass(frozen=True)
class _Console:
    """What a console shows by itself."""

    settings: Settings
    form: LogFormat | None = None
    attempts: tuple[Attempt, ...] = ()
    """Of a framework that prints its steps."""
    runs: tuple[PrintedRun, ...] = ()
    """Of a trainer that prints rows."""


@lru_cache(maxsize=2)
def _read(path: Path, changed: int, size: int) -> _Console:
    """The content of a console; it is asked for several times, and may be long."""
    settings = _settings(path)
    for form in formats():
        steps = [] if form.console is None else read_console(path, form.console)
        if steps:
            attempts = [replace(attempt_of_steps(path, one), started=float(i)) for i, one in enumerate(steps)]
            return _Console(settings, form, tuple(attempts))
    return _Console(settings, runs=tuple(printed_runs(path)))


def _attempts(path: Path, seen: _Console) -> Iterator[Attempt]:
    if not seen.runs:
        raise RecordError(f"{path} shows no step of a known framework", "Give the log that the framework writes.")
    per_row = _interval(path, seen.settings) or max((one.steps_per_row or 0 for one in seen.runs), default=0)
    if not per_row:
        raise RecordError(
            f"{path} shows rows of a trainer without their steps, and neither a progress bar nor {_INTERVAL} says how "
            "many updates they are apart",
            f"Put the trainer's arguments beside it, e.g. args.json with {_INTERVAL}.",
        )
    for i, one in enumerate(seen.runs):
        yield _attempt(path, one, per_row, i)


def launches(path: Path) -> int:
    """How many runs a console shows one after the other, as one that is appended to does; 1 without any."""
    try:
        log = read_console_log(path, "")
    except RecordError:
        return 1
    return len(_groups(log.attempts))


def _groups(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Attempts by launch: one that begins with the first step did not go on with the one before it."""
    found: list[list[Attempt]] = []
    begun = 0.0
    for one in attempts:
        first = min((float(series.step_T.min()) for series in one.series.values()), default=0.0)
        if not found or ((one.from_step or 0.0) == 0.0 and first <= begun):
            found.append([])
            begun = first
        found[-1].append(one)
    return found


def _of_launch(log: RunLog, launch: int | None) -> RunLog:
    """The part of one launch, with the configuration that it printed; all that differ if this is not certain."""
    if launch is None:
        return log
    groups, settings = _groups(log.attempts), log.settings
    own = settings[launch : launch + 1] if len(settings) == len(groups) else settings
    return replace(log, attempts=tuple(groups[launch]), settings=own)


def _settings(path: Path) -> Settings:
    """The configurations that a console shows, each once: every process may print it."""
    found: list[tuple[Path, Mapping[str, Any]]] = []
    before: dict[str, Any] | None = None
    for raw in printed_configurations(path):
        config = translate(path, raw)
        said = None if config is None else {key: one.value for key, one in config.fields.items()}
        if said is None or said == before:
            continue
        # A command and what the program printed of it are one configuration.
        if before is not None and all(before.get(key, value) == value for key, value in said.items()):
            if len(said) > len(before):
                found[-1], before = (path, raw), said
            continue
        found.append((path, raw))
        before = said
    return tuple(found)


def _attempt(path: Path, run: PrintedRun, per_row: int, number: int) -> Attempt:
    attempt = attempt_of_steps(path, run.steps(per_row))
    return replace(attempt, started=float(number), from_step=float(run.start))


def _interval(path: Path, settings: Sequence[tuple[Path, Mapping[str, Any]]]) -> int | None:
    """Updates between two rows, from what was printed or lies beside the console."""
    found = [dict(flat(raw)).get(_INTERVAL) for _, raw in settings]
    beside = find_config(path.parent, path.parent)
    found.append(None if beside is None else beside.keys.get(_INTERVAL))
    # Below 1 it is a share of all updates.
    return next((int(value) for value in found if isinstance(value, int | float) and value >= 1), None)
