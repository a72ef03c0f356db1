"""Which files `isocompute watch` reads, paths whose logs do not exist yet, and where alerts are remembered."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isocompute_sdk.errors import RecordError

STATE_FILE = ".isocompute-watch.json"


@dataclass(frozen=True)
class Together:
    """Logs that are read together."""

    paths: list[Path]
    """Paths to read."""
    files: list[Path]
    """Their files, to see whether any has changed."""


def together(logs: Sequence[Path], map: Path | None) -> tuple[dict[str, Together], dict[str, RecordError]]:
    """Logs to read together, by folder; and for each path without logs the reason.

    Tables are read folder by folder, since runs of one name in two are two runs; logs of frameworks, which name runs by
    their folders, as they were asked for.

    Args:
        logs: files, folders and globs.
        map: a mapping in their place.
    """
    from isocompute_sdk.ingest.find import find_logs
    from isocompute_sdk.ingest.paths import Listing, find_files, holds_journals

    if map is not None:
        return {str(map.absolute()): Together([map], [map, *_searched(map)])}, {}
    found: dict[str, Together] = {}
    missing: dict[str, RecordError] = {}
    for path in logs:
        listing = Listing.of(path)
        sources = [] if holds_journals(listing) else find_logs(listing)
        if sources:
            below = sorted({file for source in sources for file in source.files})
            found[str(path.absolute())] = Together([path], below)
            continue
        try:
            files = find_files(listing, "auto")
        except RecordError as error:
            missing[str(path)] = error
            continue
        for file in files:
            group = found.setdefault(str(file.parent.absolute()), Together([], []))
            if file not in group.files:
                group.paths.append(file)
                group.files.append(file)
    return found, missing


def _searched(map: Path) -> list[Path]:
    """The files behind a mapping."""
    from isocompute_sdk.ingest import RunMap
    from isocompute_sdk.ingest.paths import Listing

    return sorted({file for one in RunMap.load(map).searched for file in Listing.of(map.parent / one).files})


def refuse_hopeless(path: Path) -> None:
    """Raise on a path that can never hold logs; a path that training may still create is accepted.

    Raises:
        RecordError: its parent folder does not exist, or it is a file of an unknown format.
    """
    from isocompute_sdk.ingest.paths import format_of, is_log

    home = _home(path)
    if not home.is_dir():
        there = next(above for above in (*home.parents, Path()) if above.is_dir())
        what = "is a file, not a folder" if home.exists() else "does not exist"
        raise RecordError(
            f"{path} will not appear: folder {home} {what}",
            f"Correct the path; or watch {there}: it is looked through at any depth, now and later.",
        )
    if path.is_file() and not is_log(path):
        format_of(path)


def state_file(path: Path) -> Path:
    """File that remembers alerts: inside a folder of logs, or beside a file or a folder that does not exist yet."""
    home = _home(path)
    pattern = home != path.parent or (glob.has_magic(path.name) and not path.exists())
    beside = home / (STATE_FILE if pattern else f".{path.name}{STATE_FILE}")
    # A folder that was waited for has it beside itself.
    return path / STATE_FILE if path.is_dir() and not (path.name and beside.is_file()) else beside


def _home(path: Path) -> Path:
    """The parent folder; for a glob the last folder before its first wildcard."""
    home = path.parent
    while not path.exists() and glob.has_magic(str(home)):
        home = home.parent
    return home
