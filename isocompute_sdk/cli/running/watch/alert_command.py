"""The command of `isocompute watch --on-alert`: it gets alerts as data, never as part of a command line."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING

from isocompute_sdk.cli.shared.output import OUTPUT_SCHEMA_VERSION
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from isocompute_sdk.health.alerts import Alert

SECONDS = 60.0
"""Longest time a command may take: watching stops meanwhile."""
LONGEST_VARIABLE = 4000
"""Characters of an environment variable: the system limits them, and run names come from outside."""
PREFIX = "ISOCOMPUTE_ALERT_"


def split_command(text: str) -> list[str]:
    """The words of a command as typed; no shell is involved.

    Raises:
        SpecError: an empty text, or a quote that is not closed.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SpecError(f"--on-alert {text!r}: {error}", "Close the quote.") from error
    if not words:
        raise SpecError("--on-alert is empty; accepted: a command with its arguments", "For example 'notify-send'.")
    return words


def run_command(words: list[str], alert: Alert) -> str | None:
    """Run a command with an alert as JSON on its input and in variables `ISOCOMPUTE_ALERT_*`; the problem, or None.

    Its output goes to stderr, so that stdout holds alerts only.
    """
    fields = alert.to_dict()
    body = json.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **fields}, allow_nan=False) + "\n"
    variables = {
        PREFIX + name.upper(): _variable(fields[name])
        for name in ("code", "severity", "run_id", "folder", "step", "rollouts", "message")
    }
    try:
        # A group of its own, so that what a shell has started ends with it.
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=2,
            text=True,
            encoding="utf-8",
            env={**os.environ, **variables},
            start_new_session=True,
        )
    except OSError as error:
        return f"{words[0]} cannot be run: {error.strerror}"
    try:
        process.communicate(body, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{words[0]} took longer than {SECONDS:.0f} s and was stopped"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if process.returncode == 0 else f"{words[0]} ended with exit code {process.returncode}"


def _variable(value: object) -> str:
    text = "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
    return text.replace("\0", "")[:LONGEST_VARIABLE]
