"""Requests to Ray and what is counted in its answers. tests/engines runs a real cluster."""

from __future__ import annotations

import shlex
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isocompute_sdk.campaigns.executors import Job
from isocompute_sdk.campaigns.executors import ray as module
from isocompute_sdk.campaigns.executors.cluster import EngineSilent
from isocompute_sdk.campaigns.executors.ray import GPUS, RayEngine, RaySpec
from isocompute_sdk.errors import BackendError
from isocompute_sdk.training.backend import Launch, Needs
from tests.processes import HANG_SECONDS

NODES: list[dict[str, float]] = [{"CPU": 4.0}, {"CPU": 4.0, "GPU": 4.0}, {"CPU": 4.0, "GPU": 2.0}]
OWN_RAY = Needs(2, nodes=2, ray=True)


def job(needs: Needs, folder: Path = Path("/runs/one")) -> Job:
    return Job("n4-bp32-seed0", Launch(folder, (), ("bash", "launch.sh")), folder, needs)


def row(name: str, status: str, **fields: Any) -> SimpleNamespace:
    known = {"metadata": {}, "message": "", "error_type": None, "driver_exit_code": None}
    return SimpleNamespace(submission_id=name, status=SimpleNamespace(value=status), **{**known, **fields})


@dataclass
class Client:
    """What the engine uses of Ray's JobSubmissionClient."""

    jobs: list[Any] = field(default_factory=list[Any])
    asked: list[str] = field(default_factory=list[str])

    def list_jobs(self) -> list[Any]:
        return self.jobs

    def stop_job(self, name: str) -> bool:
        self.asked.append(name)
        return True


def engine(*jobs: Any, spec: RaySpec | None = None, nodes: list[dict[str, float]] | None = None) -> RayEngine:
    made = RayEngine(spec or RaySpec())
    made.__dict__["client"] = Client(list(jobs))
    made.__dict__["_nodes"] = lambda: NODES if nodes is None else nodes
    return made


def test_a_framework_that_starts_ray_itself_holds_no_gpu_and_counts_all() -> None:
    request = RayEngine().request(job(OWN_RAY), 1, ("true",), NODES)
    assert (request["entrypoint_num_gpus"], request["entrypoint_num_cpus"]) == (0, 0)
    assert request["metadata"][GPUS] == "4"


def test_other_runs_hold_the_gpus_they_need() -> None:
    request = RayEngine(RaySpec(cpus=3)).request(job(Needs(2)), 1, ("true",), NODES)
    assert (request["entrypoint_num_gpus"], request["entrypoint_num_cpus"], request["metadata"][GPUS]) == (2, 3, "2")
    optional = Needs(1, or_cpu=True)
    assert RayEngine().request(job(optional), 1, ("true",), NODES)["entrypoint_num_gpus"] == 1
    assert RayEngine().request(job(optional), 1, ("true",), NODES[:1])["entrypoint_num_gpus"] == 0


def test_hostile_names_reach_the_job_as_one_argument_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON", "/my python")
    command = ("/usr/bin/python3", "/runs/a 'b' $(touch x); && y", "1")
    request = RayEngine(RaySpec(env={"HF_HOME": "/cache"})).request(job(Needs()), 1, command)
    assert shlex.split(request["entrypoint"]) == ["exec", *command]
    assert {"HF_HOME": "/cache", "PYTHON": "/my python"}.items() <= request["runtime_env"]["env_vars"].items()


@pytest.mark.parametrize(
    ("needs", "fits"),
    [
        (Needs(), True),
        (Needs(4), True),
        (Needs(5), False),
        (OWN_RAY, True),
        (Needs(2, nodes=3, ray=True), True),  # Two of them on the node with four.
        (Needs(4, nodes=2, ray=True), False),
        (Needs(5, or_cpu=True, ray=True), False),
    ],
)
def test_what_fits_on_no_node_is_refused(needs: Needs, fits: bool) -> None:
    if fits:
        engine().check([needs])
        return
    with pytest.raises(BackendError):
        engine().check([needs])


def test_cores_count_and_a_cluster_that_grows_is_taken_at_its_full_size() -> None:
    with pytest.raises(BackendError):
        engine(spec=RaySpec(cpus=5)).check([Needs()])
    engine(spec=RaySpec(gpus=64), nodes=NODES[:1]).check([Needs(8, nodes=8, ray=True)])
    with pytest.raises(BackendError, match=r"\b0 GPU.*\b4 cores"):
        engine(nodes=NODES[:1]).check([Needs(1)])


@pytest.mark.parametrize(("taken", "state", "room"), [(2, "RUNNING", True), (3, "PENDING", False), (3, "FAILED", True)])
def test_runs_of_all_campaigns_count(taken: int, state: str, room: bool) -> None:
    others = (row("other.1", state, metadata={GPUS: str(taken)}), row("stranger", "RUNNING", metadata=None))
    assert engine(*others).room(job(OWN_RAY)) is room
    assert engine(*others).room(job(Needs()))


def test_states_and_exit_codes_of_jobs() -> None:
    jobs = [
        row("a", "PENDING"),
        row("b", "RUNNING"),
        row("c", "SUCCEEDED", driver_exit_code=0),
        row("d", "FAILED", driver_exit_code=3),
        row("e", "FAILED", error_type="JOB_SUPERVISOR_ACTOR_DIED", message="The actor died\nits node was lost\n"),
        row("f", "STOPPED"),
    ]
    seen = engine(*jobs).look(["a", "b", "c", "d", "e", "f", "g"])
    assert [(ref, one.state, one.exit_code) for ref, one in seen.items()] == [
        ("a", "waiting", None),
        ("b", "running", None),
        ("c", "finished", 0),
        ("d", "failed", 3),
        ("e", "failed", None),
        ("f", "stopped", None),
    ]
    assert "JOB_SUPERVISOR_ACTOR_DIED" in seen["e"].reason
    assert "its node was lost" in seen["e"].reason


def test_a_job_that_was_asked_to_end_before_there_was_room_counts_as_ended() -> None:
    made = engine(row("a", "PENDING"), row("b", "SUCCEEDED"))
    assert made.look(["a"])["a"].state == "waiting"
    for name in ("a", "b", "unknown"):
        made.end(name, at_once=False)
    assert made.client.asked == ["a"]
    assert made.look(["a"])["a"].state == "stopped"


def test_a_head_that_does_not_answer_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALL_SECONDS", 0.05)
    made, never = engine(), threading.Event()
    made.client.list_jobs = lambda: never.wait(HANG_SECONDS)
    assert made.look(["a"])["a"].state == "unknown"
    with pytest.raises(EngineSilent):
        made.room(job(OWN_RAY))
    never.set()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(BackendError) as refused:
        RayEngine().check([Needs()])
    assert "isocompute[ray]" in str(refused.value.hint)


def test_the_address_of_the_study_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://elsewhere")
    made = engine(spec=RaySpec(address="http://head:8265"))
    seen: list[str | None] = []
    made.client.list_jobs = lambda: seen.append(module.os.environ.get("RAY_API_SERVER_ADDRESS")) or []
    made.look(["a"])
    assert seen == ["http://head:8265"]
    assert module.os.environ["RAY_API_SERVER_ADDRESS"] == "http://elsewhere"
