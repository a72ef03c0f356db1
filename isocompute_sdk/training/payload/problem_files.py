"""Problem files: JSON lines with a prompt, an answer and perhaps an id. Standard library, Python 3.10."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT_KEYS = ("prompt", "input", "question", "problem")
ANSWER_KEYS = ("answer", "label", "solution", "target")
ID_KEY = "id"


class ProblemFileError(Exception):
    """A problem file cannot be used; the message names file, line and what is accepted."""


@dataclass(frozen=True)
class Problem:
    """One line of a problem file."""

    id: str
    prompt: Any  # text, or a list of {"role", "content"}
    answer: Any

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as a chat; plain text becomes a user message."""
        return [{"role": "user", "content": self.prompt}] if isinstance(self.prompt, str) else self.prompt


def read_problems(path: Path, name: str, prompt_key: str | None, answer_key: str | None) -> list[Problem]:
    """All problems of a JSONL file, in file order; blank lines are skipped.

    Args:
        path: the file.
        name: begins the ids of lines without one: `name-0`, `name-1`, ...
        prompt_key: key of the prompt; None for the only one of `PROMPT_KEYS` in the file.
        answer_key: key of the answer; None for the only one of `ANSWER_KEYS` in the file.

    Raises:
        ProblemFileError: a line is no JSON object, a key is missing or ambiguous, a prompt is not usable, an id
            occurs twice, or the file is empty.
        OSError: the file cannot be opened.
    """
    rows = list(json_lines(path))
    if not rows:
        raise ProblemFileError(f"{path}: holds no problems; accepted: one JSON object per line")
    prompt_key = chosen_key(path, rows, prompt_key, PROMPT_KEYS, "prompt")
    answer_key = chosen_key(path, rows, answer_key, ANSWER_KEYS, "answer")
    problems: list[Problem] = []
    line_of: dict[str, int] = {}
    for number, row in rows:
        where = f"{path}:{number}"
        for key, what in ((prompt_key, "prompt"), (answer_key, "answer")):
            if key not in row:
                raise ProblemFileError(f"{where}: has no {what} key {key!r}; its keys are {key_list(row)}")
        check_prompt(where, row[prompt_key])
        own = problem_id(where, row, f"{name}-{len(problems)}")
        if own in line_of:
            raise ProblemFileError(f"{where}: the id {own!r} was used in line {line_of[own]} already; ids are unique")
        line_of[own] = number
        problems.append(Problem(own, row[prompt_key], row[answer_key]))
    return problems


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects of a JSONL file; blank lines are skipped."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                row = parsed(path, number, line)
                if not isinstance(row, dict):
                    raise ProblemFileError(
                        f"{path}:{number}: holds a JSON {type(row).__name__}; accepted: one JSON object "
                        'per line, such as {"prompt": "...", "answer": "..."}'
                    )
                yield number, row
    except UnicodeDecodeError as error:
        raise ProblemFileError(f"{path}: is not UTF-8 text ({error}); accepted: JSONL") from error


def parsed(path: Path, number: int, line: str) -> Any:
    """One JSON value; text that cannot be written as UTF-8 is refused."""
    try:
        value = json.loads(line)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ProblemFileError(f"{path}:{number}: holds half of a surrogate pair, which is not text") from error
    except (ValueError, RecursionError) as error:
        raise ProblemFileError(
            f"{path}:{number}: is not valid JSON ({error}); accepted: one JSON object per line. The file may have "
            "been cut off."
        ) from error
    return value


def chosen_key(
    path: Path, rows: list[tuple[int, dict[str, Any]]], given: str | None, candidates: tuple[str, ...], what: str
) -> str:
    """The key named by the user, or the only candidate that occurs in the file."""
    if given is not None:
        return given
    present = [key for key in candidates if any(key in row for _, row in rows)]
    if len(present) == 1:
        return present[0]
    problem = f"several {what} keys ({', '.join(present)})" if present else f"no {what} key"
    raise ProblemFileError(
        f"{path}: has {problem}; its keys are {key_list(rows[0][1])}. Exactly one of "
        f"{', '.join(candidates)} is recognised; otherwise set data.{what}_key."
    )


def check_prompt(where: str, prompt: Any) -> None:
    """Accept non-empty text or a non-empty list of {"role", "content"} messages."""
    if isinstance(prompt, str):
        texts = [prompt]
    elif isinstance(prompt, list) and prompt and all(is_message(message) for message in prompt):
        texts = [message["content"] for message in prompt]
    else:
        texts = []
    if not any(text.strip() for text in texts):
        raise ProblemFileError(
            f'{where}: the prompt is {prompt!r:.80}; accepted: non-empty text, or a list of {{"role": text, '
            '"content": text}} without other keys'
        )


def is_message(value: Any) -> bool:
    """Whether `value` is a chat message of plain text."""
    return (
        isinstance(value, dict)
        and set(value) == {"role", "content"}
        and all(isinstance(part, str) for part in value.values())
    )


def problem_id(where: str, row: dict[str, Any], default: str) -> str:
    """The row's id as text, else `default`."""
    value = row.get(ID_KEY)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ProblemFileError(f"{where}: the id is {value!r:.80}; accepted: text or a whole number")
    return str(value)


def key_list(row: dict[str, Any]) -> str:
    """The keys of a row for a message."""
    return ", ".join(map(repr, row)) or "none"
