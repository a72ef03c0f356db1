"""What records of a journal say about time: seconds of a step, of sampling in it, of an evaluation, of the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

STEP_SECONDS, SAMPLING_SECONDS = "step_seconds", "sampling_seconds"
EVALUATION_SECONDS, EVALUATION_ROLLOUTS = "evaluation_seconds", "evaluation_rollouts"
STARTUP_SECONDS = "startup_seconds"


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
            found[STEP_SECONDS] = since if since is not None and since >= listed * 0.5 else listed
            found |= {SAMPLING_SECONDS: parts["sampling"]} if "sampling" in parts else {}
        elif record.get("kind") == "evaluation" and parts:
            found[EVALUATION_SECONDS] = listed
            found |= {EVALUATION_ROLLOUTS: float(sum(record["sample_counts"]))} if record.get("sample_counts") else {}
        if self._before.get("kind") == "run" and since is not None:
            found[STARTUP_SECONDS] = max(since - listed, 0.0)
        self._before = record
        return found

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
