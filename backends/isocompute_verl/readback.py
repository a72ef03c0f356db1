"""What veRL logged and dumped, as a `RunSet`.

A run folder holds the logs of its starts (history.py) and validation/<number>/<step>.jsonl, one validation response a
line. avg@k, best@k and worst@k are computed from the dumped samples, exactly; veRL's own best@k and worst@k,
which are bootstrapped with replacement, are left out. A dump that lacks responses, or does not give veRL's own mean, is
incomplete: then only that mean is taken, with a note.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import read_json
from isocompute_sdk.ingest.formats.log_format import TRAIN_SET, meanings
from isocompute_sdk.ingest.verl_dumps import TOLERANCE, dumped_rewards, exact_metrics
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import RunSpec
from isocompute_verl.flags import EVAL_SET
from isocompute_verl.history import History, Logged, read_history

KIND = "verl-run"
SCHEMA_VERSION = 1
REQUEST = "request.json"
STEP_SECONDS = "timing_s/step"


def read_folder(folder: str | Path) -> RunSet:
    """Everything measured by the runs at or below `folder`.

    Raises:
        RecordError: there is no run that measured anything, or a file cannot be read.
    """
    runs = list(_run_folders(Path(folder)))
    if not runs:
        raise RecordError(
            f"{folder} holds no veRL run that was started; accepted: a folder with {REQUEST}, at any depth",
            "The run has not measured anything yet, or it is another folder.",
        )
    found = [one for run in runs if (one := _read(run)) is not None]
    if not found:
        raise RecordError(f"{folder}: veRL has logged nothing yet", "The run has not measured anything yet.")
    return found[0].concat(*found[1:])


def _read(folder: Path) -> RunSet | None:
    """One run; None where nothing was measured yet."""
    run, history = _run_of(folder), read_history(folder)
    dumps = _Dumps()
    rows = list(_rows(folder, run, history, dumps))
    if not rows:
        return None
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(key for row in rows for key in row)}
    notes = (*history.notes, *_stitched(history, run.rollouts_per_batch), *dumps.notes())
    # One folder may hold many runs: a note says of which of them it speaks.
    named = (Note(n.code, n.severity, f"{run.run_id}: {n.message}", {"run_id": run.run_id, **n.data}) for n in notes)
    return RunSet(RunSet.from_columns(columns).to_polars(), named)


def _rows(folder: Path, run: RunSpec, history: History, dumps: _Dumps) -> Iterator[dict[str, Any]]:
    """One row per measured value of one run."""
    shared = {"run_id": run.run_id, **run.context()}
    batch, gpus = run.rollouts_per_batch, max(run.hardware.gpu_counts)
    given_up = history.given_up(batch)
    tokens = seconds = 0.0
    for step, logged in history.steps.items():
        values = logged.values
        tokens += values.get("response_length/mean", math.nan if step else 0.0) * batch
        seconds += values.get(STEP_SECONDS, math.nan if step else 0.0)
        progress: dict[str, Any] = {**shared, "step": step, "rollouts": step * batch}
        progress["rollouts_spent"] = step * batch + given_up[step]
        progress["tokens"] = None if math.isnan(tokens) else round(tokens)
        progress["gpu_seconds"] = None if math.isnan(seconds) else seconds * gpus
        for tag, meaning in meanings(tuple(values), "verl").items():
            if meaning.eval_set == TRAIN_SET:
                yield {**progress, "eval_set": TRAIN_SET, "metric": meaning.metric, "value": values[tag]}
        for metric, value in _evaluation(folder, step, logged, run.evaluation.samples, dumps).items():
            yield {**progress, "eval_set": EVAL_SET, "metric": metric, "value": value}


def _stitched(history: History, batch: int) -> list[Note]:
    lost = max(history.given_up(batch).values(), default=0.0)
    if not lost:
        return []
    attempts = len(history.extents)
    message = (
        f"started {attempts} times; {lost:,.0f} rollouts of attempts that were given up are in rollouts_spent and not "
        "in rollouts."
    )
    return [Note("attempts-stitched", "info", message, {"attempts": attempts, "lost": lost})]


@dataclass
class _Dumps:
    """Dumps that could not be used."""

    incomplete: list[int] = field(default_factory=list[int])
    """Steps of those that lack responses, or are not there."""
    different: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])
    """Step, mean of the dump and mean in the log of those that disagree."""

    def notes(self) -> list[Note]:
        """Coded notes on both."""
        found: list[Note] = []
        if self.different:
            step, exact, logged = self.different[0]
            message = (
                f"{len(self.different)} evaluations have another mean in the log than in the dump of their responses, "
                f"first at update step {step}: {logged:.6g} in the log and {exact:.6g} in the dump. The logged mean is "
                "used, and best@k and worst@k are left out there."
            )
            data = {"evaluations": len(self.different), "step": step, "exact": exact, "logged": logged}
            found.append(Note("records-disagree-with-log", "warning", message, data))
        if self.incomplete:
            message = (
                f"{len(self.incomplete)} evaluations have no whole dump of their responses (first at update step "
                f"{self.incomplete[0]}): their avg@k is the logged one, and best@k and worst@k are unknown."
            )
            found.append(Note("records-incomplete", "info", message, {"evaluations": len(self.incomplete)}))
        return found


def _evaluation(folder: Path, step: int, logged: Logged, samples: int, dumps: _Dumps) -> dict[str, float]:
    """Metrics of the evaluation at one step; {} where there was none."""
    prefix = f"val-core/{EVAL_SET}"
    keys = (f"{prefix}/{name}/mean@{samples}" for name in ("acc", "reward"))
    mean = next((logged.values[key] for key in keys if key in logged.values), None)
    if mean is None:
        return {}
    average = f"avg@{samples}"
    rewards_PN = dumped_rewards(folder / "validation" / str(logged.attempt) / f"{step}.jsonl", samples)
    found = {} if rewards_PN is None else exact_metrics(rewards_PN)
    if not found:
        dumps.incomplete.append(step)
    elif not math.isclose(found[average], mean, abs_tol=TOLERANCE):
        dumps.different.append((step, found[average], mean))
    if not found or not math.isclose(found[average], mean, abs_tol=TOLERANCE):
        found = {average: mean}
    errors = logged.values.get(f"val-aux/{EVAL_SET}/reward_error/mean@{samples}")
    return found if errors is None else {**found, "reward_error_share": errors}


def _run_folders(top: Path) -> Iterator[Path]:
    for here, below, names in os.walk(top):
        below.sort()
        if REQUEST in names and (Path(here) / "logs").is_dir():
            below.clear()
            yield Path(here)


def _run_of(folder: Path) -> RunSpec:
    document = read_json(folder / REQUEST, kind=KIND, schema_version=SCHEMA_VERSION)
    return RunSpec.model_validate(document["run"])
