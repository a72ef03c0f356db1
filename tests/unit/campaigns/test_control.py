"""One controller at a time."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.control import (
    CONTROL_FILE,
    CONTROLLER,
    Controller,
    controller_of,
    controlling,
    end_controller,
)
from isocompute_sdk.errors import BackendError

HOLD = """
import sys, time
from isocompute_sdk.campaigns.control import controlling
with controlling(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def held(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Controller]]:
    """Another process that controls a folder, and what the folder says of it."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        found = controller_of(folder)
        assert found is not None
        yield other, found


def test_a_second_controller_is_refused_and_told_who_has_the_folder_until_that_one_is_killed(tmp_path: Path) -> None:
    with held(tmp_path) as (other, found):
        assert (found.pid, found.host) == (other.pid, socket.gethostname())
        with pytest.raises(BackendError) as refused, controlling(tmp_path):
            pass
        for part in (str(other.pid), socket.gethostname(), found.since):
            assert part in refused.value.message
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert controller_of(tmp_path) is None
    with controlling(tmp_path):
        mine = controller_of(tmp_path)
        assert mine is not None
        assert mine.pid == os.getpid()
    assert controller_of(tmp_path) is None


def test_only_a_process_that_has_the_lock_open_is_ended(tmp_path: Path) -> None:
    with held(tmp_path) as (other, found):
        with subprocess.Popen(["sleep", "600"]) as stranger:
            for forged in (replace(found, pid=stranger.pid), replace(found, host="elsewhere")):
                (tmp_path / CONTROL_FILE).write_text(CONTROLLER.to_text(forged))
                with pytest.raises(BackendError, match=str(forged.pid)):
                    end_controller(tmp_path)
                assert (stranger.poll(), other.poll()) == (None, None)
            stranger.kill()
        (tmp_path / CONTROL_FILE).write_text(CONTROLLER.to_text(found))
        assert end_controller(tmp_path) == found
        assert other.wait() == -signal.SIGTERM
    assert end_controller(tmp_path) is None


def test_one_thread_may_enter_again_and_another_may_not(tmp_path: Path) -> None:
    refused: list[BackendError] = []

    def other() -> None:
        try:
            with controlling(tmp_path / "a"):
                pass
        except BackendError as error:
            refused.append(error)

    with controlling(tmp_path / "a", tmp_path / "b"):
        with controlling(tmp_path / "a"):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(refused) == 1
    other()
    assert len(refused) == 1


def test_a_lock_file_without_a_holder_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / CONTROL_FILE).write_text("half a rec")
    assert controller_of(tmp_path) is None
    with controlling(tmp_path):
        assert controller_of(tmp_path) is not None


def test_a_moment_in_which_somebody_looks_keeps_no_controller_out(tmp_path: Path) -> None:
    looking = os.open(tmp_path / CONTROL_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.02, os.close, [looking]).start()
    with controlling(tmp_path):
        assert controller_of(tmp_path) is not None
