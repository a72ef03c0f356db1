"""Files that veRL writes: dumps of responses with the exact metrics in them, and the log of its file logger.

Dumps have one JSON object a line in `<step>.jsonl`, with the fields input, output, gts, score and step; a later attempt
overwrites the files of its steps. veRL's own best@k and worst@k are bootstrapped with replacement; those of the dumps
are exact.

The file log has JSON lines `{"step": 3, "data": {"critic/score/mean": 0.4, ...}}`, one file per attempt. The logger
empties its file whenever it starts, so that attempts survive only where each had a name of its own: files that differ
in nothing but `attempt-2`, `resume_1` and the like are one run.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import Attempt, RunLog, attempts_from_rows, numeric
from isocompute_sdk.ingest.formats.log_format import LogStore
from isocompute_sdk.ingest.tables import first_object, open_bytes, read_objects

MEAN = re.compile(r"val-core/(?P<set>.+)/(acc|reward|score)/mean@(?P<k>\d+)")
_FIELDS = {"input", "output", "score", "step"}
_NOT_WHOLE = (FileNotFoundError, ValueError, KeyError, TypeError)
# Never written, cut off in the middle of a line, or a line of another form.
_NAME = re.compile(r"\d+\.jsonl")
_LONGEST_FIRST_LINE = 1 << 22


def is_dump_name(path: Path) -> bool:
    """Whether a file is named as dumps are."""
    return _NAME.fullmatch(path.name) is not None


def looks_like_dump(path: Path) -> bool:
    """Whether a file holds responses that veRL dumped."""
    return is_dump_name(path) and first_object(path, _LONGEST_FIRST_LINE).keys() >= _FIELDS


def dumped_rewards(path: Path, samples: int | None = None) -> NDArray[np.float64] | None:
    """Rewards of one dump of an evaluation, shape (problems, samples).

    None if there is no dump, or a problem lacks a response: the dump was cut off, or a rollout failed.

    Args:
        path: the file.
        samples: responses to each problem; None for as many as the first problem has.
    """
    groups: dict[str, dict[str, tuple[int, float]]] = {}
    try:
        for index, row in enumerate(_rows(path)):
            problem, sample, output = _place(row, index)
            known = groups.setdefault(problem, {})
            reward = float(row["acc"] if row.get("acc") is not None else row["score"])
            known[sample] = max(known.get(sample, (-1, 0.0)), (output, reward))
    except _NOT_WHOLE:
        return None
    if not groups:
        return None
    wanted = len(next(iter(groups.values()))) if samples is None else samples
    if any(len(group) != wanted for group in groups.values()):
        return None
    return np.array([[reward for _, reward in group.values()] for group in groups.values()])


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    # Only "\n" ends a line: responses may hold other line separators as they are, and bytes that are no text.
    with io.TextIOWrapper(open_bytes(path), encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            if line.strip():
                yield parse_json(line)


def _place(row: dict[str, Any], index: int) -> tuple[str, str, int]:
    """Problem, sample and output of a row: of several outputs of one sample the last has its reward."""
    if "uid" in row:
        problem, sample, output = str(row["uid"]).rsplit("_", 2)
        return problem, sample, int(output)
    return str(row["input"]), str(index), 0  # before the release that named them


_LONGEST_RECORD = 1 << 20
_ATTEMPT = re.compile(r"[._-]*(?:attempt|try|resume|resumed|restart|part)[._-]*(\d*)$", re.IGNORECASE)


def is_file_log(path: Path) -> bool:
    """Whether a file is named as JSON lines are and its first line is a record of veRL's file logger."""
    if path.suffix not in (".jsonl", ".ndjson"):
        return False
    first = first_object(path, _LONGEST_RECORD)
    return isinstance(first.get("data"), dict) and "step" in first


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
                'This is no line of veRL\'s file logger; other JSON lines are read with format="jsonl".',
            ).in_shell("This is no line of veRL's file logger; give the log of another framework apart from it.")
    return attempts_from_rows(path, [row["step"] for row in rows], [numeric(row["data"]) for row in rows], notes)


FILE_LOG = LogStore("verl", is_file_log, run_of, read_file_log)
