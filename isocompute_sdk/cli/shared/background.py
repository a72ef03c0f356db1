"""Start the present command again as a controller in the background."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.errors import BackendError

LOG_FILE = "controller.log"
HAND_OVER_SECONDS = 60.0
"""Longest wait for the first run."""
_PROGRAM = "from isocompute_sdk.cli import main; main()"


def detach(study: str, folder: Path, runs: Sequence[Path], then: str, *, json: bool) -> None:
    """Start this command again in the background, less --detach, and say where it is at work.

    Returns once the controller has handed over a first run (without `runs`: once it controls the folder), or is still
    at work after a minute.

    Args:
        study: name of the study.
        folder: its folder, which receives controller.log.
        runs: run folders; empty if they are not known yet.
        then: the command that comes next.
        json: print one JSON document.

    Raises:
        BackendError: the controller failed at once; the message ends with its output.
    """
    from isocompute_sdk.campaigns.control import controller_of
    from isocompute_sdk.run_folders import locks, store

    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG_FILE
    before = [store.last_attempt(run) for run in runs]
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *(part for part in sys.argv[1:] if part != "--detach")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # A hangup of this terminal does not reach it.
        )
    deadline = time.monotonic() + HAND_OVER_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if any(map(locks.is_running, runs)) or [store.last_attempt(run) for run in runs] != before:
            break
        held = None if runs else controller_of(folder)
        if held is not None and held.pid == process.pid:
            break
        time.sleep(0.1)
    if process.returncode:
        words = log.read_bytes()[begin:].decode("utf-8", errors="replace").strip()
        raise BackendError(f"the controller failed: {words}", f"Its full output is in {log}.")
    if json:
        emit_json({"kind": "run", "study": study, "controller": process.pid, "log": str(log)})
    else:
        say(f"controller {process.pid} runs in the background; its output is in {log}")
        say(f"next: {then}")
