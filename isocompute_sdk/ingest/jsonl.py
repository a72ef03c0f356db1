"""JSON lines: one flat object per line, its keys the columns; a key may be absent from some lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.raw import TRUNCATED_HINT, OnTruncated, RawTable, read_text


def read_jsonl(path: Path, on_truncated: OnTruncated = "error") -> RawTable:
    """Read one JSONL file; blank lines are skipped.

    Raises:
        RecordError: a line that is not a JSON object; the last one is taken for cut off.
    """
    rows, lines = read_objects(path, on_truncated)
    names = dict.fromkeys(name for row in rows for name in row)
    return RawTable({name: [row.get(name) for row in rows] for name in names}, _locator(path, lines))


def read_objects(path: Path, on_truncated: OnTruncated = "error") -> tuple[list[dict[str, Any]], list[int]]:
    """The objects of a JSONL file, and the line of each.

    Raises:
        RecordError: as `read_jsonl`.
    """
    # Only "\n" ends a line: JSON strings may hold other line separators as they are.
    texts = [(i + 1, line) for i, line in enumerate(read_text(path).split("\n")) if line.strip()]
    if not texts:
        raise RecordError(f"{path} is empty", "Check that the run has logged an evaluation.")
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    for number, line in texts:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number != texts[-1][0]:
                raise RecordError(
                    f"{path}:{number}: not JSON (column {error.colno}: {error.msg}); accepted: one object per line",
                    "Correct or remove the line.",
                ) from error
            if on_truncated == "drop":
                break
            raise RecordError(f"{path}:{number}: the file ends inside this line", TRUNCATED_HINT) from error
        if not isinstance(row, dict):
            raise RecordError(
                f"{path}:{number}: received {line.strip()[:60]!r}; accepted: one JSON object per line",
                'Write every evaluation as its own line, e.g. {"n": 8, "step": 10, "avg@4": 0.5}.',
            )
        rows.append(cast(dict[str, Any], row))
        lines.append(number)
    return rows, lines


def _locator(path: Path, lines: Sequence[int]) -> Callable[[int], str]:
    return lambda index: f"{path}:{lines[index]}"
