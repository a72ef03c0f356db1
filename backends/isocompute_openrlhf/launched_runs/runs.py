"""The log of a run that our launch script started: events, consoles, starts, resumes, and records of single samples.

attempts.jsonl, which the script appends to at every start, says of which attempt an event file is, and the name of a
console of which that is; resumed.jsonl says which checkpoint an attempt went on from. What the events lack, the console
fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocompute_openrlhf.launched_runs.console import consoles
from isocompute_openrlhf.launched_runs.evaluations import add_samples
from isocompute_openrlhf.launched_runs.samples import PATTERN, read_samples
from isocompute_openrlhf.request import read_inputs
from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import Attempt, RunLog, attempt_of_steps, filled, joined
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.stores.console import read_console
from isocompute_sdk.ingest.stores.event_files import event_files, read_tensorboard
from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.starts import ATTEMPTS_FILE, Start, read_starts
from isocompute_sdk.run_folders.store import LOG_FILE

RESUMES = "resumed.jsonl"
RUN_FILES = ("tensorboard/**/*tfevents*", "console.*.log", LOG_FILE, ATTEMPTS_FILE, RESUMES, PATTERN)


def read_run(folder: Path) -> RunLog:
    """Everything that the run in a folder has logged; see `ingest.formats.log_format.RunFolder`."""
    request = read_inputs(folder)
    run, form = request.run, load("openrlhf")
    assert form.console is not None
    starts = read_starts(folder / ATTEMPTS_FILE)
    events, notes = _from_events(folder / "tensorboard" / run.run_id, starts)
    printed = {number: read_console(path, form.console) for number, path in consoles(folder).items()}
    if not events and not any(printed.values()) and (folder / LOG_FILE).is_file():
        # An executor's log holds all attempts; only without events need it not be matched to them.
        printed = {i: [steps] for i, steps in enumerate(read_console(folder / LOG_FILE, form.console), start=1)}
    if not events and any(printed.values()):
        message = f"run {run.run_id!r}: no TensorBoard events in {folder}; values are those that the console showed."
        notes = (*notes, Note("log-from-console", "info", message, {"run_id": run.run_id, "folder": str(folder)}))
    samples = read_samples(folder)
    resumed = {int(line["attempt"]): float(line["step"]) for line in _json_lines(folder / RESUMES)}
    last = max((number for number, parts in {**printed, **events}.items() if parts), default=0)
    attempts: list[Attempt] = []
    for number in range(1, last + 1):
        one = events.get(number, Attempt(folder, {}, float(number), None, ()))
        for steps in printed.get(number, ()):
            one = filled(one, attempt_of_steps(folder, steps))[0]
        sampled = float(samples.count("train", number))
        attempts.append(replace(one, number=number, from_step=resumed.get(number), sampled=sampled))
    said: dict[str, Any] = {**run.context(), "n_problems": request.n_problems}
    log = RunLog(run.run_id, folder, "tensorboard", tuple(attempts), notes, said, known_format=form, gpus=request.gpus)
    return add_samples(log, samples, request)


def _from_events(folder: Path, starts: Sequence[Start]) -> tuple[dict[int, Attempt], tuple[Note, ...]]:
    """What each attempt wrote into the event folder."""
    if not event_files(folder):
        return {}, ()
    run = read_tensorboard(folder)
    found: dict[int, Attempt] = {}
    for position, file in enumerate((one for one in run.attempts if one.series), start=1):
        number = _number(file.started, starts, position)
        found[number] = joined(found[number], file) if number in found else file
    return found, run.notes


def _number(started: float, starts: Sequence[Start], position: int) -> int:
    """The attempt that was under way when an event file was begun; without a record of starts, its position."""
    begun = [one.attempt for one in starts if one.started <= started]
    return max(begun, default=1) if starts else position


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
