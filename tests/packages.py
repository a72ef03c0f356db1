"""Packages on disk, as pip would leave them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def note_installed(
    site: Path, name: str, version: str = "1.0", entries: Mapping[str, Mapping[str, str]] | None = None
) -> None:
    """Record a distribution in a folder of packages.

    Args:
        site: the folder.
        name: the distribution.
        version: its version.
        entries: group of entry points -> name -> object.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines: list[str] = []
    for group, points in (entries or {}).items():
        lines += [f"[{group}]", *(f"{point} = {target}" for point, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
