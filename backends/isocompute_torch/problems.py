"""Problem sets: reading JSON lines, and the order in which batches use the problems. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.files import parse_json
from isocompute_torch.failures import InputError

PROMPT_KEYS = ("prompt", "input", "question", "problem")
ANSWER_KEYS = ("answer", "label", "solution", "target")
ID_KEY = "id"

Row = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """One line of a problem file."""

    id: str
    """The line's `id`, or a name made from file name and position."""
    prompt: str | list[dict[str, str]]
    """Text, or chat messages with `role` and `content`."""
    answer: Any
    """Reference answer, any JSON value; only the reward function reads it."""


def read_problems(path: str | Path, *, prompt_key: str | None = None, answer_key: str | None = None) -> list[Problem]:
    """All problems of a JSON-lines file, in file order; blank lines are skipped.

    Args:
        path: the file.
        prompt_key: key of the prompt; None for the only one of `PROMPT_KEYS` in the file.
        answer_key: key of the answer; None for the only one of `ANSWER_KEYS` in the file.

    Raises:
        InputError: the file is missing or empty, a line is not a JSON object, a key is missing or ambiguous, a
            prompt is unusable, or an id occurs twice.
    """
    path = Path(path)
    rows = list(_json_lines(path))
    if not rows:
        raise InputError(f"{path}: is empty; accepted: one JSON object per line", "Check the path in data.")
    prompt_key = _chosen_key(path, rows, prompt_key, PROMPT_KEYS, "prompt")
    answer_key = _chosen_key(path, rows, answer_key, ANSWER_KEYS, "answer")
    problems: list[Problem] = []
    line_of: dict[str, int] = {}
    for number, row in rows:
        where = f"{path}:{number}"
        for key, what in ((prompt_key, "prompt"), (answer_key, "answer")):
            if key not in row:
                raise InputError(
                    f"{where}: has no {what} key {key!r}; its keys are {', '.join(row)}",
                    f"Add it, or set data.{what}_key.",
                )
        name = _problem_id(where, row, f"{path.stem}-{len(problems)}")
        if name in line_of:
            raise InputError(f"{where}: the id {name!r} also occurs in line {line_of[name]}", "Ids must be unique.")
        line_of[name] = number
        problems.append(Problem(name, _prompt(where, row[prompt_key]), row[answer_key]))
    return problems


class BatchOrder:
    """The problems of each update step: seeded epochs without replacement, and no problem twice in a batch.

    Every epoch holds every problem once, in its own order. If a batch crosses the end of an epoch, the problems that it
    holds already move back in the next epoch's order. The order depends on the seed alone.

    Args:
        problems: number of problems, D.
        batch: problems per batch, B_p; at most D.
        seed: seed of the run.

    Raises:
        InputError: fewer problems than one batch holds.
    """

    def __init__(self, problems: int, batch: int, seed: int) -> None:
        if problems < batch:
            raise InputError(
                f"{problems} training problems for problems_per_batch = {batch}; accepted: at least one batch of "
                "different problems",
                "Lower problems_per_batch, or give more training problems.",
            )
        self._problems = problems
        self._batch = batch
        self._seed = seed
        self._epochs = 0
        self._waiting: list[int] = []
        self._next_step = 1

    def batch(self, step: int) -> list[int]:
        """Indices of the problems of update step `step` (1-based)."""
        if step < self._next_step:
            self._epochs, self._waiting, self._next_step = 0, [], 1
        while self._next_step < step:
            self._take()
        return self._take()

    def _take(self) -> list[int]:
        if len(self._waiting) < self._batch:
            order = list(range(self._problems))
            random.Random(f"{self._seed}:epoch:{self._epochs}").shuffle(order)
            left = set(self._waiting)
            first = [index for index in order if index not in left][: self._batch - len(left)]
            moved = set(first)
            self._waiting += first + [index for index in order if index not in moved]
            self._epochs += 1
        taken, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        self._next_step += 1
        return taken


def probe_subset(problems: Sequence[Problem], size: int) -> list[Problem]:
    """A fixed subset in file order, the same for every run on these problems, independent of its seed."""
    ranked = sorted(range(len(problems)), key=lambda i: hashlib.sha256(f"probe:{problems[i].id}".encode()).digest())
    return [problems[i] for i in sorted(ranked[:size])]


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _parsed(path, number, line)
    except FileNotFoundError:
        raise InputError(
            f"no problem file {str(path)!r} in {str(Path.cwd())!r}",
            "Start the run in the folder that the data paths are relative to, or give absolute paths.",
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error}", "Give the path of a JSON-lines file.") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text ({error}); accepted: JSON lines", "Save the file as UTF-8."
        ) from error


def _parsed(path: Path, number: int, line: str) -> Row:
    try:
        row = parse_json(line)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{number}: is not valid JSON ({error.msg} at column {error.colno}); accepted: one object per line",
            "Check whether the file was cut off.",
        ) from error
    if not isinstance(row, dict):
        raise InputError(
            f"{path}:{number}: holds a JSON {type(row).__name__}; accepted: one JSON object per line",
            'Write each problem like {"prompt": "...", "answer": "..."}.',
        )
    return cast("Row", row)


def _chosen_key(
    path: Path, rows: list[tuple[int, Row]], given: str | None, candidates: tuple[str, ...], what: str
) -> str:
    """The key given by the user, or the only candidate in the file."""
    if given is not None:
        return given
    present = [key for key in candidates if any(key in row for _, row in rows)]
    if len(present) == 1:
        return present[0]
    trouble = f"several {what} keys ({', '.join(present)})" if present else f"no {what} key"
    raise InputError(
        f"{path}: has {trouble}; its keys are {', '.join(rows[0][1])}",
        f"Set data.{what}_key. Without it, the file must have exactly one of {', '.join(candidates)}.",
    )


def _prompt(where: str, value: object) -> str | list[dict[str, str]]:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list):
        messages = cast("list[Any]", value)
        if messages and all(_is_message(message) for message in messages):
            return cast("list[dict[str, str]]", messages)
    shown = json.dumps(value)
    raise InputError(
        f"{where}: the prompt is {shown if len(shown) <= 80 else shown[:77] + '...'}; accepted: non-empty text, "
        'or a list of {"role": text, "content": text}',
        "Correct the prompt.",
    )


def _is_message(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    message = cast("dict[object, object]", value)
    return set(message) == {"role", "content"} and all(isinstance(part, str) for part in message.values())


def _problem_id(where: str, row: Row, default: str) -> str:
    value = row.get(ID_KEY)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{where}: the id is {value!r}; accepted: text or a whole number", "Correct the id.")
    return str(value)
