"""Every file at or below a folder, each once: links are followed, and hidden names and circles are left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(root: Path) -> Iterator[Path]:
    """Files of `root`, which may be a file itself, by the names that they have below it.

    Folders of runs are often links to where there is room. What several names lead to is given once, by a name that is
    no link where there is one.
    """
    if root.is_file():
        yield root
        return
    seen = {os.path.realpath(above) for above in root.resolve().parents}
    folders, files = [root], list[Path]()
    while folders:
        links: list[Path] = []
        for start in folders:
            yield from _walk(start, seen, links, files)
        folders = links
    for file in files:
        real = os.path.realpath(file)
        if real not in seen and file.is_file():
            seen.add(real)
            yield file


def locked_folders(root: Path) -> list[Path]:
    """Folders at or below `root` that may not be looked into; hidden ones do not count."""
    locked: list[Path] = []

    def note(error: OSError) -> None:
        if isinstance(error, PermissionError):
            locked.append(Path(error.filename))

    for _, folders, _ in os.walk(root, onerror=note):
        folders[:] = [name for name in folders if not name.startswith(".")]
    return locked


def _walk(start: Path, seen: set[str], links: list[Path], file_links: list[Path]) -> Iterator[Path]:
    """Files of one tree without links, which are put aside for later."""
    for here, folders, names in os.walk(start):
        real = os.path.realpath(here)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        inside = [Path(here) / name for name in sorted(folders) if not name.startswith(".")]
        links += [folder for folder in inside if folder.is_symlink()]
        folders[:] = [folder.name for folder in inside if not folder.is_symlink()]
        for file in (Path(here) / name for name in sorted(names) if not name.startswith(".")):
            if file.is_symlink():
                file_links.append(file)
            else:
                seen.add(f"{real}/{file.name}")
                yield file
