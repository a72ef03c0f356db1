"""A user's study with the built-in runner: own models, killed once, resumed, planned from."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.run_folders.store import find_runs, read_best
from tests.backends.torch_runner.conftest import configurations, tokenizer
from tests.processes import ok, wait_for

Command = Callable[..., subprocess.CompletedProcess[str]]

STUDY = """
name: mine
model: model
backend: torch
data: {{train: train.jsonl, validation: validation.jsonl, reward: reward.py}}
recipe:
  preset: hard
  learning_rate_anchor: 0.02
  temperature: 1.0
  max_prompt_tokens: 16
  max_response_tokens: 2
  min_problems_per_batch: 4
sweep: {{group_size: {groups}, problems_per_batch: 4, rollouts: {rollouts}}}
evaluation: {{every_steps: 5, samples: 4, temperature: 1.0}}
options: {{threads: 1, device: cpu, save_every_steps: 5, reward_timeout_seconds: 600}}
"""
FIRST_DIGIT = """
import itertools, os, time
calls = itertools.count()
def reward(prompt, response, answer):
    while next(calls) > 200 and os.path.exists(HOLD):
        time.sleep(0.02)
    return float(response[:1] == str(answer))
"""
"""Waits in the course of the training while a file is there."""


def write_study(folder: Path, isocompute: Command, family: str, reward: str, groups: list[int], rollouts: int) -> None:
    """What a user has: a model folder, a table of problems turned into JSON lines, a reward and a study."""
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(configurations()[family]).save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    for name, numbers in (("train", range(10, 42)), ("validation", range(50, 58))):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("question", "answer"), *((f"{n}*2=", 7) for n in numbers)])
        options = ("--reward", "reward.py") if reward == "maths" else ()
        ok(isocompute("problems", f"{name}.csv", "--output", f"{name}.jsonl", *options))
    if reward != "maths":
        (folder / "reward.py").write_text(FIRST_DIGIT.replace("HOLD", repr(str(folder / "hold"))))
    (folder / "study.yaml").write_text(STUDY.format(groups=groups, rollouts=rollouts))


def processes(folder: Path) -> Iterator[int]:
    """Processes whose command lines name a run of this folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"{folder}/runs/".encode() in path.read_bytes():
                yield int(path.parent.name)


def kill_while_it_trains(folder: Path, run: str, steps: int) -> None:
    """Start `isocompute run`, and kill it with all it started once a run has done some steps."""
    command = [sys.executable, "-c", "from isocompute_sdk.cli import main; main()", "run", "study.yaml"]
    (folder / "hold").touch()
    controller = subprocess.Popen([*command, "--parallel", "1"], cwd=folder, stdout=subprocess.DEVNULL)
    journal = folder / "runs" / "mine" / run / "metrics.jsonl"
    wait_for(
        lambda: [one for one in journal_records.read(journal) if one["kind"] == "step" and one["step"] >= steps],
        controller,
    )
    controller.kill()
    controller.wait()
    for process in list(processes(folder)):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    (folder / "hold").unlink()


def go_round(folder: Path, isocompute: Command, family: str, reward: str, groups: list[int], rollouts: int) -> None:
    write_study(folder, isocompute, family, reward, groups, rollouts)
    first = f"n{groups[0]}-bp4-seed0"
    kill_while_it_trains(folder, first, 8)
    done = ok(isocompute("run", "study.yaml", "--parallel", "1"))
    for run in find_runs(folder / "runs"):
        records: list[dict[str, Any]] = journal_records.read(run / "metrics.jsonl")
        steps = [one["step"] for one in records if one["kind"] == "step"]
        assert steps == list(range(1, len(steps) + 1))
        n = records[0]["group_size"]
        assert n * 4 * len(steps) == records[-1]["rollouts"] == rollouts
        assert records[-1]["attempt"] == (2 if run.name == first else 1)
        assert next(one["step"] for one in records if one["kind"] == "evaluation") == 0
        assert {one["eval_set"] for one in records if one["kind"] == "evaluation"} == {"validation"}  # no probe
        best = read_best(run)
        assert best is not None
        for place in (run / "model", run / best.checkpoint):
            assert transformers.AutoConfig.from_pretrained(place).model_type == family
            saved, given = (transformers.AutoTokenizer.from_pretrained(one) for one in (place, folder / "model"))
            assert saved.get_vocab() == given.get_vocab()
    # The next command that is printed is one that can be pasted.
    printed = [line for line in done.stdout.splitlines() if line.startswith("next: ")][-1]
    fit = shlex.split(printed.removeprefix("next: "))
    ok(isocompute(*fit[1:]))
    planned = ok(isocompute("allocate", *fit[2:], "--budget", "4000", "--json"))
    plan = json.loads(planned.stdout)
    assert plan["group_size"] * plan["problems_per_batch"] * plan["update_steps"] == plan["rollouts"] <= 4000
    assert "finished" in isocompute("status", "runs/mine").stdout
    found = RunSet.read(folder)
    assert {(run.group_size, run.rollouts) for run in found.runs()} == {(n, float(rollouts)) for n in groups}
    assert {"avg@4", "best@4", "train_reward"} <= set(found.metrics)
    assert found.series("avg@4", "validation")[0].step_T[0] == 0
    for context in (run.context for run in found.runs()):
        assert (context["model"], context["algorithm"], context["n_problems"]) == ("model", "grpo", 32)
    if reward != "maths":
        # The recipe's learning rate is high enough for this to be learned at once.
        rises = [series.value_T[-3:].mean() - series.value_T[:3].mean() for series in found.series("train_reward")]
        assert min(rises) > 0.2


@pytest.mark.slow
def test_a_study_on_a_model_of_ones_own_is_trained_killed_resumed_and_planned_from(
    tmp_path: Path, isocompute: Command
) -> None:
    go_round(tmp_path, isocompute, "qwen3", "python", [4], 320)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "reward"), [("llama", "maths"), ("qwen2", "python"), ("qwen3", "maths"), ("gemma2", "python")]
)
def test_four_architectures_go_round(tmp_path: Path, isocompute: Command, family: str, reward: str) -> None:
    go_round(tmp_path, isocompute, family, reward, [2, 4, 8], 960)
