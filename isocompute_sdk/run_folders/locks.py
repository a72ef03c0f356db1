"""The lock that a training process keeps on the folder of its run, and references to processes.

The system drops a lock when the last process that inherited it has ended, whatever ended it. So a run that goes on is
never started twice, and one that was killed can be started again.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_LOCK_FILE, _RUNNER_LOCK_FILE = ".launch.lock", ".lock"
"""Locks of whoever starts a run, and of the built-in runner itself."""
_PROC = Path("/proc")
_ENDED = frozenset("ZX")
"""States in /proc/PID/stat of a process that has ended and waits for its parent."""


def try_lock(folder: str | Path) -> int | None:
    """Lock the folder for all processes that inherit the returned file descriptor; None if it is locked."""
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
    # The runner's own lock comes last: a look takes it for a moment, and a run of ours is known by the other one.
    return _is_locked(Path(folder) / _LOCK_FILE) or _is_locked(Path(folder) / _RUNNER_LOCK_FILE)


def _is_locked(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            # Shared, so that two people who only look do not take each other for a run.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def process_ref(pid: int) -> str | None:
    """Text that names a process and, unlike its id, never another one; None if it has ended.

    It holds the process id, the start in clock ticks after boot (field 22 of /proc/PID/stat) and the id of the boot.
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        boot = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    # The program's name, in brackets, may itself hold spaces and brackets.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in _ENDED else f"{pid} {fields[19]} {boot}"


def find_process(ref: str) -> int | None:
    """Process id behind a reference of `process_ref`; None if the process has ended."""
    pid = ref.partition(" ")[0]
    return int(pid) if pid.isdecimal() and process_ref(int(pid)) == ref else None
