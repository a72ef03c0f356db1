"""The log of a run that our launch script started: one file log per start, and the responses of its evaluations.

logs/attempt-N.jsonl is what start N logged, validation/N/<step>.jsonl holds one validation response a line. avg@k,
best@k and worst@k are computed from these, exactly; veRL's own best@k and worst@k, which are bootstrapped with
replacement, are left out. A dump that lacks responses, or does not give veRL's own mean, is not used: then only that
mean is, with a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import Attempt, RunLog, numeric, with_exact
from isocompute_sdk.ingest.exact import ExactMetrics
from isocompute_sdk.ingest.formats.log_format import BOOTSTRAP, Measure
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.run_folders.progress import Progress, last_lines, latest, record_of
from isocompute_sdk.training.framework import REQUEST, request_document
from isocompute_verl.files import MEAN, dumped_rewards, read_attempts

REQUEST_DOCUMENT = request_document("verl")
RUN_FILES = ("logs/attempt-*.jsonl", "validation/*/*.jsonl")


def read_run(folder: Path) -> RunLog:
    """Everything that the run in a folder has logged; see `ingest.formats.log_format.RunFolder`."""
    run, form = REQUEST_DOCUMENT.load(folder / REQUEST).run, load("verl")
    exact = ExactMetrics()
    attempts: list[Attempt] = []
    for number in starts(folder):
        path = log_of(folder, number)
        for attempt in read_attempts(path) if path.stat().st_size else ():
            known = form.meanings(tuple(attempt.series))
            drawn = {tag for tag, meaning in known.items() if meaning.metric.endswith(BOOTSTRAP)}
            logged = {tag: series for tag, series in attempt.series.items() if tag not in drawn}
            own = replace(attempt, series=logged, number=number)
            dumps = folder / "validation" / str(number)
            attempts.append(with_exact(own, _evaluations(dumps, own, run.evaluation.samples, exact)))
    notes = (*(note for one in attempts for note in one.notes), *exact.notes(run.run_id))
    gpus = max(run.hardware.gpu_counts)
    said = dict(run.context())
    return RunLog(run.run_id, folder, "verl", tuple(attempts), notes, said, known_format=form, gpus=gpus)


def starts(run: Path) -> list[int]:
    """Numbers of the starts that have a log, ascending."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in (run / "logs").glob("attempt-*.jsonl"))


def log_of(run: Path, start: int) -> Path:
    """The log of one start."""
    return run / "logs" / f"attempt-{start}.jsonl"


def _evaluations(folder: Path, attempt: Attempt, samples: int, exact: ExactMetrics) -> dict[int, dict[Measure, float]]:
    """Step -> exact metrics of the evaluations that an attempt logged."""
    means: dict[tuple[int, str], float] = {}
    for tag, series in attempt.series.items():
        match = MEAN.fullmatch(tag)
        if match is not None and int(match["k"]) == samples:
            for step, mean in zip(series.step_T.tolist(), series.value_T.tolist(), strict=True):
                means.setdefault((int(step), match["set"]), mean)
    found: dict[int, dict[Measure, float]] = {}
    for (step, name), mean in means.items():
        rewards_PN = dumped_rewards(folder / f"{step}.jsonl", samples)
        if values := exact.of(step, name, rewards_PN, {f"avg@{samples}": mean}):
            found.setdefault(step, {}).update(values)
    return found


def progress_of(run: Path) -> Progress | None:
    """How far a run is, from the last lines of its logs.

    veRL writes the line of a step after its checkpoint and evaluation: with that of the last step the run is over.
    """
    found = latest(
        part
        for attempt in reversed(starts(run))
        for line in last_lines(log_of(run, attempt))
        if (part := _progress(record_of(line))) is not None
    )
    if found is None or found.step < _last_step(run):
        return found
    return replace(found, ended="finished")


def _last_step(run: Path) -> float:
    """Update steps that the run was asked for; infinite where its request cannot be read."""
    try:
        return float(parse_json((run / REQUEST).read_text(encoding="utf-8"))["run"]["update_steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return math.inf


def _progress(record: Mapping[str, Any]) -> Progress | None:
    """What one line says; None if it is no line of veRL's logger."""
    step, data = record.get("step"), record.get("data")
    if not isinstance(step, int) or not isinstance(data, dict):
        return None
    return load("verl").progress(step, numeric(cast("dict[str, Any]", data)))
