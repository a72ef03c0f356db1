"""Whether a run goes on: the lock that its processes keep on its folder, and the beat of its wrapper.

The system drops a lock when the last process that inherited it has ended, whatever ended it. So a run that goes on is
never started twice, and one that was killed can be started again. On a file system without locks, and for processes on
another machine, the beat says it; see `wrapper`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from isocompute_sdk.run_folders import wrapper
from isocompute_sdk.run_folders.wrapper import process_ref

__all__ = ["find_process", "holders", "is_running", "process_ref", "submitting", "try_lock"]

_SUBMIT_FILE = ".submit.lock"


def try_lock(folder: str | Path) -> int | None:
    """Lock the folder for all processes that inherit the returned file descriptor; None if it is locked."""
    return wrapper.take_lock(Path(folder))


def is_running(folder: str | Path) -> bool:
    """Whether a process holds the folder, or a machine from which that cannot be seen says so."""
    place = Path(folder)
    # The runner's own lock comes last: a look takes it for a moment, and a run of ours is known by the other one.
    locks = (place / wrapper.LOCK_FILE, place / wrapper.RUNNER_LOCK_FILE)
    return any(map(wrapper.is_locked, locks)) or wrapper.is_beating(place)


def holders(folder: str | Path) -> tuple[int, ...]:
    """Ids of other processes of this user, on this machine, that have inherited the lock of whoever started the run."""
    lock = os.path.realpath(Path(folder) / wrapper.LOCK_FILE)
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        # Processes end meanwhile, and those of others show nothing.
        with suppress(OSError):
            if os.readlink(path) == lock:
                found.add(int(path.parts[2]))
    return tuple(sorted(found - {os.getpid()}))


@contextmanager
def submitting(folder: str | Path) -> Generator[None]:
    """Let one controller at a time hand this run to an engine."""
    descriptor = os.open(Path(folder) / _SUBMIT_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # On a file system without locks, the name of the job still keeps the engine from starting it twice.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def find_process(ref: str) -> int | None:
    """Process id behind a reference of `process_ref`; None if the process has ended."""
    return int(ref.partition(" ")[0]) if wrapper.is_process(ref) else None
