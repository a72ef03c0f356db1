"""Consoles as the only log of a run: what was printed for each step, and the configuration that was printed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import Attempt, RunLog, attempt_of_steps
from isocompute_sdk.ingest.formats.registry import formats
from isocompute_sdk.ingest.stores.console import read_console
from isocompute_sdk.ingest.stores.printed import PrintedRun, printed_configurations, printed_runs, prints_rows
from isocompute_sdk.ingest.stores.saved_config import find_config, flat, translate

CONSOLE = "console"
"""Store of captured consoles."""
_INTERVAL = "logging_steps"


def is_console_log(path: Path) -> bool:
    """Whether a console holds the steps of a run, not only messages."""
    try:
        return any(read_console(path, one.console) for one in formats() if one.console is not None) or (
            prints_rows(path) and bool(printed_runs(path))
        )
    except (OSError, RecordError):
        return False


def read_console_log(path: Path, name: str) -> RunLog:
    """The run that a console shows.

    Raises:
        RecordError: it shows no step of a known framework, or rows without a step and nothing says how far they are
            apart.
    """
    settings = tuple((path, raw) for raw in printed_configurations(path) if translate(path, raw) is not None)
    for form in formats():
        steps = [] if form.console is None else read_console(path, form.console)
        if steps:
            attempts = [replace(attempt_of_steps(path, one), started=float(i)) for i, one in enumerate(steps)]
            return RunLog(name, path, CONSOLE, tuple(attempts), known_format=form, settings=settings[:1])
    runs = printed_runs(path)
    if not runs:
        raise RecordError(f"{path} shows no step of a known framework", "Give the log that the framework writes.")
    per_row = _interval(path, settings) or max((one.steps_per_row or 0 for one in runs), default=0)
    if not per_row:
        raise RecordError(
            f"{path} shows rows of a trainer without their steps, and neither a progress bar nor {_INTERVAL} says how "
            "many updates they are apart",
            f"Put the trainer's arguments beside it, e.g. args.json with {_INTERVAL}.",
        )
    found = [_attempt(path, one, per_row, i) for i, one in enumerate(runs)]
    return RunLog(name, path, CONSOLE, tuple(found), settings=settings[:1])


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
