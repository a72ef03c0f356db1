"""Waiting for processes: at files and pipes, never for a time."""

from __future__ import annotations

import importlib.util
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

HANG_SECONDS = 600.0
"""Ends a test that hangs; nothing that works takes as long on any machine."""
QUICK_SECONDS = 300.0
"""The same for tests of the default suite, which take seconds, wherever they wait."""

T = TypeVar("T")


def wait_for(condition: Callable[[], T], process: subprocess.Popen[Any] | None = None) -> T:
    """Wait until `condition` holds and return its value; fail at once if `process` has ended before."""
    limit, pause = time.monotonic() + HANG_SECONDS, 0.01
    while True:
        ended = process is not None and process.poll() is not None
        if found := condition():
            return found
        if ended:
            assert process is not None
            said = "" if process.stderr is None else process.stderr.read()
            raise AssertionError(f"the process ended first, with status {process.returncode}: {said!s}")
        assert time.monotonic() < limit, f"hung for {HANG_SECONDS:g} s"
        time.sleep(pause)
        pause = min(1.3 * pause, 0.1)


def ok(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The same, which must have succeeded."""
    assert done.returncode == 0, done.stderr
    return done


def need(package: str, *, whole_module: bool = False) -> None:
    """Skip without a package that processes of the test import; this one does not spend seconds on it."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=whole_module)


class Clock:
    """Replaces the module `time` in code under test: the real clock, which a test can put forward."""

    sleep = staticmethod(time.sleep)
    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def pass_minutes(self, minutes: float) -> None:
        self.ahead += 60 * minutes
