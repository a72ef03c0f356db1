"""Tasks without downloads: problems, a reward function and a base model in one folder, made once.

`prepare` makes the arithmetic task, as `python -m isocompute_torch.tasks FOLDER` does; smollm2.py makes the task of a
language model. Every folder holds train.jsonl, validation.jsonl, reward.py and task.json. Loads no torch by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isocompute_sdk.files import parse_json
from isocompute_torch.configuration import InputError
from isocompute_torch.tasks.folder import KINDS, MANIFEST, Kind, make_whole

FAMILIES = ("mul31", "rev31", "add32")
"""Names of the families of arithmetic problems."""


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
