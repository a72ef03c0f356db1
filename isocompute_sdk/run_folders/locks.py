"""Whether a run goes on: the lock that its processes keep on its folder, and the beat of its wrapper.

The system drops a lock when the last process that inherited it has ended, whatever ended it. So a run that goes on is
never started twice, and one that was killed can be started again. On a file system without locks, and for processes on
another machine, the beat says it; see `wrapper`.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from isocompute_sdk.run_folders import wrapper

_SUBMIT_FILE = ".submit.lock"


def is_running(folder: str | Path) -> bool:
    """Whether a process holds the folder, or a machine from which that cannot be seen says so."""
    place = Path(folder)
    # The runner's own lock comes last: a look takes it for a moment, and a run of ours is known by the other one.
    locks = (place / wrapper.LOCK_FILE, place / wrapper.RUNNER_LOCK_FILE)
    return any(map(wrapper.is_locked, locks)) or wrapper.is_beating(place)


def holders(folder: str | Path) -> tuple[int, ...]:
    """Ids of other processes of this user, on this machine, that have inherited the lock of whoever started the run."""
    found = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return tuple(sorted(pid for pid in found if pid != os.getpid() and holds(folder, pid)))


def holds(folder: str | Path, pid: int, name: str = wrapper.LOCK_FILE) -> bool:
    """Whether a process of this user, on this machine, has a folder's lock open: by default that of its run."""
    # A link in the place of the lock leads to files of others; who only looks opens the lock for reading.
    lock = f"{os.path.realpath(folder)}/{name}"

    def is_lock(path: str) -> bool:
        # Processes end meanwhile.
        with suppress(OSError):
            return os.readlink(path) == lock and bool(os.lstat(path).st_mode & stat.S_IWUSR)
        return False

    # Processes of others show nothing.
    with suppress(OSError):
        return any(is_lock(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd"))
    return False


def find_holder(folder: str | Path, ref: object) -> int | None:
    """Process id behind a reference of `wrapper.process_ref`; None if it has ended, or does not hold the folder."""
    pid = find_process(str(ref))
    return pid if pid is not None and holds(folder, pid) else None


@contextmanager
def submitting(folder: str | Path) -> Generator[None]:
    """Let one controller at a time hand this run to an engine."""
    descriptor = wrapper.open_own(Path(folder) / _SUBMIT_FILE)
    try:
        # On a file system without locks, the name of the job still keeps the engine from starting it twice.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def find_process(ref: str) -> int | None:
    """Process id behind a reference of `wrapper.process_ref`; None if the process has ended."""
    return int(ref.partition(" ")[0]) if wrapper.is_process(ref) else None
