"""The executor protocol: start prepared runs and report how each ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from isocompute_sdk.training.backend import Launch


@dataclass(frozen=True)
class Job:
    """One prepared run."""

    name: str
    """Name of the run, for messages."""
    launch: Launch
    """Its script, and the folder for its log and measurements."""
    cwd: Path
    """Folder to which the data paths of the run are relative."""


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    job: Job
    exit_code: int
    """0 on success; minus the signal number if a signal ended the process."""
    started: bool = True
    """False if the run was already finished."""


class Executor(Protocol):
    """Runs jobs. After a stop the same jobs may be given again; finished ones are not restarted."""

    def run(self, jobs: Sequence[Job], watch: Callable[[], None] | None = None) -> tuple[Result, ...]:
        """Run all jobs and return their results in the order of the jobs.

        Args:
            jobs: prepared runs, each in a folder of its own.
            watch: called repeatedly while jobs run, to show their progress.
        """
        ...
