"""What the script writes and starts, up to the training itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.specs import Data, Evaluation, Hardware, RunSpec
from isocompute_trl import TRLBackend

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


def test_without_a_chat_template_prompts_stay_text(make_run: MakeRun, prepare: Prepare, work: Path) -> None:
    run = make_run(problems_per_batch=2, update_steps=11, options={"chat_template": False})
    assert prepare(run).returncode == 0
    assert rows(work / "runs" / "small", "evaluation")[1]["prompt"] == "1 + 1?"


def test_the_same_script_again_keeps_the_rows_and_another_run_is_refused(
    small: RunSpec, prepare: Prepare, work: Path
) -> None:
    assert prepare(small).returncode == 0
    before = (work / "runs" / "small" / "train_rows.jsonl").read_bytes()
    assert prepare(small).returncode == 0
    assert (work / "runs" / "small" / "train_rows.jsonl").read_bytes() == before
    refused = prepare(small.replace(seed=5))
    assert refused.returncode == 2
    assert "seed (0" in refused.stderr
    (work / "reward.py").write_text("def reward(prompt, response, answer):\n    return 0.5\n")
    refused = prepare(small)
    assert refused.returncode == 2
    assert "reward" in refused.stderr


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train.jsonl", '{"question": "a"}\n', "answer"),
        ("train.jsonl", '{"question": "a", "prompt": "b", "answer": 1}\n', "prompt, question"),
        ("validation.jsonl", '{"question": "a", "answer": 1\n', "validation.jsonl:1"),
        ("validation.jsonl", "", "validation.jsonl"),
        ("reward.py", "def reward(prompt): return 1.0\n", "reward(prompt)"),
        ("reward.py", "def reward(p, r, a): return a.missing\n", "AttributeError"),
        ("reward.py", "def rewards(p, r, a): return 1\n", "rewards"),
    ],
)
def test_bad_input_stops_before_training(
    small: RunSpec, prepare: Prepare, work: Path, name: str, text: str, message: str
) -> None:
    (work / name).write_text(text)
    done = prepare(small)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_reward_function_can_be_named(make_run: MakeRun, prepare: Prepare, work: Path) -> None:
    (work / "reward.py").write_text("def graded(prompt, response, answer):\n    return 0.5\n")
    data = Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py:graded")
    assert prepare(make_run(data=data)).returncode == 0
    inputs = json.loads((work / "runs" / "small" / "inputs.json").read_text())
    assert inputs["reward"]["function"] == "graded"


def test_several_gpus_start_through_accelerate(make_run: MakeRun, prepare: Prepare, work: Path) -> None:
    run = make_run(hardware=Hardware(gpus=8))
    assert "-m accelerate.commands.launch --config_file" in TRLBackend().script(run)
    assert prepare(run).returncode == 0
    config = json.loads((work / "runs" / "small" / "accelerate.json").read_text())
    assert config["num_processes"] == 8
