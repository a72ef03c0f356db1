"""`ClusterExecutor`: runs as jobs of an engine that starts them on other machines, such as Slurm or Ray.

The run folder, on a file system that all machines share, is the only coupling. The engine is asked only where the
folder is silent: to find a job, and to say whether a job that has written nothing still waits, starts or is gone.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from typing_extensions import override

from isocompute_sdk.campaigns.executors.base import (
    ACTIVE,
    GRACE_SECONDS,
    Executor,
    Handle,
    Job,
    Seen,
    wrapper_command,
)
from isocompute_sdk.run_folders import locks, store, wrapper
from isocompute_sdk.specs import ExecutorSpec
from isocompute_sdk.training.backend import Needs


class Engine(Protocol):
    """What differs between engines."""

    @property
    def name(self) -> str:
        """Name of the executor, kept in handle.json."""
        ...

    @property
    def python(self) -> str:
        """Interpreter, 3.10 or newer, that runs the wrapper on the engine's machines."""
        ...

    def check(self, needs: Sequence[Needs]) -> None:
        """Refuse needs that can never be met.

        Raises:
            BackendError: a run needs more than there is, or the engine does not answer.
        """
        ...

    def room(self, job: Job) -> bool:
        """Whether the run may be handed over now; True if the engine queues runs itself.

        Raises:
            EngineSilent: the engine does not answer.
        """
        return True

    def find(self, job: Job, attempt: int) -> str | None:
        """The engine's name for a job of this run and attempt that waits or runs, looked up by its label.

        Raises:
            EngineSilent: the engine does not answer.
        """
        ...

    def submit(self, job: Job, attempt: int, command: Sequence[str]) -> str:
        """Hand a command to the engine; returns the engine's name for the job.

        Raises:
            EngineSilent: the engine does not answer.
            BackendError: the engine refuses the job.
        """
        ...

    def look(self, refs: Sequence[str]) -> Mapping[str, Seen]:
        """What the engine says about these jobs, by its name for them. A job that it has forgotten is left out.

        A job about which the engine does not answer is `unknown`; this method raises nothing for that.
        """
        ...

    def end(self, ref: str, *, at_once: bool) -> None:
        """Ask a job to end: SIGTERM to the wrapper, or SIGKILL if `at_once`; no error if it has ended.

        Raises:
            EngineSilent: the engine does not answer.
        """
        ...


class EngineSilent(Exception):
    """The engine does not answer, so nothing is known."""


@dataclass(frozen=True)
class ClusterExecutor(Executor):
    """Hands runs to an engine and adopts those that an earlier controller has handed over."""

    engine: Engine
    parallel: int | None = None
    """Runs handed over at a time. None: all; the engine queues them."""
    grace_seconds: float = GRACE_SECONDS
    """Time between SIGTERM and SIGKILL of a job that does not say."""
    poll_seconds: float = 2.0  # pyright: ignore[reportIncompatibleMethodOverride]
    """Time between two looks at the run folders."""
    ask_seconds: float = 3.0
    """Time between two questions to the engine about one job."""
    settle_seconds: float = 30.0
    """Time after the end of a job, by the engine, in which its exit.json may still appear on a shared file system."""
    spec: ExecutorSpec | None = None
    """The options it was made from; `registry.load` sets them. Run folders keep them, so that other commands find the
    jobs."""
    _active: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """Folders of attempts that go on."""
    _asked: dict[str, float] = field(default_factory=dict[str, float], init=False, repr=False, compare=False)
    """Time at which an attempt that was asked to end may be killed, by folder."""
    _orphans: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """Folders whose command has outlived its wrapper and was asked to end."""
    _insisted: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """Folders of attempts that were to end at once, because they had not ended in their time."""
    _looks: dict[str, tuple[float, Seen]] = field(
        default_factory=dict[str, "tuple[float, Seen]"], init=False, repr=False, compare=False
    )
    """When the engine was last asked about a job, and what it said."""
    _own: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """The engine's names for jobs that carry the label of their run; no other is ended."""
    _gone: dict[str, float] = field(default_factory=dict[str, float], init=False, repr=False, compare=False)
    """Time at which the engine first called a job ended whose folder is silent, by its name for the job."""

    @property
    @override
    def name(self) -> str:
        return self.engine.name

    @override
    def check(self, needs: Sequence[Needs]) -> None:
        self.engine.check(needs)

    @override
    def adopt(self, job: Job) -> Handle | None:
        folder = job.launch.folder
        attempt, started, ended = store.last_attempt(folder), store.read_started(folder), store.read_exit(folder)
        over = ended is not None and ended.attempt == attempt
        if started is not None and started.attempt != attempt:
            started = None  # A later attempt was about to start.
        if started is not None and started.engine == self.name and not self._is_own(job, started):
            started = None
        if started is None and attempt and not over:
            started = self._find(job, attempt)
        if not locks.is_running(folder) and (over or started is None or started.engine != self.name):
            return None
        self._active.add(job.key)
        return Handle(job, started)

    @override
    def submit(self, job: Job, attempt: int) -> Handle | None:
        folder = job.launch.folder
        job = job if job.grace_seconds is not None else replace(job, grace_seconds=self.grace_seconds)
        if self.parallel is not None and len(self._active - {job.key}) >= self.parallel:
            return None
        with locks.submitting(folder):
            earlier = self.adopt(job)
            if earlier is not None and self._poll_folder(earlier, self._look([earlier])).state in ACTIVE:
                return earlier
            if store.stop_requested(folder):
                return None
            try:
                if not self.engine.room(job):
                    return None
                command = wrapper_command(job, attempt, self.engine.python)
                ref = self.engine.find(job, attempt) or self.engine.submit(job, attempt, command)
            except EngineSilent:
                # The engine may have taken the job: `adopt` looks for it before anything is handed over again.
                return None
            self._own.add(ref)
            started = store.Started(attempt, self.name, ref)
            store.write_started(folder, started)
        self._active.add(job.key)
        return Handle(job, started)

    @override
    def poll(self, handles: Sequence[Handle]) -> tuple[Seen, ...]:
        named = [self._named(one) for one in handles]
        looked = self._look([one for one in named if self._is_open(one)])
        return tuple(self._poll_folder(one, looked) for one in named)

    def words(self, handles: Sequence[Handle]) -> tuple[str, ...]:
        """What the engine says about each attempt, whatever its folder says; empty if it was not started there."""
        looked = self._look(handles)
        found = [looked.get(one.started.ref) if one.started is not None else None for one in handles]
        return tuple("" if job is None else job.reason or job.state for job in found)

    @override
    def cancel(self, handle: Handle) -> None:
        started = handle.started
        if started is None or started.engine != self.name:
            return
        key, now = handle.job.key, time.monotonic()
        with suppress(EngineSilent):
            ref = started.ref if started.ref in self._own else self.engine.find(handle.job, started.attempt)
            if ref is not None:
                self.engine.end(ref, at_once=key in self._asked)
        grace = self.grace_seconds if handle.job.grace_seconds is None else handle.job.grace_seconds
        self._asked[key] = now if key in self._asked else now + grace

    def _find(self, job: Job, attempt: int) -> store.Started | None:
        """A job that an interrupted controller has handed over without a note; with an empty ref if nobody can tell."""
        try:
            ref = self.engine.find(job, attempt)
        except EngineSilent:
            return store.Started(attempt, self.name, "")
        if ref is None:
            return None
        self._own.add(ref)
        started = store.Started(attempt, self.name, ref)
        store.write_started(job.launch.folder, started)
        return started

    def _is_own(self, job: Job, started: store.Started) -> bool:
        """Whether the job that a folder names is not another one that goes on, by the label that it carries."""
        if not started.ref or started.ref in self._own:
            return True
        try:
            found = self.engine.find(job, started.attempt)
        except EngineSilent:
            return True  # Nothing can be ended meanwhile.
        if found == started.ref:
            self._own.add(started.ref)
            return True
        looked = self.engine.look([started.ref]).get(started.ref)
        return looked is None or looked.state not in ACTIVE

    def _named(self, handle: Handle) -> Handle:
        """The handle with the engine's name for its job, if the engine did not answer when it was made."""
        started = handle.started
        if started is None or started.ref or started.engine != self.name:
            return handle
        found = self._find(handle.job, started.attempt)
        goes_on = found is None and locks.is_running(handle.job.launch.folder)
        return handle if goes_on else replace(handle, started=found)

    def _look(self, handles: Sequence[Handle]) -> Mapping[str, Seen]:
        """What the engine says about the jobs of these attempts."""
        refs = [one.started.ref for one in handles if one.started is not None and one.started.engine == self.name]
        now = time.monotonic()
        # A wait for the end of a run looks more often than an engine of many users likes to be asked.
        asked = [ref for ref in refs if ref and now - self._looks.get(ref, (-math.inf,))[0] >= self.ask_seconds]
        if asked:
            # A job that the engine has forgotten ended long ago.
            forgotten = dict.fromkeys(asked, Seen("failed", reason=f"no longer known to {self.name}"))
            answers = {**forgotten, **self.engine.look(asked)}
            self._looks.update((ref, (now, answers[ref])) for ref in asked)
        return {ref: self._looks[ref][1] for ref in refs if ref}

    def _said(self, handle: Handle) -> Seen | None:
        """What the folder says; None if it is silent."""
        if handle.ended is not None:
            return handle.ended
        folder, started = handle.job.launch.folder, handle.started
        own = started is not None and started.engine == self.name
        if locks.is_running(folder):
            return Seen("running" if own else "unknown")
        return None if own else Seen("stopped")

    def _is_open(self, handle: Handle) -> bool:
        """Whether the folder leaves open what has become of an attempt, so that the engine must be asked."""
        seen = self._said(handle)
        # Who has ended a run that we have not asked to end: a time limit, or somebody who wants it to stay ended.
        return seen is None or (seen.state == "stopped" and handle.job.key not in self._asked)

    def _poll_folder(self, handle: Handle, looked: Mapping[str, Seen]) -> Seen:
        key = handle.job.key
        seen = self._said(handle)
        job = looked.get(handle.started.ref) if handle.started is not None and self._is_open(handle) else None
        if seen is None:
            seen = self._silent(handle, job)
        elif job is not None and job.state in ACTIVE:
            # It is about to end, or the engine starts it again.
            return Seen(job.state, reason=job.reason)
        elif seen.state == "running" and key in self._asked:
            self._end_orphan(handle)
        if seen.state == "stopped" and job is not None and job.state == "stopped" and key not in self._asked:
            # Somebody has cancelled it in the engine itself, as with scancel.
            store.request_stop(handle.job.launch.folder)
        if seen.state in ("waiting", "running") and key in self._asked:
            self._insist(handle)
        if seen.state not in ACTIVE:
            for noted in (self._active, self._orphans, self._insisted):
                noted.discard(key)
            self._asked.pop(key, None)
        return seen

    def _insist(self, handle: Handle) -> None:
        """End an attempt at once that has not ended in its time, such as one that was asked before it could hear."""
        key, started = handle.job.key, handle.started
        late = time.monotonic() - self._asked[key]
        if started is None or started.ref not in self._own or key in self._insisted or late < self.settle_seconds:
            return
        with suppress(EngineSilent):
            self.engine.end(started.ref, at_once=True)
            self._insisted.add(key)

    def _end_orphan(self, handle: Handle) -> None:
        """End the command of an attempt whose wrapper was killed, if it runs on this machine: no engine knows it."""
        key = handle.job.key
        beat = wrapper.read_json(handle.job.launch.folder / wrapper.BEAT_FILE) or {}
        if beat.get("namespace") != wrapper.pid_namespace() or locks.find_process(str(beat.get("process"))) is not None:
            return
        command = locks.find_holder(handle.job.launch.folder, beat.get("command"))
        overdue = time.monotonic() >= self._asked[key]
        if command is not None and (overdue or key not in self._orphans):
            self._orphans.add(key)
            with suppress(ProcessLookupError):
                os.killpg(command, signal.SIGKILL if overdue else signal.SIGTERM)

    def _silent(self, handle: Handle, job: Seen | None) -> Seen:
        """What follows from the engine's words if the folder says nothing."""
        started, key = handle.started, handle.job.key
        if started is None or not started.ref:
            return Seen("unknown", reason=f"{self.name} does not answer")
        if job is None:
            return Seen("running")  # The folder has fallen silent since the engine was asked.
        if job.state in ACTIVE:
            self._gone.pop(started.ref, None)
            return Seen(job.state, reason=job.reason)
        since = self._gone.setdefault(started.ref, time.monotonic())
        if key not in self._asked and time.monotonic() - since < self.settle_seconds:
            return Seen("running", reason=job.reason)
        # Without an exit record, what the engine calls a success or a failure is a lost attempt.
        if key in self._asked or job.state == "stopped":
            # It was asked to end before it began, so nobody need wait for its record.
            wrapper.write_exit(handle.job.launch.folder, started.attempt, -signal.SIGTERM, stopped=True)
        return Seen("stopped", reason=job.reason)
