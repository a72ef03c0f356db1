"""metrics.jsonl of the built-in runner: every line a record with a kind, the first of each attempt the run itself.

Kinds: `run` (configuration and context), `evaluation` (metrics on one evaluation set), `step` (what one update
measured; read as evaluation set `train`), `end`. Times become metrics too, see timing.py. Pass counts per problem stay
in the file, see `store.pass_counts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.jsonl import first_object, read_objects
from isocompute_sdk.ingest.raw import OnTruncated, RawTable
from isocompute_sdk.ingest.timing import Stopwatch
from isocompute_sdk.records.columns import CONTEXT_FIELDS

SCHEMA_VERSION = 1
TRAIN_SET = "train"
"""Name of the evaluation set that metrics of update steps get."""
CONFIGURATION = ("group_size", "problems_per_batch", "seed", *CONTEXT_FIELDS)
"""Fields of a `run` record that become columns."""
PROGRESS = ("run_id", "step", "rollouts", "tokens", "gpu_seconds")
"""Fields of every other record that become columns."""
MEASURES = {"evaluation": ("metrics", ("zero_pass_share",)), "step": ("metrics", ())}
"""Where records keep measured values: a mapping, and fields beside it."""
_LONGEST_FIRST_LINE = 1 << 16


def looks_like_journal(path: Path) -> bool:
    """Whether the first line of a file is the first record of a run."""
    first = first_object(path, _LONGEST_FIRST_LINE)
    return first.get("kind") == "run" and "schema_version" in first and "run_id" in first


def read_journal(path: Path, on_truncated: OnTruncated = "error") -> RawTable:
    """Read one metrics.jsonl in long form: one row per measured value; no rows where nothing was measured yet.

    Raises:
        RecordError: a line that is no record, another schema version, measurements before the run's own record.
    """
    rows, lines, notes = read_objects(path, on_truncated)
    names = (*PROGRESS, *CONFIGURATION, "eval_set", "metric", "value")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    origin: list[int] = []
    run: Mapping[str, Any] | None = None
    stopwatch = Stopwatch()
    for row, line in zip(rows, lines, strict=True):
        kind = _kind(path, line, row)
        times = stopwatch.read(row)
        if kind == "run":
            run = row
        elif run is None:
            raise RecordError(
                f"{path}:{line}: a record of kind {kind!r} before the record of its run; accepted: kind 'run' first",
                "The beginning of the file is missing: copy it again.",
            )
        elif kind in MEASURES:
            measured = _measured(path, line, row, kind) | times
            shared = [row.get(name) for name in PROGRESS] + [run.get(name) for name in CONFIGURATION]
            shared.append(row.get("eval_set") if kind == "evaluation" else TRAIN_SET)
            for name, value in zip(names[:-2], shared, strict=True):
                columns[name].extend([value] * len(measured))
            columns["metric"].extend(measured)
            columns["value"].extend(measured.values())
            origin.extend([line] * len(measured))
    return RawTable(columns, _locator(path, origin), notes)


def _kind(path: Path, line: int, row: Mapping[str, Any]) -> str:
    kind, version = row.get("kind"), row.get("schema_version")
    if not isinstance(kind, str):
        raise RecordError(
            f"{path}:{line}: received kind {kind!r}; accepted: run, evaluation, step, end",
            'This is not a metrics.jsonl of the built-in runner; other JSON lines are read with format="jsonl".',
        )
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"{path}:{line}: schema_version {version!r}; this release reads {SCHEMA_VERSION}",
            "Read it with the release that wrote it.",
        )
    return kind


def _measured(path: Path, line: int, row: Mapping[str, Any], kind: str) -> dict[str, float]:
    mapping, beside = MEASURES[kind]
    metrics = row.get(mapping)
    if not isinstance(metrics, dict):
        raise RecordError(
            f"{path}:{line}: {mapping} is {metrics!r}; accepted: a mapping from metric to number",
            "Correct or remove the line.",
        )
    found = {**metrics, **{name: row.get(name) for name in beside}}
    return {name: value for name, value in found.items() if value is not None}


def _locator(path: Path, origin: Sequence[int]) -> Callable[[int], str]:
    return lambda index: f"{path}:{origin[index]}"
