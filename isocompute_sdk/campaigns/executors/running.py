"""`run_jobs`: run prepared jobs to their end on any executor. `stop_runs`: end runs that another process started."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from isocompute_sdk.campaigns.control import Controller, end_controller
from isocompute_sdk.campaigns.executors.base import ACTIVE, Executor, Handle, Job, Result, Seen
from isocompute_sdk.campaigns.executors.registry import executors_of
from isocompute_sdk.errors import BackendError, IsoComputeError, RecordError
from isocompute_sdk.interrupts import interrupts_later
from isocompute_sdk.phrases import counted
from isocompute_sdk.run_folders import locks, store
from isocompute_sdk.run_folders.store import RunStatus
from isocompute_sdk.run_folders.wrapper import OUT_OF_TIME
from isocompute_sdk.specs import Supervision
from isocompute_sdk.training.backend import Launch

CANCEL_POLL_SECONDS = 0.05
"""Time between two looks at jobs that were asked to end."""
LOOK_SECONDS = 1.0
"""Time between two looks for new records of a run."""
CHECK_SECONDS = 60.0
"""Time between two health checks of a run."""
INSIST_SECONDS = 120.0
"""Time after which a run that was asked to end and goes on is killed."""


class Leaving(SystemExit):
    """SIGTERM or SIGHUP ended `run_jobs`; the exit code is 128 + the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)
        """What was received."""
        self.detached = False
        """Whether the runs go on; otherwise they were ended and can be resumed."""
        self.runs: tuple[str, ...] = ()
        """Names of the runs that went on at that moment."""
        self.not_started: tuple[str, ...] = ()
        """Names of the runs that waited for room."""


def run_jobs(
    executor: Executor,
    jobs: Sequence[Job],
    watch: Callable[[], None] | None = None,
    supervision: Supervision | None = None,
) -> tuple[Result, ...]:
    """Run all jobs and return their results in the order of the jobs; a failed one does not stop the others.

    Finished jobs are not restarted, and jobs that an earlier controller left running are waited for. `stop_runs` in
    another process stops some. Ctrl-C stops all jobs; SIGTERM and SIGHUP do so or let them go on, see `supervision`.
    Afterwards the same jobs may be given again.

    Raises:
        BackendError: the executor refuses a job, a script cannot be started, or two jobs share a folder.
        Leaving: SIGTERM or SIGHUP was received.
    """
    _refuse_shared_folders(jobs)
    executor.check([job.needs for job in jobs])
    for job in jobs:
        store.clear_stop(job.launch.folder)
    rules = supervision if supervision is not None else Supervision()
    work = _Work(executor, jobs, rules)
    with _signals_as_exit():
        try:
            work.adopt()
            while not work.done:
                work.collect()
                work.submit()
                if watch is not None:
                    watch()
                if not work.done:
                    time.sleep(executor.poll_seconds)
        except BaseException as error:
            if isinstance(error, Leaving):
                error.runs, error.not_started = work.names()
                error.detached = rules.on_signal == "detach"
                if error.detached:
                    raise
            work.cancel()
            raise
    return tuple(work.results[job.key] for job in jobs)


@dataclass
class _Track:
    """What has been seen of one job."""

    mark: tuple[object, ...] | None = None
    """Its last records; None before the first look."""
    since: float = 0.0
    """Time of the last new record, or from which the run is known to go on."""
    records: int = 0
    """New records seen in this attempt."""
    longest: float = 0.0
    """Longest time between two records in this attempt, in seconds."""
    looked: float = 0.0
    checked: float = 0.0
    progressed: bool = True
    """Whether this attempt got further than all before it; True for an attempt whose beginning was not seen."""
    furthest: int = 0
    """Most update steps seen, and those at the beginning of this attempt."""
    floor: int = 0
    retries: int = 0
    not_before: float = 0.0
    """Time of the next attempt."""
    trouble: str = ""
    """Why the attempt was asked to end; empty if it was not."""
    final: bool = False
    """Whether the run is not to be started again."""
    asked: float = 0.0
    """Time of the last request to end."""

    def begin(self, *, progressed: bool, earlier: RunStatus | None = None) -> None:
        """An attempt begins, after `earlier` records, or is adopted."""
        now = time.monotonic()
        self.mark, self.since, self.records, self.longest = None, now, 0, 0.0
        self.floor = self.furthest
        self.looked, self.checked, self.progressed = 0.0, now, progressed
        self.trouble, self.final = "", False
        self.see(earlier, now)

    def see(self, status: RunStatus | None, now: float) -> None:
        """Note the last records of the run; nothing if they cannot be read."""
        if status is None:
            return
        mark = (status.step, status.rollouts, dict(status.metrics), status.train_reward)
        if self.mark is None:
            self.floor = max(self.floor, status.step)  # What earlier attempts recorded.
        elif mark != self.mark:
            if self.records:
                self.longest = max(self.longest, now - self.since)
            self.since, self.records = now, self.records + 1
            self.progressed = self.progressed or status.step > self.floor
        self.mark, self.furthest = mark, max(self.furthest, status.step)

    def hung(self, rules: Supervision, now: float) -> str:
        """Why the run counts as hung; empty if it does not."""
        if rules.hung_after_steps is None:
            return ""
        silence = now - self.since
        if silence <= max(60 * rules.hung_after_minutes, rules.hung_after_steps * self.longest):
            return ""
        usual = f"; the longest time between two records was {self.longest:.0f} s" if self.longest else ""
        return f"hung: recorded nothing for {silence / 60:.1f} min{usual}"


@dataclass
class _Work:
    """Jobs on their way: waiting, active, or with a result."""

    executor: Executor
    jobs: Sequence[Job]
    rules: Supervision
    active: dict[str, Handle] = field(default_factory=dict[str, Handle])
    results: dict[str, Result] = field(default_factory=dict[str, Result])
    tracks: dict[str, _Track] = field(init=False)
    stillborn: dict[str, str] = field(default_factory=dict[str, str])
    """How runs failed that have recorded nothing: last line of the log -> name of the first such run."""
    shared: str = ""
    """The cause that all runs seem to share; empty if there is none."""

    def __post_init__(self) -> None:
        self.tracks = {job.key: _Track() for job in self.jobs}

    @property
    def done(self) -> bool:
        return len(self.results) == len(self.jobs)

    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the active jobs, and of those that wait for room."""
        waiting = [job.name for job in self.jobs if job.key not in self.active and job.key not in self.results]
        return tuple(handle.job.name for handle in self.active.values()), tuple(waiting)

    def adopt(self) -> None:
        """Find attempts that are going on, and finished runs."""
        for job in self.jobs:
            handle = self.executor.adopt(job)
            if handle is not None:
                self.active[job.key] = handle
                self.tracks[job.key].begin(progressed=True)
            else:
                self._is_finished(job)

    def collect(self) -> None:
        """Note how attempts ended, and end those that are in trouble."""
        handles = list(self.active.values())
        for handle, seen in zip(handles, self.executor.poll(handles), strict=True):
            key = handle.job.key
            if seen.state in ACTIVE:
                self._supervise(handle, seen)
                continue
            del self.active[key]
            self._conclude(handle.job, seen)

    def submit(self) -> None:
        """Start waiting jobs in their order, as far as there is room."""
        now = time.monotonic()
        for job in self.jobs:
            key, folder = job.key, job.launch.folder
            if key in self.active or key in self.results or self._is_finished(job):
                continue
            if store.stop_requested(folder):
                self.results[key] = Result(job, None, started=False)
                continue
            if self.shared:
                self.results[key] = Result(job, None, started=False, reason=self.shared)
                continue
            if now < self.tracks[key].not_before:
                continue
            earlier = _status(job)
            # An interrupt between the start of a process and the note of it here would leave the process behind.
            with interrupts_later():
                handle = self.executor.submit(job, store.last_attempt(folder) + 1)
                if handle is None:
                    return
                self.active[key] = handle
                self.tracks[key].begin(progressed=False, earlier=earlier)

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

    def _supervise(self, handle: Handle, seen: Seen) -> None:
        """Look for records, and ask an attempt to end that hangs or is not worth its time."""
        job, now = handle.job, time.monotonic()
        track = self.tracks[job.key]
        if seen.state != "running":
            track.since = now
            return
        if track.trouble:
            if now - track.asked > INSIST_SECONDS:
                self._end(handle, track.trouble)
            return
        if job.follow is not None and now - track.looked >= LOOK_SECONDS:
            track.looked = now
            track.see(_status(job), now)
            hung = track.hung(self.rules, now)
            if hung:
                self._end(handle, hung)
                return
        if job.check is not None and now - track.checked >= CHECK_SECONDS:
            track.checked = now
            sick = job.check()
            if sick:
                track.final = True
                self._end(handle, sick)

    def _end(self, handle: Handle, trouble: str) -> None:
        track = self.tracks[handle.job.key]
        track.trouble, track.asked = trouble, time.monotonic()
        self.executor.cancel(handle)

    def _conclude(self, job: Job, seen: Seen) -> None:
        """The result of a job whose attempt has ended; none if it is to be started again."""
        key, code = job.key, seen.exit_code
        track = self.tracks[key]
        if code == 0:
            self.results[key] = Result(job, 0)
            return
        if self._is_finished(job) or store.stop_requested(job.launch.folder):
            return  # `submit` has the result.
        track.see(_status(job), time.monotonic())
        if track.final:
            self.results[key] = Result(job, None, reason=track.trouble)
            store.write_abandoned(job.launch.folder, track.trouble)
            return
        if code is not None and not _killed(code) and not track.trouble:
            self.results[key] = Result(job, code)
            self._compare_failure(job)
            return
        out_of_time = seen.reason == OUT_OF_TIME
        # An engine may take a run off its machine as often as it likes, as long as the run gets on.
        free = not track.trouble and not out_of_time and code is None and track.progressed
        if not free and track.retries >= self.rules.retries:
            self._abandon(job, track, seen)
            return
        delay = 0.0 if free else self.rules.retry_after_seconds * 2**track.retries
        track.retries += not free
        track.not_before = time.monotonic() + delay

    def _compare_failure(self, job: Job) -> None:
        """Start no more runs if two have failed alike and none has ever recorded anything."""
        statuses = {one.name: _status(one) for one in self.jobs}
        failed = statuses[job.name]
        if failed is None or any(one is not None and (one.step or one.metrics) for one in statuses.values()):
            return
        words = re.sub(r"[0-9]+", "#", failed.message)
        words = words.replace(job.name, "").partition(" (see ")[0]
        first = self.stillborn.setdefault(words, job.name)
        if words and first != job.name:
            self.shared = f"not started: {first} and {job.name} failed the same way before their first record"

    def _abandon(self, job: Job, track: _Track, seen: Seen) -> None:
        """Give a job up."""
        why = track.trouble or seen.reason or "ended without recording how"
        if seen.exit_code is not None and not track.trouble:
            why = f"killed (exit code {seen.exit_code})"
        reason = f"{why}; {counted(track.retries, 'restart')}"
        store.write_abandoned(job.launch.folder, reason)
        self.results[job.key] = Result(job, seen.exit_code, reason=reason)

    def _is_finished(self, job: Job) -> bool:
        finished = store.is_finished(job.launch.folder)
        if finished:
            self.results[job.key] = Result(job, 0, started=False)
        return finished


def _status(job: Job) -> RunStatus | None:
    """How far a run is; None if nothing tells, or if its records are damaged, which is no reason to end the others."""
    try:
        return None if job.follow is None else job.follow.status()
    except IsoComputeError:
        return None


def _killed(code: int) -> bool:
    """Whether an exit code says that a signal ended the process, or a process for which a shell speaks."""
    return code < 0 or 128 < code <= 128 + signal.NSIG


@contextmanager
def _signals_as_exit() -> Generator[None]:
    """Turn SIGTERM and SIGHUP into `Leaving`, so that jobs are stopped before this process exits."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise Leaving(number)

    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may set signal handlers.
        return
    # A hangup stays ignored below nohup.
    taken = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    earlier = [(number, signal.signal(number, leave)) for number in taken]
    try:
        yield
    finally:
        for number, handler in earlier:
            signal.signal(number, handler)


def _refuse_shared_folders(jobs: Sequence[Job]) -> None:
    seen: dict[str, str] = {}
    for job in jobs:
        key = job.key
        if key in seen:
            raise BackendError(
                f"{seen[key]!r} and {job.name!r} share the folder {key}; accepted: a folder per run",
                "Give them different names or output_dirs.",
            )
        seen[key] = job.name


SECONDS_TO_LEAVE = 10.0
"""Longest time in which a controller ends by itself when its runs were stopped."""
SECONDS_TO_APPEAR = 5.0
"""Longest time between a process that takes a folder's lock and its record in the folder."""


@dataclass(frozen=True)
class Stopped:
    """What `stop_runs` did."""

    ended: tuple[Path, ...]
    """Folders of runs that went on and have ended."""
    foreign: tuple[Path, ...]
    """Folders of runs that go on because no executor has a record of them, such as a launch.sh started by hand."""
    unanswered: tuple[Path, ...] = ()
    """Folders of runs of which nothing is known because the engine does not answer."""
    controllers: tuple[Controller, ...] = ()
    """Those that have ended, and start no further run."""


def stop_study(folder: Path, runs: Sequence[Path]) -> Stopped:
    """End runs and every controller of studies at or below a folder; with no controller left, none starts again.

    Raises:
        BackendError: a controller cannot be ended from here.
        IsoComputeError: the executor of a run is not installed here.
    """
    studies = dict.fromkeys((folder, *(run.parent for run in runs if folder in run.parents)))
    first = last = stop_runs(runs)
    ended = [end_controller(study, SECONDS_TO_LEAVE if first.ended else 0.0) for study in studies]
    controllers = tuple(filter(None, ended))
    with suppress(RecordError):  # It has no runs yet.
        # A controller may have started runs meanwhile, which go on without it.
        last = stop_runs(store.find_runs(folder)) if controllers else first
    return replace(last, ended=tuple(dict.fromkeys((*first.ended, *last.ended))), controllers=controllers)


def stop_runs(folders: Sequence[Path], executor: Executor | None = None) -> Stopped:
    """End the runs in these folders and return once they have ended.

    A controller that is at work starts none of them again. Nothing is lost that a run has saved: `run_jobs` resumes it.

    Raises:
        IsoComputeError: the executor of a run is not installed here.
    """
    unfinished = [folder for folder in folders if not store.is_finished(folder)]
    for folder in unfinished:
        store.request_stop(folder)
    engines = dict.fromkeys(unfinished, executor) if executor is not None else executors_of(unfinished)
    known: list[tuple[Handle, Executor]] = []
    foreign: list[Path] = []
    unanswered: list[Path] = []
    for folder, engine in engines.items():
        handle = engine.adopt(Job(folder.name, Launch(folder, (), ()), folder))
        if handle is None:
            continue
        current = _known(handle, engine)
        if current is not None:
            engine.cancel(current)
            known.append((current, engine))
        elif handle.started is not None and handle.started.engine == engine.name and not locks.is_running(folder):
            unanswered.append(folder)
        else:
            foreign.append(folder)
    while any(_go_on(engine, known) for engine in {id(engine): engine for _, engine in known}.values()):
        time.sleep(max(engine.poll_seconds for _, engine in known))
    return Stopped(tuple(one.job.launch.folder for one, _ in known), tuple(foreign), tuple(unanswered))


def _go_on(executor: Executor, known: Sequence[tuple[Handle, Executor]]) -> bool:
    mine = [handle for handle, engine in known if engine is executor]
    return any(seen.state in ("waiting", "running") for seen in executor.poll(mine))


def _known(handle: Handle, executor: Executor) -> Handle | None:
    """The handle of an attempt once the executor knows it; None if it belongs to another program."""
    deadline = time.monotonic() + SECONDS_TO_APPEAR
    current: Handle | None = handle
    while current is not None and executor.poll([current])[0].state == "unknown":
        if time.monotonic() > deadline:
            return None
        time.sleep(executor.poll_seconds)
        current = executor.adopt(handle.job)
    return current or handle
