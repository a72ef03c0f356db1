"""Plug-ins by name, found through entry points: one loader for backends, log formats and executors.

A third party adds one with a package whose metadata names it in the group. Only what is asked for is imported, so that
a broken plug-in does not affect the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from isocompute_sdk.errors import IsoComputeError, did_you_mean


@dataclass(frozen=True)
class Plugins:
    """One kind of plug-in."""

    group: str
    """Entry-point group that they register in."""
    kind: str
    """Word for one of them in messages."""
    error: type[IsoComputeError]
    """Error of those that cannot be used."""

    def names(self) -> tuple[str, ...]:
        """Sorted names of all that are registered, without importing them."""
        return tuple(sorted(_registered(self.group, tuple(sys.path)).names))

    def load(self, name: str, make: Callable[[Any], object] = lambda found: found) -> tuple[object, str]:
        """Import the plug-in that is registered as `name`.

        Returns:
            The result, and where it comes from.

        Raises:
            IsoComputeError: of the class `error`: no entry point or several have that name, or importing or making it
                fails (the cause is chained).
        """
        found = list(_registered(self.group, tuple(sys.path)).select(name=name))
        if not found:
            names = self.names()
            raise self.error(
                f"no {self.kind} is registered as {name!r}; registered: {', '.join(names) or 'none'}",
                f"{did_you_mean(name, names)}Use one of these names, or install the package that has it.",
            )
        if len(found) > 1:
            raise self.error(
                f"{self.kind} {name!r} is registered {len(found)} times: {'; '.join(sorted(map(_origin, found)))}",
                "Uninstall all but one of these packages.",
            )
        origin = _origin(found[0])
        try:
            return make(found[0].load()), origin
        except Exception as error:
            raise self.error(
                f"{self.kind} {name!r} ({origin}) cannot be loaded: {type(error).__name__}: {error}",
                f"Install or repair {_package(found[0])}, with the extras it needs.",
            ) from error


@lru_cache(maxsize=16)
def _registered(group: str, _path: tuple[str, ...]) -> EntryPoints:
    """What is installed on a search path: to look through all packages takes long."""
    return entry_points(group=group)


def _origin(entry: EntryPoint) -> str:
    return f"{entry.value} from {_package(entry)}"


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unnamed distribution"
