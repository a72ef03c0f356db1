"""The reward of the best checkpoint, from samples that did not choose it: every framework's own program, on noise."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import isocompute_openrlhf.payload as openrlhf
import isocompute_trl.payload as trl
import isocompute_verl.payload as verl
from isocompute_sdk.run_folders.store import read_best
from tests.backends.programs import load

PROBLEMS, SAMPLES = 20, 4
TRUTH = {10: 0.3, **dict.fromkeys(range(20, 90, 10), 0.5), 90: 0.35, 100: 0.3}
"""Chance of success by update step: it rises, stays, and falls."""

Scores = list[list[float]]
Measure = Callable[[Path, dict[int, Scores]], None]
"""Has a backend's programs see all evaluations of a run."""


def draws(draw: random.Random, samples: int) -> dict[int, Scores]:
    # The successes stand first, as frameworks write short responses first.
    return {
        step: [sorted((float(draw.random() < p) for _ in range(samples)), reverse=True) for _ in range(PROBLEMS)]
        for step, p in TRUTH.items()
    }


def mean(scores: Scores) -> float:
    return statistics.fmean(statistics.fmean(group) for group in scores)


def by_verl(run: Path, evaluations: dict[int, Scores]) -> None:
    keep_best, noted, log = load("keep_best", verl), set[int](), run / "logs" / "attempt-1.jsonl"
    log.parent.mkdir()
    (run / "validation" / "1").mkdir(parents=True)
    for step, scores in evaluations.items():
        checkpoint = run / "checkpoints" / f"global_step_{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "data.pt").touch()
        (checkpoint.parent / "latest_checkpointed_iteration.txt").write_text(str(step))
        rows = [
            {"input": "?", "output": "!", "score": score, "acc": score, "uid": f"p_{i}_{j}_0", "step": step}
            for i, group in enumerate(scores)
            for j, score in enumerate(group)
        ]
        lines = [json.dumps(row) + "\n" for row in rows]
        dump = run / "validation" / "1" / f"{step}.jsonl"
        data = {f"val-core/validation/acc/mean@{len(scores[0])}": mean(scores)}
        with log.open("a") as file:
            file.write(json.dumps({"step": step, "data": data}) + "\n")
        for text in ("".join(lines[:-1]), "".join(lines)):  # first as it is still written
            dump.write_text(text)
            keep_best.keep(run, log)
            keep_best.note(run, log, "1", noted)
        assert step in noted


def by_openrlhf(run: Path, evaluations: dict[int, Scores]) -> None:
    load("run_files")  # supervise imports it when it needs it
    supervise, k = load("supervise", openrlhf), len(next(iter(evaluations.values()))[0])
    (run / "started.json").write_text(json.dumps({"problems": {"validation": PROBLEMS}}))
    rewards, steps, best = supervise.ValidationRewards(run, 2, k), list[int](), -1.0
    options = SimpleNamespace(samples=k, engines=["_actor"])
    for step, scores in evaluations.items():
        steps.append(step)
        for split, attempt in (("train", 2), ("validation", 1), ("validation", 2)):
            records = [
                {"id": str(i), "split": split, "score": score if attempt == 2 and split == "validation" else 1.0}
                for i, group in enumerate(scores)
                for score in group
            ]
            lines = [json.dumps({**record, "attempt": attempt}) + "\n" for record in records]
            for process, part in ((7, lines[::2]), (8, lines[1::2])):
                with (run / f"samples.{process}.jsonl").open("a") as file:
                    file.writelines(part)
                if split == "validation" and attempt == 2:
                    rewards.note(steps)  # the first time half of the records are missing
        assert rewards.noted == len(steps)
        if mean(scores) > best:
            best = mean(scores)
            supervise.name_best(run, options, f"best_global_step{step}", step, best)


def by_trl(run: Path, evaluations: dict[int, Scores]) -> None:
    train = load("train", trl)
    k = len(next(iter(evaluations.values()))[0])
    plan = {"group_size": 2, "problems_per_batch": 2, "update_steps": 100, "options": {}}
    request = {"run": {**plan, "evaluation": {"samples": k, "every_steps": 10}}}
    journal: Any = SimpleNamespace(attempt=1, append=lambda *_, **__: None)
    book = train.Bookkeeper(run, request, journal, {}, SimpleNamespace())
    for step, scores in evaluations.items():
        records = [{"problem": str(i), "score": score} for i, group in enumerate(scores) for score in group]
        train.write_samples(run, step, 1, records)
        book.evaluated(step, {})
        checkpoint = run / "checkpoints" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        book.saved(checkpoint, step, [{"step": step, "loss": 0.1}, {"step": step, "eval_reward": mean(scores)}])


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr(load("run_files"), "SPLITS", 8)  # as many take seconds here, and a moment in a run


BACKENDS = pytest.mark.parametrize("measure", [by_openrlhf, by_trl, by_verl])


@BACKENDS
def test_the_reported_reward_is_not_too_high_and_the_one_that_chose_is(measure: Measure, tmp_path: Path) -> None:
    draw, chosen, reported = random.Random(0), list[float](), list[float]()
    for number in range(30):
        run = tmp_path / str(number)
        run.mkdir()
        measure(run, draws(draw, SAMPLES))
        best = read_best(run)
        assert best is not None
        assert best.reported is not None
        assert best.bias == pytest.approx(best.reward - best.reported)
        assert TRUTH[best.step] == 0.5
        chosen.append(best.reward - TRUTH[best.step])
        reported.append(best.reported - TRUTH[best.step])
    error = statistics.stdev(reported) / 30**0.5
    assert abs(statistics.fmean(reported)) < 3 * error < 0.03
    assert statistics.fmean(chosen) > 5 * error


@BACKENDS
def test_one_sample_a_problem_says_how_far_the_reward_is_too_high(measure: Measure, tmp_path: Path) -> None:
    draw, excess, bias = random.Random(1), list[float](), list[float]()
    for number in range(16):
        run = tmp_path / str(number)
        run.mkdir()
        measure(run, draws(draw, 1))
        best = read_best(run)
        assert best is not None
        assert (best.reported, best.reported_on) == (None, "")
        assert best.bias is not None
        excess.append(best.reward - TRUTH[best.step])
        bias.append(best.bias)
    assert 0.5 < statistics.fmean(excess) / statistics.fmean(bias) < 1.5


def test_a_repeated_evaluation_counts_once_and_the_base_model_not_at_all(tmp_path: Path) -> None:
    files = load("run_files")
    for step, score in ((0, 0.9), (10, 0.2), (10, 0.4), (20, 0.3)):
        files.note_evaluation(tmp_path, step, [[score, score]] * 3)
    files.record_best(tmp_path, 10, "avg@2", 0.4, tmp_path / "c")
    best = read_best(tmp_path)
    assert best is not None
    assert best.reported == pytest.approx(0.4)


def test_trl_chooses_among_the_evaluations_whose_checkpoints_it_saves(tmp_path: Path) -> None:
    evaluation, options = {"samples": 4, "every_steps": 10}, {"save_every_steps": 20}
    run = {"group_size": 1, "problems_per_batch": 1, "update_steps": 50, "evaluation": evaluation, "options": options}
    journal: Any = SimpleNamespace(attempt=1)
    book = load("train", trl).Bookkeeper(tmp_path, {"run": run}, journal, {}, SimpleNamespace())
    assert [step for step in range(10, 60, 10) if book.saves(step)] == [20, 40, 50]


def test_verl_chooses_among_the_evaluations_whose_checkpoints_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_best, noted, log = load("keep_best", verl), list[int](), tmp_path / "log"
    monkeypatch.setattr(keep_best, "note_evaluation", lambda run, step, scores: noted.append(step))
    (tmp_path / "validation" / "1").mkdir(parents=True)
    for step in (10, 20):
        row = {"score": 1.0, "acc": 1.0, "uid": "p_0_0"}
        (tmp_path / "validation" / "1" / f"{step}.jsonl").write_text(json.dumps(row) + "\n")
        with log.open("a") as file:
            file.write(json.dumps({"step": step, "data": {"val-core/validation/acc/mean@1": 1.0}}) + "\n")
    (tmp_path / "checkpoints" / "global_step_20").mkdir(parents=True)
    keep_best.note(tmp_path, log, "1", set())
    assert noted == [20]
