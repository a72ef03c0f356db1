"""Runs as processes on this machine, in slots of GPUs or CPU cores."""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from typing_extensions import override

from isocompute_sdk.campaigns.executors.base import GRACE_SECONDS, Executor, Handle, Job, Seen, wrapper_command
from isocompute_sdk.errors import BackendError
from isocompute_sdk.phrases import counted
from isocompute_sdk.run_folders import locks, store, wrapper
from isocompute_sdk.run_folders.wrapper import MIN_DESCRIPTOR
from isocompute_sdk.specs import ExecutorSpec
from isocompute_sdk.specs.run import FolderName
from isocompute_sdk.training.backend import Needs

ENGINE = store.LOCAL
VARIABLE = "CUDA_VISIBLE_DEVICES"
NVIDIA_SMI_SECONDS = 60
"""Time limit of nvidia-smi, which takes seconds on a machine with many GPUs and no persistence daemon."""
_LISTED = re.compile(r"^(?P<indent>\s*)(?P<kind>GPU|MIG) .*\(UUID: (?P<uuid>[^)\s]+)\)")
SECONDS_AFTER_KILL = 5.0
"""Longest wait, after SIGKILL, for processes that a job started outside of its process group."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG slice of a GPU."""

    token: str
    """Its name in CUDA_VISIBLE_DEVICES: an index, a GPU UUID or a MIG UUID."""
    uuid: str
    """Its UUID; the token if nothing tells the UUID."""


@dataclass(frozen=True)
class Slots:
    """How many runs of one kind go on at a time."""

    count: int
    gpus_each: int
    """GPUs of each run; 0 if the runs train on the CPU."""
    gpus: tuple[Gpu, ...]
    """All visible GPUs."""


@dataclass(frozen=True)
class LocalExecutor(Executor):
    """Starts the wrapper of each job, which runs `launch.sh` with its output in the run folder's log.txt.

    A run that needs GPUs gets GPUs of its own through CUDA_VISIBLE_DEVICES; a run that needs none sees none. If this
    process is killed, its jobs continue: they keep the locks on their folders and their claims on GPUs until they end.
    """

    max_parallel: int | None = None
    """Parallel runs. None: as many as the GPUs suffice for, or one per core for runs without GPUs."""
    grace_seconds: float = GRACE_SECONDS
    """Time between SIGTERM and SIGKILL."""
    poll_seconds: float = 0.2  # pyright: ignore[reportIncompatibleMethodOverride]
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

    @property
    @override
    def name(self) -> str:
        return ENGINE

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

    @override
    def check(self, needs: Sequence[Needs]) -> None:
        for one in dict.fromkeys(needs):
            self.slots(one)

    @override
    def adopt(self, job: Job) -> Handle | None:
        if not locks.is_running(job.launch.folder):
            return None
        self._active.add(job.key)
        return Handle(job, _started(job))

    @override
    def submit(self, job: Job, attempt: int) -> Handle | None:
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
            lock = wrapper.take_lock(job.launch.folder)
            if lock is None:
                return self.adopt(job)
            stack.callback(os.close, lock)
            if store.stop_requested(job.launch.folder):
                return None  # Looked up under the lock, so that no run starts behind the back of `stop_runs`.
            process = self._process(job, attempt, slots, gpus, lock, [one.fileno() for one in claims])
        self._active.add(job.key)
        self._children[job.key] = process
        started = store.Started(
            attempt, ENGINE, wrapper.process_ref(process.pid) or "", tuple(gpu.token for gpu in gpus)
        )
        store.write_started(job.launch.folder, started)
        return Handle(job, started)

    @override
    def poll(self, handles: Sequence[Handle]) -> tuple[Seen, ...]:
        return tuple(self._poll(handle) for handle in handles)

    @override
    def cancel(self, handle: Handle) -> None:
        key = handle.job.key
        if not self._signal(handle, signal.SIGTERM if key not in self._deadlines else signal.SIGQUIT):
            self._forget(key)
            return
        grace = self.grace_seconds if key not in self._deadlines else 0.0
        self._deadlines[key] = time.monotonic() + grace + SECONDS_AFTER_KILL

    def _poll(self, handle: Handle) -> Seen:
        key, child = handle.job.key, self._children.get(handle.job.key)
        asked = key in self._deadlines
        if child is not None and child.poll() is None:
            return self._overdue(handle) or Seen("running")
        # Of a run that was asked to end nothing may remain; another may leave a server behind, once it has a record.
        ended = handle.ended is not None and not asked and self._living(handle) is None
        if not ended and locks.is_running(handle.job.launch.folder):
            own = asked or child is not None or self._living(handle) is not None
            return self._overdue(handle) or Seen("running" if own else "unknown")
        self._forget(key)
        return handle.ended or Seen("stopped")

    def _overdue(self, handle: Handle) -> Seen | None:
        """Kill an attempt that outlives its deadline; its end if even that does not help."""
        key = handle.job.key
        late = time.monotonic() - self._deadlines.get(key, math.inf)
        if late < 0:
            return None
        self._signal(handle, signal.SIGKILL)
        if late < SECONDS_AFTER_KILL:
            return None
        self._forget(key)
        return Seen("stopped")

    def _living(self, handle: Handle) -> tuple[int | None, int | None] | None:
        """Process ids of the wrapper and the command of an attempt, as far as they hold its folder; None if neither."""
        child, started = self._children.get(handle.job.key), handle.started
        if started is None or started.engine != ENGINE:
            return None
        folder = handle.job.launch.folder
        leader = child.pid if child is not None and child.poll() is None else locks.find_holder(folder, started.ref)
        beat = wrapper.read_json(folder / wrapper.BEAT_FILE) or {}
        command = locks.find_holder(folder, beat.get("command")) if beat.get("attempt") == started.attempt else None
        if leader is None and command is None and (handle.ended is None or handle.job.key in self._deadlines):
            # A wrapper that was killed at once has left no record of what it had just started.
            command = next(iter(_groups(folder)), None)
        return None if leader is None and command is None else (leader, command)

    def _signal(self, handle: Handle, number: signal.Signals) -> bool:
        """Signal an attempt: its wrapper, which passes it on, else what a killed wrapper has left; whether it lives."""
        living = self._living(handle)
        if living is None:
            return False
        leader, command = living
        with suppress(ProcessLookupError):
            if leader is not None:
                os.kill(leader, number)
            if command is not None and (leader is None or number == signal.SIGKILL):
                os.killpg(command, signal.SIGKILL if number == signal.SIGQUIT else number)
        return True

    def _forget(self, key: str) -> None:
        self._active.discard(key)
        self._children.pop(key, None)
        self._deadlines.pop(key, None)

    def _process(
        self, job: Job, attempt: int, slots: Slots, gpus: Sequence[Gpu], lock: int, claims: Sequence[int]
    ) -> subprocess.Popen[bytes]:
        cores = len(os.sched_getaffinity(0))
        share = {"OMP_NUM_THREADS": str(max(1, cores // min(slots.count, cores)))}
        own: dict[str, str] = {}
        if self.gpus:
            own[VARIABLE] = ",".join(gpu.token for gpu in gpus)
        if gpus:
            # Otherwise Ray joins the cluster of a run beside this one, which has no GPU left.
            share["RAY_ADDRESS"] = "local"
        environment = {**share, **os.environ, **own}
        _refuse_missing(job, {**environment, **job.launch.env})
        job = job if job.grace_seconds is not None else replace(job, grace_seconds=self.grace_seconds)
        command = (*wrapper_command(job, attempt, sys.executable), str(lock))
        with (job.launch.folder / store.LOG_FILE).open("ab") as log:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this process, which then stops the jobs.
                pass_fds=(lock, *claims),
            )

    def _too_few(self, needs: Needs) -> BackendError:
        stated = os.environ.get(VARIABLE)
        seen = ", ".join(gpu.token for gpu in self.gpus) or "none"
        source = "" if stated is None else f" ({VARIABLE}={stated})"
        return BackendError(
            f"a run needs {counted(needs.gpus, 'GPU')} ({needs.source}); visible here: {seen}{source}",
            f"Change {needs.source} in the study, make more GPUs visible through {VARIABLE}, or run the study on a "
            f"machine with {counted(needs.gpus, 'GPU')}.",
        )


class LocalSpec(ExecutorSpec):
    """Runs as processes on this machine."""

    name: FolderName = ENGINE
    """Name of this executor."""

    def executor(self) -> LocalExecutor:
        """The executor."""
        return LocalExecutor(self.parallel, self.grace_seconds)


def _refuse_missing(job: Job, environment: Mapping[str, str]) -> None:
    """Refuse a command that is not there, before anything is written about an attempt."""
    program = job.launch.argv[0]
    if not job.cwd.is_dir() or shutil.which(program, path=environment.get("PATH")) is None:
        raise BackendError(
            f"{job.name}: {program} cannot be started in {job.cwd}: not found",
            "Check that the program is installed and that the folder exists.",
        )


def _groups(folder: Path) -> list[int]:
    """Process groups, other than our own, that keep the lock of a folder."""
    found: list[int] = []
    for one in locks.holders(folder):
        with suppress(ProcessLookupError):
            found.append(os.getpgid(one))
    return [one for one in dict.fromkeys(found) if one != os.getpgrp()]


def _started(job: Job) -> store.Started | None:
    """The attempt on record; that of the beat if its controller was killed before it made a record."""
    started, beat = store.read_started(job.launch.folder), wrapper.read_json(job.launch.folder / wrapper.BEAT_FILE)
    attempt = None if beat is None else beat.get("attempt")
    if beat is None or attempt is None or (started is not None and started.attempt == attempt):
        return started
    return store.Started(int(attempt), ENGINE, str(beat.get("process")))


def visible_gpus() -> tuple[Gpu, ...]:
    """GPUs of CUDA_VISIBLE_DEVICES; all GPUs of the machine if it is unset.

    Like CUDA, ends the list at the first token that names no device: "" and "-1" are no GPU, "0,-1,1" is GPU 0.
    """
    stated = os.environ.get(VARIABLE)
    # Nothing runs for a variable that hides every GPU.
    if stated is not None and (not stated.strip() or stated.strip().startswith("-")):
        return ()
    listed = _machine()
    if stated is None:
        return tuple(Gpu(uuid, uuid) for _, uuid in listed)
    found: dict[str, Gpu] = {}
    for token in (part.strip() for part in stated.split(",")):
        uuid = _uuid(token, listed)
        if uuid is None:
            break
        found.setdefault(uuid, Gpu(token, uuid))
    return tuple(found.values())


def claim(gpus: Sequence[Gpu], count: int) -> tuple[tuple[Gpu, ...], tuple[socket.socket, ...]] | None:
    """Claim `count` of the GPUs that no other run on this machine has claimed; None if there are fewer.

    A claim lasts until every process that has inherited its socket has ended, whatever ended them, so that a run keeps
    its GPUs when its controller is killed. It holds against all campaigns and users in one network namespace.
    """
    with ExitStack() as stack:
        claimed: list[tuple[Gpu, socket.socket]] = []
        for gpu in gpus:
            if len(claimed) == count:
                break
            # A name in the abstract namespace of Unix sockets: unlike a lock file, nothing can remove it.
            claimant = stack.enter_context(socket.socket(socket.AF_UNIX))
            try:
                claimant.bind(f"\0isocompute-gpu-{gpu.uuid}"[:100])
            except OSError:
                continue
            claimed.append((gpu, claimant))
        if len(claimed) < count:
            return None
        kept = tuple((gpu, _out_of_the_way(claimant)) for gpu, claimant in claimed)
        return tuple(gpu for gpu, _ in kept), tuple(claimant for _, claimant in kept)


def _out_of_the_way(claimant: socket.socket) -> socket.socket:
    """A copy with a number that scripts, which inherit it, do not use for files of their own."""
    return socket.socket(fileno=fcntl.fcntl(claimant, fcntl.F_DUPFD_CLOEXEC, MIN_DESCRIPTOR))


def _uuid(token: str, listed: Sequence[tuple[int, str]]) -> str | None:
    """UUID of a token; None if it names no device."""
    if token.isdecimal():
        if not listed:
            return token
        return next((uuid for index, uuid in listed if index == int(token)), None)
    if not token.startswith(("GPU-", "MIG-")):
        return None
    # CUDA accepts the beginning of a UUID.
    return next((uuid for _, uuid in listed if uuid.startswith(token)), token)


def _machine() -> list[tuple[int, str]]:
    """Index and UUID of all GPUs of the machine; of a GPU with MIG slices, those of the slices.

    Empty if nvidia-smi cannot tell.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    gpus: list[list[str]] = []
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        match = _LISTED.match(line)
        if match is None:
            continue
        if match["kind"] == "GPU":
            gpus.append([match["uuid"]])
        elif gpus:
            gpus[-1].append(match["uuid"])
    return [(index, uuid) for index, uuids in enumerate(gpus) for uuid in uuids[1:] or uuids]
