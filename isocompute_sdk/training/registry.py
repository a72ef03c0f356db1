"""Backends by name, found through the entry-point group `isocompute.backends`.

A third party adds a backend by shipping a package whose metadata names a class in that group. Only the
one asked for is imported, so that a broken plug-in cannot take the others down with it.
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
"""Entry-point group that backends register in."""


def available() -> tuple[str, ...]:
    """Names of all registered backends, sorted; none of them is imported."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load(name: str) -> Backend:
    """Import the backend registered as `name` and return one instance.

    Raises:
        BackendError: nothing or more than one thing is registered under that name, its import or its
            constructor fails (the cause is chained), or what it yields is not a backend of that name.
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
            "A backend has what isocompute_sdk.training.backend.Backend lists.",
        )
    if candidate.name != name:
        raise BackendError(
            f"{entry.value} (from {_origin(entry)}) is registered as {name!r} but calls itself {candidate.name!r}",
            "The registered name and the backend's own name have to be the same.",
        )
    return candidate


def watches(folders: Iterable[str | Path]) -> tuple[RunWatch, ...]:
    """Follow the run in each folder by what its own backend knows of it.

    A run whose backend cannot be loaded here is followed by its metrics.jsonl.
    """
    loaded: dict[str, Backend | BackendError] = {}
    found: list[RunWatch] = []
    for folder in folders:
        try:
            spec = read_spec(folder)
        except IsoComputeError:
            spec = None  # asked for its status, the watch says why
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
        f"{suggestion}A backend becomes known when the package that ships it is installed.",
    )


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unnamed distribution"
