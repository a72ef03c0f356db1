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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import read_json
from isocompute_sdk.ingest.tags import TRAIN_SET, meanings
from isocompute_sdk.ingest.verl_dumps import TOLERANCE, dumped_rewards, exact_metrics
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import RunSpec
from isocompute_verl.flags import EVAL_SET

KIND = "verl-run"
SCHEMA_VERSION = 1
REQUEST = "request.json"
STEP_SECONDS = "timing_s/step"


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
    for attempt in sorted(int(path.stem.rpartition("-")[2]) for path in (run / "logs").glob("attempt-*.jsonl")):
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
    rewards_PN = dumped_rewards(folder / "validation" / str(logged.attempt) / f"{step}.jsonl", samples)
    found = {} if rewards_PN is None else exact_metrics(rewards_PN)
    if not math.isclose(found.get(f"avg@{samples}", math.nan), mean, abs_tol=TOLERANCE):
        found = {f"avg@{samples}": mean}
    errors = logged.values.get(f"val-aux/{EVAL_SET}/reward_error/mean@{samples}")
    return found if errors is None else {**found, "reward_error_share": errors}


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
