"""The journal of a run, `metrics.jsonl`: one JSON object per line, whole lines only. Standard library, Python 3.10.

Every line is one write to a file opened for appending, so a kill at any moment leaves whole lines. A resumed run first
removes the records after its checkpoint; the file then equals that of an uninterrupted run, except for wall-clock
fields. Launch scripts carry this file beside a framework that has no log of its own like it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
RESERVE_FILE = ".reserve"
RESERVE_BYTES = 16_384
"""Reserved on disk during a run and freed before its last record, so that the record fits on a full disk."""


class Journal:
    """Appends records of one attempt at one run.

    Args:
        path: the file; made with the first record.
        run_id: name of the run, written in every record.
        attempt: number of starts of this run, including this one.
    """

    def __init__(self, path: Path, run_id: str, attempt: int) -> None:
        self.path = path
        self.run_id = run_id
        self.attempt = attempt
        self.started = time.monotonic()
        self._reserve = path.parent / RESERVE_FILE

    def begin(self, *, resumed_step: int | None, **fields: object) -> dict[str, Any]:
        """Begin the attempt: replace the file in one step by a record of kind run and the records to keep.

        Records that the resumed run will measure again are removed, and start and end records of earlier attempts.

        Args:
            resumed_step: update step of the checkpoint that this attempt resumes from; None keeps no record.
            **fields: further fields of the record.

        Returns:
            The last kept record of a step; empty without one.
        """
        earlier = [] if resumed_step is None else read(self.path)
        kept = [r for r in earlier if r["kind"] not in ("run", "end") and r["step"] <= (resumed_step or 0)]
        opening = self._record("run", **fields)
        temporary = self.path.with_name(self.path.name + ".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(one, allow_nan=False) + "\n" for one in [opening, *kept])
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        self._reserve.write_bytes(b"\0" * RESERVE_BYTES)
        return next((one for one in reversed(kept) if one["kind"] == "step"), {})

    def append(
        self, kind: str, *, step: int, rollouts: int, tokens: int, durable: bool = False, **fields: object
    ) -> dict[str, Any]:
        """Write one record and return it.

        Raises:
            OSError: the disk is full; the file still ends with a whole line.
        """
        written = self._record(kind, step=step, rollouts=rollouts, tokens=tokens, **fields)
        append_line(self.path, json.dumps(written, allow_nan=False), durable=durable)
        return written

    def fail(self, message: str, **progress: Any) -> None:
        """Write the record of a failure, using the reserved space if the disk is full.

        Raises:
            OSError: the record could not be written.
        """
        self._reserve.unlink(missing_ok=True)
        self.append("end", **progress, durable=True, status="failed", message=message)

    def close(self) -> None:
        """Free the reserved space, and wait until all records are on the disk."""
        self._reserve.unlink(missing_ok=True)
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _record(self, kind: str, **fields: Any) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.started, 3)
        return record(self.run_id, kind, attempt=self.attempt, wall_seconds=seconds, **fields)


def record(
    run_id: str,
    kind: str,
    *,
    attempt: int = 1,
    step: int = 0,
    rollouts: int = 0,
    tokens: int = 0,
    wall_seconds: float = 0.0,
    **fields: object,
) -> dict[str, Any]:
    """One record. Mappings lose their entries that are None or not finite: those were not measured."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "run_id": run_id,
        "attempt": attempt,
        "step": step,
        "rollouts": rollouts,
        "tokens": tokens,
        "wall_seconds": wall_seconds,
        **{name: _measured(value) for name, value in fields.items()},
    }


def append_line(path: Path, text: str, *, durable: bool = False) -> None:
    """Append one line to a file; an incomplete write is removed again."""
    line = (text + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    """All records of a journal, in order; an empty list if the file is missing.

    A last line without line end is skipped: it is being written, or a copy cut it off.

    Raises:
        ValueError: a whole line is not a JSON object with a kind and the schema version of this release; the message
            names file and line.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: not JSON ({error}); accepted: one object per line") from error
        if not isinstance(found, dict) or "kind" not in found or found.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(
                f"{path}:{number}: received {line[:60]!r}; accepted: records with a kind and schema_version "
                f"{SCHEMA_VERSION}"
            )
        records.append(found)
    return records


def _measured(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {k: v for k, v in value.items() if v is not None and not (isinstance(v, float) and not math.isfinite(v))}
