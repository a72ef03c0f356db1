"""Executors by name: in a study, on disk, and from another package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.executors import ClusterExecutor, LocalExecutor, registry
from isocompute_sdk.errors import BackendError, SpecError
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Study, dump_spec, parse_spec
from isocompute_sdk.specs.study import available
from tests.packages import note_installed

STUDY = """\
name: small
model: tiny
data: {train: train.jsonl, validation: validation.jsonl, reward: reward.py}
recipe: hard
"""
PLUGIN = """
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.specs import ExecutorSpec
class Spec(ExecutorSpec):
    name: str = "farm"
    size: int = 3
    def executor(self):
        return LocalExecutor(self.size)
class Bare(ExecutorSpec):
    name: str = "bare"
"""

OWN = {"farm": "Spec", "bare": "Bare", "wrong": "LocalExecutor"}


def study(lines: str) -> Study:
    return parse_spec(STUDY + lines, Study)


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with executors of its own, one of which cannot be loaded."""
    (tmp_path / "farm_of_tests.py").write_text(PLUGIN)
    names = {name: f"farm_of_tests:{target}" for name, target in OWN.items()}
    note_installed(tmp_path, "farm", entries={"isocompute.executors": {**names, "broken": "no_such_module:Spec"}})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "farm_of_tests", raising=False)
    return "farm"


def test_the_executors_of_this_package_are_registered() -> None:
    assert {"local", "ray", "slurm"} <= set(available())
    assert isinstance(registry.load(None), LocalExecutor)
    assert registry.load("local").name == "local"


def test_options_reach_the_executor_and_survive_being_written(farm: str) -> None:
    stated = study("executor: {name: farm, size: 5, parallel: 2}\n")
    assert parse_spec(dump_spec(stated), Study) == stated
    assert stated.executor is not None
    assert registry.load(stated.executor) == LocalExecutor(5)
    assert registry.load(study("executor: {name: local, parallel: 7, grace_seconds: 9}\n").executor) == LocalExecutor(
        7, 9
    )


@pytest.mark.parametrize(
    ("lines", "place", "meant"),
    [
        ("executor: slrum\n", ":5: executor", "slurm"),
        ("executor:\n  name: loacl\n", ":6: executor.name", "local"),
        ("executor:\n  name: local\n  paralel: 2\n", ":7: executor.paralel", "parallel"),
        ("executor:\n  name: slurm\n  cpus: none\n", ":7: executor.cpus", "none"),
        ("executor: [local]\n", ":5: executor", "local"),
        ("executor: {parallel: 2}\n", ":5: executor", "local"),
    ],
)
def test_a_mistake_is_named_with_its_line(lines: str, place: str, meant: str) -> None:
    with pytest.raises(SpecError) as caught:
        study(lines)
    assert place in caught.value.message
    assert meant in f"{caught.value.message} {caught.value.hint}"


def test_a_package_that_is_broken_is_named_and_hides_no_other(farm: str) -> None:
    for name in ("broken", "wrong"):
        with pytest.raises(SpecError, match=name):
            study(f"executor: {name}\n")
    with pytest.raises(BackendError, match="bare"):
        registry.load("bare")
    assert registry.load(farm) == LocalExecutor(3)


def test_other_commands_find_the_executor_of_a_run_with_its_options(tmp_path: Path) -> None:
    options = {"slow": {"name": "slurm", "qos": "low"}, "same": {"name": "slurm", "qos": "low"}, "here": {}}
    for name, kept in options.items():
        (tmp_path / name).mkdir()
        store.write_job(tmp_path / name, store.JobRecord(1, ("true",), str(tmp_path), {}, 1.0, None, kept))
    found = registry.executors_of([tmp_path / name for name in options])
    slow, same, here = found.values()
    assert isinstance(here, LocalExecutor)
    assert isinstance(slow, ClusterExecutor)
    assert slow is same
    assert slow.spec is not None
    assert slow.spec.model_dump()["qos"] == "low"
