"""`stop_runs`: end runs that another process started."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isocompute_sdk.campaigns.executors.base import Executor, Handle, Job
from isocompute_sdk.campaigns.executors.registry import executors_of
from isocompute_sdk.run_folders import locks, store
from isocompute_sdk.training.backend import Launch

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


def stop_runs(folders: Sequence[Path], executor: Executor | None = None) -> Stopped:
    """End the runs in these folders and return once they have ended.

    A controller that is at work starts none of them again. Nothing is lost that a run has saved: `run_jobs` resumes it.

    Args:
        folders: run folders.
        executor: what started the runs. None: the executor on record in each folder.

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
