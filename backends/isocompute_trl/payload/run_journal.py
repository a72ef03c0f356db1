"""The journal of a run, metrics.jsonl: one JSON object a line, in the format of isocompute's built-in runner.

Every line is written in one call to a file opened for appending, so a kill leaves whole lines. A resumed run first
removes the records after its checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1


class Journal:
    """Appends the records of one attempt at one run."""

    def __init__(self, path: Path, run_id: str, attempt: int) -> None:
        self.path = path
        self.run_id = run_id
        self.attempt = attempt
        self.started = time.monotonic()

    def begin(self, resumed_step: int | None, context: dict[str, Any]) -> dict[str, Any]:
        """Open the attempt; returns the last kept record of a step, or {} without one.

        Args:
            resumed_step: update step of the checkpoint from which this attempt resumes; None without one.
            context: context fields of the run.
        """
        earlier = [] if resumed_step is None else read(self.path)
        kept = [r for r in earlier if r["kind"] not in ("run", "end") and r["step"] <= (resumed_step or 0)]
        opening = self.record("run", step=0, rollouts=0, tokens=0, **context)
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_text("".join(json.dumps(r) + "\n" for r in [opening, *kept]), encoding="utf-8")
        temporary.replace(self.path)
        steps = [r for r in kept if r["kind"] == "step"]
        return steps[-1] if steps else {}

    def append(self, kind: str, *, step: int, rollouts: int, tokens: int, **fields: Any) -> None:
        """Write one record; numbers in mappings that are not finite were not measured and are left out."""
        record = self.record(kind, step=step, rollouts=rollouts, tokens=tokens, **fields)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(descriptor, (json.dumps(record, allow_nan=False) + "\n").encode())
        finally:
            os.close(descriptor)

    def record(self, kind: str, *, step: int, rollouts: int, tokens: int, **fields: Any) -> dict[str, Any]:
        """One record of this attempt."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": kind,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "step": step,
            "rollouts": rollouts,
            "tokens": tokens,
            "wall_seconds": round(time.monotonic() - self.started, 3),
            **{name: finite(value) for name, value in fields.items()},
        }


def read(path: Path) -> list[dict[str, Any]]:
    """All complete records of a journal; empty if the file is missing."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def finite(value: Any) -> Any:
    """`value` without the entries of mappings that are NaN, infinite or None."""
    if not isinstance(value, dict):
        return value
    return {k: v for k, v in value.items() if v is not None and not (isinstance(v, float) and not math.isfinite(v))}
