"""The program that runs every attempt, as executors start it."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.run_folders import locks, store, wrapper
from tests.processes import HANG_SECONDS, wait_for

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an attempt at bash code in `tmp_path`, which is the run folder and the working directory."""
    begun: list[subprocess.Popen[bytes]] = []

    def make(code: str, attempt: int = 1, named: int | None = None, **job: Any) -> subprocess.Popen[bytes]:
        record = {"argv": ("bash", "-c", code), "cwd": str(tmp_path), "env": {}, "grace_seconds": HANG_SECONDS, **job}
        program = store.write_job(tmp_path, store.JobRecord(attempt, **record))
        arguments = [str(program), str(tmp_path), str(attempt if named is None else named)]
        begun.append(subprocess.Popen([sys.executable, "-I", "-S", *arguments], start_new_session=True))
        return begun[-1]

    yield make
    for process in begun:
        process.kill()
        process.wait()


def ended(folder: Path) -> tuple[int, int | None, bool]:
    record = store.read_exit(folder)
    assert record is not None
    return record.exit_code, record.attempt, record.stopped


@pytest.mark.parametrize(("code", "recorded", "status"), [("exit 0", 0, 0), ("exit 9", 9, 9), ("kill -9 $$", -9, 137)])
def test_the_end_of_the_command_is_recorded_with_the_attempt(
    start: Start, tmp_path: Path, code: str, recorded: int, status: int
) -> None:
    assert start(f"echo working; {code}", attempt=3).wait(HANG_SECONDS) == status
    assert ended(tmp_path) == (recorded, 3, False)
    assert (tmp_path / "log.txt").read_text() == "working\n"
    assert not (tmp_path / "beat.json").exists()
    assert not locks.is_running(tmp_path)


def test_the_command_gets_its_environment_but_devices_only_from_the_executor(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    start('echo "$WORD $CUDA_VISIBLE_DEVICES $PWD"', env={"WORD": "hello", "CUDA_VISIBLE_DEVICES": "0"}).wait(
        HANG_SECONDS
    )
    assert (tmp_path / "log.txt").read_text() == f"hello 5 {tmp_path}\n"


def test_a_command_that_is_not_there_is_a_failure_with_its_name(start: Start, tmp_path: Path) -> None:
    assert start("", argv=("no-such-program",)).wait(HANG_SECONDS) == 127
    assert ended(tmp_path) == (127, 1, False)
    assert "no-such-program" in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_requests_reach_the_command_and_what_it_started(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    # The code is that of the command itself: bash does not count an interrupted `wait`.
    process = start("trap 'exit 9' TERM INT; sleep 600 & echo $! > child; touch ready; wait")
    wait_for((tmp_path / "ready").exists, process)
    process.send_signal(number)
    assert process.wait(HANG_SECONDS) == 9
    assert ended(tmp_path) == (9, 1, True)
    assert store.RunWatch(tmp_path).status().state == "waiting"
    assert wrapper.process_ref(int((tmp_path / "child").read_text())) is None


STUBBORN = "trap '' TERM; touch ready; while true; do sleep 0.1; done"


def test_a_command_that_ignores_the_request_is_killed_after_its_grace(start: Start, tmp_path: Path) -> None:
    process = start(STUBBORN, grace_seconds=0.5)
    wait_for((tmp_path / "ready").exists, process)
    process.terminate()
    assert process.wait(HANG_SECONDS) == 137
    assert ended(tmp_path) == (-9, 1, True)


def test_what_outlives_an_obedient_command_is_killed_after_its_grace(start: Start, tmp_path: Path) -> None:
    process = start(f"({STUBBORN}) & echo $! > child; wait", grace_seconds=0.5)
    wait_for((tmp_path / "ready").exists, process)
    child = wrapper.process_ref(int((tmp_path / "child").read_text()))
    assert child is not None
    process.terminate()
    process.wait(HANG_SECONDS)
    wait_for(lambda: not wrapper.is_process(child))
    assert ended(tmp_path)[2]


def test_quit_kills_at_once(start: Start, tmp_path: Path) -> None:
    process = start(STUBBORN, grace_seconds=10 * HANG_SECONDS)
    wait_for((tmp_path / "ready").exists, process)
    process.terminate()
    process.send_signal(signal.SIGQUIT)
    assert process.wait(HANG_SECONDS) == 137


def test_a_time_limit_ends_the_command_and_says_so(start: Start, tmp_path: Path) -> None:
    start("sleep 600", limit_seconds=0.3).wait(HANG_SECONDS)
    record = store.read_exit(tmp_path)
    assert record is not None
    assert (record.stopped, record.reason) == (True, wrapper.OUT_OF_TIME)


def test_an_attempt_that_was_replaced_does_not_begin(start: Start, tmp_path: Path) -> None:
    assert start("touch begun", attempt=2, named=1).wait(HANG_SECONDS) == wrapper.BUSY
    assert not (tmp_path / "begun").exists()
    assert store.read_exit(tmp_path) is None


def test_a_run_that_is_not_to_be_started_does_not_begin(start: Start, tmp_path: Path) -> None:
    store.request_stop(tmp_path)
    start("touch begun").wait(HANG_SECONDS)
    assert not (tmp_path / "begun").exists()
    assert ended(tmp_path)[2]


EXCLUSIVE = (
    "mkdir alone || { touch clash; exit 1; }; until [[ -e go ]]; do sleep 0.02; done; rmdir alone; echo x >> done"
)


def waits(process: subprocess.Popen[bytes]) -> bool:
    """Whether a wrapper waits for its turn: asleep until it is asked to end, with SIGCHLD alone still blocked."""
    status = dict(line.split(":\t") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    return status["State"].startswith("S") and int(status["SigBlk"], 16) == 1 << (signal.SIGCHLD - 1)


def test_a_second_start_of_one_attempt_waits_for_the_first(start: Start, tmp_path: Path) -> None:
    first, second = start(EXCLUSIVE), start(EXCLUSIVE)
    wait_for(lambda: (tmp_path / "alone").exists() and any(map(waits, (first, second))))
    (tmp_path / "go").touch()
    assert (first.wait(HANG_SECONDS), second.wait(HANG_SECONDS)) == (0, 0)
    assert not (tmp_path / "clash").exists()
    assert (tmp_path / "done").read_text() == "x\nx\n"


def kill(running: subprocess.Popen[bytes], *, guard: bool) -> None:
    """SIGKILL a wrapper, and perhaps what guards its command."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    guards = [int(one) for one in children if Path(f"/proc/{one}/cmdline").read_bytes().count(b"wrapper.py")]
    assert len(guards) == 1
    if guard:
        os.kill(guards[0], signal.SIGKILL)
    running.kill()
    running.wait()


def test_a_command_and_what_it_has_started_die_with_their_wrapper(start: Start, tmp_path: Path) -> None:
    first = start("trap '' TERM; sleep 600 & touch begun; wait")
    wait_for((tmp_path / "begun").exists, first)
    kill(first, guard=False)
    wait_for(lambda: not locks.is_running(tmp_path))
    assert start("exit 0", attempt=2).wait(HANG_SECONDS) == 0


def test_what_a_killed_wrapper_leaves_behind_keeps_the_folder(start: Start, tmp_path: Path) -> None:
    first = start(EXCLUSIVE)
    wait_for((tmp_path / "alone").exists, first)
    kill(first, guard=True)
    assert locks.is_running(tmp_path)
    assert store.read_exit(tmp_path) is None
    second = start(EXCLUSIVE, attempt=2)
    wait_for(lambda: waits(second))
    (tmp_path / "go").touch()
    assert second.wait(HANG_SECONDS) == 0
    assert not (tmp_path / "clash").exists()
    assert (tmp_path / "done").read_text() == "x\nx\n"


@pytest.mark.parametrize("hours", [0, -5, 5], ids=["clock", "clock-set-back", "clock-set-forward"])
@pytest.mark.parametrize(("age", "runs"), [(0, True), (30, True), (90, False)])
def test_a_beat_from_elsewhere_counts_until_it_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, runs: bool, hours: float
) -> None:
    beat = tmp_path / "beat.json"
    beat.write_text(json.dumps({"attempt": 1, "namespace": "pid:[1]", "process": "7 7 another-boot", "command": ""}))
    os.utime(beat, (time.time() - age,) * 2)
    now = time.time
    monkeypatch.setattr(wrapper.time, "time", lambda: now() + 3600 * hours)
    assert locks.is_running(tmp_path) is runs


def test_a_beat_from_here_counts_as_long_as_its_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        gone = f"1 1 {wrapper.boot_id()}"
        beat = {"namespace": wrapper.pid_namespace(), "process": gone, "command": wrapper.process_ref(process.pid)}
        (tmp_path / "beat.json").write_text(json.dumps(beat))
        assert locks.is_running(tmp_path)
        process.kill()
    assert not locks.is_running(tmp_path)


def test_it_needs_no_more_than_python_3_10() -> None:
    text = Path(wrapper.__file__).read_text(encoding="utf-8")
    imported = [node for node in ast.walk(ast.parse(text, feature_version=(3, 10))) if isinstance(node, ast.Import)]
    assert imported
    assert {alias.name for node in imported for alias in node.names} <= sys.stdlib_module_names
    froms = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert {(node.module or "").partition(".")[0] for node in froms} <= sys.stdlib_module_names


LINKED = (".clock", ".launch.lock", ".lock", ".submit.lock", ".stop")


def test_a_look_leaves_a_strangers_folder_as_it_was(tmp_path: Path) -> None:
    mine, run = tmp_path / "mine.txt", tmp_path / "run"
    mine.write_text("keep")
    run.mkdir()
    for name in LINKED:
        (run / name).symlink_to(mine)
    (run / "beat.json").write_text('{"process": "1 1 elsewhere", "namespace": "other"}')
    os.utime(run / "beat.json", (1, 1))
    before = sorted(run.iterdir())
    assert store.RunWatch(run).status().state == "waiting"
    assert (sorted(run.iterdir()), mine.read_text()) == (before, "keep")


@pytest.mark.parametrize("name", [".launch.lock", ".submit.lock", ".stop"])
def test_no_file_of_ours_is_made_through_a_link(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")

    def write() -> None:
        with locks.submitting(tmp_path):
            wrapper.take_lock(tmp_path)
            store.request_stop(tmp_path)

    with pytest.raises(OSError, match=name):
        write()
    assert not (tmp_path / "elsewhere").exists()


def test_a_link_in_the_place_of_the_lock_names_no_holder(tmp_path: Path) -> None:
    with (tmp_path / "open.txt").open("w") as mine:
        (tmp_path / ".launch.lock").symlink_to(tmp_path / "open.txt")
        with subprocess.Popen(["sleep", "600"], pass_fds=(mine.fileno(),)) as process:
            assert locks.holders(tmp_path) == ()
            process.kill()
