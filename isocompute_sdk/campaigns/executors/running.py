"""`run_jobs`: run prepared jobs to their end on any executor."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from isocompute_sdk.campaigns.executors.base import ACTIVE, Executor, Handle, Job, Result
from isocompute_sdk.errors import BackendError
from isocompute_sdk.interrupts import interrupts_later
from isocompute_sdk.run_folders import store

CANCEL_POLL_SECONDS = 0.05
"""Time between two looks at jobs that were asked to end."""


def run_jobs(executor: Executor, jobs: Sequence[Job], watch: Callable[[], None] | None = None) -> tuple[Result, ...]:
    """Run all jobs and return their results in the order of the jobs; a failed one does not stop the others.

    Finished jobs are not restarted, and jobs that an earlier controller left running are waited for. Ctrl-C and SIGTERM
    stop all jobs, `stop_runs` in another process stops some. Afterwards the same jobs may be given again.

    Args:
        executor: starts the jobs.
        jobs: prepared runs, each in a folder of its own.
        watch: called repeatedly while jobs run, to show their progress.

    Raises:
        BackendError: the executor refuses a job, a script cannot be started, or two jobs share a folder.
    """
    _refuse_shared_folders(jobs)
    executor.check([job.needs for job in jobs])
    for job in jobs:
        store.clear_stop(job.launch.folder)
    work = _Work(executor, jobs)
    with _sigterm_as_exit():
        try:
            work.adopt()
            while not work.done:
                work.collect()
                work.submit()
                if watch is not None:
                    watch()
                if not work.done:
                    time.sleep(executor.poll_seconds)
        finally:
            work.cancel()
    return tuple(work.results[_key(job)] for job in jobs)


@dataclass
class _Work:
    """Jobs on their way: waiting, active, or with a result."""

    executor: Executor
    jobs: Sequence[Job]
    active: dict[str, Handle] = field(default_factory=dict[str, Handle])
    results: dict[str, Result] = field(default_factory=dict[str, Result])

    @property
    def done(self) -> bool:
        return len(self.results) == len(self.jobs)

    def adopt(self) -> None:
        """Find attempts that are going on, and finished runs."""
        for job in self.jobs:
            handle = self.executor.adopt(job)
            if handle is not None:
                self.active[_key(job)] = handle
            else:
                self._is_finished(job)

    def collect(self) -> None:
        """Note how attempts ended. One that left no exit code or was stopped is looked at again by `submit`."""
        handles = list(self.active.values())
        for handle, seen in zip(handles, self.executor.poll(handles), strict=True):
            if seen.state in ACTIVE:
                continue
            key = _key(handle.job)
            del self.active[key]
            if seen.exit_code is not None and not (seen.exit_code and store.stop_requested(handle.job.launch.folder)):
                self.results[key] = Result(handle.job, seen.exit_code)

    def submit(self) -> None:
        """Start waiting jobs in their order, as far as there is room."""
        for job in self.jobs:
            key = _key(job)
            if key in self.active or key in self.results or self._is_finished(job):
                continue
            if store.stop_requested(job.launch.folder):
                self.results[key] = Result(job, None, started=False)
                continue
            # An interrupt between the start of a process and the note of it here would leave the process behind.
            with interrupts_later():
                handle = self.executor.submit(job, store.last_attempt(job.launch.folder) + 1)
                if handle is None:
                    return
                self.active[key] = handle

    def cancel(self) -> None:
        """End all active attempts and wait until they have ended; at once if interrupted again."""
        try:
            self._cancel()
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        handles = list(self.active.values())
        for handle in handles:
            self.executor.cancel(handle)
        # An attempt of state `unknown` belongs to another program, which goes on.
        while any(seen.state in ("waiting", "running") for seen in self.executor.poll(handles)):
            time.sleep(CANCEL_POLL_SECONDS)

    def _is_finished(self, job: Job) -> bool:
        finished = store.is_finished(job.launch.folder)
        if finished:
            self.results[_key(job)] = Result(job, 0, started=False)
        return finished


@contextmanager
def _sigterm_as_exit() -> Generator[None]:
    """Turn SIGTERM into SystemExit, so that jobs are stopped before this process exits."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may set signal handlers.
        return
    earlier = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _key(job: Job) -> str:
    return str(job.launch.folder.absolute())


def _refuse_shared_folders(jobs: Sequence[Job]) -> None:
    seen: dict[str, str] = {}
    for job in jobs:
        key = _key(job)
        if key in seen:
            raise BackendError(
                f"{seen[key]!r} and {job.name!r} share the folder {key}; accepted: a folder per run",
                "Give them different names or output_dirs.",
            )
        seen[key] = job.name
