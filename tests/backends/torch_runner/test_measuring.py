"""What a run reports: evaluation metrics, step metrics, and what the person in front of it sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.run_folders.store import read_best
from isocompute_sdk.specs.run import Evaluation
from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_torch import assembly, loop, train
from isocompute_torch.loop import PromptSet, evaluate
from isocompute_torch.memory import Memory
from isocompute_torch.policy import Policy
from isocompute_torch.rewards import RewardPool
from isocompute_torch.sampler import TorchSampler

Start = Callable[..., tuple[int, str]]
Records = Callable[..., list[dict[str, Any]]]


def test_an_evaluation_counts_passes_per_problem(
    policy: Callable[..., Policy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reward.py").write_text(
        "def reward(p, r, a):\n    return {'yes': 1, 'no': 0.2}.get(a) if a != 'x' else 1 / 0\n"
    )
    chosen = policy()
    problems = [Problem(str(i), "1+1=", answer) for i, answer in enumerate(["yes", "no", "x"])]
    prompts = PromptSet.encode(chosen.codec, problems, max_tokens=10, name="validation")
    with RewardPool("reward.py") as reward:
        measured = evaluate(
            prompts, TorchSampler(chosen), reward, Evaluation(samples=4), top_p=1.0, max_tokens=3, seed=1
        )
    assert measured.pass_counts == [4, 0, 0]
    assert measured.sample_counts == [4, 4, 0]
    assert measured.zero_pass_share == pytest.approx(2 / 3)
    assert measured.metrics["avg@4"] == pytest.approx(0.6)
    assert measured.scores.errors == 4


def test_every_measure_of_a_run_is_in_its_journal(
    prepared: Callable[..., Path], start: Start, records: Records
) -> None:
    Path("other.jsonl").write_text('{"prompt": "4+4=", "answer": "8"}\n')
    folder = prepared(
        recipe={"preset": "easy", "max_response_tokens": 4, "temperature": 1.0, "warmup_steps": 4},
        options={"eval_sets": "other=other.jsonl", "probe_problems": 3},
        update_steps=6,
    )
    assert start(folder)[0] == 0
    (run,) = records(folder, "run")
    assert (run["group_size"], run["problems_per_batch"], run["seed"], run["n_problems"]) == (4, 4, 0, 16)
    evaluations = records(folder, "evaluation")
    assert [(e["step"], e["eval_set"]) for e in evaluations] == [
        (step, name) for step in (0, 3, 6) for name in ("validation", "other", "train_probe")
    ]
    assert [len(e["pass_counts"]) for e in evaluations[:3]] == [4, 1, 3]
    assert all(
        {"avg@4", "best@4", "worst@4", "response_length", "truncated_share"} <= set(e["metrics"]) for e in evaluations
    )
    steps = records(folder, "step")
    assert [s["rollouts"] for s in steps] == [16 * i for i in range(1, 7)]
    expected = {
        *("train_reward", "entropy", "kl", "response_length", "truncated_share", "gradient_norm", "learning_rate"),
        *("zero_variance_share", "reward_errors", "loss", "importance_weight_mean"),
    }
    assert all(expected <= set(s["metrics"]) for s in steps)
    assert all({"sampling", "training", "sync", "reward"} <= set(s["seconds"]) for s in steps)
    peak = run["learning_rate"]
    assert [s["metrics"]["learning_rate"] / peak for s in steps] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    tokens = [s["metrics"]["response_length"] * 16 for s in steps]
    assert [s["tokens"] for s in steps] == pytest.approx(np.cumsum(tokens))
    assert steps[0]["metrics"]["kl"] == pytest.approx(0, abs=1e-6)
    assert records(folder)[-1]["status"] == "finished"


def test_the_best_policy_is_there_when_training_ends(
    prepared: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    from transformers import AutoModelForCausalLM

    seeds: list[int] = []

    def watched(*given: Any, seed: int, **options: Any) -> Any:
        seeds.append(seed)
        return evaluate(*given, seed=seed, **options)

    monkeypatch.setattr(loop, "evaluate", watched)
    folder = prepared(update_steps=9, recipe={"learning_rate_anchor": 3.0})  # far too high: the reward falls
    assert train.main([str(folder)]) == 0
    rewards = {
        record["step"]: record["metrics"]["avg@4"]
        for record in records(folder)
        if record["kind"] == "evaluation" and record["eval_set"] == "validation" and record["step"]
    }
    best = json.loads((folder / "best.json").read_text())
    assert best["reward"] == max(rewards.values())
    assert rewards[best["step"]] == best["reward"]
    assert best["metric"] == "avg@4"
    assert AutoModelForCausalLM.from_pretrained(folder / best["checkpoint"]).num_parameters() > 0
    assert [path.name for path in (folder / "best").iterdir()] == [Path(best["checkpoint"]).name]
    assert best == vars(read_best(folder))
    # Measured again with other draws.
    assert seeds[-1] not in seeds[:-1]
    assert 0 <= best["reported"] <= 1


def test_notes_of_the_start_stand_in_the_next_record(
    prepared: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    short = Memory(total=2**40, free=0.0, workspace=0.0)
    folders = [prepared(name, run_id="run", update_steps=1) for name in ("plenty", "short")]
    assert train.main([str(folders[0])]) == 0
    monkeypatch.setattr(assembly, "memory_of", lambda _: short)
    assert train.main([str(folders[1])]) == 0
    assert journal_records.notes(folders[0] / "metrics.jsonl") == ()
    (note,) = journal_records.notes(folders[1] / "metrics.jsonl")
    assert (note.code, note.severity) == ("micro-batches-smaller", "warning")
    assert [bool(record.get("notes")) for record in records(folders[1])][:3] == [False, True, False]
    plain, smaller = ([one["metrics"] for one in records(folder, "step")] for folder in folders)
    # One row of the sampler at a time draws other rollouts; what is measured stays the same set of numbers.
    assert set().union(*smaller) == set().union(*plain)
