"""What the tests themselves rely on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import wait_for

SIGNALS = "import signal; print(*(int(signal.getsignal(s) is signal.SIG_IGN) for s in (signal.SIGHUP, signal.SIGINT)))"


def test_a_program_hears_hangup_and_interrupt_however_the_suite_was_started() -> None:
    assert subprocess.run([sys.executable, "-c", SIGNALS], capture_output=True, check=True).stdout == b"0 0\n"


def test_a_wait_for_a_process_that_died_fails_at_once_with_its_words() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
        pytest.raises(AssertionError, match="status 1: no such model"),
    ):
        wait_for(lambda: False, process)
