"""The journal of a run, `metrics.jsonl`: one JSON object per line, whole lines only. Imports no torch.

Every line is one write to a file opened for appending, so a kill at any moment leaves whole lines. A resumed run first
removes the records after its checkpoint; the file then equals that of an uninterrupted run, except for wall-clock
fields.
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
"""Reserved on disk during a run and freed before its last record, so that the record fits on a full disk."""


class Journal:
    """Appends records of one attempt at one run.

    Args:
        path: the file; created if it is missing.
        run_id: name of the run, written in every record.
        attempt: number of starts of this run, including this one.
    """

    def __init__(self, path: Path, run_id: str, attempt: int) -> None:
        self.path = path
        self.run_id = run_id
        self.attempt = attempt
        self.started = time.monotonic()
        self._reserve = path.parent / RESERVE_FILE
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def begin(self, *, resumed_step: int | None, **fields: object) -> None:
        """Begin the attempt: replace the file in one step by a record of kind run and the records to keep.

        Records that the resumed run will measure again are removed, and start and end records of earlier attempts.

        Args:
            resumed_step: update step of the checkpoint that this attempt resumes from; None keeps no record.
            **fields: further fields of the record.
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
            durable: wait until the line is on the disk, so that it survives a power cut.
            **fields: further fields. Mappings lose their entries that are not finite: they were not measured.

        Raises:
            OSError: the disk is full; the file still ends with a whole line.
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
        """Write the record of a failure, using the reserved space if the disk is full.

        Raises:
            OSError: the record could not be written.
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
    """Write one line to a file opened for appending; an incomplete write is removed again.

    Raises:
        OSError: not everything could be written.
    """
    line = (text + "\n").encode()
    written = os.write(descriptor, line)
    if written < len(line):
        try:
            # Writing the rest raises the error that cut the first write short, such as a full disk.
            written += os.write(descriptor, line[written:])
        finally:
            if written < len(line):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        if written < len(line):
            raise OSError(f"only {written} of {len(line)} bytes of a record could be written")


def read_journal(path: str | Path) -> list[dict[str, Any]]:
    """All records of a journal, in order; an empty list if the file is missing.

    A last line without line end is skipped: it is being written, or a copy cut it off.

    Raises:
        RecordError: a whole line is not a JSON object, or has an unknown schema_version.
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
                f"{path}:{number}: accepted: a JSON object with schema_version {SCHEMA_VERSION}",
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
    """`value`; of a mapping, only the entries that are not NaN or infinite."""
    if not isinstance(value, Mapping):
        return value
    entries = cast("Mapping[str, object]", value)
    return {name: item for name, item in entries.items() if not (isinstance(item, float) and not math.isfinite(item))}
