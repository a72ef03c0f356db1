"""Become veRL's trainer, with the overrides of request.json in Hydra's own quoting.

    python3 start_training.py RUN_FOLDER MODEL        (after prepare_rows.py)

veRL empties its log file at every start and may write the evaluations of one step again, so every start gets the next
free number: logs/attempt-<number>.jsonl and validation/<number>/.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

from run_files import InputError, hold


def arguments(request: dict[str, Any], run: Path, model: str, attempt: int) -> list[str]:
    """The overrides as veRL's program takes them."""

    def value(given: Any) -> Any:
        if isinstance(given, dict):
            marks = cast("dict[str, str]", given)
            return model if "model" in marks else str(run / marks["run"].replace("{attempt}", str(attempt)))
        return given

    return [f"{key}={hydra(value(given))}" for key, given in request["overrides"].items()]


def hydra(value: Any) -> str:
    """One value in the grammar of Hydra's overrides, such that it is read back as it is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{','.join(hydra(item) for item in cast('list[Any]', value))}]"
    return quoted(str(value))


def quoted(text: str) -> str:
    """Text in single quotes, in which backslashes count before a quote and at the end only.

    Raises:
        InputError: the text holds `${`, which veRL's configuration resolves as often as it is read.
    """
    if "${" in text:
        raise InputError(f"{text!r} holds '${{', which veRL would take for a reference: use another folder or name")
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)\Z", r"\1\1", text) + "'"


def next_attempt(run: Path) -> int:
    """The first number of which nothing was written yet; its folder marks it as taken."""
    attempt = 1
    while (run / "logs" / f"attempt-{attempt}.jsonl").exists() or (run / "validation" / str(attempt)).exists():
        attempt += 1
    (run / "logs").mkdir(exist_ok=True)
    (run / "validation" / str(attempt)).mkdir(parents=True)
    return attempt


def main(argv: list[str]) -> int:
    """Start the trainer in place of this process."""
    if len(argv) != 2:
        sys.stderr.write("usage: start_training.py RUN_FOLDER MODEL\n")
        return 2
    run = Path(argv[0])
    request = json.loads((run / "request.json").read_text(encoding="utf-8"))
    try:
        hold(run)
        overrides = arguments(request, run, argv[1], next_attempt(run))
    except InputError as error:
        sys.stderr.write(f"start_training: {error}\n")
        return 2
    os.execv(sys.executable, [sys.executable, "-m", request["module"], *overrides])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
