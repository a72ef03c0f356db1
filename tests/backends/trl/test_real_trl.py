"""Against the real TRL 1.16: GRPOConfig takes every generated run; runs on a CPU are read back and fitted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
from isocompute_sdk.run_folders.store import RunWatch, read_best
from isocompute_sdk.specs import Data, Evaluation, Recipe, RunSpec
from isocompute_sdk.timing.spending import spending
from isocompute_sdk.training.backend import Launch
from isocompute_trl import TRLBackend
from tests.processes import wait_for

# transformers and TRL warn about their own future.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

STEPS = 12


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in tiny task: a model of 100,672 parameters and its problems."""
    from isocompute_torch.tasks import prepare

    folder = tmp_path_factory.mktemp("trl")
    prepare(folder / "task", family="mul31", kind="easy", seed=0)
    return folder


def tiny_run(n: int, seed: int = 0, **changes: Any) -> RunSpec:
    recipe = Recipe.preset(
        "easy",
        max_response_tokens=5,
        max_prompt_tokens=16,
        temperature=1.0,
        learning_rate_anchor=2e-3,
        warmup_steps=2,
        min_problems_per_batch=8,
        **changes,
    )
    return RunSpec(
        run_id=f"n{n}-seed{seed}",
        model="task/model",
        data=Data(train="task/train.jsonl", validation="task/validation.jsonl", reward="task/reward.py"),
        recipe=recipe,
        group_size=n,
        problems_per_batch=8,
        update_steps=STEPS,
        seed=seed,
        evaluation=Evaluation(every_steps=2, samples=4, temperature=1.0, n_problems=30),
        backend="trl",
        options={
            "device": "cpu",
            "sampler": "transformers",
            "chat_template": False,
            "save_every_steps": 4,
            "gradient_checkpointing": False,
        },
    )


def start(launch: Launch, cwd: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **launch.env, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    with (launch.folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            launch.argv, cwd=cwd, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


@pytest.fixture(scope="module")
def trained(task: Path) -> Callable[[RunSpec], Path]:
    """Carry a run out as the script does, and return its folder; each is trained once."""

    def carry_out(run: RunSpec) -> Path:
        folder = task / "runs" / run.run_id
        if not folder.exists():
            assert start(TRLBackend().prepare(run, folder), task).wait() == 0, (folder / "log.txt").read_text()
        return folder

    return carry_out


def test_runs_of_several_group_sizes_are_read_back_and_fitted(trained: Callable[[RunSpec], Path]) -> None:
    folders = [trained(tiny_run(n)) for n in (2, 4, 8)]
    backend = TRLBackend()
    first, *others = (backend.read_records(folder) for folder in folders)
    runs = first.concat(*others)
    assert set(runs.run_ids) == {"n2-seed0", "n4-seed0", "n8-seed0"}
    for series in runs.series("avg@4", "validation"):
        assert series.step_T.tolist() == [0, 2, 4, 6, 8, 10, 12]
        assert series.rollouts_T[-1] == 8 * series.group_size * STEPS
        assert series.context["algorithm"] == "grpo"
    for metric in ("avg@4", "best@4", "worst@4"):
        fits = iso.fit(runs, metric, draws=20, pool=("learning_rate",))
        assert fits.group_sizes == (2, 4, 8)
        mean, low, high = fits.predict(8 * 4 * STEPS, 4)
        assert 0 <= float(low) <= float(mean) <= float(high) <= 1


def test_the_best_checkpoint_is_kept(trained: Callable[[RunSpec], Path]) -> None:
    folder = trained(tiny_run(4))
    best = read_best(folder)
    assert best is not None
    assert (folder / best.checkpoint / "model.safetensors").is_file()
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rewards = {record["step"]: record["metrics"]["avg@4"] for record in records if record["kind"] == "evaluation"}
    saved = {step: value for step, value in rewards.items() if step and step % 4 == 0}  # save_every_steps
    assert best.reward == pytest.approx(max(saved.values()))
    assert saved[best.step] == pytest.approx(best.reward)
    assert json.loads((folder / best.checkpoint / "trainer_state.json").read_text())["global_step"] == best.step


def test_the_time_of_updates_evaluations_and_start_is_known_and_priced(trained: Callable[[RunSpec], Path]) -> None:
    folders = [trained(tiny_run(n)) for n in (2, 4, 8)]
    runs = iso.RunSet.read(folders)
    for folder in folders:
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        steps = [record for record in records if record["kind"] == "step"]
        assert all(set(record["seconds"]) == {"sampling", "reward", "training"} for record in steps)
        parts = sum(sum(record["seconds"].values()) for record in steps)
        (series,) = runs.filter(run_id=folder.name).series("train_reward", "train")
        column = runs.filter(run_id=folder.name, metric="train_reward").to_polars()["gpu_seconds"].to_list()
        assert column == sorted(column)
        assert column[-1] == pytest.approx(parts, abs=1e-3)
        assert len(column) == len(series.step_T) == STEPS
        # Everything between the start of the program and its end is training, evaluation or start.
        spent = spending([folder])
        assert 3600 * spent.hours == pytest.approx(records[-1]["wall_seconds"], rel=0.1)
        assert 3600 * spent.training_hours >= 0.9 * parts
        assert (spent.rollouts, spent.evaluation_rollouts) == (STEPS * 8 * series.group_size, 7 * 30 * 4)
    speed = iso.Throughput.measure(runs)
    assert speed.latency_floor_seconds > 0
    assert speed.startup_seconds > 0
    assert speed.evaluation_rollouts_per_second is not None
    by_column = iso.Throughput.measure(runs.filter(metric="train_reward"))
    assert by_column.step_seconds(64) == pytest.approx(speed.step_seconds(64), rel=0.5)


def test_what_is_read_back_is_what_trl_logged_and_what_the_samples_say(trained: Callable[[RunSpec], Path]) -> None:
    folder = trained(tiny_run(4))
    runs = TRLBackend().read_records(folder)
    state = json.loads((folder / "checkpoints" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
    logged = {entry["step"]: entry["eval_reward"] for entry in state["log_history"] if "eval_reward" in entry}
    rewards = {entry["step"]: entry["reward"] for entry in state["log_history"] if "reward" in entry}
    (average,) = runs.series("avg@4", "validation")
    assert dict(zip(average.step_T.tolist(), average.value_T.tolist(), strict=True)) == pytest.approx(logged)
    (train,) = runs.series("train_reward", "train")
    assert dict(zip(train.step_T.tolist(), train.value_T.tolist(), strict=True)) == rewards
    for step in (0, 6, 12):
        lines = [json.loads(x) for p in folder.glob(f"samples/{step}.1.*") for x in p.read_text().splitlines()]
        scores: dict[str, list[float]] = {}
        for line in lines:
            scores.setdefault(line["problem"], []).append(line["score"])
        exact = np.array(list(scores.values()))
        assert exact.shape == (30, 4)
        for name, metric in (("avg", avg_at_k), ("best", best_at_k), ("worst", worst_at_k)):
            for k in (2, 4):
                (series,) = runs.series(f"{name}@{k}", "validation")
                (value,) = series.value_T[series.step_T == step]
                assert value == pytest.approx(metric(exact, k))


def test_a_killed_run_goes_on_to_the_same_records_as_a_whole_one(
    task: Path, trained: Callable[[RunSpec], Path]
) -> None:
    whole = trained(tiny_run(4))
    backend, run = TRLBackend(), tiny_run(4).replace(run_id="killed")
    folder = task / "runs" / "killed"
    process = start(backend.prepare(run, folder), task)
    wait_for(lambda: _has_step(folder, 6), process)
    assert RunWatch(folder).status().state == "running"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert RunWatch(folder).status().state == "stopped"
    begun = backend.read_records(folder)
    assert begun.series("avg@4", "validation")[0].step_T[0] == 0
    assert start(backend.prepare(run, folder), task).wait() == 0, (folder / "log.txt").read_text()
    records, expected = backend.read_records(folder), backend.read_records(whole)
    for metric, eval_set in (("train_reward", "train"), ("learning_rate", "train"), ("avg@4", "validation")):
        (found,), (wanted,) = records.series(metric, eval_set), expected.series(metric, eval_set)
        assert found.step_T.tolist() == wanted.step_T.tolist()
        assert found.value_T.tolist() == pytest.approx(wanted.value_T.tolist()), metric
        assert found.rollouts_T.tolist() == wanted.rollouts_T.tolist()
    seconds = records.filter(metric="train_reward").to_polars()["gpu_seconds"].to_list()
    assert seconds == sorted(seconds)
    assert spending([folder]).lost_hours > 0
    assert RunWatch(folder).status().state == "finished"
    assert (folder / "model" / "model.safetensors").exists()


def _has_step(folder: Path, step: int) -> bool:
    path = folder / "metrics.jsonl"
    return path.exists() and f'"step": {step},' in path.read_text()


def test_a_prompt_above_the_limit_stops_the_run_with_the_reason(task: Path) -> None:
    run = tiny_run(2)
    run = run.replace(run_id="long", recipe=run.recipe.replace(max_prompt_tokens=3))
    folder = task / "runs" / "long"
    assert start(TRLBackend().prepare(run, folder), task).wait() == 2
    assert "more than recipe.max_prompt_tokens = 3" in (folder / "log.txt").read_text()
