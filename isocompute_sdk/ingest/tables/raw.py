"""The text of a file, which readers start from, and what they hand over: columns, and where each row stood."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.stores import packed
from isocompute_sdk.ingest.stores.packed import CUT_PACKING, DAMAGED, open_bytes
from isocompute_sdk.notes import Note

OnTruncated = Literal["error", "drop"]


LARGEST_CONFIG = 8 * 2**20
"""Bytes of the largest saved configuration that is looked into."""
MOST_COLUMNS = 10_000
"""Columns of the widest table that is read; a chart of W&B has three for every run."""
MOST_CELLS = 50_000_000
"""Cells of the largest table that is read, empty ones included: all of it is held in memory."""


@dataclass(frozen=True)
class RawTable:
    """A table as it stands in a file."""

    columns: Mapping[str, Any]
    """Name in the file -> one entry per row."""
    locate: Callable[[int], str]
    """Row index -> file and line."""
    notes: tuple[Note, ...] = ()
    """What of the file could not be read."""


def truncated(path: Path, line: int, more: str = "") -> RecordError:
    """The error for a file that ends inside a line."""
    cause = "It may have been cut while it was written or copied: copy it again, or"
    return RecordError(
        f"{path}:{line}: the file ends inside this line{more}",
        f'{cause} keep the whole lines before it with on_truncated="drop".',
    ).in_shell(f"{cause} keep the whole lines before it: isocompute ingest {quote(str(path))} --output runs.parquet")


def cut_off(path: Path, line: int) -> Note:
    """Says that a file ends inside a line, which was left out."""
    message = (
        f"{path}:{line}: the file ends inside this line, as when a run is writing or was killed; it is left out and "
        f"the {line - 1:,} lines before it are kept."
    )
    return Note("log-cut-off", "info", message, {"file": str(path), "line": line})


def damaged(path: Path, lines: Sequence[int], why: str) -> Note:
    """Says that lines of a file make no sense and were left out."""
    count = f"{len(lines):,} lines are" if len(lines) > 1 else "this line is"
    message = f"{path}:{lines[0]}: {count} left out ({why}); the rest is kept. Copy the file again if you can."
    return Note("log-damaged", "warning", message, {"file": str(path), "line": lines[0], "lines": len(lines)})


def check_size(path: Path | str, columns: int, rows: int) -> None:
    """Raise on a table with more columns or cells than are read.

    Raises:
        RecordError: naming the file and both numbers.
    """
    if columns > MOST_COLUMNS:
        raise RecordError(
            f"{path} has {columns:,} columns; accepted: at most {MOST_COLUMNS:,}",
            "Keep the columns of steps, configuration and metrics, or give one row per metric (columns metric, value).",
        )
    if columns * rows > MOST_CELLS:
        raise RecordError(
            f"{path} has {rows:,} rows of {columns:,} columns; accepted: at most {MOST_CELLS:,} cells",
            "Split the file, or leave out columns that are no metrics.",
        )


def read_text(
    path: Path, on_truncated: OnTruncated = "error", *, largest: int | None = None, longest: int | None = None
) -> tuple[str, tuple[Note, ...]]:
    """The text of a file in UTF-8, or in UTF-16 with its mark; with "drop", what is not text is replaced, with a note.

    Args:
        path: a file, packed with gzip or not.
        on_truncated: whether bytes that are not text are an error.
        largest: bytes of the largest file that is read, unpacked; None: `packed.LARGEST_TEXT`.
        longest: bytes of the longest line; None for any. Lines up to twice as long may pass.

    Raises:
        RecordError: the file cannot be read, is not text, or is too large.
    """
    largest = packed.LARGEST_TEXT if largest is None else largest
    content, step = bytearray(), longest or largest
    try:
        with open_bytes(path, largest) as file:
            while len(content) <= largest and (part := file.read(step)):
                if len(part) == longest and b"\n" not in part:
                    # A line of twice that length covers a whole piece without a line end.
                    line = content.count(b"\n") + 1
                    raise RecordError(
                        f"{path}:{line}: this line has more than {longest:,} bytes; accepted: at most that many",
                        "Write one row per line; check that this is a table at all.",
                    )
                content += part
    except DAMAGED as error:
        raise RecordError(CUT_PACKING.format(path=path), "Copy it again.") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}", "Check the path and its permissions.") from error
    if len(content) > largest:
        raise RecordError(
            f"{path} holds more than {largest:,} bytes of text; accepted: at most that many",
            "Check that this is the right file; split a larger table, or leave out columns that are no metrics.",
        )
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = content.decode(encoding)
        place, why = (text.find("\0"), "NUL") if "\0" in text else (-1, "")
    except UnicodeDecodeError as error:
        text, place, why = content.decode(encoding, errors="replace"), error.start, error.reason
    if place < 0:
        return text, ()
    if on_truncated == "error":
        raise RecordError(
            f"{path} is not UTF-8 text (byte {place}: {why})", "Save it as UTF-8; check that it is a table at all."
        )
    return text.replace("\0", ""), (_not_text(path, content.count(b"\n", 0, place) + 1),)


def _not_text(path: Path, line: int) -> Note:
    message = (
        f"{path}:{line}: bytes that are not UTF-8 text were replaced or left out, here and perhaps further down, so "
        "that names may be wrong. Save the file as UTF-8."
    )
    return Note("text-not-utf8", "warning", message, {"file": str(path), "line": line})
