"""Runs as processes on this machine, in slots of GPUs or CPU cores."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property

from isocompute_sdk.campaigns.executors.base import Handle, Job, Seen
from isocompute_sdk.campaigns.executors.gpus import VARIABLE, Gpu, claim, visible_gpus
from isocompute_sdk.errors import BackendError
from isocompute_sdk.run_folders import locks, store
from isocompute_sdk.training.backend import Needs

ENGINE = "local"
SECONDS_AFTER_KILL = 5.0
"""Longest wait, after SIGKILL, for processes that a job started outside of its process group."""


@dataclass(frozen=True)
class Slots:
    """How many runs of one kind go on at a time."""

    count: int
    gpus_each: int
    """GPUs of each run; 0 if the runs train on the CPU."""
    gpus: tuple[Gpu, ...]
    """All visible GPUs."""


@dataclass(frozen=True)
class LocalExecutor:
    """Starts `launch.sh` of each job with its output in the run folder's log.txt.

    A run that needs GPUs gets GPUs of its own through CUDA_VISIBLE_DEVICES; a run that needs none sees none. If this
    process is killed, its jobs continue: they keep the locks on their folders and their claims on GPUs until they end.
    """

    max_parallel: int | None = None
    """Parallel runs. None: as many as the GPUs suffice for, or one per core for runs without GPUs."""
    grace_seconds: float = 15.0
    """Time between SIGTERM and SIGKILL."""
    poll_seconds: float = 0.2
    """Time between two checks of the jobs."""
    _active: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """Folders of the attempts that go on."""
    _children: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"], init=False, repr=False, compare=False
    )
    """Processes started here, by folder."""
    _deadlines: dict[str, float] = field(default_factory=dict[str, float], init=False, repr=False, compare=False)
    """Time of SIGKILL of attempts that were asked to end, by folder."""

    def __post_init__(self) -> None:
        if self.max_parallel is not None and self.max_parallel < 1:
            raise BackendError(
                f"max_parallel = {self.max_parallel}; accepted: 1 or more runs at a time",
                "Give a larger number, or none for one run per slot.",
            )

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """Visible GPUs, looked up once."""
        return visible_gpus()

    def slots(self, needs: Needs) -> Slots:
        """Slots for runs with these needs; GPUs that other runs use are counted.

        Raises:
            BackendError: a run needs more GPUs than are visible.
        """
        each = needs.gpus if not needs.or_cpu or self.gpus else 0
        if each > len(self.gpus):
            raise self._too_few(needs)
        if not each:
            return Slots(self.max_parallel or len(os.sched_getaffinity(0)), 0, self.gpus)
        room = len(self.gpus) // each
        return Slots(min(room, self.max_parallel or room), each, self.gpus)

    def check(self, needs: Sequence[Needs]) -> None:
        """Refuse runs that need more GPUs than are visible.

        Raises:
            BackendError: a run needs more GPUs than are visible.
        """
        for one in dict.fromkeys(needs):
            self.slots(one)

    def adopt(self, job: Job) -> Handle | None:
        """The attempt that holds the run's folder; None if the folder is free."""
        if not locks.is_running(job.launch.folder):
            return None
        self._active.add(_key(job))
        return Handle(job, store.read_started(job.launch.folder))

    def submit(self, job: Job, attempt: int) -> Handle | None:
        """Start the job if a slot is free.

        Raises:
            BackendError: the script cannot be started.
        """
        slots = self.slots(job.needs)
        if len(self._active) >= slots.count:
            return None
        with ExitStack() as stack:
            claimed = claim(self.gpus, slots.gpus_each)
            if claimed is None:
                return None
            gpus, claims = claimed
            for one in claims:
                stack.enter_context(one)  # The process holds its own copy.
            lock = locks.try_lock(job.launch.folder)
            if lock is None:
                return self.adopt(job)
            stack.callback(os.close, lock)
            if store.stop_requested(job.launch.folder):
                return None  # Looked up under the lock, so that no run starts behind the back of `stop_runs`.
            process = self._process(job, slots, gpus, (lock, *(one.fileno() for one in claims)))
        self._active.add(_key(job))
        self._children[_key(job)] = process
        started = store.Started(attempt, ENGINE, locks.process_ref(process.pid) or "", tuple(gpu.token for gpu in gpus))
        store.write_started(job.launch.folder, started)
        return Handle(job, started)

    def poll(self, handles: Sequence[Handle]) -> tuple[Seen, ...]:
        """What is seen of each attempt; ends those whose time to end by themselves is over."""
        return tuple(self._poll(handle) for handle in handles)

    def cancel(self, handle: Handle) -> None:
        """SIGTERM to the process group of an attempt, SIGKILL after `grace_seconds` or on a second request.

        A run that another program started is left alone.
        """
        key = _key(handle.job)
        if key in self._deadlines:
            self._deadlines[key] = time.monotonic()
        elif self._leader(handle) is None:
            self._forget(key)
        else:
            self._deadlines[key] = time.monotonic() + self.grace_seconds
            self._signal(handle, signal.SIGTERM)

    def _poll(self, handle: Handle) -> Seen:
        key = _key(handle.job)
        child = self._children.get(key)
        if key in self._deadlines:
            return self._poll_cancelled(handle)
        if child is not None:
            code = child.poll()
            if code is None:
                return Seen("running")
            self._forget(key)
            return Seen("finished" if code == 0 else "failed", code)
        if not locks.is_running(handle.job.launch.folder):
            self._forget(key)
            return Seen("stopped")
        return Seen("running" if self._leader(handle) is not None else "unknown")

    def _poll_cancelled(self, handle: Handle) -> Seen:
        key = _key(handle.job)
        child = self._children.get(key)
        # Not reaped before its whole group has ended: until then the system does not give its id to another process.
        ended = self._leader(handle) is None if child is None else _has_ended(child)
        held = locks.is_running(handle.job.launch.folder)
        overdue = time.monotonic() - self._deadlines[key]
        if (ended and not held) or overdue > SECONDS_AFTER_KILL:
            self._forget(key)
            return Seen("stopped", None if child is None else child.wait())
        if overdue >= 0:
            self._signal(handle, signal.SIGKILL)
        return Seen("running")

    def _leader(self, handle: Handle) -> int | None:
        """Id of the attempt's first process; None if it has ended or is unknown."""
        child = self._children.get(_key(handle.job))
        if child is not None:
            return child.pid if child.returncode is None else None
        started = handle.started
        return None if started is None or started.engine != ENGINE else locks.find_process(started.ref)

    def _signal(self, handle: Handle, number: signal.Signals) -> None:
        leader = self._leader(handle)
        if leader is not None:
            with suppress(ProcessLookupError):
                os.killpg(leader, number)

    def _forget(self, key: str) -> None:
        self._active.discard(key)
        self._children.pop(key, None)
        self._deadlines.pop(key, None)

    def _process(self, job: Job, slots: Slots, gpus: Sequence[Gpu], kept: tuple[int, ...]) -> subprocess.Popen[bytes]:
        cores = len(os.sched_getaffinity(0))
        share = {"OMP_NUM_THREADS": str(max(1, cores // min(slots.count, cores)))}
        own: dict[str, str] = {}
        if self.gpus:
            own[VARIABLE] = ",".join(gpu.token for gpu in gpus)
        if gpus:
            # Otherwise Ray joins the cluster of a run beside this one, which has no GPU left.
            share["RAY_ADDRESS"] = "local"
        store.clear_exit(job.launch.folder)
        with (job.launch.folder / store.LOG_FILE).open("ab") as log:
            try:
                return subprocess.Popen(
                    job.launch.argv,
                    cwd=job.cwd,
                    env={**share, **os.environ, **job.launch.env, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches only this process, which then stops the jobs.
                    pass_fds=kept,
                )
            except OSError as error:
                raise BackendError(
                    f"{job.name}: {job.launch.argv[0]} cannot be started in {job.cwd}: {error.strerror}",
                    "Check that the program is installed and that the folder exists.",
                ) from error

    def _too_few(self, needs: Needs) -> BackendError:
        stated = os.environ.get(VARIABLE)
        seen = ", ".join(gpu.token for gpu in self.gpus) or "none"
        source = "" if stated is None else f" ({VARIABLE}={stated})"
        return BackendError(
            f"a run needs {needs.gpus} GPU(s), by {needs.source}; visible here: {seen}{source}",
            f"Change {needs.source} in the study, make more GPUs visible through {VARIABLE}, or run the study on a "
            f"machine with {needs.gpus} GPU(s).",
        )


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended; leaves its exit code to be collected."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _key(job: Job) -> str:
    return str(job.launch.folder.absolute())
