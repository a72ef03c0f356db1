"""Files of a run folder that several programs use: names, atomic writing, digests, and the folder's lock."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROW_FILES = {"train": "train_rows.jsonl", "evaluation": "evaluation_rows.jsonl"}
STARTED = "started.json"
"""Request, inputs and outputs of the first start; written last."""
ATTEMPTS = "attempts.jsonl"
"""One line per start."""
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


def hold(folder: Path) -> int | None:
    """Lock the run folder for this process, across exec, until it ends; others see that the run is active.

    Returns the descriptor of the lock; None on a file system without locks.

    Raises:
        InputError: a process of another start holds the lock.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
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


def shortened(value: Any) -> str:
    """A value for a message, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
