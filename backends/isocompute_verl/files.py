"""Files that veRL writes: the log of its file logger, and dumps of responses, which are no log.

The file log has JSON lines `{"step": 3, "data": {"critic/score/mean": 0.4, ...}}`, one file per attempt. The logger
empties its file whenever it starts, so that attempts survive only where each had a name of its own: files that differ
in nothing but `attempt-2`, `resume_1` and the like are one run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import attempts_from_rows, numbers_of
from isocompute_sdk.ingest.formats.log_format import Attempt, LogStore, RunLog
from isocompute_sdk.ingest.tables import first_objects, read_objects

_FIELDS = {"input", "output", "score", "step"}
_NAME = re.compile(r"\d+\.jsonl")
_LONGEST_FIRST_LINE = 1 << 22


def looks_like_dump(path: Path) -> bool:
    """Whether a file holds responses that veRL dumped, one JSON object a line in `<step>.jsonl`."""
    named = _NAME.fullmatch(path.name) is not None
    return named and any(row.keys() >= _FIELDS for row in first_objects(path, _LONGEST_FIRST_LINE))


_ATTEMPT = re.compile(r"[._-]*(?:attempt|try|resume|resumed|restart|part)[._-]*(\d*)$", re.IGNORECASE)


def is_file_log(path: Path) -> bool:
    """Whether a file is named as JSON lines are and it begins with a record of veRL's file logger."""
    if path.suffix not in (".jsonl", ".ndjson"):
        return False
    return any(isinstance(row.get("data"), dict) and "step" in row for row in first_objects(path))


def run_of(path: Path) -> Path:
    """What the files of one run have in common."""
    return _split(path)[0]


def _split(path: Path) -> tuple[Path, int]:
    """What the files of one run have in common, and the number of the attempt that a file belongs to."""
    bare = path.with_suffix("")
    found = _ATTEMPT.search(bare.name)
    if found is None:
        return bare, 0
    stem = bare.name[: found.start()]
    return (path.parent / stem if stem else path.parent), int(found[1] or 1)


def read_file_log(paths: Sequence[Path], name: str) -> RunLog:
    """Read the files of one run, one for each attempt; lines that a kill left broken are left out with a note.

    Raises:
        RecordError: a line that is no record of the logger, with its number.
    """
    attempts = [
        attempt
        for path in sorted(paths, key=lambda path: (_split(path)[1], path.name))
        for attempt in read_attempts(path)
    ]
    notes = tuple(note for attempt in attempts for note in attempt.notes)
    return RunLog(name, paths[0], "verl", tuple(attempts), notes)


def read_attempts(path: Path) -> tuple[Attempt, ...]:
    """The attempts in one file: more than one if it was appended to."""
    rows, lines, notes = read_objects(path)
    for row, line in zip(rows, lines, strict=True):
        step, data = row.get("step"), row.get("data")
        if isinstance(step, bool) or not isinstance(step, int | float) or step < 0 or not isinstance(data, dict):
            raise RecordError(
                f"{path}:{line}: received step {step!r} and data of type {type(data).__name__}; accepted: "
                '{"step": a number >= 0, "data": {tag: value}}',
                'This is not a line of veRL\'s file logger; other JSON lines are read with format="jsonl".',
            ).in_shell("This is not a line of veRL's file logger; read logs of another framework separately.")
    values, damaged = numbers_of(path, [row["data"] for row in rows], lines)
    return attempts_from_rows(path, [row["step"] for row in rows], values, (*notes, *damaged))


FILE_LOG = LogStore("verl", is_file_log, run_of, read_file_log)
