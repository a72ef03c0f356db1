"""Files of a run folder that several programs use: names, atomic writing, digests, and the folder's lock."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

ROW_FILES = {"train": "train_rows.jsonl", "evaluation": "evaluation_rows.jsonl"}
STARTED = "started.json"
"""Request, inputs and outputs of the first start; written last."""
ATTEMPTS = "attempts.jsonl"
"""One line per start."""
BEST = "best.json"
"""The best checkpoint; `record_best` says what stands there."""
LOCK = ".lock"
LOCK_PATIENCE_SECONDS = 2.0
"""Wait for the lock: a status check holds it for a moment."""


class InputError(Exception):
    """Something the user gave cannot be used; the message says what and where."""


def read_json(path: Path) -> Any:
    """The value of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file atomically."""
    write_text(path, [json.dumps(value, indent=1), "\n"])


def write_text(path: Path, parts: Iterable[str]) -> str:
    """Replace a file atomically; returns the SHA-256 of its content."""
    temporary = path.with_name(path.name + ".tmp")
    digest = hashlib.sha256()
    with temporary.open("wb") as file:
        for part in parts:
            data = part.encode("utf-8")
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def split_target(target: str, folder: Path) -> tuple[str, str | None]:
    """File and function of `file.py` or `file.py:function` in a folder; None for a function that is not named."""
    path, separator, function = target.rpartition(":")
    named = bool(separator) and function.isidentifier() and not (folder / target).is_file()
    return (path, function) if named else (target, None)


def better(run: Path, reward: float) -> bool:
    """Whether a reward is above that of the best checkpoint so far; true without one."""
    try:
        return reward > read_json(run / BEST)["reward"]
    except (OSError, ValueError, KeyError, TypeError):
        return not math.isnan(reward)


def record_best(run: Path, step: int, metric: str, reward: float, checkpoint: Path) -> None:
    """Name the best checkpoint in best.json.

    Args:
        run: run folder.
        step: its update step.
        metric: what was compared, such as avg@4 of the validation problems.
        reward: its value, the largest of many noisy ones and so above the true one.
        checkpoint: where it lies, below the run folder.
    """
    where = checkpoint.relative_to(run).as_posix()
    write_json(run / BEST, {"step": step, "metric": metric, "reward": reward, "checkpoint": where, "reported": None})


def record_reported(run: Path, reward: float) -> None:
    """Write into best.json the reward of the best checkpoint on samples drawn after it was chosen."""
    write_json(run / BEST, {**read_json(run / BEST), "reported": reward})


def pin(checkpoint: Path, folder: Path) -> Path:
    """Link the files of a checkpoint into `folder`, copying where links do not work; drop what was there before.

    Returns the new checkpoint. best.json names the old one until the caller records the new one, so the old one goes at
    the next call.
    """
    kept, new = folder / checkpoint.name, folder / f".{checkpoint.name}.new"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(checkpoint, new, copy_function=_link)
    for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-2]:
        shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(kept, ignore_errors=True)
    new.rename(kept)
    return kept


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def hold(folder: Path) -> int | None:
    """Lock the run folder for this process, across exec, until it ends; others see that the run is active.

    Returns the descriptor of the lock; None on a file system without locks.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    os.set_inheritable(descriptor, True)
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise InputError(
                    f"another process trains the run in {str(folder)!r}: wait for it, or stop it"
                ) from None
            time.sleep(0.05)
        except OSError:
            os.close(descriptor)
            return None


def attempt_of(folder: Path) -> int:
    """Number of the current start, from 1; 0 before the first."""
    path = folder / ATTEMPTS
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted name, old and new value of every leaf in which two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        before, now = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        for key in {**before, **now}:
            yield from differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif old != new:
        yield name, old, new


def shortened(value: Any) -> str:
    """A value for a message, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
