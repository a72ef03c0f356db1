"""Backends by name, found through the entry-point group `isocompute.backends`.

A third party adds a backend with a package whose metadata names a class in that group. Only the requested backend is
imported, so a broken plug-in does not affect the others.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from isocompute_sdk.errors import BackendError, IsoComputeError
from isocompute_sdk.run_folders.store import RunWatch, read_spec
from isocompute_sdk.training.backend import Backend, follow

GROUP = "isocompute.backends"
"""Entry-point group of backends."""


def available() -> tuple[str, ...]:
    """Sorted names of all registered backends, without importing them."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load(name: str) -> Backend:
    """Import the backend registered as `name` and return one instance.

    Raises:
        BackendError: no entry point or several have that name, import or construction fails (the cause is chained), or
            the object is not a backend of that name.
    """
    entry = _only_entry(name)
    try:
        candidate = entry.load()()
    except Exception as error:
        raise BackendError(
            f"backend {name!r} ({entry.value}, from {_origin(entry)}) cannot be loaded: "
            f"{type(error).__name__}: {error}",
            f"Install or repair {_origin(entry)}, with the extras it needs.",
        ) from error
    if not isinstance(candidate, Backend):
        missing = [m for m in ("name", "describe", "preflight", "script", "prepare") if not hasattr(candidate, m)]
        raise BackendError(
            f"{entry.value} (from {_origin(entry)}) is registered as backend {name!r} but lacks {', '.join(missing)}",
            "Add them: a backend implements isocompute_sdk.training.Backend.",
        )
    if candidate.name != name:
        raise BackendError(
            f"{entry.value} (from {_origin(entry)}) is registered as {name!r} but calls itself {candidate.name!r}",
            "Make the registered name and the backend's `name` the same.",
        )
    return candidate


def watches(folders: Iterable[str | Path]) -> tuple[RunWatch, ...]:
    """One `RunWatch` per folder that reads progress through the run's own backend.

    If a backend cannot be loaded here, progress is read from metrics.jsonl.
    """
    loaded: dict[str, Backend | BackendError] = {}
    found: list[RunWatch] = []
    for folder in folders:
        try:
            spec = read_spec(folder)
        except IsoComputeError:
            spec = None  # RunWatch.status raises the error
        if spec is None:
            found.append(RunWatch(folder))
            continue
        if spec.backend not in loaded:
            try:
                loaded[spec.backend] = load(spec.backend)
            except BackendError as error:
                loaded[spec.backend] = error
        backend = loaded[spec.backend]
        if isinstance(backend, BackendError):
            found.append(RunWatch(folder, remark=backend.message))
        else:
            found.append(follow(backend, folder))
    return tuple(found)


def _only_entry(name: str) -> EntryPoint:
    found = list(entry_points(group=GROUP, name=name))
    if len(found) == 1:
        return found[0]
    if found:
        owners = "; ".join(sorted(f"{entry.value} from {_origin(entry)}" for entry in found))
        raise BackendError(
            f"backend {name!r} is registered {len(found)} times: {owners}",
            "Uninstall all but one of these packages.",
        )
    names = available()
    close = difflib.get_close_matches(name, names, n=1)
    suggestion = f"Did you mean {close[0]!r}? " if close else ""
    raise BackendError(
        f"no backend is registered as {name!r}; registered: {', '.join(names) or 'none'}",
        f"{suggestion}Install the package that contains the backend.",
    )


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unnamed distribution"
