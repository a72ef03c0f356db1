"""`stop_runs`: end runs that another process started."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isocompute_sdk.campaigns.executors.base import Executor, Handle, Job
from isocompute_sdk.run_folders import store
from isocompute_sdk.training.backend import Launch

SECONDS_TO_APPEAR = 2.0
"""Longest time between a process that takes a folder's lock and its record in the folder."""


@dataclass(frozen=True)
class Stopped:
    """What `stop_runs` did."""

    ended: tuple[Path, ...]
    """Folders of runs that went on and have ended."""
    foreign: tuple[Path, ...]
    """Folders of runs that go on because no executor has a record of them, such as a launch.sh started by hand."""


def stop_runs(folders: Sequence[Path], executor: Executor) -> Stopped:
    """End the runs in these folders and return once they have ended.

    A controller that is at work starts none of them again. Nothing is lost that a run has saved: `run_jobs` resumes it.
    """
    unfinished = [folder for folder in folders if not store.is_finished(folder)]
    for folder in unfinished:
        store.request_stop(folder)
    found = [executor.adopt(Job(folder.name, Launch(folder, (), ()), folder)) for folder in unfinished]
    known: list[Handle] = []
    foreign: list[Path] = []
    for handle in found:
        if handle is None:
            continue
        current = _known(handle, executor)
        if current is None:
            foreign.append(handle.job.launch.folder)
        else:
            executor.cancel(current)
            known.append(current)
    while any(seen.state in ("waiting", "running") for seen in executor.poll(known)):
        time.sleep(executor.poll_seconds)
    return Stopped(tuple(handle.job.launch.folder for handle in known), tuple(foreign))


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
