"""Backends by name: classes that packages register in the entry-point group `isocompute.backends`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from isocompute_sdk.errors import BackendError, IsoComputeError
from isocompute_sdk.plugins import Plugins
from isocompute_sdk.run_folders.store import RunWatch, read_spec
from isocompute_sdk.training.backend import Backend, follow

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet

_BACKENDS = Plugins("isocompute.backends", "backend", BackendError)


def available() -> tuple[str, ...]:
    """Sorted names of all registered backends, without importing them."""
    return _BACKENDS.names()


def backend_of(runs: RunSet) -> str | None:
    """The backend of these runs' framework; None for several, for an unknown one, and for one without a backend."""
    known = {run.framework for run in runs.runs()}
    name = known.pop() if len(known) == 1 else None
    return name if name in available() else None


def load(name: str) -> Backend:
    """Import the backend registered as `name` and return one instance."""
    candidate, origin = _BACKENDS.load(name, lambda found: found())
    if not isinstance(candidate, Backend):
        missing = [m for m in ("name", "describe", "preflight", "script", "prepare") if not hasattr(candidate, m)]
        raise BackendError(
            f"{origin} is registered as backend {name!r} but lacks {', '.join(missing)}",
            "Add them: a backend implements isocompute_sdk.training.Backend.",
        )
    if candidate.name != name:
        raise BackendError(
            f"{origin} is registered as {name!r} but calls itself {candidate.name!r}",
            "Make the registered name and the backend's `name` the same.",
        )
    return candidate


def watches(folders: Iterable[str | Path]) -> tuple[RunWatch, ...]:
    """One `RunWatch` per folder that reads progress through the run's own backend.

    If a backend cannot be loaded here, progress is read from metrics.jsonl.
    """
    found: list[RunWatch] = []
    for folder in folders:
        try:
            spec = read_spec(folder)
        except IsoComputeError:
            spec = None  # RunWatch.status raises the error
        try:
            found.append(RunWatch(folder) if spec is None else follow(load(spec.backend), folder))
        except BackendError as error:
            found.append(RunWatch(folder, remark=error.message))
    return tuple(found)
