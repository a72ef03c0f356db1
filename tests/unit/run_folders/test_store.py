"""Run folders: what was asked for, how far a run is, what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.cli.shared.following import described
from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.run_folders import journal_records, locks, store, wrapper
from isocompute_sdk.run_folders.progress import Progress
from tests.backends.framework_runs import run_maker

make_run = run_maker(preset="hard", run_id="n4-bp16-seed0", group_size=4, problems_per_batch=16, update_steps=10)


def record(kind: str, step: int, **fields: Any) -> dict[str, Any]:
    return {"schema_version": 1, "kind": kind, "run_id": "r", "step": step, "rollouts": 64 * step, **fields}


def evaluation(step: int, passes: list[int], eval_set: str = "validation", samples: int = 4) -> dict[str, Any]:
    value = sum(passes) / (samples * len(passes))
    return record("evaluation", step, eval_set=eval_set, metrics={"avg@4": value}, pass_counts=passes, samples=samples)


START = record("run", 0, group_size=4, problems_per_batch=16)


def append(folder: Path, *records: dict[str, Any]) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)


def test_a_folder_with_measurements_takes_no_other_run(tmp_path: Path) -> None:
    store.write_spec(tmp_path, make_run())
    append(tmp_path, START, record("end", 0, status="failed", message="no such model"))
    store.write_spec(tmp_path, make_run(update_steps=20))  # nothing measured yet
    append(tmp_path, START, record("evaluation", 0, eval_set="validation", metrics={"avg@4": 0.4}))
    with pytest.raises(RecordError, match=r"update_steps.*20.*30"):
        store.write_spec(tmp_path, make_run(update_steps=30))
    assert store.read_spec(tmp_path) == make_run(update_steps=20)
    store.write_spec(tmp_path, make_run(update_steps=20, options={"threads": 1}))
    assert store.read_spec(tmp_path) == make_run(update_steps=20, options={"threads": 1})


def test_the_file_that_the_built_in_runner_starts_from_is_a_run_too(tmp_path: Path) -> None:
    document = {"kind": "torch-run", "schema_version": 1, **make_run().model_dump(mode="json")}
    (tmp_path / "run.json").write_text(json.dumps(document))
    append(tmp_path, START)
    assert store.read_spec(tmp_path) == make_run()
    assert store.RunWatch(tmp_path).status().update_steps == 10


@pytest.mark.parametrize("text", ['{"lr": 1e-6}', '{"kind": "sweep", "schema_version": 9}', '["a", "b"]', "null"])
def test_a_file_of_the_same_name_from_another_tool_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    append(tmp_path, START)
    assert store.read_spec(tmp_path) is None
    assert store.RunWatch(tmp_path).status().group_size == 4
    store.write_spec(tmp_path, make_run())
    assert store.read_spec(tmp_path) == make_run()
    assert (tmp_path / "run.json").read_text() == text


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"run": {}}', '{"framework": "x"}', '{"framework": 1, "run": 2}']
)
def test_a_request_of_another_tool_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "request.json").write_text(text)
    append(tmp_path, {**START, "problems_per_batch": 1})
    assert store.read_spec(tmp_path) is None
    status = store.RunWatch(tmp_path).status()
    assert (status.group_size, status.problems_per_batch) == (4, 1)
    assert [one["problems_per_batch"] for one in journal_records.read(tmp_path / "metrics.jsonl")] == [1]


def test_a_damaged_file_of_the_built_in_runner_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"kind": "torch-run"')
    with pytest.raises(IsoComputeError, match=r"run\.json"):
        store.read_spec(tmp_path)
    (tmp_path / "run.json").write_text('{"kind": "torch-run", "schema_version": 99}')
    with pytest.raises(IsoComputeError, match="99"):
        store.read_spec(tmp_path)


def test_a_status_follows_a_run_from_waiting_to_finished(tmp_path: Path) -> None:
    store.write_spec(tmp_path, make_run())
    watch = store.RunWatch(tmp_path)
    assert (watch.status().state, watch.status().step, watch.status().metrics) == ("waiting", 0, {})
    append(tmp_path, START, evaluation(0, [4, 0]), evaluation(0, [0, 0], "train_probe"), record("step", 3))
    status = watch.status()
    assert (status.run_id, status.group_size, status.problems_per_batch) == ("n4-bp16-seed0", 4, 16)
    assert (status.state, status.step, status.rollouts, status.metrics) == ("stopped", 3, 192, {"avg@4": 0.5})
    append(tmp_path, record("step", 10), evaluation(10, [4, 4]), record("end", 10, status="finished"))
    assert (watch.status().state, watch.status().step, watch.status().metrics) == ("finished", 10, {"avg@4": 1.0})
    assert watch.status() == store.RunWatch(tmp_path).status()
    assert store.is_finished(tmp_path)


def test_a_finished_run_that_gets_more_steps_is_stopped_until_it_has_made_them(tmp_path: Path) -> None:
    store.write_spec(tmp_path, make_run())
    watch = store.RunWatch(tmp_path)
    assert watch.status().rollouts == 0
    append(tmp_path, START, evaluation(10, [4, 4]), record("end", 10, status="finished"))
    store.write_spec(tmp_path, make_run(update_steps=15), longer=True)
    assert (watch.status().state, watch.status().update_steps) == ("stopped", 15)
    assert not store.is_finished(tmp_path)
    append(tmp_path, evaluation(15, [4, 4]), record("end", 15, status="finished"))
    assert (watch.status().state, watch.status().step) == ("finished", 15)
    assert store.is_finished(tmp_path)


def test_the_exit_code_tells_where_a_run_writes_no_end(tmp_path: Path) -> None:
    wrapper.write_exit(tmp_path, 1, 0, stopped=False)
    assert store.is_finished(tmp_path)
    wrapper.write_exit(tmp_path, 1, -9, stopped=False)
    status = store.RunWatch(tmp_path).status()
    assert status.state == "failed"
    assert "exit code -9" in status.message
    wrapper.write_exit(tmp_path, 1, 143, stopped=True)
    assert store.RunWatch(tmp_path).status().state == "waiting"


def test_a_lock_lasts_as_long_as_a_process_that_holds_it(tmp_path: Path) -> None:
    assert not locks.is_running(tmp_path)
    lock = wrapper.take_lock(tmp_path)
    assert lock is not None
    assert wrapper.take_lock(tmp_path) is None
    assert locks.is_running(tmp_path)
    assert store.has_begun(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,), stdout=subprocess.DEVNULL
    ) as child:
        os.close(lock)
        assert locks.is_running(tmp_path)
        assert store.RunWatch(tmp_path).status().state == "running"
        ref, own = wrapper.process_ref(child.pid), wrapper.process_ref(os.getpid())
        assert locks.find_holder(tmp_path, ref) == child.pid
        assert locks.find_holder(tmp_path, own) is None
        assert locks.holders(tmp_path) == (child.pid,)
        child.communicate(b"\n")
    assert not locks.is_running(tmp_path)
    assert locks.find_holder(tmp_path, ref) is None


def test_a_file_cut_back_by_a_resumed_run_is_read_anew(tmp_path: Path) -> None:
    append(tmp_path, START, evaluation(0, [0, 0]), record("step", 9), record("end", 9, status="failed", message="oops"))
    watch = store.RunWatch(tmp_path)
    assert (watch.status().state, watch.status().message) == ("failed", "oops")
    new = tmp_path / "new"
    new.mkdir()
    append(new, START, evaluation(0, [0, 0]), record("step", 5))
    os.replace(new / "metrics.jsonl", tmp_path / "metrics.jsonl")
    assert (watch.status().state, watch.status().step) == ("stopped", 5)


def test_runs_are_found_at_any_depth_in_natural_order(tmp_path: Path) -> None:
    for name in ("n16", "n4", "n64"):
        store.write_spec(tmp_path / "study" / name, make_run(run_id=name))
    append(tmp_path / "study" / "n4", START)
    (tmp_path / "study" / "n4" / "checkpoint").mkdir()
    (tmp_path / "study" / "n4" / "checkpoint" / "metrics.jsonl").touch()
    assert [path.name for path in store.find_runs(tmp_path)] == ["n4", "n16", "n64"]
    assert [path.name for path in store.find_runs(tmp_path / "study" / "n4")] == ["n4"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError):
        store.find_runs(tmp_path / "empty")
    with pytest.raises(RecordError):
        store.find_runs(tmp_path / "missing")


@pytest.mark.parametrize("name", ["request.json", "log.txt", ".lock"])
def test_a_pipe_beside_a_run_is_skipped(tmp_path: Path, name: str) -> None:
    """Nothing writes to the pipe, so that opening it would wait forever."""
    append(tmp_path, START)
    wrapper.write_exit(tmp_path, 1, 1, stopped=False)
    os.mkfifo(tmp_path / name)
    (found,) = store.find_runs(tmp_path)
    assert store.RunWatch(found).status().state == "failed"


@pytest.mark.parametrize("name", ["metrics.jsonl", "spec.json", "run.json"])
def test_a_pipe_that_should_hold_the_run_is_refused(tmp_path: Path, name: str) -> None:
    if name == "metrics.jsonl":
        store.write_spec(tmp_path, make_run())
    else:
        append(tmp_path, START)
    os.mkfifo(tmp_path / name)
    (found,) = store.find_runs(tmp_path)
    with pytest.raises(IsoComputeError) as refused:
        store.RunWatch(found).status()
    assert name in refused.value.message


def test_the_headline_is_the_average_over_most_samples() -> None:
    def headline(**metrics: float) -> object:
        status = store.RunStatus(Path(), "r", 4, 16, 10, 0, 0, metrics, "running")
        return status.headline

    assert headline(**{"best@16": 0.9, "avg@2": 0.1, "avg@16": 0.3, "avg@4": 0.2}) == ("avg@16", 0.3)
    assert headline(reward=0.5, other=0.1) == ("reward", 0.5)
    assert headline() is None


def test_the_best_checkpoint_of_a_status_is_none_of_a_later_step(tmp_path: Path) -> None:
    best = store.BestCheckpoint(21, "avg@4", 0.5, "best/step-000021")

    def training_meanwhile(folder: Path) -> Progress:
        (folder / store.BEST_FILE).write_text(json.dumps({**vars(best), "step": 42}))
        return Progress(33)

    (tmp_path / store.BEST_FILE).write_text(json.dumps(vars(best)))
    status = store.RunWatch(tmp_path, training_meanwhile).status()
    assert (status.step, status.best) == (33, best)
    assert "step 21: best/step-000021" in described([status])[0]


def test_records_of_starts_are_those_of_executors_only(tmp_path: Path) -> None:
    # Launch scripts of OpenRLHF, TRL and veRL keep a file of this name.
    script = {"request": {"identity": {}}, "inputs": {}}
    (tmp_path / "started.json").write_text(json.dumps(script))
    assert store.read_started(tmp_path) is None
    assert store.last_attempt(tmp_path) == 0
    store.write_started(tmp_path, store.Started(2, "local", "7 7 boot", ("0",)))
    assert store.last_attempt(tmp_path) == 2
    store.write_job(tmp_path, store.JobRecord(3, ("true",), "/", {}, 1.0))
    assert store.last_attempt(tmp_path) == 3


@pytest.mark.parametrize(("engine", "holds"), [("local", True), ("local", False), ("slurm", True), ("slurm", False)])
def test_a_local_run_has_its_gpus_while_its_process_lives_and_a_job_until_it_has_ended(
    tmp_path: Path, engine: str, holds: bool
) -> None:
    ref = wrapper.process_ref(os.getpid()) or ""
    store.write_started(tmp_path, store.Started(1, engine, ref, ("0", "2")))
    lock = wrapper.take_lock(tmp_path) if holds else None
    status = store.RunWatch(tmp_path).status()
    has = holds or engine != "local"
    assert (status.engine, status.devices) == ((engine, ("0", "2")) if has else ("", ()))
    if lock is not None:
        os.close(lock)
    wrapper.write_exit(tmp_path, 1, 0, stopped=False)
    assert store.RunWatch(tmp_path).status().engine == ""


def test_a_run_that_was_given_up_says_why_until_it_may_start_again(tmp_path: Path) -> None:
    store.write_abandoned(tmp_path, "hung: recorded nothing for 61.0 min")
    status = store.RunWatch(tmp_path).status()
    assert (status.state, status.message) == ("stopped", "hung: recorded nothing for 61.0 min")
    store.clear_stop(tmp_path)
    assert store.RunWatch(tmp_path).status().state == "waiting"
