"""What veRL logged and dumped, as a `RunSet`.

A run folder holds logs/attempt-<number>.jsonl (`{"step", "data"}`, one file per start) and
validation/<number>/<step>.jsonl (one validation response a line). Of several starts the later counts from the step that
it went on from. avg@k, best@k and worst@k are computed from the dumped samples, exactly; veRL's own best@k and worst@k,
which are bootstrapped with replacement, are left out. A dump that lacks responses, or does not give veRL's own mean, is
incomplete: then only that mean is taken.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import read_json
from isocompute_sdk.ingest.tags import TRAIN_SET, meanings
from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
from isocompute_sdk.progress import Progress, last_lines, latest, record_of
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import RunSpec
from isocompute_verl.flags import EVAL_SET

KIND = "verl-run"
SCHEMA_VERSION = 1
REQUEST = "request.json"
STEP_SECONDS = "timing_s/step"
TRAIN_REWARD = "critic/score/mean"
AVERAGE = re.compile(rf"val-core/{EVAL_SET}/(?:acc|reward)/mean@(\d+)")
TOLERANCE = 1e-6
"""Largest difference between a mean of dumped rewards and the one that veRL logged of the same rewards."""


@dataclass(frozen=True)
class Logged:
    """What the log says about one update step."""

    attempt: int
    """The start that said it last."""
    values: Mapping[str, float]


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
    rows = [row for run in runs for row in _rows(run)]
    if not rows:
        raise RecordError(f"{folder}: veRL has logged nothing yet", "The run has not measured anything yet.")
    return RunSet.from_columns(
        {name: [row.get(name) for row in rows] for name in dict.fromkeys(k for r in rows for k in r)}
    )


def merged_log(run: Path) -> dict[int, Logged]:
    """All steps of all starts; a later start replaces what earlier ones said from the step it went on from.

    Raises:
        RecordError: a whole line of a log is not `{"step", "data"}`.
    """
    steps: dict[int, Logged] = {}
    for attempt in _attempts(run):
        fresh: dict[int, dict[str, float]] = {}
        for step, values in _log_lines(run / "logs" / f"attempt-{attempt}.jsonl"):
            fresh.setdefault(step, {}).update(values)
        if not fresh:
            continue
        # The step that a start goes on from is evaluated again; what was trained in it stands in the earlier log.
        steps = {step: logged for step, logged in steps.items() if step <= min(fresh)}
        for step, values in fresh.items():
            earlier = steps[step].values if step in steps else {}
            steps[step] = Logged(attempt, {**earlier, **values})
    return dict(sorted(steps.items()))


def progress_of(run: Path) -> Progress | None:
    """How far a run is, from the last lines of its logs.

    veRL writes the line of a step after its checkpoint and evaluation: with that of the last step the run is over.
    """
    found = latest(
        part
        for attempt in reversed(_attempts(run))
        for line in last_lines(run / "logs" / f"attempt-{attempt}.jsonl")
        if (part := _progress(record_of(line))) is not None
    )
    if found is None or found.step < _last_step(run):
        return found
    return replace(found, ended="finished")


def _last_step(run: Path) -> float:
    """Update steps that the run was asked for; infinite where its request cannot be read."""
    try:
        return float(json.loads((run / REQUEST).read_text(encoding="utf-8"))["run"]["update_steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return math.inf


def _progress(record: Mapping[str, Any]) -> Progress | None:
    """What one line says; None where it is no line of veRL's logger."""
    step, data = record.get("step"), record.get("data")
    if not isinstance(step, int) or not isinstance(data, dict):
        return None
    values = cast("dict[str, Any]", data)
    averages = {f"avg@{match[1]}": values[tag] for tag in values if (match := AVERAGE.fullmatch(tag))}
    known = {name: float(value) for name, value in averages.items() if value is not None}
    return Progress(step, metrics=known, train_reward=values.get(TRAIN_REWARD))


def _attempts(run: Path) -> list[int]:
    """Numbers of the starts that have a log, ascending."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in (run / "logs").glob("attempt-*.jsonl"))


def exact_metrics(path: Path, samples: int) -> dict[str, float]:
    """avg@k, best@k and worst@k of one dump, k = `samples` and the powers of two from 2 below.

    {} where there is no dump, or a problem lacks a response: the dump was cut off, or a rollout failed.
    """
    rewards_PN = _dumped_rewards(path, samples)
    if rewards_PN is None:
        return {}
    return {
        f"{name}@{k}": metric(rewards_PN, k)
        for k in sorted({2**i for i in range(1, 16) if 2**i < samples} | {samples})
        for name, metric in (("avg", avg_at_k), ("best", best_at_k), ("worst", worst_at_k))
    }


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    """One row per measured value of one run."""
    run = _run_of(folder)
    shared = {"run_id": run.run_id, **run.context()}
    batch, gpus = run.rollouts_per_batch, max(run.hardware.gpu_counts)
    tokens = seconds = 0.0
    for step, logged in merged_log(folder).items():
        values = logged.values
        tokens += values.get("response_length/mean", math.nan if step else 0.0) * batch
        seconds += values.get(STEP_SECONDS, math.nan if step else 0.0)
        progress: dict[str, Any] = {**shared, "step": step, "rollouts": step * batch}
        progress["tokens"] = None if math.isnan(tokens) else round(tokens)
        progress["gpu_seconds"] = None if math.isnan(seconds) else seconds * gpus
        for tag, meaning in meanings(tuple(values), "verl").items():
            if meaning.eval_set == TRAIN_SET:
                yield {**progress, "eval_set": TRAIN_SET, "metric": meaning.metric, "value": values[tag]}
        for metric, value in _evaluation(folder, step, logged, run.evaluation.samples).items():
            yield {**progress, "eval_set": EVAL_SET, "metric": metric, "value": value}


def _evaluation(folder: Path, step: int, logged: Logged, samples: int) -> dict[str, float]:
    """Metrics of the evaluation at one step; {} where there was none."""
    prefix = f"val-core/{EVAL_SET}"
    mean = next(
        (
            logged.values[key]
            for key in (f"{prefix}/{name}/mean@{samples}" for name in ("acc", "reward"))
            if key in logged.values
        ),
        None,
    )
    if mean is None:
        return {}
    found = exact_metrics(folder / "validation" / str(logged.attempt) / f"{step}.jsonl", samples)
    if not math.isclose(found.get(f"avg@{samples}", math.nan), mean, abs_tol=TOLERANCE):
        found = {f"avg@{samples}": mean}
    errors = logged.values.get(f"val-aux/{EVAL_SET}/reward_error/mean@{samples}")
    return found if errors is None else {**found, "reward_error_share": errors}


def _dumped_rewards(path: Path, samples: int) -> NDArray[np.float64] | None:
    """Rewards of one dump, shape (problems, samples); None without a whole dump."""
    groups: dict[str, dict[str, tuple[int, float]]] = {}
    try:
        # Only "\n" ends a line: responses may hold other line separators as they are.
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except (FileNotFoundError, ValueError):  # never written, or cut off in the middle of a line
        return None
    for row in rows:
        # <problem>_<sample>_<output>: of several outputs of one sample the last has its reward.
        problem, sample, output = str(row["uid"]).rsplit("_", 2)
        reward = float(row["acc"] if row.get("acc") is not None else row["score"])
        known = groups.setdefault(problem, {})
        known[sample] = max(known.get(sample, (-1, 0.0)), (int(output), reward))
    if not groups or any(len(group) != samples for group in groups.values()):
        return None
    return np.array([[reward for _, reward in group.values()] for group in groups.values()])


def _log_lines(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Step and finite numbers of each line; a last line that was cut off is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            step, data = int(record["step"]), cast("dict[str, Any]", record["data"])
            values = {k: float(v) for k, v in data.items() if isinstance(v, int | float) and math.isfinite(v)}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if number == len(lines):
                return
            raise RecordError(
                f'{path}:{number}: received {line[:60]!r}; accepted: {{"step": number, "data": {{name: number}}}}',
                "Remove the line, or copy the file again.",
            ) from error
        yield step, values


def _run_folders(top: Path) -> Iterator[Path]:
    for here, below, names in os.walk(top):
        below.sort()
        if REQUEST in names and (Path(here) / "logs").is_dir():
            below.clear()
            yield Path(here)


def _run_of(folder: Path) -> RunSpec:
    document = read_json(folder / REQUEST, kind=KIND, schema_version=SCHEMA_VERSION)
    return RunSpec.model_validate(document["run"])
