"""Packed files: those of gzip are read like any other, other kinds have to be unpacked first."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import check_input

GZIP = ".gz"
OTHERS = (".bz2", ".xz", ".zst", ".zip")
"""Endings of files that are packed and not read."""
ARCHIVES = (".zip", ".tar", ".tgz", ".7z")
"""Endings of files that hold other files; a `.tar` may be packed once more."""
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading raises if a gzip file was cut off, or is not gzip."""
CUT_PACKING = "{path} cannot be unpacked: it was cut off, is no gzip file, or holds more than 512 MiB"
LARGEST_TEXT = 512 * 2**20
"""Bytes of the largest table or log that is read, unpacked: about five million evaluations."""
LONGEST_LINE = 16 * 2**20
"""Bytes that one line of a table or a log may have."""


class _Unpacked(gzip.GzipFile):
    """A gzip file whose content and lines are bounded while it is unpacked; what is larger counts as damaged."""

    def read(self, size: int | None = -1) -> bytes:
        room = LARGEST_TEXT + 1 - self.tell()
        data = super().read(room if size is None or size < 0 else min(size, room))
        if self.tell() > LARGEST_TEXT:
            raise EOFError(f"more than {LARGEST_TEXT:,} bytes")
        return data

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(LONGEST_LINE + 1 if size is None or size < 0 else size)
        if len(line) > LONGEST_LINE or self.tell() > LARGEST_TEXT:
            raise EOFError(f"a line of more than {LONGEST_LINE:,} bytes")
        return line


def unpacked(path: Path) -> Path:
    """The path without `.gz`: the ending before it says what the file holds."""
    return path.with_suffix("") if path.suffix.lower() == GZIP else path


def as_kept(path: Path) -> Path:
    """The path, or that of its packed form where only this is there."""
    packed = path.with_name(path.name + GZIP)
    return packed if not path.exists() and packed.is_file() else path


def is_archive(path: Path) -> bool:
    """Whether a file holds others, by its name."""
    ending = path.suffix.lower()
    return ending in ARCHIVES or (ending in (GZIP, *OTHERS) and path.with_suffix("").suffix.lower() == ".tar")


def is_sealed(path: Path) -> bool:
    """Whether a file is packed in a way that is not read."""
    return path.suffix.lower() in OTHERS or is_archive(path)


def is_damaged(path: Path) -> bool:
    """Whether a file of gzip cannot be unpacked to its end; False for any other."""
    if unpacked(path) == path:
        return False
    try:
        with open_bytes(path) as file:
            while file.read(1 << 20):
                pass
    except DAMAGED:
        return True
    return False


def open_bytes(path: Path, largest: int | None = None) -> BinaryIO:
    """A regular file for reading bytes, unpacked on the way where its name ends in `.gz`.

    Raises:
        RecordError: a pipe or a device, no such file, or one of more than `largest` bytes as it lies there.
    """
    check_input(path, what="a table or a log", largest=largest, error=RecordError)
    return cast(BinaryIO, _Unpacked(path, "rb")) if unpacked(path) != path else path.open("rb")
