"""`ClusterExecutor`: runs as jobs of an engine that starts them on other machines, such as Slurm or Ray.

The run folder, on a file system that all machines share, is the only coupling. The engine is asked only where the
folder is silent: to find a job, and to say whether a job that has written nothing still waits, starts or is gone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from isocompute_sdk.campaigns.executors.base import ACTIVE, Handle, Job, Seen, State, wrapper_command
from isocompute_sdk.run_folders import locks, store
from isocompute_sdk.training.backend import Needs


@dataclass(frozen=True)
class EngineJob:
    """What an engine says about one of its jobs."""

    state: State
    """`waiting`, `running`, or any of the others once the job is gone; `unknown` if the engine does not answer."""
    words: str = ""
    """The engine's own words, such as `NODE_FAIL`."""
    exit_code: int | None = None
    """None if the engine does not know it."""


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

    def find(self, job: Job, attempt: int) -> str | None:
        """The engine's name for a job of this run and attempt, looked up by the name that `submit` gives it.

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

    def look(self, refs: Sequence[str]) -> Mapping[str, EngineJob]:
        """What the engine says about these jobs, by its name for them. A job that it has forgotten is left out.

        A job about which the engine does not answer is `unknown`; this method raises nothing for that.
        """
        ...

    def end(self, ref: str, *, at_once: bool) -> None:
        """Ask a job to end: SIGTERM to the wrapper, or SIGKILL if `at_once`; no error if it has ended."""
        ...


class EngineSilent(Exception):
    """The engine does not answer, so nothing is known."""


@dataclass(frozen=True)
class ClusterExecutor:
    """Hands runs to an engine and adopts those that an earlier controller has handed over."""

    engine: Engine
    parallel: int | None = None
    """Runs handed over at a time. None: all; the engine queues them."""
    poll_seconds: float = 2.0
    """Time between two looks."""
    settle_seconds: float = 30.0
    """Time after the end of a job, by the engine, in which its exit.json may still appear on a shared file system."""
    _active: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """Folders of attempts that go on."""
    _asked: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)
    """Folders of attempts that were asked to end."""
    _gone: dict[str, float] = field(default_factory=dict[str, float], init=False, repr=False, compare=False)
    """Time at which the engine first called a job ended whose folder is silent, by folder."""

    @property
    def name(self) -> str:
        """Name of the engine."""
        return self.engine.name

    def check(self, needs: Sequence[Needs]) -> None:
        """Refuse runs that can never fit.

        Raises:
            BackendError: a run needs more than there is, or the engine does not answer.
        """
        self.engine.check(needs)

    def adopt(self, job: Job) -> Handle | None:
        """The attempt that goes on or whose end is unknown; None if the folder says that nothing does."""
        folder = job.launch.folder
        attempt, started, ended = store.last_attempt(folder), store.read_started(folder), store.read_exit(folder)
        over = ended is not None and ended.attempt == attempt
        if started is not None and started.attempt != attempt:
            started = None  # A later attempt was about to start.
        if started is None and attempt and not over:
            started = self._find(job, attempt)
        if not locks.is_running(folder) and (over or started is None or started.engine != self.name):
            return None
        self._active.add(_key(job))
        return Handle(job, started)

    def submit(self, job: Job, attempt: int) -> Handle | None:
        """Hand the run to the engine unless an attempt goes on, or may go on while the engine does not answer.

        Raises:
            BackendError: the engine refuses the job.
        """
        folder = job.launch.folder
        if self.parallel is not None and len(self._active - {_key(job)}) >= self.parallel:
            return None
        with locks.submitting(folder):
            earlier = self.adopt(job)
            if earlier is not None and self._poll_folder(earlier, self._look([earlier])).state in ACTIVE:
                return earlier
            if store.stop_requested(folder):
                return None
            command = wrapper_command(job, attempt, self.engine.python)
            try:
                ref = self.engine.find(job, attempt) or self.engine.submit(job, attempt, command)
            except EngineSilent:
                # The engine may have taken the job: `adopt` looks for it before anything is handed over again.
                return None
            started = store.Started(attempt, self.name, ref)
            store.write_started(folder, started)
        self._active.add(_key(job))
        return Handle(job, started)

    def poll(self, handles: Sequence[Handle]) -> tuple[Seen, ...]:
        """What is seen of each attempt; the engine is asked about those whose folder is silent."""
        looked = self._look([one for one in handles if self._said(one) is None])
        return tuple(self._poll_folder(one, looked) for one in handles)

    def cancel(self, handle: Handle) -> None:
        """SIGTERM to the wrapper of an attempt, SIGKILL on a second request; other programs are left alone."""
        started = handle.started
        if started is None or started.engine != self.name:
            return
        key = _key(handle.job)
        ref = started.ref
        with suppress(EngineSilent):
            ref = ref or self.engine.find(handle.job, started.attempt) or ""
            if ref:
                self.engine.end(ref, at_once=key in self._asked)
                self._asked.add(key)

    def _find(self, job: Job, attempt: int) -> store.Started | None:
        """A job that an interrupted controller has handed over without a note; with an empty ref if nobody can tell."""
        try:
            ref = self.engine.find(job, attempt)
        except EngineSilent:
            return store.Started(attempt, self.name, "")
        if ref is None:
            return None
        started = store.Started(attempt, self.name, ref)
        store.write_started(job.launch.folder, started)
        return started

    def _look(self, handles: Sequence[Handle]) -> Mapping[str, EngineJob]:
        """What the engine says about the jobs of these attempts."""
        refs = [one.started.ref for one in handles if one.started is not None and one.started.engine == self.name]
        asked = [ref for ref in refs if ref]
        # A job that the engine has forgotten ended long ago.
        forgotten = dict.fromkeys(asked, EngineJob("stopped", f"forgotten by {self.name}"))
        return {**forgotten, **self.engine.look(asked)} if asked else {}

    def _said(self, handle: Handle) -> Seen | None:
        """What the folder says; None if it is silent."""
        folder, started = handle.job.launch.folder, handle.started
        ended = store.read_exit(folder)
        if started is not None and ended is not None and ended.attempt == started.attempt:
            if ended.stopped:
                return Seen("stopped")
            return Seen("finished" if ended.exit_code == 0 else "failed", ended.exit_code)
        own = started is not None and started.engine == self.name
        if locks.is_running(folder):
            return Seen("running" if own else "unknown")
        return None if own else Seen("stopped")

    def _poll_folder(self, handle: Handle, looked: Mapping[str, EngineJob]) -> Seen:
        key = _key(handle.job)
        seen = self._said(handle)
        if seen is None:
            seen = self._silent(handle, looked)
        else:
            self._gone.pop(key, None)
        if seen.state not in ACTIVE:
            self._active.discard(key)
            self._asked.discard(key)
            self._gone.pop(key, None)
        return seen

    def _silent(self, handle: Handle, looked: Mapping[str, EngineJob]) -> Seen:
        """What follows from the engine's words if the folder says nothing."""
        started, key = handle.started, _key(handle.job)
        if started is None or not started.ref:
            return Seen("unknown", reason=f"{self.name} does not answer")
        # The engine was not asked if the folder has fallen silent since.
        job = looked.get(started.ref, EngineJob("running"))
        if job.state in ACTIVE:
            self._gone.pop(key, None)
            return Seen(job.state, reason=job.words)
        since = self._gone.setdefault(key, time.monotonic())
        if key not in self._asked and time.monotonic() - since < self.settle_seconds:
            return Seen("running", reason=job.words)
        # Without an exit record, what the engine calls a success or a failure is a lost attempt.
        return Seen("stopped", reason=job.words)


def _key(job: Job) -> str:
    return str(job.launch.folder.absolute())
