"""Tasks without downloads: problems, a reward function and a base model in one folder, made whole or not at all.

`prepare` makes the arithmetic task, as `python -m isocompute_torch.tasks FOLDER` does; smollm2.py makes the task of a
language model. Every folder holds train.jsonl, validation.jsonl, reward.py and task.json. Loads no torch by itself.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from isocompute_sdk.files import parse_json
from isocompute_torch.configuration import InputError

FAMILIES = ("mul31", "rev31", "add32")
"""Names of the families of arithmetic problems."""
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


def prepare(folder: str | Path, family: str = "mul31", kind: Kind = "easy", seed: int = 0) -> dict[str, Any]:
    """Make an arithmetic task in `folder`, or reuse the task in it if its settings are the same; returns task.json.

    Args:
        folder: folder of the task; it must be new, empty, or hold the same task.
        family: a name in `FAMILIES`, or several joined with `+`.
        kind: difficulty for the base model. easy: avg@16 in 0.3 to 0.6; hard: at most 0.0625; mixed: half of each.
        seed: seed of every random choice; the same seed gives the same files.

    Raises:
        InputError: unknown settings, or the folder holds something else.
        RunFailed: these settings give no task.
    """
    names = family.split("+")
    if not set(names) <= set(FAMILIES) or len(set(names)) < len(names) or kind not in KINDS or seed < 0:
        raise InputError(
            f"received family {family!r}, set {kind!r}, seed {seed}; accepted: {', '.join(FAMILIES)}, or several "
            f"joined with +; {', '.join(KINDS)}; a seed of at least 0",
            "For example family mul31+rev31, set easy, seed 0.",
        )
    target, settings = Path(folder), {"family": family, "kind": kind, "seed": seed}
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        from isocompute_torch.tasks.arithmetic import make_task

        make_whole(target, lambda partial: make_task(partial, family, kind, seed))
    if not (target / MANIFEST).is_file():
        raise InputError(
            f"{target} holds no prepared task; accepted: a new or empty folder, or one with {MANIFEST}",
            "Use another folder.",
        )
    task = parse_json((target / MANIFEST).read_text(encoding="utf-8"))
    if task.get("settings") != settings:
        raise InputError(
            f"{target} holds a task with other settings: {task.get('settings')}, wanted {settings}",
            "Use another folder.",
        )
    return task
