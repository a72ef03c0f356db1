"""`controlling`: one controller at a time for the runs of a study; and what was edited in it.

The lock is the system's (flock) on a file in the study's folder, so it ends with the process that holds it, however
that process ends. A file system without locks lets every controller in; the locks of the runs themselves still keep
each run from being started twice.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import BackendError, IsoComputeError, RecordError, show
from isocompute_sdk.run_folders import locks, store
from isocompute_sdk.run_folders.wrapper import open_own
from isocompute_sdk.specs import Study
from isocompute_sdk.training.backend import Backend, run_folder, speed_options_of
from isocompute_sdk.training.payload.run_files import differences

STUDY_FILE = "study.json"
STUDY = Document(
    "study", 1, Study, typed=True, remedy="Remove the file: the runs are then compared with the study one by one."
)
"""Content of study.json: the study as `isocompute run` last carried it out."""
FREE = frozenset({"executor", "supervision", "throughput", "pilot", "problems", "budget", "sweep", "runs"})
"""Sections that change no measurement. Scripts compare the problem files themselves, and each run folder takes no other
length than its run can have (`store.write_spec`)."""


def study_changes(
    earlier: Study, now: Study, backend: Backend, folders: Sequence[Path], where: Path
) -> dict[str, tuple[Any, Any]]:
    """Every field that differs, with its old and new value in JSON form."""
    old, new = (study.model_dump(mode="json") for study in (earlier, now))
    changes = {field: (before, after) for field, before, after in differences(old, new)}
    speed = {f"options.{name}" for name in speed_options_of(backend) or ()}
    refused = [field for field in changes if field.partition(".")[0] not in FREE and field not in speed]
    if speed_options_of(backend) is None:
        refused = [field for field in refused if not field.startswith("options.")]
    if refused and any(store.has_begun(folder) for folder in folders if folder.is_dir()):
        listed = "\n".join(f"  {describe(field, *changes[field])}" for field in changes)
        raise RecordError(
            f"the study was edited since its runs in {where} began, in a way that would spoil them:\n{listed}",
            f"Restore {', '.join(refused)}, or start afresh with another name in another folder.",
        )
    return changes


def describe(field: str, old: Any, new: Any) -> str:
    """One change on one line."""
    return f"{field}: {_shown(old)} -> {_shown(new)}"


def update_study(study: Study, folder: Path, root: Path, backend: Backend) -> dict[str, tuple[Any, Any]]:
    """Compare a sweep with what `folder` holds of it, keep it there, and return what was changed.

    Raises:
        RecordError: a change that would spoil what was run.
    """
    path = folder / STUDY_FILE
    changes: dict[str, tuple[Any, Any]] = {}
    if STUDY.holds(path):
        earlier = STUDY.load(path)
        runs = earlier.expand() if earlier.has_runs else ()
        changes = study_changes(earlier, study, backend, [root / run_folder(run) for run in runs], folder)
    STUDY.save(path, study)
    return changes


def _shown(value: Any) -> str:
    return "none" if value is None else show(value)


CONTROL_FILE = ".controller.lock"
"""Lock of a study's folder, with the controller that holds it or held it last."""

LOOKS = 6
"""Tries before a lock counts as held."""
END_SECONDS = 60.0
"""Longest wait for a controller that was asked to end: it ends its runs first."""


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
                f"Wait for it (`isocompute status {folder}` shows how far it is), or end it with its runs "
                f"(`isocompute stop {folder}`); then start again.",
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


def end_controller(folder: Path, seconds: float = 0.0) -> Controller | None:
    """End who controls the runs in a study's folder, and return it once it has ended; None if nobody else does.

    Args:
        folder: the study's folder.
        seconds: how long it may take to end by itself, as it does when its runs were stopped.

    Raises:
        BackendError: it is on another machine, belongs to another user, or does not end; the message names it.
    """
    found = controller_of(folder)
    if found is None or found.pid == os.getpid():
        return None
    if _has_left(folder, found, seconds):
        return found
    # The file may come from a stranger; only a process that has it open is its controller.
    if found.host == socket.gethostname() and locks.holds(folder, found.pid, CONTROL_FILE):
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGTERM)
        if _has_left(folder, found, END_SECONDS):
            return found
    raise BackendError(
        f"{folder} still has its controller, which starts further runs: {found.describe()}",
        f"End it there with Ctrl-C or kill {found.pid}; then stop again.",
    )


def _has_left(folder: Path, controller: Controller, seconds: float) -> bool:
    """Whether a controller lets go of the folder within some seconds."""
    deadline = time.monotonic() + seconds
    while controller_of(folder) == controller:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _named(folder: Path) -> Controller | None:
    """The controller that the lock's file names; None while it is being written."""
    with suppress(IsoComputeError, OSError):
        return CONTROLLER.load(folder / CONTROL_FILE)
    return None
