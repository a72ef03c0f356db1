"""What the script writes and starts, up to the training itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.specs import Evaluation, Hardware, RunSpec
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


def test_several_gpus_start_through_accelerate(make_run: MakeRun, prepare: Prepare, work: Path) -> None:
    run = make_run(hardware=Hardware(gpus=8))
    assert "-m accelerate.commands.launch --config_file" in TRLBackend().script(run)
    assert prepare(run).returncode == 0
    config = json.loads((work / "runs" / "small" / "accelerate.json").read_text())
    assert config["num_processes"] == 8
