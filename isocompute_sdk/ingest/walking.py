"""Every file at or below a path, each once: links are followed, and hidden names and circles are left out.

A `Listing` is one such walk, handed on to whoever looks for logs, tables or run folders in it.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Listing:
    """What a path stands for, walked once, so that whoever looks for something there sees the same files."""

    path: Path
    """The file, folder or glob that was asked for."""
    below: Mapping[Path, tuple[Path, ...]]
    """The path, or everything that the glob matches -> the files at or below it."""
    locked: tuple[Path, ...]
    """Folders without read permission."""

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Listing:
        """Walk through a file, folder or glob; empty if nothing matches."""
        target = Path(path)
        roots = [target] if target.exists() else map(Path, sorted(glob.glob(str(path), recursive=True)))
        locked: list[Path] = []
        below = {root: tuple(files_below(root, locked)) for root in roots}
        return cls(target, below, tuple(dict.fromkeys(locked)))

    @cached_property
    def files(self) -> list[Path]:
        """All files, sorted, each once."""
        return sorted({file for files in self.below.values() for file in files})


def files_below(root: Path, locked: list[Path] | None = None) -> Iterator[Path]:
    """Files of `root`, which may be a file itself, by the names that they have below it.

    Folders without read permission are added to `locked`.

    Folders of runs are often links to where there is room. A file with several names is given once, by a
    name that is not a link if possible.
    """
    if root.is_file():
        yield root
        return
    seen = {os.path.realpath(above) for above in Path(os.path.realpath(root)).parents}
    folders, files = [root], list[Path]()

    def closed(error: OSError) -> None:
        if isinstance(error, PermissionError) and locked is not None:
            locked.append(Path(error.filename))

    while folders:
        links: list[Path] = []
        for start in folders:
            yield from _walk(start, seen, links, files, closed)
        folders = links
    for file in files:
        real = os.path.realpath(file)
        if real not in seen and file.is_file():
            seen.add(real)
            yield file


def _walk(
    start: Path, seen: set[str], links: list[Path], file_links: list[Path], closed: Callable[[OSError], None]
) -> Iterator[Path]:
    """Files of one tree without links, which are put aside for later."""
    for here, folders, names in os.walk(start, onerror=closed):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        inside = [Path(here) / name for name in sorted(folders) if not name.startswith(".")]
        links += [folder for folder in inside if folder.is_symlink()]
        folders[:] = [folder.name for folder in inside if not folder.is_symlink()]
        for file in (Path(here) / name for name in sorted(names) if not name.startswith(".")):
            mode = _mode(file)
            if stat.S_ISLNK(mode):
                file_links.append(file)
            elif stat.S_ISREG(mode):
                # Whoever opens a pipe waits for its other end.
                seen.add(f"{real}/{file.name}")
                yield file


def _mode(file: Path) -> int:
    try:
        return file.lstat().st_mode
    except OSError:
        return 0
