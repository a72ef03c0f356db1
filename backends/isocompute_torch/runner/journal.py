"""The journal of a run, `metrics.jsonl`: one JSON object a line, whole lines only. Imports no torch.

Every line is handed to the kernel in one write to a file opened for appending, so that a kill at any moment leaves
whole lines. A resumed run first takes away what was measured after its checkpoint; the file then reads like that
of a run that was never stopped, wall-clock fields apart.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json, write_text

SCHEMA_VERSION = 1
WALL_CLOCK_FIELDS = frozenset({"wall_seconds", "seconds", "attempt", "versions"})
"""Fields that differ between two otherwise equal runs."""
RESERVE_FILE = ".reserve"
RESERVE_BYTES = 16_384
"""Kept on disk while a run goes on, and given back so that its last record fits when the disk is full."""


class Journal:
    """Appends records of one attempt at one run.

    Args:
        path: the file; created where it is missing.
        run_id: name of the run, in every record.
        attempt: how many times the run has been started, this one included.
    """

    def __init__(self, path: Path, run_id: str, attempt: int) -> None:
        self.path = path
        self.run_id = run_id
        self.attempt = attempt
        self.started = time.monotonic()
        self._reserve = path.parent / RESERVE_FILE
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def begin(self, *, resumed_step: int | None, **fields: object) -> None:
        """Open the attempt with a record of kind run, the first of the file; in one step.

        What a resumed run will measure again is taken away, and so are start and end records of earlier attempts.

        Args:
            resumed_step: update step of the checkpoint that this attempt goes on from. None: there is none, and
                nothing is kept.
            **fields: what the record says about the run.
        """
        kept = [] if resumed_step is None else [r for r in read_journal(self.path) if _is_kept(r, resumed_step)]
        opening = self._record("run", step=0, rollouts=0, tokens=0, fields=fields)
        os.close(self._descriptor)
        try:
            write_text(self.path, "".join(json.dumps(r, allow_nan=False) + "\n" for r in [opening, *kept]))
        finally:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._reserve.write_bytes(b"\0" * RESERVE_BYTES)

    def append(
        self, kind: str, *, step: int, rollouts: int, tokens: int, durable: bool = False, **fields: object
    ) -> dict[str, Any]:
        """Write one record and return it.

        Args:
            kind: evaluation, step or end.
            step: updates done.
            rollouts: training rollouts generated so far.
            tokens: training tokens sampled so far.
            durable: wait until the line is on the disk, not only with the kernel: it survives a power cut then.
            **fields: what the kind adds. Numbers that are not finite are left out: they were not measured.

        Raises:
            OSError: the disk is full; the file ends with a whole line all the same.
        """
        record = self._record(kind, step=step, rollouts=rollouts, tokens=tokens, fields=fields)
        append_line(self._descriptor, json.dumps(record, allow_nan=False))
        if durable:
            os.fsync(self._descriptor)
        return record

    def _record(
        self, kind: str, *, step: int, rollouts: int, tokens: int, fields: Mapping[str, object]
    ) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": kind,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "step": step,
            "rollouts": rollouts,
            "tokens": tokens,
            "wall_seconds": round(time.monotonic() - self.started, 3),
            **{name: _measured(value) for name, value in fields.items()},
        }

    def fail(self, message: str, *, step: int, rollouts: int, tokens: int) -> None:
        """Write the record of a failure, in the space kept for it where the disk is full.

        Raises:
            OSError: not even that could be written.
        """
        self._reserve.unlink(missing_ok=True)
        fields: dict[str, object] = {"status": "failed", "message": message}
        self.append("end", step=step, rollouts=rollouts, tokens=tokens, durable=True, **fields)

    def close(self) -> None:
        """Flush to the disk and close."""
        self._reserve.unlink(missing_ok=True)
        os.fsync(self._descriptor)
        os.close(self._descriptor)


def append_line(descriptor: int, text: str) -> None:
    """Write one line to a file opened for appending; a write that comes out short is taken back.

    Raises:
        OSError: not everything could be written.
    """
    line = (text + "\n").encode()
    written = os.write(descriptor, line)
    if written < len(line):
        try:
            # The rest says why the first write was short: it raises when the disk is full.
            written += os.write(descriptor, line[written:])
        finally:
            if written < len(line):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        if written < len(line):
            raise OSError(f"only {written} of {len(line)} bytes of a record could be written")


def read_journal(path: str | Path) -> list[dict[str, Any]]:
    """All records of a journal, in their order; none where the file is missing.

    A last line without its line end is left out: it is being written, or was cut off by a copy.

    Raises:
        RecordError: a whole line is not a JSON object, or has a schema_version unknown here.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    records: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            record = parse_json(line)
        except json.JSONDecodeError as error:
            raise RecordError(
                f"{path}:{number}: not JSON (column {error.colno}: {error.msg}); accepted: one object per line",
                "Remove the line; the run can be resumed from its last checkpoint.",
            ) from error
        if not isinstance(record, dict) or cast("dict[str, Any]", record).get("schema_version") != SCHEMA_VERSION:
            raise RecordError(
                f"{path}:{number}: no record of schema_version {SCHEMA_VERSION}",
                "Read the file with the release that wrote it.",
            )
        records.append(cast("dict[str, Any]", record))
    return records


def comparable(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record without its wall-clock fields: equal in equal runs."""
    return {name: value for name, value in record.items() if name not in WALL_CLOCK_FIELDS}


def _is_kept(record: Mapping[str, Any], step: int) -> bool:
    return record["kind"] not in ("run", "end") and record["step"] <= step


def _measured(value: object) -> object:
    """`value` without the entries of mappings that are NaN or infinite."""
    if not isinstance(value, Mapping):
        return value
    entries = cast("Mapping[str, object]", value)
    return {name: item for name, item in entries.items() if not (isinstance(item, float) and not math.isfinite(item))}
