"""The text of a file, which readers start from, and what they hand over: columns, and where each row stood."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.stores.packed import CUT_PACKING, DAMAGED, open_bytes
from isocompute_sdk.notes import Note

OnTruncated = Literal["error", "drop"]
TRUNCATED_HINT = (
    "It may have been cut while it was written or copied: copy it again, or keep the whole lines before it with "
    '`isocompute ingest PATH --output runs.parquet`, in Python with on_truncated="drop".'
)


@dataclass(frozen=True)
class RawTable:
    """A table as it stands in a file."""

    columns: Mapping[str, Any]
    """Name in the file -> one entry per row."""
    locate: Callable[[int], str]
    """Row index -> file and line."""
    notes: tuple[Note, ...] = ()
    """What of the file could not be read."""


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


def read_text(path: Path, on_truncated: OnTruncated = "error") -> tuple[str, tuple[Note, ...]]:
    """The text of a file in UTF-8, or in UTF-16 with its mark; with "drop", what is not text is replaced, with a note.

    Raises:
        RecordError: the file cannot be read or is not text.
    """
    try:
        with open_bytes(path) as file:
            content = file.read()
    except DAMAGED as error:
        raise RecordError(CUT_PACKING.format(path=path), "Copy it again.") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}", "Check the path and its permissions.") from error
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return content.decode(encoding), ()
    except UnicodeDecodeError as error:
        if on_truncated == "error":
            raise RecordError(
                f"{path} is not UTF-8 text (byte {error.start}: {error.reason})",
                "Save it as UTF-8; check that it is a table at all.",
            ) from error
        return content.decode(encoding, errors="replace"), (_not_text(path, content.count(b"\n", 0, error.start) + 1),)


def _not_text(path: Path, line: int) -> Note:
    message = (
        f"{path}:{line}: bytes that are not UTF-8 were replaced, here and perhaps further down, so that names may be "
        "wrong. Save the file as UTF-8."
    )
    return Note("text-not-utf8", "warning", message, {"file": str(path), "line": line})
