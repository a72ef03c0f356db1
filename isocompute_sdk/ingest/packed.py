"""Packed files: those of gzip are read like any other, other kinds have to be unpacked first."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO, cast

GZIP = ".gz"
OTHERS = (".bz2", ".xz", ".zst", ".zip")
"""Endings of files that are packed and not read."""
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading raises where a file of gzip was cut off or is none."""
CUT_PACKING = "{path} cannot be unpacked: it was cut off or is no gzip file"


def unpacked(path: Path) -> Path:
    """The path without the ending of gzip, if it has that: what the file holds is told by the ending before."""
    return path.with_suffix("") if path.suffix.lower() == GZIP else path


def open_bytes(path: Path) -> BinaryIO:
    """A file for reading bytes, unpacked on the way where its name ends in `.gz`."""
    return cast(BinaryIO, gzip.open(path, "rb")) if unpacked(path) != path else path.open("rb")
