"""The consoles of a run's attempts, as supervise.py keeps them, and how far a run is by their last lines."""

from __future__ import annotations

import re
from pathlib import Path

from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.run_folders.progress import Progress, last_lines, latest

CONSOLE = re.compile(r"console\.(\d+)\.log")
"""Files that supervise.py writes, one per attempt."""


def consoles(folder: Path) -> dict[int, Path]:
    """Attempt -> what it printed."""
    return {int(match[1]): path for path in folder.glob("console.*.log") if (match := CONSOLE.fullmatch(path.name))}


def progress_of(folder: Path) -> Progress | None:
    """How far a run is, from the last lines of its consoles; events can only be read from their beginning."""
    form = load("openrlhf")
    assert form.console is not None
    lines = (line for _, path in sorted(consoles(folder).items(), reverse=True) for line in last_lines(path))
    printed = (form.console.parse(line.decode(errors="replace")) for line in lines if b"lobal" in line)
    return latest(form.progress(one.step, one.values) for one in printed if one is not None)
