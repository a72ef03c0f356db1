"""TRL's settings, the script, and the programs that it carries."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
from isocompute_sdk.specs import Evaluation, Hardware, RunSpec
from isocompute_trl import TRLBackend
from isocompute_trl import payload as own
from isocompute_trl.logs import FORMAT
from tests.backends.programs import load

MakeRun = Callable[..., RunSpec]
Prepare = Callable[[RunSpec], subprocess.CompletedProcess[str]]


@pytest.fixture
def small(make_run: MakeRun) -> RunSpec:
    return make_run(group_size=2, problems_per_batch=3, update_steps=7, evaluation=Evaluation(n_problems=2))


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / f"{name}_rows.jsonl").read_text().splitlines()]


def test_the_rows_are_exactly_those_of_m_steps_in_whole_epochs(small: RunSpec, prepare: Prepare, work: Path) -> None:
    done = prepare(small)
    assert done.returncode == 0, done.stderr
    train = rows(work / "runs" / "small", "train")
    assert len(train) == 3 * 7
    for epoch in range(4):
        assert {row["problem"] for row in train[5 * epoch : 5 * epoch + 5]} == {f"t{i}" for i in range(5)}
    first = rows(work / "runs" / "small", "evaluation")
    assert [row["problem"] for row in first] == ["v0", "v1"]
    assert first[1]["prompt"] == [{"role": "user", "content": "1 + 1?"}]
    assert json.loads(first[1]["answer"]) == 2
    assert {row["split"] for row in first} == {"validation"}


def test_the_same_script_again_keeps_the_rows_and_another_run_is_refused(
    small: RunSpec, prepare: Prepare, work: Path
) -> None:
    assert prepare(small).returncode == 0
    before = (work / "runs" / "small" / "train_rows.jsonl").read_bytes()
    assert prepare(small).returncode == 0
    assert (work / "runs" / "small" / "train_rows.jsonl").read_bytes() == before
    (work / "runs" / "small" / "metrics.jsonl").write_text('{"kind": "step", "step": 1}\n')
    refused = prepare(small.replace(seed=5))
    assert refused.returncode == 2
    assert "seed (0" in refused.stderr
    (work / "reward.py").write_text("def reward(prompt, response, answer):\n    return 0.5\n")
    refused = prepare(small)
    assert refused.returncode == 2
    assert "reward" in refused.stderr


def test_a_reward_that_works_on_no_problem_ends_the_script_until_it_is_corrected(
    small: RunSpec, prepare: Prepare, work: Path
) -> None:
    good = (work / "reward.py").read_text()
    (work / "reward.py").write_text("def reward(prompt, response, answer):\n    return answer['value']\n")
    refused = prepare(small)
    assert refused.returncode == 2
    assert "'t0'" in refused.stderr
    (work / "reward.py").write_text(good)
    assert prepare(small).returncode == 0


def test_several_gpus_start_through_accelerate(make_run: MakeRun, prepare: Prepare, work: Path) -> None:
    run = make_run(hardware=Hardware(gpus=8))
    assert "-m accelerate.commands.launch --config_file" in TRLBackend().script(run)
    assert prepare(run).returncode == 0
    config = json.loads((work / "runs" / "small" / "accelerate.json").read_text())
    assert config["num_processes"] == 8


def settings(run: RunSpec) -> dict[str, Any]:
    return TRLBackend().trainer_settings(run)


def test_one_generation_is_one_optimiser_step_whatever_the_gpus(make_run: MakeRun) -> None:
    for gpus in (1, 2, 4, 8):
        for limit in (1, 3, 8, 1000):
            run = make_run(hardware=Hardware(gpus=gpus), options={"samples_per_pass": limit})
            found = settings(run)
            per_pass, passes = found["per_device_train_batch_size"], found["gradient_accumulation_steps"]
            assert per_pass * passes * gpus == run.rollouts_per_batch
            assert per_pass <= limit
            assert "steps_per_generation" not in found


def test_the_cispo_cap_is_the_ratio_itself_and_the_default_of_one_fifth_is_never_left(make_run: MakeRun) -> None:
    found = settings(make_run(recipe={"algorithm": "cispo", "ratio_clip": 0.3}))
    assert (found["loss_type"], found["epsilon_high"]) == ("cispo", 1.3)
    assert settings(make_run())["epsilon_high"] == 0.2


@pytest.mark.parametrize("sharding", ["zero3", "zero2", "ddp"])
def test_vllm_gets_the_memory_that_the_states_of_the_trainer_leave(make_run: MakeRun, sharding: str) -> None:
    def share(gpus: int) -> float:
        options = {"sharding": sharding, "sampler": "vllm"}
        run = make_run(model="org/model-2B", hardware=Hardware(gpus=gpus), options=options)
        return settings(run)["vllm_gpu_memory_utilization"]

    # 2 billion parameters of 16 bytes and 12 GB in reserve, of 80 GB; one GPU shares nothing.
    assert share(1) == pytest.approx(1 - (32 + 12) / 80)
    assert share(2) == pytest.approx({"zero3": 0.6, "zero2": 0.6, "ddp": 0.45}[sharding])


def test_the_checkpoint_that_is_kept_as_best_has_the_largest_validation_reward(make_run: MakeRun) -> None:
    found = settings(make_run())
    assert found["metric_for_best_model"] == "eval_reward"
    assert found["greater_is_better"] is True


train = load("train", own)


@given(
    st.integers(1, 9).flatmap(
        lambda k: st.lists(st.lists(st.floats(-5, 5), min_size=k, max_size=k), min_size=1, max_size=6)
    )
)
def test_metrics_beside_the_training_equal_the_exact_estimators(groups: list[list[float]]) -> None:
    k_most = len(groups[0])
    found = train.sample_metrics({str(i): group for i, group in enumerate(groups)}, k_most)
    rewards = np.array(groups)
    for name, value in found.items():
        kind, _, k = name.partition("@")
        expected = {"avg": avg_at_k, "best": best_at_k, "worst": worst_at_k}[kind](rewards, int(k))
        assert value == pytest.approx(expected, abs=1e-9), name
    assert {f"{kind}@{k_most}" for kind in ("avg", "best", "worst")} <= set(found)


def test_samples_of_several_processes_and_attempts_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for process, attempt, problem, scores in [(1, 1, "a", [0, 0]), (7, 2, "a", [1, 0]), (8, 2, "b", [1, 1])]:
        monkeypatch.setattr(train.os, "getpid", lambda process=process: process)
        records = [{"problem": problem, "score": float(score), "error": None} for score in scores]
        train.write_samples(tmp_path, 10, attempt, records)
    assert train.read_samples(tmp_path, 10, 2) == {"a": [1.0, 0.0], "b": [1.0, 1.0]}
    assert train.sample_metrics(train.read_samples(tmp_path, 10, 2), 2) == {
        "avg@2": 0.75,
        "best@2": 1.0,
        "worst@2": 0.5,
    }
    with pytest.raises(RuntimeError, match=" 2 "):
        train.sample_metrics(train.read_samples(tmp_path, 20, 2), 2)


def test_a_problem_that_padding_repeats_counts_once() -> None:
    assert train.sample_metrics({"a": [1.0, 1.0, 0.0, 0.0], "b": [0.0, 0.0]}, 2)["avg@2"] == 0.5


@given(st.integers(1, 400), st.integers(1, 16), st.integers(1, 16), st.integers(1, 300))
def test_the_evaluation_batch_holds_whole_groups_and_repeats_no_problem_where_it_can(
    problems: int, k: int, processes: int, most: int
) -> None:
    size = train.eval_batch(problems, k, processes, most)
    assert size % k == 0
    assert size <= max(most, k)
    if problems % processes == 0:
        assert (problems * k) % (size * processes) == 0


def test_only_whole_checkpoints_are_gone_on_from(tmp_path: Path) -> None:
    assert train.last_checkpoint(tmp_path) is None
    for step, text in [(4, '{"global_step": 4}'), (20, '{"global_step": 20}'), (24, '{"global_st'), (28, None)]:
        (tmp_path / f"checkpoint-{step}").mkdir()
        if text is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
    assert train.last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-20")


def test_the_journal_names_metrics_as_every_reader_of_trl_logs_does() -> None:
    known = FORMAT.meanings(list(train.STEP_METRICS))
    assert len(known) >= 8
    assert {tag: train.STEP_METRICS[tag] for tag in known} == {tag: meaning.metric for tag, meaning in known.items()}
