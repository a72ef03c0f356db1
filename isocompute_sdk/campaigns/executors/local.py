"""Runs as processes on this machine, a few at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from isocompute_sdk.campaigns.executors.base import Job, Result
from isocompute_sdk.errors import BackendError
from isocompute_sdk.run_folders import store
from isocompute_sdk.run_folders.locks import try_lock


@dataclass(frozen=True)
class LocalExecutor:
    """Starts `launch.sh` of each job with its output in the run folder's log.txt.

    Ctrl-C and SIGTERM also stop the jobs (SIGTERM, then SIGKILL). If this process itself is killed, its jobs continue:
    they hold the locks on their folders, and the next start waits for them instead of starting them twice.
    """

    max_parallel: int | None = None
    """Parallel runs. None: one per core available to this process."""
    grace_seconds: float = 15.0
    """Time between SIGTERM and SIGKILL."""
    poll_seconds: float = 0.2
    """Time between two checks of the jobs."""

    def __post_init__(self) -> None:
        if self.max_parallel is not None and self.max_parallel < 1:
            raise BackendError(
                f"max_parallel = {self.max_parallel}; accepted: 1 or more runs at a time",
                "Give a larger number, or none for one run per core.",
            )

    @property
    def parallel(self) -> int:
        """Parallel runs."""
        return self.max_parallel if self.max_parallel is not None else len(os.sched_getaffinity(0))

    def run(self, jobs: Sequence[Job], watch: Callable[[], None] | None = None) -> tuple[Result, ...]:
        """Run all jobs; a failed one does not stop the others.

        Raises:
            BackendError: a script cannot be started, or two jobs share a folder.
        """
        _refuse_shared_folders(jobs)
        results: dict[str, Result] = {}
        running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
        with _sigterm_as_exit():
            try:
                while len(results) < len(jobs):
                    _collect(running, results)
                    self._start(jobs, running, results)
                    if watch is not None:
                        watch()
                    if len(results) < len(jobs):
                        time.sleep(self.poll_seconds)
            finally:
                _stop([process for _, process in running.values()], self.grace_seconds)
        return tuple(results[_key(job)] for job in jobs)

    def _start(
        self,
        jobs: Sequence[Job],
        running: dict[str, tuple[Job, subprocess.Popen[bytes]]],
        results: dict[str, Result],
    ) -> None:
        """Start waiting jobs up to `parallel`."""
        busy = len(running)
        for job in jobs:
            key = _key(job)
            if busy >= self.parallel:
                return
            if key in running or key in results:
                continue
            lock = try_lock(job.launch.folder)
            if lock is None:
                busy += 1  # A process of an earlier start still runs.
                continue
            try:
                if store.is_finished(job.launch.folder):
                    results[key] = Result(job, 0, started=False)
                else:
                    running[key] = job, self._process(job, lock)
                    busy += 1
            finally:
                os.close(lock)  # The process holds its own copy.

    def _process(self, job: Job, lock: int) -> subprocess.Popen[bytes]:
        cores = len(os.sched_getaffinity(0))
        share = {"OMP_NUM_THREADS": str(max(1, cores // min(self.parallel, cores)))}
        store.clear_exit(job.launch.folder)
        with (job.launch.folder / store.LOG_FILE).open("ab") as log:
            try:
                return subprocess.Popen(
                    job.launch.argv,
                    cwd=job.cwd,
                    env={**share, **os.environ, **job.launch.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches only this process, which then stops the jobs.
                    pass_fds=(lock,),
                )
            except OSError as error:
                raise BackendError(
                    f"{job.name}: {job.launch.argv[0]} cannot be started in {job.cwd}: {error.strerror}",
                    "Check that the program is installed and that the folder exists.",
                ) from error


def _collect(running: dict[str, tuple[Job, subprocess.Popen[bytes]]], results: dict[str, Result]) -> None:
    for key, (job, process) in list(running.items()):
        code = process.poll()
        if code is not None:
            store.write_exit(job.launch.folder, code)
            results[key] = Result(job, code)
            del running[key]


def _stop(processes: Sequence[subprocess.Popen[bytes]], grace_seconds: float) -> None:
    """End every process with its children: SIGTERM, wait, SIGKILL."""
    try:
        for process in processes:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        for process in processes:
            if process.poll() is None:
                _signal(process, signal.SIGKILL)
                process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


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
