"""Runs as local processes: real ones, killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.campaigns.executors import Job, LocalExecutor, run_jobs, running, stop_runs
from isocompute_sdk.errors import BackendError
from isocompute_sdk.run_folders import locks, store, wrapper
from isocompute_sdk.specs import Supervision
from isocompute_sdk.training.backend import Launch
from tests.processes import HANG_SECONDS, wait_for


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """A job that runs bash code in `tmp_path/work`, with its run folder as `$1`."""

    def make(name: str, code: str, **env: str) -> Job:
        folder, work = tmp_path / name, tmp_path / "work"
        folder.mkdir()
        work.mkdir(exist_ok=True)
        script = folder / "launch.sh"
        script.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{code}\n")
        return Job(name, Launch(folder, (script,), ("bash", str(script), str(folder)), env), work)

    return make


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


QUICK = LocalExecutor(max_parallel=2, poll_seconds=0.02, grace_seconds=HANG_SECONDS)


def test_jobs_run_in_their_folder_with_environment_and_log(job: Callable[..., Job]) -> None:
    one = job("one", 'echo "$GREETING from $PWD"; echo trouble >&2', GREETING="hello")
    (result,) = run_jobs(QUICK, [one])
    assert (result.exit_code, result.started) == (0, True)
    assert lines(one.launch.folder / "log.txt") == [f"hello from {one.cwd}", "trouble"]
    assert store.RunWatch(one.launch.folder).status().state == "finished"


def test_a_failed_job_has_its_exit_code_and_stops_no_other(job: Callable[..., Job]) -> None:
    jobs = [job("bad", "exit 3"), job("killed", "kill -KILL $$"), job("good", "true")]
    results = run_jobs(QUICK, jobs, supervision=Supervision(retries=0))
    assert [result.exit_code for result in results] == [3, -9, 0]
    status = store.RunWatch(results[0].job.launch.folder).status()
    assert status.state == "failed"
    assert "exit code 3" in status.message


def test_a_finished_job_is_not_started_again_and_a_failed_one_is(job: Callable[..., Job]) -> None:
    jobs = [job("good", 'echo x >> "$1/starts"'), job("bad", 'echo x >> "$1/starts"; exit 1')]
    run_jobs(QUICK, jobs)
    again = run_jobs(QUICK, jobs)
    assert [(result.exit_code, result.started) for result in again] == [(0, False), (1, True)]
    assert [len(lines(one.launch.folder / "starts")) for one in jobs] == [1, 2]


def test_no_more_than_so_many_run_at_a_time(job: Callable[..., Job], tmp_path: Path) -> None:
    # Of four jobs two pairs: each ends once both of its pair have started.
    both = f'until (($(grep -c + "{tmp_path}/events") >= STARTED)); do sleep 0.02; done'
    counted = f'echo + >> "{tmp_path}/events"; {both}; echo - >> "{tmp_path}/events"'
    run_jobs(QUICK, [job(f"job{i}", counted, STARTED=str(2 * (i // 2) + 2)) for i in range(4)])
    running = highest = 0
    for event in lines(tmp_path / "events"):
        running += 1 if event == "+" else -1
        highest = max(highest, running)
    assert (running, highest) == (0, 2)


def test_processes_share_the_cores_unless_told_otherwise(
    job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    one, two = job("one", 'echo "$OMP_NUM_THREADS"'), job("two", 'echo "$OMP_NUM_THREADS"', OMP_NUM_THREADS="7")
    run_jobs(LocalExecutor(max_parallel=10_000, poll_seconds=0.02), [one, two])
    assert lines(one.launch.folder / "log.txt") == ["1"]
    assert lines(two.launch.folder / "log.txt") == ["7"]


def test_an_interrupt_stops_every_job_and_a_second_start_finishes_them(job: Callable[..., Job]) -> None:
    code = (
        'trap \'echo asked >> "$1/starts"; exit 1\' TERM; echo x >> "$1/starts"; [[ -e "$1/go" ]] || sleep 600 & wait'
    )
    jobs = [job("one", code), job("two", code)]

    def interrupt() -> None:
        if all(lines(one.launch.folder / "starts") for one in jobs):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(QUICK, jobs, interrupt)
    assert [lines(one.launch.folder / "starts") for one in jobs] == [["x", "asked"]] * 2
    assert not any(locks.is_running(one.launch.folder) for one in jobs)
    for one in jobs:
        (one.launch.folder / "go").touch()
    assert [result.exit_code for result in run_jobs(QUICK, jobs)] == [0, 0]


def test_a_job_that_ignores_the_request_is_killed_with_its_children(job: Callable[..., Job]) -> None:
    stubborn = job("stubborn", "trap '' TERM; sleep 600 & echo $! > \"$1/child\"; while true; do sleep 1; done")

    def interrupt() -> None:
        if lines(stubborn.launch.folder / "child"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(LocalExecutor(max_parallel=1, poll_seconds=0.02, grace_seconds=0.3), [stubborn], interrupt)
    assert not locks.is_running(stubborn.launch.folder)


PROGRAM = """
import sys
from pathlib import Path
from typing import Any
from isocompute_sdk.training.backend import Launch
from tests.processes import HANG_SECONDS, wait_for
from isocompute_sdk.campaigns.executors import Job, LocalExecutor, run_jobs
folder = Path(sys.argv[1])
launch = Launch(folder, (), ("bash", str(folder / "launch.sh"), str(folder)))
watch = (folder / sys.argv[2]).touch
(result,) = run_jobs(LocalExecutor(max_parallel=1, poll_seconds=0.02), [Job("one", launch, folder)], watch)
print(result.exit_code, result.started)
"""
COUNTED = 'echo x >> "$1/starts"; while [[ ! -e "$1/go" ]]; do sleep 0.05; done; echo done >> "$1/starts"'


def start(folder: Path, watched: str = "watched") -> subprocess.Popen[str]:
    """Run the job in another process, which makes the file `watched` once it waits for the job."""
    command = [sys.executable, "-c", PROGRAM, str(folder), watched]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_job_outlives_a_killed_executor_and_is_not_started_twice(job: Callable[..., Job]) -> None:
    folder = job("one", COUNTED).launch.folder
    with start(folder) as program:
        wait_for(lambda: lines(folder / "starts") == ["x"], program)
        os.kill(program.pid, signal.SIGKILL)
    assert locks.is_running(folder)
    with start(folder, "adopted") as second:
        wait_for((folder / "adopted").exists, second)
        assert lines(folder / "starts") == ["x"]
        (folder / "go").touch()
        assert second.communicate(timeout=HANG_SECONDS)[0].split() == ["0", "True"]
    assert lines(folder / "starts") == ["x", "done"]


def test_what_cannot_be_started_is_one_clear_error(job: Callable[..., Job], tmp_path: Path) -> None:
    one = job("one", "true")
    missing = Job("one", Launch(one.launch.folder, (), ("no-such-program",)), tmp_path)
    with pytest.raises(BackendError, match="no-such-program"):
        run_jobs(QUICK, [missing])
    with pytest.raises(BackendError):
        run_jobs(QUICK, [one, Job("two", one.launch, one.cwd)])
    with pytest.raises(BackendError, match="max_parallel = 0"):
        LocalExecutor(max_parallel=0)


class SignalledOnStart(LocalExecutor):
    """Receives SIGTERM when its job has a process that nothing has noted yet."""

    def _process(self, *arguments: Any) -> subprocess.Popen[bytes]:
        process = super()._process(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)
        return process


def test_sigterm_while_a_job_starts_leaves_no_process(job: Callable[..., Job]) -> None:
    one = job("one", "sleep 600")
    with pytest.raises(SystemExit):
        run_jobs(SignalledOnStart(max_parallel=1, poll_seconds=0.02, grace_seconds=HANG_SECONDS), [one])
    assert not locks.is_running(one.launch.folder)


def test_stop_ends_no_process_that_does_not_hold_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SECONDS_TO_APPEAR", 0.0)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as mine:
        ref = wrapper.process_ref(mine.pid)
        store.write_started(tmp_path, store.Started(1, "local", str(ref)))
        beat = {"attempt": 1, "process": ref, "command": ref, "namespace": wrapper.pid_namespace()}
        (tmp_path / "beat.json").write_text(json.dumps(beat))
        stopped = stop_runs([tmp_path])
        assert mine.poll() is None
        mine.kill()
    assert (stopped.ended, stopped.foreign) == ((), (tmp_path,))
