"""Reserve a run folder for one run, and record this start in it.

    python3 claim_folder.py RUN_FOLDER        (in the folder to which the data paths are relative)

Reads RUN_FOLDER/.request.json.new, or request.json without it, and checks, before any data is read, the installed
framework, the folder's path, that nothing trains there, that the inputs exist and, if RUN_FOLDER/started.json records
an earlier start, that it was the same run with the same inputs, or that nothing was trained yet. It reads

* framework, version: the package that must be installed;
* misread_in_paths (optional): texts that the folder's path must not contain;
* run.data;
* identity: settings that every later start must have in common.

Writes

* request.json: what was read, once all checks have passed;
* inputs.json: absolute path and SHA-256 of each input, and the name of the reward function if given;
* attempts.jsonl: one line per start.

Unusable input ends with exit status 2 and a message that says what is accepted.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from run_files import (
    ATTEMPTS,
    STARTED,
    InputError,
    attempt_of,
    differences,
    digest_of,
    hold,
    read_json,
    shortened,
    split_target,
    write_json,
)


def main(argv: list[str]) -> int:
    """Claim the run folder named on the command line; 0 on success, 2 if it cannot be used."""
    try:
        claim(Path(argv[0]), Path.cwd())
    except InputError as error:
        sys.stderr.write(f"claim_folder: {error}\n")
        return 2
    return 0


def claim(run_folder: Path, data_folder: Path) -> None:
    """Check the request in `run_folder` against earlier starts and record this start.

    Raises:
        InputError: an input is missing, or the folder cannot be used for this run.
    """
    asked, accepted = run_folder / ".request.json.new", run_folder / "request.json"
    request = read_json(asked if asked.exists() else accepted)
    check_framework(request["framework"], request["version"])
    check_run_folder(run_folder, request["framework"], request.get("misread_in_paths", []))
    # Refuses a folder in which a process of another start is still running.
    if (lock := hold(run_folder)) is not None:
        os.close(lock)
    data = request["run"]["data"]
    reward, function = split_target(data["reward"], data_folder)
    files = {
        "train": existing_file(data_folder, data["train"], "training data"),
        "validation": existing_file(data_folder, data["validation"], "validation data"),
        "reward": existing_file(data_folder, reward, "reward file"),
    }
    inputs: dict[str, Any] = {name: {"path": str(path), "sha256": digest_of(path)} for name, path in files.items()}
    inputs["reward"]["function"] = function
    check_same_run(run_folder, request, inputs)
    if asked.exists():
        asked.replace(accepted)
    write_json(run_folder / "inputs.json", inputs)
    note_start(run_folder)


def check_framework(package: str, expected: str) -> None:
    """Refuse another installed version of the framework: its settings differ."""
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        warn(f"this interpreter ({sys.executable}) has no record of an installed package {package}")
        return
    if found.partition("+")[0] != expected:
        raise InputError(
            f"{package} {found} is installed in {sys.executable}; this script is written for {expected}. "
            f"Install {package}=={expected}, or set PYTHON to an interpreter that has it."
        )


def check_run_folder(folder: Path, package: str, misread: list[str]) -> None:
    """Refuse a run folder whose absolute path the framework or its data loader would misread."""
    bad = [mark for mark in misread if mark in str(folder)]
    if bad:
        raise InputError(
            f"the run folder is {str(folder)!r}, which holds {', '.join(map(repr, bad))}: {package} would split "
            "the path there or read it as a pattern. Run the script from another folder, or change output_dir."
        )


def existing_file(folder: Path, name: str, what: str) -> Path:
    """Absolute path of an existing regular file."""
    path = folder / name
    if not path.is_file():
        raise InputError(f"{what}: there is no file {name!r} in {str(folder)!r}")
    return path


def check_same_run(folder: Path, request: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Refuse a folder in which another run was trained; the record of a start that trained nothing is removed."""
    path = folder / STARTED
    if not path.exists():
        return
    earlier = read_json(path)
    changed = [
        f"{name} ({shortened(before)} before, {shortened(now)} now)"
        for name, before, now in differences(earlier["request"]["identity"], request["identity"])
    ]
    changed += [
        f"content of {name} ({file['path']})"
        for name, file in inputs.items()
        if file["sha256"] != earlier["inputs"].get(name, {}).get("sha256")
    ]
    if changed and not was_trained(folder):
        warn(f"an earlier start in {str(folder)!r} trained nothing; it differed in: {'; '.join(changed)}")
        path.unlink()
    elif changed:
        raise InputError(
            f"{str(folder)!r} holds a run that differs in: {'; '.join(changed)}. A resumed run has to be the same "
            "run: restore what changed, or give this one another folder (isocompute launch PLAN --output-dir FOLDER; "
            "in a study, another run_id or output_dir)."
        )


_STEP = re.compile(rb'"step": *[1-9]|[Gg]lobal step [1-9]')
"""An update in a journal, or on a console."""


def was_trained(folder: Path) -> bool:
    """Whether a run folder holds weights, or a log that says a first update."""
    for name in ("metrics.jsonl", "logs/*.jsonl", "console.*.log"):
        for path in folder.glob(name):
            with path.open("rb") as file:
                if any(map(_STEP.search, file)):
                    return True
    return any(path.is_file() for name in ("checkpoints", "model") for path in (folder / name).rglob("*"))


def note_start(folder: Path) -> None:
    """Record the number of this start (from 1) and its time."""
    # As run_folders/journal_records.py of the SDK declares it.
    start = {"kind": "run-start", "schema_version": 2, "attempt": attempt_of(folder) + 1, "started": time.time()}
    with (folder / ATTEMPTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(start) + "\n")


def warn(message: str) -> None:
    """One line on stderr; the run goes on."""
    sys.stderr.write(f"claim_folder: warning: {message}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
