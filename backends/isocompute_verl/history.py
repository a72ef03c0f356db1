"""The logs of all starts of one veRL run as one path: logs/attempt-<number>.jsonl, `{"step", "data"}` a line.

Of several starts the later counts from the step that it went on from; what the earlier one had done beyond that was
paid for and given up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import Counter, Extent, attempt_at, wasted_before
from isocompute_sdk.ingest.stores.jsonl import read_objects
from isocompute_sdk.notes import Note

TRAINED = "critic/score/mean"
"""Logged with every update and not with an evaluation alone."""


@dataclass(frozen=True)
class Logged:
    """What the log says about one update step."""

    attempt: int
    """The start that said it last."""
    values: Mapping[str, float]


@dataclass(frozen=True)
class History:
    """All starts of one run."""

    steps: Mapping[int, Logged]
    """Update step -> what was logged there, ascending."""
    extents: tuple[Extent, ...]
    """Where each start that logged something began and ended."""
    notes: tuple[Note, ...]
    """What could not be read, and what was given up."""

    def given_up(self, batch: int) -> Mapping[int, float]:
        """Update step -> rollouts that starts before it had sampled beyond where the next one went on.

        Args:
            batch: rollouts of one update.
        """
        if not self.steps:
            return {}
        steps = list(self.steps)
        step_T = np.array(steps, dtype=np.float64)
        wasted = wasted_before(self.extents, Counter.of_pieces([0.0], [float(batch)]))
        return dict(zip(steps, wasted[attempt_at(step_T, self.extents)].tolist(), strict=True))


def read_history(run: Path) -> History:
    """All starts of the run in a folder; lines that a kill left broken are passed over with a note.

    Raises:
        RecordError: a whole line of a log is not `{"step", "data"}`.
    """
    steps: dict[int, Logged] = {}
    extents: list[Extent] = []
    notes: list[Note] = []
    for attempt in starts(run):
        fresh, damage = _log(log_of(run, attempt))
        notes += damage
        if not fresh:
            continue
        first = min(fresh)
        # The step that a start goes on from is evaluated again; what was trained in it stands in the earlier log.
        extents.append(Extent(first if TRAINED not in fresh[first] else first - 1, max(fresh)))
        steps = {step: logged for step, logged in steps.items() if step <= first}
        for step, values in fresh.items():
            earlier = steps[step].values if step in steps else {}
            steps[step] = Logged(attempt, {**earlier, **values})
    return History(dict(sorted(steps.items())), tuple(extents), tuple(notes))


def starts(run: Path) -> list[int]:
    """Numbers of the starts that have a log, ascending."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in (run / "logs").glob("attempt-*.jsonl"))


def log_of(run: Path, start: int) -> Path:
    """The log of one start."""
    return run / "logs" / f"attempt-{start}.jsonl"


def _log(path: Path) -> tuple[dict[int, dict[str, float]], tuple[Note, ...]]:
    """Step -> finite numbers of one start."""
    if not path.stat().st_size:
        return {}, ()
    rows, lines, notes = read_objects(path, "drop")
    found: dict[int, dict[str, float]] = {}
    for row, line in zip(rows, lines, strict=True):
        step, data = row.get("step"), row.get("data")
        if isinstance(step, bool) or not isinstance(step, int) or not isinstance(data, dict):
            raise RecordError(
                f"{path}:{line}: received step {step!r} and data of type {type(data).__name__}; accepted: "
                '{"step": number, "data": {name: number}}',
                "Remove the line, or copy the file again.",
            )
        numbers = cast("dict[str, Any]", data)
        values = {k: float(v) for k, v in numbers.items() if isinstance(v, int | float) and math.isfinite(v)}
        found.setdefault(step, {}).update(values)
    return found, notes
