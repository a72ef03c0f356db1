"""What lies beside the logs of runs and tells more about them: captured consoles, dumped responses.

A file belongs to the one run that is logged in its folder or below it, else in the nearest folder above; where several
are, to the one that it is named after. What belongs to no run, or to several, is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from isocompute_sdk.ingest.formats.registry import formats
from isocompute_sdk.ingest.stores.packed import unpacked

_CONSOLE = re.compile(r".+\.(log|out|err)|(console|stdout|stderr|output|launch|train|log).*\.txt", re.IGNORECASE)
_AFTER_NAME = re.compile(
    r"([._-]+(console|stdout|stderr|launch|driver|train|log|out|err|attempt|try|resumed?|restart|part"
    r"|validation|val|rollouts?|generations?|dumps?|data)[._-]*\d*)*",
    re.IGNORECASE,
)


def is_console(path: Path) -> bool:
    """Whether a file is named as captured consoles are."""
    return _CONSOLE.fullmatch(unpacked(path).name) is not None


def may_be_console(path: Path) -> bool:
    """Whether a file may be a captured console by its name, if there is no other log."""
    bare = unpacked(path)
    return is_console(path) or bare.suffix.lower() == ".txt" or _OF_QUEUES.fullmatch(bare.suffix) is not None


_OF_QUEUES = re.compile(r"\.[oe]\d+")
"""Endings that job queues give, such as `train.o48213`."""


def dump_folders(files: Iterable[Path]) -> list[Path]:
    """Folders among `files` that hold dumps; once one is recognised, no other file of its folder is opened."""
    found: set[Path] = set()
    dumps = [one.dumps for one in formats() if one.dumps is not None]
    for file in files:
        if file.parent not in found and any(one.is_dump(file) for one in dumps):
            found.add(file.parent)
    return sorted(found)


def assign(found: Sequence[Path], runs: Mapping[Path, Sequence[Path]], root: Path) -> dict[Path, list[Path]]:
    """Run -> those of `found` that belong to it.

    Args:
        found: consoles and folders of dumps.
        runs: folder of each run, or path without ending of its log -> the files and folders of its log.
        root: folder that was searched.
    """
    logged_below: dict[Path, list[Path]] = {}
    for run, parts in runs.items():
        homes = {part if part.is_dir() else part.parent for part in parts}
        for folder in {
            above for home in homes for above in (home, *home.parents) if above == root or root in above.parents
        }:
            logged_below.setdefault(folder, []).append(run)
    owned: dict[Path, list[Path]] = {}
    for path in found:
        folder = path.parent
        while folder not in logged_below and folder not in (root, folder.parent):
            folder = folder.parent
        here = logged_below.get(folder, [])
        here = here if len(here) < 2 else _named(path, here)
        if len(here) == 1:
            owned.setdefault(here[0], []).append(path)
    return owned


def _named(path: Path, runs: Sequence[Path]) -> list[Path]:
    """The runs whose folder `path` lies in, or after which it, or a folder above it, is named; the longest counts."""
    inside = [run for run in runs if run in path.parents]
    if inside:
        return [max(inside, key=lambda run: len(run.parts))]
    bare = unpacked(path)
    parts = (bare.stem if bare.suffix else bare.name, *(parent.name for parent in path.parents))
    named = [run for run in runs if any(_is_of(part, run.name) for part in parts)]
    return [run for run in named if len(run.name) == max(len(other.name) for other in named)]


def _is_of(name: str, run: str) -> bool:
    return name.startswith(run) and _AFTER_NAME.fullmatch(name[len(run) :]) is not None
