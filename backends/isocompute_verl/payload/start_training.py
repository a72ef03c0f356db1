"""Start veRL's trainer in this process.

    python3 start_training.py RUN_FOLDER MODEL MODULE OVERRIDE...        (after prepare_rows.py)

veRL empties its log file at every start and may repeat the evaluations of one step, so every start uses the next free
number: logs/attempt-<number>.jsonl and validation/<number>/.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hydra_words import quoted
from run_files import InputError, hold


def arguments(overrides: list[str], run: Path, model: str, attempt: int) -> list[str]:
    """The overrides as veRL's program takes them: `@model` and `@run/...` become the model and a path."""

    def value(given: str) -> str:
        if given == "@model":
            return quoted(model)
        if given.startswith("@run/"):
            return quoted(str(run / given.removeprefix("@run/").replace("{attempt}", str(attempt))))
        return given

    try:
        return [f"{key}={value(given)}" for key, _, given in (word.partition("=") for word in overrides)]
    except ValueError as error:
        raise InputError(str(error)) from None


def next_attempt(run: Path) -> int:
    """The first unused number; creates its folder to reserve it."""
    attempt = 1
    while (run / "logs" / f"attempt-{attempt}.jsonl").exists() or (run / "validation" / str(attempt)).exists():
        attempt += 1
    (run / "logs").mkdir(exist_ok=True)
    (run / "validation" / str(attempt)).mkdir(parents=True)
    return attempt


def main(argv: list[str]) -> int:
    """Replace this process by the trainer: RUN_FOLDER MODEL MODULE OVERRIDE..."""
    run, model, module = Path(argv[0]), argv[1], argv[2]
    try:
        hold(run)
        attempt = next_attempt(run)
        overrides = arguments(argv[3:], run, model, attempt)
    except InputError as error:
        sys.stderr.write(f"start_training: {error}\n")
        return 2
    # It ends with this process, and must not hold the lock.
    watcher = [sys.executable, str(run / "keep_best.py"), str(run), str(attempt), str(os.getpid())]
    subprocess.Popen(watcher, stdin=subprocess.DEVNULL)
    os.execv(sys.executable, [sys.executable, "-m", module, *overrides])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
