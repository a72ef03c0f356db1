"""The lock that a process that trains keeps on the folder of its run.

The system drops it when the process ends, in whatever way, so that a run that is going on is never started twice and
one that was killed can be started again.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_LOCK_FILE, _RUNNER_LOCK_FILE = ".launch.lock", ".lock"
"""The lock of whoever starts a run, and the one that the built-in runner takes by itself."""


def try_lock(folder: str | Path) -> int | None:
    """Take the folder for the process that gets this file descriptor; None while another has it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(Path(folder) / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if _is_locked(Path(folder) / _RUNNER_LOCK_FILE):
        os.close(descriptor)
        return None
    return descriptor


def is_running(folder: str | Path) -> bool:
    """Whether a process holds the folder."""
    # The runner's own lock is looked at last: looking takes it for a moment, and a run that was started here is
    # known by the other one.
    return _is_locked(Path(folder) / _LOCK_FILE) or _is_locked(Path(folder) / _RUNNER_LOCK_FILE)


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            # Shared, so that two people who only look do not take each other for a run.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
