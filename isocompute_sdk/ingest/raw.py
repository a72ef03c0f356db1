"""What every reader hands over: columns as text or values, and where each row stood in its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isocompute_sdk.errors import RecordError

OnTruncated = Literal["error", "drop"]
TRUNCATED_HINT = (
    "It may have been cut while it was written or copied: copy it again, or pass "
    'on_truncated="drop" to keep the whole lines before it.'
)


@dataclass(frozen=True)
class RawTable:
    """A table as it stands in a file."""

    columns: Mapping[str, Any]
    """Name in the file -> one entry per row."""
    locate: Callable[[int], str]
    """Row index -> file and line."""


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte-order mark.

    Raises:
        RecordError: the file cannot be read or is not text.
    """
    try:
        # newline="" keeps line ends inside quoted cells as they are
        with path.open(encoding="utf-8-sig", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise RecordError(
            f"{path} is not UTF-8 text (byte {error.start}: {error.reason})",
            "Save it as UTF-8, or name its format with format=....",
        ) from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}", "Check the path and its permissions.") from error
