"""Start veRL's trainer in this process, with the overrides of request.json in Hydra's quoting.

    python3 start_training.py RUN_FOLDER MODEL        (after prepare_rows.py)

veRL empties its log file at every start and may repeat the evaluations of one step, so every start uses the next free
number: logs/attempt-<number>.jsonl and validation/<number>/.
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
    """One value in the grammar of Hydra's overrides, so that Hydra reads back the same value."""
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
    """Text in single quotes, in which only backslashes before a quote or at the end are special.

    Raises:
        InputError: the text contains `${`, which veRL's configuration would resolve.
    """
    if "${" in text:
        raise InputError(f"{text!r} holds '${{', which veRL would take for a reference: use another folder or name")
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)\Z", r"\1\1", text) + "'"


def next_attempt(run: Path) -> int:
    """The first unused number; creates its folder to reserve it."""
    attempt = 1
    while (run / "logs" / f"attempt-{attempt}.jsonl").exists() or (run / "validation" / str(attempt)).exists():
        attempt += 1
    (run / "logs").mkdir(exist_ok=True)
    (run / "validation" / str(attempt)).mkdir(parents=True)
    return attempt


def main(argv: list[str]) -> int:
    """Replace this process by the trainer."""
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
