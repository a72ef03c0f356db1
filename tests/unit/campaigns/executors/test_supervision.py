"""Runs that hang, are killed or fail alike, and a controller that is told to leave: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.executors import Job, LocalExecutor, Result, run_jobs, running, stop_runs
from isocompute_sdk.run_folders import locks, store, wrapper
from isocompute_sdk.specs import Supervision
from isocompute_sdk.training.backend import Launch
from tests.parameters import few
from tests.processes import HANG_SECONDS, Clock, wait_for

STEP = (
    '{"schema_version": 1, "kind": "step", "run_id": "r", "attempt": 1, "step": %s, "rollouts": %s, "tokens": 0, '
    '"wall_seconds": 0, "metrics": {"train_reward": 0.5}}'
)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of `run_jobs`, which looks for records and at health in every round."""
    made = Clock()
    monkeypatch.setattr(running, "time", made)
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(running, "CHECK_SECONDS", 0.0)
    return made


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """A job of bash code with its run folder as `$1`; `steps 1 2` records these update steps, `meet` waits for `go`.

    `meet 2` waits for `go2`.
    """

    def make(name: str, code: str, **more: object) -> Job:
        folder = tmp_path / name
        folder.mkdir()
        script = folder / "launch.sh"
        record = "printf '" + STEP + '\\n\' $step $step >> "$folder/metrics.jsonl"'
        steps = f'folder="$1"; steps() {{ for step in "$@"; do {record}; done; }}'
        steps += '; meet() { until [[ -e "$folder/go${1:-}" ]]; do sleep 0.02; done; }'
        script.write_text(f'set -euo pipefail\n{steps}\necho x >> "$1/starts"\n{code}\n')
        launch = Launch(folder, (script,), ("bash", str(script), str(folder)))
        return Job(name, launch, tmp_path, follow=store.RunWatch(folder), **more)  # type: ignore[arg-type]

    return make


def starts(one: Job) -> int:
    return lines(one, "starts")


def attempts(one: Job) -> int:
    """Attempts made, also those that have not come as far as to note their start."""
    return store.last_attempt(one.launch.folder)


def lines(one: Job, name: str = "metrics.jsonl") -> int:
    path = one.launch.folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def run(
    jobs: list[Job], parallel: int = 4, watch: Callable[[], None] | None = None, **rules: object
) -> tuple[Result, ...]:
    given = {"hung_after_minutes": 30, "hung_after_steps": 2, "retry_after_seconds": 0, **rules}
    executor = LocalExecutor(parallel, poll_seconds=0.02, grace_seconds=HANG_SECONDS)
    return run_jobs(executor, jobs, watch, Supervision.model_validate(given))


def test_a_run_that_hangs_is_retried_and_given_up_by_name_while_the_others_go_on(
    job: Callable[..., Job], clock: Clock
) -> None:
    saves = """trap 'sleep 0.2; echo x >> "$folder/saved"; exit 143' TERM; """
    hangs, works = job("hangs", saves + "steps 1 2 3; sleep 600 & wait"), job("works", "steps 1 2 3")

    silent = Counter[int]()

    def watch() -> None:
        if store.is_finished(works.launch.folder) and lines(hangs) == 3 * attempts(hangs):
            silent[attempts(hangs)] += 1
            # The record of a round is looked at in the next one. Once in each attempt: a run that is asked to end has
            # time to.
            clock.pass_minutes(31 * (silent[attempts(hangs)] == 3))

    given_up, finished = run([hangs, works], watch=watch, retries=1)
    assert (given_up.exit_code, finished.exit_code, finished.reason) == (None, 0, "")
    assert "hung" in given_up.reason
    assert (starts(hangs), starts(works)) == (2, 1)
    assert lines(hangs, "saved") == 2
    assert not locks.is_running(hangs.launch.folder)
    status = store.RunWatch(hangs.launch.folder).status()
    assert (status.state, status.message) == ("stopped", given_up.reason)


def test_a_run_that_hangs_once_goes_on(job: Callable[..., Job], clock: Clock) -> None:
    one = job("once", 'steps 1 2; [[ $(wc -l < "$1/starts") -gt 1 ]] || sleep 600; steps 3 4')
    (result,) = run([one], watch=lambda: clock.pass_minutes(31 * (attempts(one) == 1 and lines(one) == 2)), retries=1)
    assert (result.exit_code, result.reason, starts(one)) == (0, "", 2)
    assert store.RunWatch(one.launch.folder).status().message == ""


def test_a_slow_run_does_not_hang(job: Callable[..., Job], clock: Clock) -> None:
    # Records 20 minutes apart, at a least silence of 30: three of its own steps are 60.
    one = job("slow", "for i in 1 2 3; do steps $i; meet $i; done")
    seen = [0]

    def watch() -> None:
        # The record of a round is looked at in the next one.
        if lines(one) == len(seen) and seen.count(lines(one)) == 0:
            seen.append(lines(one))
        elif lines(one) == seen[-1] > 0 and not (go := one.launch.folder / f"go{seen[-1]}").exists():
            clock.pass_minutes(20 if seen[-1] < 3 else 50)
            go.touch()

    (result,) = run([one], watch=watch, hung_after_steps=3)
    assert (result.exit_code, starts(one)) == (0, 1)


def test_start_up_counts_as_silence_and_hanging_can_be_allowed(job: Callable[..., Job], clock: Clock) -> None:
    silent, patient = job("silent", "sleep 600"), job("patient", "meet")
    (given_up,) = run([silent], watch=lambda: clock.pass_minutes(31 * starts(silent)), retries=0)
    assert "hung" in given_up.reason

    def wait() -> None:
        clock.pass_minutes(1000 * starts(patient))
        if clock.ahead > 300_000:
            (patient.launch.folder / "go").touch()

    (result,) = run([patient], watch=wait, retries=0, hung_after_steps=None)
    assert (result.exit_code, starts(patient)) == (0, 1)


def test_a_killed_run_is_retried_after_a_growing_time_and_then_fails(job: Callable[..., Job]) -> None:
    both = [job(name, f'date +%s.%N >> "$1/times"; {how}') for name, how in (("a", "kill -KILL $$"), ("b", "exit 137"))]
    for one, result in zip(both, run(both, retries=2, retry_after_seconds=0.2), strict=True):
        assert result.exit_code == (-9 if one.name == "a" else 137)
        assert result.reason
        times = [float(line) for line in (one.launch.folder / "times").read_text().split()]
        assert len(times) == 3
        assert times[1] - times[0] >= 0.2
        assert times[2] - times[1] >= 0.4


def test_a_run_that_fails_by_itself_is_not_retried(job: Callable[..., Job]) -> None:
    one = job("fails", "steps 1; exit 3")
    (result,) = run([one], retries=5)
    assert (result.exit_code, result.reason, starts(one)) == (3, "", 1)


@pytest.mark.slow
def test_a_time_limit_is_retried_a_bounded_number_of_times_even_with_progress(job: Callable[..., Job]) -> None:
    one = job("long", 'steps "$(wc -l < "$1/starts")"; sleep 600', limit_seconds=0.25)
    (result,) = run([one], retries=2, hung_after_steps=None)
    assert "time limit" in result.reason
    assert attempts(one) == 3


def test_a_run_that_is_taken_away_goes_on_as_long_as_it_gets_further(job: Callable[..., Job]) -> None:
    # Its own wrapper ends it at each of four starts, as an engine that wants the machine would.
    # A shell may lose a signal while it starts a command: each is short.
    wait = "kill -TERM $PPID; for _ in {1..6000}; do sleep 0.1; done"
    code = f'n=$(wc -l < "$1/starts"); steps $n; [[ $n -gt 4 ]] || {{ {wait}; }}'
    one = job("preempted", code)
    (result,) = run([one], retries=0, hung_after_steps=None)
    assert (result.exit_code, starts(one)) == (0, 5)
    stuck = job("stuck", wait)
    (result,) = run([stuck], retries=1, hung_after_steps=None)
    assert (result.exit_code, starts(stuck)) == (None, 2)
    assert result.reason


def test_a_run_that_is_not_worth_its_time_is_ended_and_not_started_again(job: Callable[..., Job]) -> None:
    one = job("idle", "steps 1 2; sleep 600", check=lambda: "ended early [nothing-learned]" if starts(one) else "")
    (result,) = run([one], retries=5, hung_after_steps=None)
    assert (result.exit_code, result.reason, starts(one)) == (None, "ended early [nothing-learned]", 1)


def test_runs_that_fail_alike_before_their_first_record_end_the_rest(job: Callable[..., Job]) -> None:
    jobs = [job(f"same{i}", 'echo "no module named reward" >&2; exit 1') for i in range(5)]
    results = run(jobs, parallel=1)
    assert [starts(one) for one in jobs] == [1, 1, 0, 0, 0]
    assert [result.exit_code for result in results] == [1, 1, None, None, None]
    assert all("same0 and same1" in result.reason for result in results[2:])


def test_runs_that_fail_after_a_record_or_differently_end_no_other(job: Callable[..., Job]) -> None:
    jobs = [job(f"alike{i}", 'steps 1; echo "out of memory" >&2; exit 1') for i in range(3)]
    run(jobs, parallel=1)
    assert [starts(one) for one in jobs] == [1, 1, 1]


PROGRAM = """
import json, sys
from pathlib import Path
from isocompute_sdk.campaigns.executors import Job, Leaving, LocalExecutor, run_jobs
from isocompute_sdk.specs import Supervision
from isocompute_sdk.training.backend import Launch
root = Path(sys.argv[1])
jobs = [Job(n, Launch(root / n, (), ("bash", str(root / n / "launch.sh"), str(root / n))), root) for n in sys.argv[3:]]
try:
    run_jobs(LocalExecutor(1, poll_seconds=0.02), jobs, None, Supervision(on_signal=sys.argv[2]))
except Leaving as left:
    print(json.dumps([left.signal.name, left.detached, left.runs, left.not_started]), flush=True)
    raise
"""


@pytest.mark.parametrize(("number", "policy"), few([(signal.SIGHUP, "detach"), (signal.SIGTERM, "stop")], 1))
def test_a_signal_stops_or_detaches_and_says_which(
    job: Callable[..., Job], tmp_path: Path, number: signal.Signals, policy: str
) -> None:
    one = job("one", "meet")
    two = job("two", "true")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), policy, "one", "two"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as controller:
        wait_for(lambda: starts(one), controller)
        controller.send_signal(number)
        out, _ = controller.communicate(timeout=HANG_SECONDS)
    assert controller.returncode == 128 + number
    assert json.loads(out) == [number.name, policy == "detach", ["one"], ["two"]]
    assert locks.is_running(one.launch.folder) is (policy == "detach")
    if policy == "detach":
        (one.launch.folder / "go").touch()
        results = run([one, two])
        assert [result.exit_code for result in results] == [0, 0]
        assert starts(one) == 1


def test_a_command_of_which_a_killed_wrapper_left_no_record_can_be_stopped(job: Callable[..., Job]) -> None:
    one = job("one", "sleep 600 & wait")
    executor = LocalExecutor()
    handle = executor.submit(one, 1)
    assert handle is not None
    beat = one.launch.folder / "beat.json"
    wait_for(lambda: starts(one))
    leader = int(json.loads(beat.read_text())["process"].split()[0])
    os.kill(leader, signal.SIGKILL)
    wait_for(lambda: wrapper.process_ref(leader) is None)
    assert executor.poll([handle])[0].state == "running"
    beat.unlink()
    assert locks.is_running(one.launch.folder)
    assert stop_runs([one.launch.folder]).ended == (one.launch.folder,)
    assert not locks.is_running(one.launch.folder)


def test_a_script_that_closes_descriptors_keeps_the_lock_when_its_wrapper_is_killed(
    job: Callable[..., Job],
) -> None:
    one = job("one", 'exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; touch "$1/closed"; sleep 600')
    executor = LocalExecutor()
    handle = executor.submit(one, 1)
    assert handle is not None
    wait_for((one.launch.folder / "closed").exists)
    leader = int(json.loads((one.launch.folder / "beat.json").read_text())["process"].split()[0])
    os.kill(leader, signal.SIGKILL)
    wait_for(lambda: wrapper.process_ref(leader) is None)
    (one.launch.folder / "beat.json").unlink()
    assert executor.poll([handle])[0].state == "running"
    executor.cancel(handle)
    wait_for(lambda: executor.poll([handle])[0].state != "running")
    assert not locks.is_running(one.launch.folder)
