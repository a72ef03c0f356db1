"""`ClusterExecutor` over an engine in this process: what it concludes from a run folder and from the engine's words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.executors import Handle, Job, Seen, cluster, running, stop_runs
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor, EngineSilent
from isocompute_sdk.run_folders import locks, store, wrapper
from isocompute_sdk.training.backend import Launch, Needs
from tests.processes import HANG_SECONDS, Clock, wait_for


@dataclass
class Processes:
    """An engine whose jobs are processes of this one; what it says of them can be changed."""

    name: str = "processes"
    python: str = sys.executable
    silent: bool = False
    full: bool = False
    deaf: bool = False
    """Whether a job that is asked to end does not hear it."""
    accepts: bool = True
    """Whether jobs start."""
    jobs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])
    says: dict[str, Seen] = field(default_factory=dict[str, Seen])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    folders: set[Path] = field(default_factory=set[Path])
    asked: int = 0

    def check(self, needs: Sequence[Needs]) -> None:
        pass

    def room(self, job: Job) -> bool:
        self.answer()
        return not self.full

    def find(self, job: Job, attempt: int) -> str | None:
        self.answer()
        ref = self.labels.get(job.label(attempt))
        return ref if ref is not None and self.look([ref])[ref].state in ("waiting", "running") else None

    def submit(self, job: Job, attempt: int, command: Sequence[str]) -> str:
        self.answer()
        ref = str(len(self.labels))
        self.folders.add(job.launch.folder)
        if self.accepts:
            self.jobs[ref] = subprocess.Popen(command, start_new_session=True)
        self.labels[job.label(attempt)] = ref
        return ref

    def look(self, refs: Sequence[str]) -> Mapping[str, Seen]:
        self.asked += 1
        if self.silent:
            return dict.fromkeys(refs, Seen("unknown"))
        return {ref: self.says.get(ref) or self.seen(ref) for ref in refs}

    def seen(self, ref: str) -> Seen:
        process = self.jobs.get(ref)
        if process is None:
            return Seen("waiting", reason="PENDING")
        code = process.poll()
        return Seen("running") if code is None else Seen("failed" if code else "finished", code)

    def end(self, ref: str, *, at_once: bool) -> None:
        self.answer()
        if self.deaf and not at_once:
            return
        if ref in self.jobs and self.jobs[ref].poll() is None:
            self.jobs[ref].send_signal(signal.SIGQUIT if at_once else signal.SIGTERM)
        elif ref not in self.jobs:
            self.says[ref] = Seen("stopped", reason="CANCELLED")

    def answer(self) -> None:
        if self.silent:
            raise EngineSilent("down")


@pytest.fixture
def engine() -> Iterator[Processes]:
    made = Processes()
    yield made
    for leader in filter(None, (process(folder, "command") for folder in made.folders)):
        os.killpg(leader, signal.SIGKILL)
    for started_job in made.jobs.values():
        started_job.kill()
        started_job.wait()


def executor(engine: Processes, settle_seconds: float = 0.2) -> ClusterExecutor:
    return ClusterExecutor(engine, poll_seconds=0.02, ask_seconds=0, settle_seconds=settle_seconds, grace_seconds=0.3)


def job(folder: Path, script: str = "sleep 600") -> Job:
    folder.mkdir(exist_ok=True)
    return Job(folder.name, Launch(folder, (), ("bash", "-c", script)), folder)


def started(made: ClusterExecutor, job: Job, attempt: int = 1) -> Handle:
    handle = made.submit(job, attempt)
    assert handle is not None
    return handle


def state(made: ClusterExecutor, handle: Handle) -> str:
    return made.poll([handle])[0].state


def process(folder: Path, part: str) -> int | None:
    beat = wrapper.read_json(folder / wrapper.BEAT_FILE) or {}
    return locks.find_process(str(beat.get(part)))


def kill_wrapper(folder: Path, *, guard: bool) -> int:
    """SIGKILL the wrapper of a run, and perhaps its guard, once its command runs; returns the command's process id."""
    wait_for(lambda: process(folder, "command") is not None)
    leader, command = process(folder, "process"), process(folder, "command")
    assert leader is not None
    assert command is not None
    started_by_it = set(map(int, Path(f"/proc/{leader}/task/{leader}/children").read_text().split()))
    (its_guard,) = started_by_it - {command}
    if guard:
        os.kill(its_guard, signal.SIGKILL)
    os.kill(leader, signal.SIGKILL)
    return command


def test_a_training_dies_with_its_wrapper_and_is_started_again(engine: Processes, tmp_path: Path) -> None:
    made = executor(engine)
    handle = started(made, job(tmp_path / "run"))
    kill_wrapper(tmp_path / "run", guard=False)
    wait_for(lambda: state(made, handle) == "stopped")
    assert not locks.is_running(tmp_path / "run")
    second = started(made, job(tmp_path / "run", "exit 0"), 2)
    wait_for(lambda: state(made, second) == "finished")


def test_the_folder_speaks_first_and_the_engine_is_not_asked(engine: Processes, tmp_path: Path) -> None:
    made = executor(engine)
    handle = started(made, job(tmp_path / "run", "exit 3"))
    wait_for(lambda: store.read_exit(tmp_path / "run") is not None)
    engine.asked = 0
    seen = made.poll([handle])[0]
    assert (seen.state, seen.exit_code, engine.asked) == ("failed", 3, 0)


def test_the_same_attempt_is_submitted_once_and_adopted_by_another_controller(
    engine: Processes, tmp_path: Path
) -> None:
    one = started(executor(engine), job(tmp_path / "run"))
    assert started(executor(engine), job(tmp_path / "run")).started == one.started
    adopted = executor(engine).adopt(job(tmp_path / "run"))
    assert adopted is not None
    assert adopted.started == one.started
    assert len(engine.labels) == 1


def test_a_job_handed_over_without_a_note_is_found_by_its_name(engine: Processes, tmp_path: Path) -> None:
    one = started(executor(engine), job(tmp_path / "run"))
    (tmp_path / "run" / store.STARTED_FILE).unlink()
    adopted = executor(engine).adopt(job(tmp_path / "run"))
    assert adopted is not None
    assert adopted.started == one.started


def test_silence_starts_nothing_and_ends_with_the_engines_next_answer(engine: Processes, tmp_path: Path) -> None:
    engine.accepts = False
    handle = started(executor(engine), job(tmp_path / "run"))
    (tmp_path / "run" / store.STARTED_FILE).unlink()
    engine.silent = True
    made = executor(engine)
    adopted = made.adopt(job(tmp_path / "run"))
    assert adopted is not None
    assert state(made, adopted) == "unknown"
    again = made.submit(job(tmp_path / "run"), 2)
    assert again is not None
    assert state(made, again) == "unknown"
    engine.silent = False
    assert state(made, adopted) == "waiting"
    assert store.read_started(tmp_path / "run") == handle.started


def test_without_room_no_attempt_begins(engine: Processes, tmp_path: Path) -> None:
    engine.full = True
    assert executor(engine).submit(job(tmp_path / "run"), 1) is None
    assert store.last_attempt(tmp_path / "run") == 0


def test_a_lost_attempt_is_given_up_after_a_while_and_another_one_starts(engine: Processes, tmp_path: Path) -> None:
    made = executor(engine)
    engine.accepts = False
    handle = started(made, job(tmp_path / "run"))
    engine.says["0"] = Seen("failed", reason="NODE_FAIL")
    assert state(made, handle) == "running"
    wait_for(lambda: state(made, handle) == "stopped")
    engine.accepts = True
    second = started(made, job(tmp_path / "run"), 2)
    assert second.started is not None
    assert (second.started.attempt, second.started.ref) == (2, "1")
    assert not store.stop_requested(tmp_path / "run")


def test_an_end_that_the_engine_reports_is_not_believed_while_the_training_lives(
    engine: Processes, tmp_path: Path
) -> None:
    made = executor(engine, settle_seconds=0)
    handle = started(made, job(tmp_path / "run"))
    command = kill_wrapper(tmp_path / "run", guard=True)
    engine.jobs["0"].wait(HANG_SECONDS)
    assert state(made, handle) == "running"
    again = made.submit(job(tmp_path / "run"), 2)
    assert again is not None
    assert again.started == handle.started
    os.killpg(command, signal.SIGKILL)
    wait_for(lambda: state(made, handle) == "stopped")


@pytest.mark.parametrize("script", ["sleep 600", "trap '' TERM; sleep 600 & wait; sleep 600"])
def test_cancel_ends_a_training_whose_wrapper_was_killed(script: str, engine: Processes, tmp_path: Path) -> None:
    made = executor(engine)
    handle = started(made, job(tmp_path / "run", script))
    kill_wrapper(tmp_path / "run", guard=True)
    engine.jobs["0"].wait(HANG_SECONDS)
    made.cancel(handle)
    wait_for(lambda: state(made, handle) == "stopped")
    assert not locks.is_running(tmp_path / "run")


@pytest.mark.parametrize(
    ("said", "then", "ended_for_good"),
    [
        (Seen("stopped", reason="CANCELLED"), "stopped", True),
        (None, "stopped", False),  # its time limit
        (Seen("waiting", reason="PENDING (BeginTime)"), "waiting", False),
    ],
)
def test_a_run_that_was_ended_by_the_engine_stays_ended_only_where_somebody_cancelled_it(
    engine: Processes, tmp_path: Path, said: Seen | None, then: str, ended_for_good: bool
) -> None:
    made = executor(engine)
    handle = started(made, job(tmp_path / "run"))
    wait_for(lambda: process(tmp_path / "run", "command") is not None)
    engine.jobs["0"].send_signal(signal.SIGTERM)
    engine.says["0"] = Seen("running", reason="COMPLETING")
    wait_for(lambda: store.read_exit(tmp_path / "run") is not None)
    assert state(made, handle) == "running"
    if said is None:
        del engine.says["0"]
    else:
        engine.says["0"] = said
    wait_for(lambda: state(made, handle) == then)
    assert store.stop_requested(tmp_path / "run") is ended_for_good


def test_a_cancelled_run_that_waits_in_the_queue_ends(engine: Processes, tmp_path: Path) -> None:
    made = executor(engine)
    engine.accepts = False
    handle = started(made, job(tmp_path / "run"))
    assert state(made, handle) == "waiting"
    made.cancel(handle)
    assert state(made, handle) == "stopped"


def test_a_job_that_did_not_hear_the_request_is_ended_when_its_time_is_over(
    engine: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(cluster, "time", clock)
    made = ClusterExecutor(engine, ask_seconds=0, settle_seconds=0, grace_seconds=1800)
    handle = started(made, job(tmp_path / "run"))
    wait_for(lambda: process(tmp_path / "run", "command") is not None)
    engine.deaf = True
    made.cancel(handle)
    assert state(made, handle) == "running"
    clock.pass_minutes(60)
    wait_for(lambda: state(made, handle) == "stopped")
    wait_for(lambda: not locks.is_running(tmp_path / "run"))


def test_a_wait_does_not_ask_the_engine_at_every_look(engine: Processes, tmp_path: Path) -> None:
    engine.accepts = False
    made = ClusterExecutor(engine, ask_seconds=HANG_SECONDS)
    handle = started(made, job(tmp_path / "run"))
    engine.asked = 0
    for _ in range(5):
        assert state(made, handle) == "waiting"
    assert engine.asked == 1


def test_stop_ends_no_job_that_carries_the_label_of_another_run(
    engine: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SECONDS_TO_APPEAR", 0.0)
    mine = started(executor(engine), job(tmp_path / "mine"))
    assert mine.started is not None
    wait_for(lambda: locks.is_running(tmp_path / "mine"))
    job(tmp_path / "strange")
    store.write_started(tmp_path / "strange", mine.started)
    stopped = stop_runs([tmp_path / "strange"], executor(engine))
    assert stopped.ended == ()
    assert locks.is_running(tmp_path / "mine")
    assert stop_runs([tmp_path / "mine"], executor(engine)).ended == (tmp_path / "mine",)
