"""The executor protocol: start prepared runs, say what is seen of them, end them.

What an engine says is evidence on one attempt. The run folder decides: its lock and beat say that a run goes on,
exit.json how an attempt ended, the journal that a run has finished. Every executor therefore starts `wrapper.py` in the
run folder (`wrapper_command`), which keeps all of these.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from isocompute_sdk.run_folders import store
from isocompute_sdk.run_folders.store import RunWatch, Started
from isocompute_sdk.specs import ExecutorSpec
from isocompute_sdk.training.backend import Launch, Needs

State = Literal["waiting", "running", "finished", "failed", "stopped", "unknown"]
"""State of an attempt: `waiting` for the engine to start it; `stopped` without a result, on request or unobserved;
`unknown` if the engine cannot tell, which is never a reason to start the run again."""
GRACE_SECONDS = 15.0
"""Time between SIGTERM and SIGKILL of a job that does not say."""
ACTIVE: tuple[State, ...] = ("waiting", "running", "unknown")
"""States in which a run must not be started again."""


@dataclass(frozen=True)
class Job:
    """One prepared run."""

    name: str
    """Name of the run, for messages."""
    launch: Launch
    """Its script, and the folder for its log and measurements."""
    cwd: Path
    """Folder to which the data paths of the run are relative."""
    needs: Needs = field(default_factory=Needs)
    """Devices that the run needs."""
    grace_seconds: float | None = None
    """Time between a request to end and SIGKILL. None: decided by the executor."""
    limit_seconds: float | None = None
    """Wall-clock limit of one attempt. None: no limit."""
    executor: ExecutorSpec | None = None
    """What starts it, kept in the run folder so that other commands find the run. None: an object of the caller's."""
    follow: RunWatch | None = None
    """Tells how far it is. None: it is not watched for hanging."""
    check: Callable[[], str] | None = None
    """Returns why the run is to be ended early, or "". None: never."""

    @property
    def key(self) -> str:
        """Its folder, as text."""
        return str(self.launch.folder.absolute())

    def label(self, attempt: int) -> str:
        """Name of an attempt for engines: unique among all runs, and made of letters, digits and `._-`."""
        place = hashlib.sha256(str(self.launch.folder.absolute()).encode()).hexdigest()[:8]
        return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', self.name)}-{place}.{attempt}"


@dataclass(frozen=True)
class Handle:
    """One attempt at a job."""

    job: Job
    started: Started | None
    """What the engine started, as kept in the run folder; None if another program started the run."""

    @property
    def ended(self) -> Seen | None:
        """How the attempt ended by its record in the run folder; None without one."""
        record = store.read_exit(self.job.launch.folder)
        if record is None or self.started is None or record.attempt != self.started.attempt:
            return None
        if record.stopped:
            return Seen("stopped", reason=record.reason)
        return Seen("finished" if record.exit_code == 0 else "failed", record.exit_code)


@dataclass(frozen=True)
class Seen:
    """What an engine sees of one attempt."""

    state: State
    exit_code: int | None = None
    """0 on success, minus the signal number if a signal ended the process; None if unknown or not ended."""
    reason: str = ""
    """The engine's own words, such as the state of a Slurm job; empty if it was not asked."""


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    job: Job
    exit_code: int | None
    """0 on success; minus the signal number if a signal ended the process; None if the job was stopped, on request or
    for `reason`."""
    started: bool = True
    """False if the run was already finished, or not to be started."""
    reason: str = ""
    """Why the run was given up; empty if it was not."""


class Executor(Protocol):
    """An engine that runs jobs. `run_jobs` drives it; the methods return at once."""

    @property
    def name(self) -> str:
        """Name under which the executor is registered."""
        ...

    @property
    def poll_seconds(self) -> float:
        """Time between two polls."""
        ...

    def check(self, needs: Sequence[Needs]) -> None:
        """Refuse needs that can never be met. Called before anything is written or started.

        Raises:
            BackendError: a run needs more than there is.
        """
        ...

    def adopt(self, job: Job) -> Handle | None:
        """The attempt that is going on, such as one of an earlier controller; None if the run is idle."""
        ...

    def submit(self, job: Job, attempt: int) -> Handle | None:
        """Start an attempt, or return the one that is going on; None if there is no room yet, or on a stop request.

        Called again with the same attempt, it starts nothing new.

        Raises:
            BackendError: the script cannot be started.
        """
        ...

    def poll(self, handles: Sequence[Handle]) -> tuple[Seen, ...]:
        """What is seen of each attempt, in the order of the handles."""
        ...

    def cancel(self, handle: Handle) -> None:
        """Ask an attempt to end; `poll` confirms the end. A second request ends it at once."""
        ...


def wrapper_command(job: Job, attempt: int, python: str) -> tuple[str, ...]:
    """Write wrapper.py and job.json, the intent to start an attempt, into the run folder; returns the command to start.

    Call it only when nothing of an earlier attempt goes on. exit.json of the earlier attempt is removed. `python` is
    the interpreter where the command runs, 3.10 or newer.
    """
    folder = job.launch.folder.absolute()
    grace = GRACE_SECONDS if job.grace_seconds is None else job.grace_seconds
    record = store.JobRecord(
        attempt,
        job.launch.argv,
        str(job.cwd.absolute()),
        dict(job.launch.env),
        grace,
        job.limit_seconds,
        {} if job.executor is None else job.executor.model_dump(mode="json", exclude_none=True),
    )
    program = store.write_job(folder, record)
    return python, "-I", "-S", str(program.absolute()), str(folder), str(attempt)
