"""metrics.jsonl of the built-in runner, the simulator and the programs beside TRL, which names our metrics itself.

Every line is a record with a kind, the first of each attempt the run itself with n, B_p and context. Kinds: `run`,
`evaluation` (metrics on one evaluation set), `step` (what one update measured; read as evaluation set `train`), `end`.
Times become metrics too, see `Stopwatch`. Tags need no translation, and no configuration is looked for beside it.
`run_folders.journal_records` declares the lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.formats.log_format import (
    EVALUATION_ROLLOUTS,
    EVALUATION_SECONDS,
    METRICS,
    SAMPLING_SECONDS,
    STARTUP_SECONDS,
    STEP_SECONDS,
    TRAIN_SET,
    Journal,
    LogFormat,
    Tag,
    validation,
)
from isocompute_sdk.ingest.tables import RawTable, first_objects, read_objects
from isocompute_sdk.records.columns import CONTEXT_FIELDS
from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.run_folders.progress import journal_progress
from isocompute_sdk.run_folders.store import METRICS_FILE

CONFIGURATION = ("group_size", "problems_per_batch", "seed", "framework", "gpus", *CONTEXT_FIELDS)
"""Fields of a `run` record that become columns."""
PROGRESS = ("run_id", "step", "rollouts", "tokens", "gpu_seconds")
"""Fields of every other record that become columns."""
MEASURES = {"evaluation": ("zero_pass_share",), "step": ()}
"""Fields with measured values, beside `metrics`."""


def looks_like_journal(path: Path) -> bool:
    """Whether a file begins with records of a run."""
    marks, kinds = {"schema_version", "run_id"}, journal_records.KINDS
    return any(row.get("kind") in kinds and row.keys() >= marks for row in first_objects(path))


def read_journal(path: Path) -> RawTable:
    """Read one metrics.jsonl in long form: one row per measured value; no rows where nothing was measured yet."""
    rows, lines, notes = read_objects(path)
    names = (*PROGRESS, *CONFIGURATION, "eval_set", "metric", "value")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    origin: list[int] = []
    run: Mapping[str, Any] | None = None
    stopwatch = Stopwatch()
    for row, line in zip(rows, lines, strict=True):
        kind = journal_records.check(row, f"{path}:{line}")
        times = stopwatch.read(row)
        if kind == "run":
            run = row
        elif run is None and kind == "end":
            # A start that failed before it could say what run it is; an end measures nothing.
            continue
        elif run is None:
            raise RecordError(
                f"{path}:{line}: a record of kind {kind!r} before the record of its run; accepted: kind 'run' first",
                "The beginning of the file is missing: copy it again.",
            )
        elif kind in MEASURES:
            measured = _measured(row, kind) | times
            shared = [row.get(name) for name in PROGRESS] + [run.get(name) for name in CONFIGURATION]
            shared.append(row.get("eval_set") if kind == "evaluation" else TRAIN_SET)
            for name, value in zip(names[:-2], shared, strict=True):
                columns[name].extend([value] * len(measured))
            columns["metric"].extend(measured)
            columns["value"].extend(measured.values())
            origin.extend([line] * len(measured))
    return RawTable(columns, lambda index: f"{path}:{origin[index]}", notes)


def _measured(row: Mapping[str, Any], kind: str) -> dict[str, float]:
    found = {**row["metrics"], **{name: row.get(name) for name in MEASURES[kind]}}
    return {name: value for name, value in found.items() if value is not None}


class Stopwatch:
    """Reads the records of one journal in their order."""

    def __init__(self) -> None:
        self._before: Mapping[str, Any] = {}

    def read(self, record: Mapping[str, Any]) -> dict[str, float]:
        """Measured times of one record, by the name of the metric they become.

        A step takes from the record before it to its own, so that checkpoints count, where both are of one attempt;
        else, or where the clock did not move, what the record itself lists.
        """
        parts, found = _seconds(record), dict[str, float]()
        since, listed = self._since(record), sum(parts.values())
        if record.get("kind") == "step" and parts:
            since = None if self._is_first(record) else since
            found[STEP_SECONDS] = since if since is not None and since >= listed * 0.5 else listed
            found |= {SAMPLING_SECONDS: parts["sampling"]} if "sampling" in parts else {}
        elif record.get("kind") == "evaluation" and parts:
            found[EVALUATION_SECONDS] = listed
            found |= {EVALUATION_ROLLOUTS: float(sum(record["sample_counts"]))} if record.get("sample_counts") else {}
        if record.get("kind") in ("step", "evaluation") and self._is_first(record):
            # The clock of an attempt starts with it, so that what came before its first record was its start.
            start = float(record.get("wall_seconds") or 0.0) - listed
            found |= {STARTUP_SECONDS: start} if start > 0 else {}
        self._before = record
        return found

    def _is_first(self, record: Mapping[str, Any]) -> bool:
        """Whether nothing of the record's attempt was measured before it."""
        return self._before.get("kind") == "run" or self._before.get("attempt") != record.get("attempt")

    def _since(self, record: Mapping[str, Any]) -> float | None:
        before, now = self._before.get("wall_seconds"), record.get("wall_seconds")
        if before is None or now is None or self._before.get("attempt") != record.get("attempt"):
            return None
        return float(now) - float(before) if now > before else None


def _seconds(record: Mapping[str, Any]) -> dict[str, float]:
    raw = record.get("seconds")
    if not isinstance(raw, Mapping):
        return {}
    items = cast("Mapping[str, Any]", raw).items()
    return {name: float(value) for name, value in items if isinstance(value, int | float)}


FORMAT = LogFormat(
    name="isocompute",
    framework="isocompute",
    # Tables of other programs may have our names too: a journal is known by its first line.
    signature="(?!)",
    tags=(
        *(validation(rf"{name}@(?P<k>\d+)", f"{name}@{{k}}") for name in ("avg", "best", "worst")),
        *(Tag(re.escape(name), name) for name in METRICS),
    ),
    step="rollout_batches",
    journal=Journal(METRICS_FILE, looks_like_journal, read_journal, journal_progress),
)
