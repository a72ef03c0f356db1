"""attempts.jsonl of a run folder: one line for each start of its training, declared once for writers and readers.

The built-in runner and `training/payload/claim_folder.py`, which has no package but the standard library, append to it.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import DocumentError, RecordError
from isocompute_sdk.files import open_input, parse_json

ATTEMPTS_FILE = "attempts.jsonl"
REMEDY = "Remove the line."


class Start(BaseModel):
    """One line."""

    model_config = ConfigDict(
        extra="allow", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    attempt: int = Field(ge=1)
    """1 for the first."""
    started: float = Field(ge=0)
    """Seconds since 1970."""
    identity: str | None = None
    """Digest of everything that decides the results; None for a launch script, which keeps its request instead."""
    train: str | None = None
    """SHA-256 of the training problems; None if unknown."""
    validation: str | None = None
    reward: str | None = None
    """SHA-256 of the reward file; None if unknown, and for a function of a module."""


START = Document("run-start", 2, Start, signed=False, remedy=REMEDY, indent=None)


def read_starts(path: Path) -> list[Start]:
    """Every start in the file, without a last line that is still being written; empty if the file is missing.

    Raises:
        RecordError: a whole line is no start, or the file cannot be read.
    """
    if not path.exists():
        return []
    with open_input(path, what="the starts of a run", error=RecordError) as file:
        lines = file.read().split(b"\n")[:-1]
    return [_start(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def _start(line: bytes, where: str) -> Start:
    try:
        raw = parse_json(line)
    except ValueError as error:
        raise RecordError(f"{where}: not JSON ({error})", REMEDY) from error
    try:
        return START.from_dict(raw)
    except DocumentError as error:
        raise RecordError(error.message.replace("the mapping", where, 1), error.hint) from error
