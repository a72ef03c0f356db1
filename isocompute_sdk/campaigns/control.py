"""`controlling`: one controller at a time for the runs of a study.

The lock is the system's (flock) on a file in the study's folder, so it ends with the process that holds it, however
that process ends. A file system without locks lets every controller in; the locks of the runs themselves still keep
each run from being started twice.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import BackendError, IsoComputeError
from isocompute_sdk.run_folders.wrapper import open_own

CONTROL_FILE = ".controller.lock"
"""Lock of a study's folder, with the controller that holds it or held it last."""

LOOKS = 6
"""Tries before a lock counts as held."""


@dataclass(frozen=True)
class Controller:
    """Who controls the runs of a study."""

    pid: int
    """Its process id on that host."""
    host: str
    since: str
    """Start, ISO 8601 in UTC."""

    def describe(self) -> str:
        """Process, host and start in words."""
        return f"process {self.pid} on {self.host}, since {self.since}"


CONTROLLER = Document("controller", 1, Controller)

_mine = threading.local()
"""`folders`: those that this thread controls."""


@contextmanager
def controlling(*folders: str | Path) -> Generator[None]:
    """Control the runs in these study folders, which are made if they are missing; may be nested in one thread.

    Raises:
        BackendError: another controller has one of them; the message names process, host and start.
    """
    with ExitStack() as stack:
        for folder in sorted({Path(one).absolute() for one in folders}):
            stack.enter_context(_control(folder))
        yield


@contextmanager
def _control(folder: Path) -> Generator[None]:
    held: set[Path] = _mine.__dict__.setdefault("folders", set())
    if folder in held:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = open_own(folder / CONTROL_FILE)
    try:
        _take(descriptor, folder)
        held.add(folder)
        yield
    finally:
        held.discard(folder)
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    for look in range(LOOKS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if look < LOOKS - 1:
                time.sleep(0.05)  # `controller_of` takes the lock for a moment.
                continue
            found = _named(folder)
            who = "another process" if found is None else found.describe()
            raise BackendError(
                f"{folder} already has a controller: {who}",
                f"Wait for it (`isocompute status {folder}` shows how far it is), or end it with Ctrl-C or `kill` "
                "there; then start again.",
            ) from None
        except OSError:
            break  # No locks on this file system.
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = CONTROLLER.to_text(Controller(os.getpid(), socket.gethostname(), now)).encode()
    # Not by renaming: the lock belongs to this file.
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)


def controller_of(folder: str | Path) -> Controller | None:
    """Who controls the runs of a study now; None if nobody does, or if the file system has no locks."""
    path = Path(folder) / CONTROL_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _named(Path(folder))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _named(folder: Path) -> Controller | None:
    """The controller that the lock's file names; None while it is being written."""
    with suppress(IsoComputeError, OSError):
        return CONTROLLER.load(folder / CONTROL_FILE)
    return None
