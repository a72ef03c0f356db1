"""The folder of a task: its files by name, its kinds of problem sets; made whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

Kind = Literal["easy", "hard", "mixed"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""How hard the problems of a set are for the base model."""
MODEL_FOLDER, TRAIN_FILE, VALIDATION_FILE, REWARD_FILE, MANIFEST = (
    *("model", "train.jsonl", "validation.jsonl", "reward.py", "task.json"),
)
"""Names in the folder of a task."""


def make_whole(target: Path, make: Callable[[Path], dict[str, Any]]) -> None:
    """Make a folder beside its place and rename it; if another process was first, its result is kept.

    Args:
        target: its place, missing or empty.
        make: writes the files into an empty folder; returns the content of task.json.
    """
    beside = target.absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=beside, prefix=f".{target.name}."))
    try:
        partial.chmod(0o755)
        content = make(partial)
        (partial / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        # Weights are saved readable by their owner only; a task may be shared.
        for path in partial.rglob("*.safetensors"):
            path.chmod(0o644)
        try:
            partial.rename(target)
        except OSError:
            if not (target / MANIFEST).is_file():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_problems(folder: Path, train: Sequence[dict[str, str]], validation: Sequence[dict[str, str]]) -> None:
    """Write both problem sets, one `{"id", "prompt", "answer"}` per line."""
    for file, rows in ((TRAIN_FILE, train), (VALIDATION_FILE, validation)):
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
