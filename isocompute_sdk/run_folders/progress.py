"""How far a run has got, by the end of what it writes while it trains, which costs the same early and late in a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import open_input, parse_json

JOURNAL = "what a run measured, one record a line"
FURTHEST = 1 << 20
"""Bytes read from the end of a file at most."""


@dataclass(frozen=True)
class Progress:
    """What a run has last said about itself."""

    step: int
    """Update steps done."""
    rollouts: int | None = None
    """Rollouts sampled so far; None if the log does not count them."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Last evaluation on the validation problems; empty if there is none near the end of the log."""
    train_reward: float | None = None
    """Mean reward of the last update's rollouts."""
    ended: Literal["finished", "failed"] | None = None
    """How the run ended, by its own record; None while it has not ended."""
    message: str = ""
    """Why it failed, by its own record."""


def latest(parts: Iterable[Progress]) -> Progress | None:
    """The newest value of every field, from parts that come newest first; None if there is no part.

    What was measured beyond the newest step belongs to weights that a resumed run gave up, and is skipped.
    """
    found: Progress | None = None
    for part in parts:
        if found is None:
            found = part
        elif part.step <= found.step:
            reward = found.train_reward if found.train_reward is not None else part.train_reward
            found = replace(found, metrics=found.metrics or part.metrics, train_reward=reward)
        if found.metrics and found.train_reward is not None:
            break
    return found


def last_lines(path: Path) -> Iterator[bytes]:
    """Whole lines near the end of a file, the last one first; empty if there is no file.

    Raises:
        RecordError: a pipe or device, or not readable.
    """
    if not path.exists():
        return
    with open_input(path, what=JOURNAL, error=RecordError) as file:
        begin = max(0, file.seek(0, 2) - FURTHEST)
        file.seek(begin)
        # What follows the last line end is still being written, and the first line may have begun before.
        lines = file.read().split(b"\n")[1 if begin else 0 : -1]
    yield from (line for line in reversed(lines) if line.strip())


def journal_progress(path: Path) -> Progress | None:
    """How far a run is by its metrics.jsonl; None if that is missing or empty."""
    return latest(_journal_parts(path))


def _journal_parts(path: Path) -> Iterator[Progress]:
    """What its records say, newest first."""
    begun_again = measured = False
    for line in last_lines(path):
        record = record_of(line)
        kind = record.get("kind")
        if kind == "run":
            # An attempt begins: what an earlier one ended with no longer holds.
            begun_again = True
        elif kind in ("step", "evaluation", "end"):
            measured = True
            yield _part(record, kind, begun_again=begun_again)
    if begun_again and not measured:
        yield Progress(0, 0)


def _part(record: Mapping[str, Any], kind: str, *, begun_again: bool) -> Progress:
    measured = record.get("metrics") or {}
    validation = kind == "evaluation" and record.get("eval_set") == "validation"
    status = record.get("status") if kind == "end" and not begun_again else None
    return Progress(
        step=int(record.get("step") or 0),
        rollouts=record.get("rollouts"),
        metrics=measured if validation else {},
        train_reward=measured.get("train_reward") if kind == "step" else None,
        ended=status if status in ("finished", "failed") else None,
        message=str(record.get("message") or "") if status == "failed" else "",
    )


def record_of(line: bytes) -> dict[str, Any]:
    """The JSON object on a line; empty for any other line. The full reader reports bad lines."""
    try:
        found = parse_json(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
