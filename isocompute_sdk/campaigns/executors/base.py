"""What an executor is: something that carries prepared runs out and says how each ended."""

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
    """Its script, and the folder that receives its log and measurements."""
    cwd: Path
    """Folder that the data paths of the run are relative to."""


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    job: Job
    exit_code: int
    """0 on success; minus the signal where one ended the process."""
    started: bool = True
    """False where the run was finished before."""


class Executor(Protocol):
    """Carries jobs out; the same jobs may be given again after a stop, and finished ones are not started again."""

    def run(self, jobs: Sequence[Job], watch: Callable[[], None] | None = None) -> tuple[Result, ...]:
        """Carry all jobs out and return their results in the order of the jobs.

        Args:
            jobs: prepared runs, each in a folder of its own.
            watch: called again and again while jobs run, to show how far they are.
        """
        ...
