"""Reference pages that are generated from the code when the site is built, as Markdown below docs/reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from generate import commands, documents, laws, python_api, registries, study_file

SOURCES = tuple(one.pages for one in (commands, documents, laws, python_api, registries, study_file))
"""Functions that give (path below docs/reference, text) of their pages."""


def pages() -> Iterator[tuple[str, str]]:
    """Path below docs/reference and Markdown text of every generated page."""
    for source in SOURCES:
        yield from source()


def write(folder: Path) -> None:
    """Write every page below `folder` where its text has changed, and remove pages that are no longer generated."""
    made = {folder / name: text for name, text in pages()}
    for file, text in made.items():
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    for stale in set(folder.rglob("*.md")) - set(made):
        stale.unlink()
