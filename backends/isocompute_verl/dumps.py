"""Responses that veRL dumps, one JSON object a line in `<step>.jsonl`, and the exact metrics in them.

They have the fields input, output, gts, score and step; a later attempt overwrites the files of its steps. veRL's own
best@k and worst@k are bootstrapped with replacement; those of the dumps are exact.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.tables import first_object, open_bytes

MEAN = re.compile(r"val-core/(?P<set>.+)/(acc|reward|score)/mean@(?P<k>\d+)")
TOLERANCE = 1e-6
"""Largest difference between a mean of dumped rewards and the one that veRL logged of the same rewards."""
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
            known[sample] = max(known.get(sample, (-1, 0.0)), (output, _reward(row)))
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


def _reward(row: dict[str, Any]) -> float:
    return float(row["acc"] if row.get("acc") is not None else row["score"])
