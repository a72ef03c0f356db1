"""The consoles of a run's attempts, as supervise.py keeps them, and how far a run is by their last lines."""

from __future__ import annotations

import math
import re
from pathlib import Path

from isocompute_sdk.ingest.stores.console import parse_console
from isocompute_sdk.run_folders.progress import Progress, last_lines, latest

CONSOLE = re.compile(r"console\.(\d+)\.log")
"""Files that supervise.py writes, one per attempt."""
TRAIN_REWARD = "train/rollout/reward_mean"
FIRST_SAMPLE = "eval/eval_validation_pass1"
PASSES = re.compile(r"eval/eval_validation_pass(\d+)")
"""Means of one sample (pass1) and of the best of k, over the validation problems."""


def consoles(folder: Path) -> dict[int, Path]:
    """Attempt -> what it printed."""
    return {int(match[1]): path for path in folder.glob("console.*.log") if (match := CONSOLE.fullmatch(path.name))}


def progress_of(folder: Path) -> Progress | None:
    """How far a run is, from the last lines of its consoles; events can only be read from their beginning."""
    files = [path for _, path in sorted(consoles(folder).items(), reverse=True)]
    return latest(
        part for path in files for line in last_lines(path) if b"lobal" in line if (part := _progress(line)) is not None
    )


def _progress(line: bytes) -> Progress | None:
    """What one line says; None where it is none of the two that tell."""
    for steps in parse_console([line.decode(errors="replace")]):
        for step, values in steps.items():
            known = {name: value for name, value in values.items() if math.isfinite(value)}
            counts = [int(match[1]) for name in known if (match := PASSES.fullmatch(name))]
            metrics = {f"avg@{max(counts)}": known[FIRST_SAMPLE]} if 1 in counts else {}
            return Progress(step, metrics=metrics, train_reward=known.get(TRAIN_REWARD))
    return None
