"""Campaigns on a real Ray cluster of three nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import Job, run_jobs, stop_runs
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor
from isocompute_sdk.campaigns.executors.ray import RayEngine, RaySpec
from isocompute_sdk.errors import BackendError
from isocompute_sdk.run_folders import store
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import Launch, Needs
from tests.engines.conftest import RayCluster
from tests.killing import check, kill
from tests.processes import HANG_SECONDS, wait_for
from tests.random_kills import STUDY, Place, survive

pytestmark = pytest.mark.slow
OWN_RAY = Path(__file__).with_name("own_ray.py")


def expression(cluster: RayCluster) -> str:
    return f"cluster(RayEngine(RaySpec(address={cluster.address!r})))"


def executor(cluster: RayCluster, **options: object) -> ClusterExecutor:
    spec = RaySpec.model_validate({"address": cluster.address, **options})
    return ClusterExecutor(RayEngine(spec), poll_seconds=0.3, ask_seconds=0.3, settle_seconds=1)


def own_ray(folder: Path, nodes: int, gpus: int) -> Job:
    """A run of a framework that starts Ray itself."""
    folder.mkdir()
    argv = (sys.executable, str(OWN_RAY), str(folder), str(nodes), str(gpus))
    return Job(folder.name, Launch(folder, (), argv), folder, Needs(gpus, nodes=nodes, ray=True))


def status(made: ClusterExecutor, name: str) -> str:
    assert isinstance(made.engine, RayEngine)
    return str(made.engine.client.get_job_status(name).value)


def test_fifty_kills_of_each_part_change_no_record(
    ray_cluster: RayCluster, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    survive(tmp_path, expression(ray_cluster), expected, gpus=0)


def test_runs_have_gpus_of_their_own_and_names_are_only_names(
    ray_cluster: RayCluster, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    place = Place(tmp_path / "a 'b' $(touch x); %j", expression(ray_cluster), seconds=5)
    place.finish()
    check(place, expected)
    # All four runs go on at a time.
    assert {device for _, device in place.used()} == {f"node{node}:{gpu}" for node in (0, 1) for gpu in (0, 1)}
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({}, Needs(3)),
        ({}, Needs(2, nodes=3, ray=True)),
        ({}, Needs(3, ray=True)),
        ({"cpus": 5}, Needs()),
    ],
)
def test_what_can_never_start_is_refused_before_anything_is_written(
    options: dict[str, object],
    needs: Needs,
    ray_cluster: RayCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = registry.load("simulator")
    monkeypatch.setattr(type(backend), "needs", lambda self, run: needs)
    with pytest.raises(BackendError):
        carry_out(STUDY.expand(), backend, executor(ray_cluster, **options), tmp_path)
    assert not list(tmp_path.iterdir())


def test_frameworks_that_start_ray_themselves_get_all_gpus_one_after_the_other(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    jobs = [own_ray(tmp_path / name, 2, 2) for name in ("one", "two")]
    results = run_jobs(executor(ray_cluster), jobs)
    assert [result.exit_code for result in results] == [0, 0]
    had = sorted((json.loads((job.cwd / "had.json").read_text()) for job in jobs), key=lambda one: one["begun"])
    assert [len(set(one["gpus"])) for one in had] == [4, 4]
    assert had[0]["ended"] <= had[1]["begun"]


def test_a_cancelled_job_that_waits_for_room_never_trains(ray_cluster: RayCluster, tmp_path: Path) -> None:
    made = executor(ray_cluster)
    names = ("one", "two", "three")
    jobs = [
        Job(name, Launch(tmp_path / name, (), ("sh", "-c", "sleep 8; touch trained")), tmp_path / name, Needs(2))
        for name in names
    ]
    for job in jobs:
        job.cwd.mkdir()
    handles = [made.submit(job, 1) for job in jobs[:2]]
    assert made.submit(jobs[2], 1) is None
    # Another program took the GPUs between the count and the request.
    assert isinstance(made.engine, RayEngine)
    made.engine.__dict__["room"] = lambda job: True
    last = made.submit(jobs[2], 1)
    assert last is not None
    assert last.started is not None
    wait_for(lambda: all(one is not None and made.poll([one])[0].state == "running" for one in handles))
    assert made.poll([last])[0].state == "waiting"
    made.cancel(last)
    wait_for(lambda: made.poll([last])[0].state == "stopped")
    wait_for(lambda: all(one is not None and made.poll([one])[0].state == "finished" for one in handles))
    wait_for(lambda: status(made, last.started.ref if last.started else "") == "STOPPED")
    assert not (jobs[2].cwd / "trained").exists()


def test_a_client_without_the_token_is_refused_before_anything_is_written(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    place = Place(tmp_path / "token", expression(ray_cluster))
    with place.start(RAY_AUTH_MODE="disabled") as controller:
        assert controller.wait(HANG_SECONDS) != 0
    assert "RAY_AUTH_TOKEN_PATH" in place.said()
    assert not place.runs()


def test_a_wrapper_that_cannot_start_ends_with_the_jobs_own_words(ray_cluster: RayCluster, tmp_path: Path) -> None:
    job = Job("lost", Launch(tmp_path, (), ("true",)), tmp_path, Needs())
    made = executor(ray_cluster, python="/no/such/python")
    handle = made.submit(job, 1)
    assert handle is not None
    wait_for(lambda: made.poll([handle])[0].state not in ("waiting", "running"))
    assert "/no/such/python" in made.poll([handle])[0].reason


def test_stop_ends_runs_and_a_later_campaign_goes_on(
    ray_cluster: RayCluster, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    place = Place(tmp_path / "stop", expression(ray_cluster), seconds=60)
    with place.start() as controller:
        wait_for(lambda: len(place.training()) == 4, controller)
        stopped = stop_runs(place.runs(), executor(ray_cluster))
        assert controller.wait(HANG_SECONDS) != 0
    assert len(stopped.ended) == 4
    assert not stopped.foreign
    assert not place.running()
    place.take(1)
    place.finish()
    check(place, expected)


# The last test here: it leaves the cluster without one of its nodes.
def test_runs_of_a_node_that_dies_go_on_elsewhere_once_nothing_of_them_lives(
    ray_cluster: RayCluster, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    place = Place(tmp_path / "node", expression(ray_cluster), seconds=30)
    with place.start() as controller:
        wait_for(lambda: len(place.training()) == 4, controller)
        names = [name for name, device in place.used() if device.startswith("node0")]
        on_node = [run for run in place.runs() if run.name in names]
        assert len(on_node) == 2
        ray_cluster.kill_node(0)
        # What the node leaves behind of one run is killed as well; the other one may train on.
        kill(on_node[0], ("process", "command"), whole_group=False)
        place.take(2)
        assert controller.wait(HANG_SECONDS) == 0
    check(place, expected)
    assert store.last_attempt(on_node[0]) > 1
    again = place.used()[4:]
    assert on_node[0].name in {name for name, _ in again}
    assert all(device.startswith("node1") for _, device in again)
