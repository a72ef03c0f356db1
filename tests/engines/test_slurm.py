"""Campaigns on a real Slurm of one node."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import Job, stop_runs
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor
from isocompute_sdk.campaigns.executors.slurm import SlurmEngine, SlurmSpec
from isocompute_sdk.errors import BackendError
from isocompute_sdk.run_folders import store
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import Launch, Needs
from tests.killing import check
from tests.processes import HANG_SECONDS, wait_for
from tests.random_kills import STUDY, Place, survive

pytestmark = pytest.mark.slow
EXECUTOR = "cluster(SlurmEngine(SlurmSpec(partition='main', cpus=1)))"


def executor(**options: object) -> ClusterExecutor:
    engine = SlurmEngine(SlurmSpec.model_validate({"cpus": 1, **options}))
    return ClusterExecutor(engine, poll_seconds=0.2, ask_seconds=0.2, settle_seconds=1)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout


def queue() -> list[str]:
    return run("squeue", "--noheader", "--format=%i").split()


def ref(folder: Path) -> str:
    started = store.read_started(folder)
    assert started is not None
    return started.ref


def test_fifty_kills_of_each_part_change_no_record(slurm: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    survive(tmp_path, EXECUTOR, expected, gpus=0)


def test_runs_have_gpus_of_their_own_and_names_are_only_names(
    slurm: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    place = Place(tmp_path / "a 'b' $(touch x); %j", EXECUTOR, seconds=2)
    place.finish()
    check(place, expected)
    assert {device for _, device in place.used()} == {":0", ":1"}
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({}, Needs(3)),
        ({"gpus_per_node": 1}, Needs(2)),
        ({}, Needs(2, nodes=2, ray=True)),
        ({"cpus": 9}, Needs()),
        ({"mem": "9999G"}, Needs()),
        ({"partition": "nowhere"}, Needs()),
        ({"partition": "short", "time": "1:00:00"}, Needs()),
        ({"sbatch": {"constraint": "a100"}}, Needs()),
        ({"sbatch": {"no-such-flag": True}}, Needs()),
    ],
)
def test_what_can_never_start_is_refused_before_anything_is_written(
    options: dict[str, object], needs: Needs, slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = registry.load("simulator")
    monkeypatch.setattr(type(backend), "needs", lambda self, run: needs)
    with pytest.raises(BackendError):
        carry_out(STUDY.expand(), backend, executor(**options), tmp_path)
    assert not list(tmp_path.iterdir())
    executor(partition="short", time="10:00").check([Needs(2)])


def test_a_study_for_drained_nodes_waits(slurm: Path) -> None:
    name = run("sinfo", "--noheader", "--format=%N", "--partition=main").strip()
    run("scontrol", "update", f"NodeName={name}", "State=drain", "Reason=test")
    try:
        executor().check([Needs(2)])
    finally:
        run("scontrol", "update", f"NodeName={name}", "State=resume")
    wait_for(lambda: not queue())


def test_stop_ends_running_and_waiting_jobs_and_a_later_campaign_goes_on(
    slurm: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    place = Place(tmp_path / "stop", EXECUTOR, seconds=20)
    with place.start() as controller:
        wait_for(lambda: len(place.training()) == 2 and len(queue()) == 4, controller)
        stopped = stop_runs(place.runs(), executor())
        assert controller.wait(HANG_SECONDS) != 0
    assert len(stopped.ended) == 4
    assert not stopped.foreign
    assert not place.running()
    wait_for(lambda: not queue())
    place.take(1)
    place.finish()
    check(place, expected)


def test_a_run_that_somebody_cancels_in_slurm_is_not_started_again(slurm: Path, tmp_path: Path) -> None:
    place = Place(tmp_path / "scancel", EXECUTOR, seconds=20)
    with place.start() as controller:
        wait_for(place.training, controller)
        chosen = place.training()[0]
        run("scancel", ref(chosen))
        place.take(1)
        assert controller.wait(HANG_SECONDS) != 0
    assert store.stop_requested(chosen)
    assert store.last_attempt(chosen) == 1
    assert [one for one in place.runs() if not store.is_finished(one)] == [chosen]


def test_a_warning_before_the_time_limit_ends_an_attempt_and_the_next_one_goes_on(
    slurm: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    place = Place(tmp_path / "limit", EXECUTOR, seconds=20)
    with place.start() as controller:
        wait_for(place.training, controller)
        chosen = place.training()[0]
        run("scancel", "--batch", "--signal=TERM", ref(chosen))
        wait_for(lambda: store.last_attempt(chosen) == 2, controller)
        place.take(1)
        controller.wait(HANG_SECONDS)
    place.finish()
    assert store.last_attempt(chosen) == 2
    check(place, expected)


def test_a_requeued_job_goes_on_as_the_same_attempt(slurm: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    # Between two states Slurm may name none for longer than other tests wait.
    patient = EXECUTOR.replace("cluster(", "ClusterExecutor(").removesuffix(")") + ", settle_seconds=5)"
    place = Place(tmp_path / "requeue", patient, seconds=20)
    with place.start() as controller:
        wait_for(place.training, controller)
        chosen = place.training()[0]
        run("scontrol", "requeue", ref(chosen))
        wait_for(lambda: "PENDING" in run("squeue", "--noheader", "--format=%T", f"--jobs={ref(chosen)}"))
        # Slurm would wait two minutes.
        run("scontrol", "update", f"JobId={ref(chosen)}", "StartTime=now")
        place.take(1)
        assert controller.wait(HANG_SECONDS) == 0
    check(place, expected)
    assert store.last_attempt(chosen) == 1


def test_silence_of_slurms_controller_ends_nothing_and_starts_nothing(
    slurm: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    place = Place(tmp_path / "silence", EXECUTOR, seconds=20)
    with place.start() as controller:
        wait_for(place.training, controller)
        run("kill", (slurm / "slurmctld.pid").read_text().strip())
        waiting = Job("waiting", Launch(tmp_path / "other", (), ("true",)), tmp_path, Needs())
        (tmp_path / "other").mkdir()
        assert executor().submit(waiting, 1) is None
        time.sleep(5)
        assert controller.poll() is None
        run("slurmctld")
        place.take(1)
        assert controller.wait(HANG_SECONDS) == 0
    check(place, expected)
    assert {store.last_attempt(one) for one in place.runs()} == {1}


def test_a_wrapper_that_cannot_start_ends_with_the_jobs_own_words(slurm: Path, tmp_path: Path) -> None:
    job = Job("lost", Launch(tmp_path, (), ("true",)), tmp_path, Needs())
    made = executor(python="/no/such/python")
    handle = made.submit(job, 1)
    assert handle is not None
    wait_for(lambda: made.poll([handle])[0].state not in ("waiting", "running"))
    assert "FAILED" in made.poll([handle])[0].reason
    assert "/no/such/python" in (tmp_path / store.LOG_FILE).read_text()
