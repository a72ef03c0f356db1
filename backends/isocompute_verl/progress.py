"""How far a run of veRL is, from the end of its file log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import numeric
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.run_folders.progress import Progress, last_lines, latest, record_of
from isocompute_verl.runs import REQUEST, log_of, starts


def progress_of(run: Path) -> Progress | None:
    """How far a run is, from the last lines of its logs.

    veRL writes the line of a step after its checkpoint and evaluation: with that of the last step the run is over.
    """
    found = latest(
        part
        for attempt in reversed(starts(run))
        for line in last_lines(log_of(run, attempt))
        if (part := _progress(record_of(line))) is not None
    )
    if found is None or found.step < _last_step(run):
        return found
    return replace(found, ended="finished")


def _last_step(run: Path) -> float:
    """Update steps that the run was asked for; infinite where its request cannot be read."""
    try:
        return float(parse_json((run / REQUEST).read_text(encoding="utf-8"))["run"]["update_steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return math.inf


def _progress(record: Mapping[str, Any]) -> Progress | None:
    """What one line says; None if it is no line of veRL's logger."""
    step, data = record.get("step"), record.get("data")
    if not isinstance(step, int) or not isinstance(data, dict):
        return None
    return load("verl").progress(step, numeric(cast("dict[str, Any]", data)))
