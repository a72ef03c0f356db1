"""The executor protocol: an engine starts prepared runs, says what it sees of them and ends them.

What an engine says is evidence on one attempt. The run folder decides: its lock says that a run goes on, its journal
that it has finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from isocompute_sdk.run_folders.store import Started
from isocompute_sdk.training.backend import Launch, Needs

State = Literal["waiting", "running", "finished", "failed", "stopped", "unknown"]
"""State of an attempt: `waiting` for the engine to start it; `stopped` without a result, on request or unobserved;
`unknown` if the engine cannot tell, which is never a reason to start the run again."""
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


@dataclass(frozen=True)
class Handle:
    """One attempt at a job."""

    job: Job
    started: Started | None
    """What the engine started, as kept in the run folder; None if another program started the run."""


@dataclass(frozen=True)
class Seen:
    """What an engine sees of one attempt."""

    state: State
    exit_code: int | None = None
    """0 on success, minus the signal number if a signal ended the process; None if unknown or not ended."""


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    job: Job
    exit_code: int | None
    """0 on success; minus the signal number if a signal ended the process; None if the job was stopped on request."""
    started: bool = True
    """False if the run was already finished, or not to be started."""


class Executor(Protocol):
    """An engine that runs jobs. `run_jobs` drives it; the methods return at once."""

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
