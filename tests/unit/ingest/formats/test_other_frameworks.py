"""Frameworks that no backend drives: tinker-cookbook, prime-rl, and veRL as it logged in 2024."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isocompute_sdk.ingest import diagnose
from isocompute_sdk.ingest.reader import read
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.asked import runs_without_sizes

TINKER = {
    "model_name": "Qwen/Qwen3-8B",
    "learning_rate": 4e-5,
    "max_tokens": 256,
    "dataset_builder": {"group_size": 16, "batch_size": 8, "seed": 0},
}


def tinker_row(step: int, episodes: int = 128) -> dict[str, Any]:
    row: dict[str, Any] = {"progress/batch": step, "optim/lr": 4e-5, "progress/done_frac": (step + 1) / 20}
    row |= {"env/all/total_episodes": episodes, "env/all/reward/total": step / 40, "env/all/correct": 0.125}
    return row | ({"test/env/all/reward/total": step / 50} if step % 5 == 0 else {})


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_batches_of_several_sizes_are_counted_by_their_episodes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINKER))
    write_rows(tmp_path / "metrics.jsonl", [{"step": i, **tinker_row(i, 128 - i)} for i in range(4)])
    (training,) = RunSet.read(tmp_path).series("train_reward")
    assert training.rollouts_T.tolist() == [128, 255, 381, 506]


def test_of_a_batch_without_n_neither_size_is_known(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", [{"step": i, **tinker_row(i)} for i in range(4)])
    lacking = runs_without_sizes(read(tmp_path, without_sizes=True))
    assert [*lacking.values()] == [["group_size", "problems_per_batch"]]


def test_prime_rl_has_two_rows_for_a_step_and_counts_rollouts(tmp_path: Path) -> None:
    (tmp_path / "rl.json").write_text(
        json.dumps({"orchestrator": {"batch_size": 256, "group_size": 16}, "trainer": {"optim": {"lr": 1e-6}}})
    )
    rows: list[dict[str, Any]] = []
    for step in range(6):
        rows.append({"step": step, "train/agg/all/solver/reward/mean": step / 10, "progress/ckpt_step": step})
        rows.append({"step": step, "optim/lr": 1e-6, "optim/grad_norm": 0.5})
    rows.insert(0, {"step": 0, "progress/ckpt_step": 0, "eval/math/solver/avg@4": 0.25})
    write_rows(tmp_path / "metrics.jsonl", rows)
    (found,) = diagnose(tmp_path).runs
    assert (found.group_size, found.problems_per_batch, found.attempts) == ("16", "16", 1)
    runs = RunSet.read(tmp_path)
    (training,) = runs.series("train_reward")
    assert training.rollouts_T.tolist() == [256 * (step + 1) for step in range(6)]
    (series,) = runs.series("avg@4")
    assert series.rollouts_T.tolist() == [0]


def test_the_problems_of_a_batch_measured_in_tokens_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "rl.json").write_text(json.dumps({"orchestrator": {"token_batch_size": 65536, "group_size": 16}}))
    rows = [{"step": step, "progress/ckpt_step": step, "train/agg/all/a/reward/mean": 0.5} for step in range(1, 6)]
    write_rows(tmp_path / "metrics.jsonl", rows)
    (found,) = diagnose(tmp_path).runs
    assert (found.group_size, found.problems_per_batch) == ("16", "?")


def test_verl_of_2024_counts_updates_from_zero(tmp_path: Path) -> None:
    lines = [{"step": 0, "data": {"val/test_score/gsm8k": 0.1}}]
    for step in range(10):
        data: dict[str, float] = {"critic/score/mean": step / 10, "actor/entropy_loss": 0.5}
        lines.append({"step": step, "data": data | ({"val/test_score/gsm8k": 0.5} if step == 9 else {})})
    write_rows(tmp_path / "old.jsonl", lines)
    runs = RunSet.read(tmp_path, group_size=4, problems_per_batch=8)
    (training,) = runs.series("train_reward")
    assert training.rollouts_T.tolist() == [32 * (step + 1) for step in range(10)]
    (series,) = runs.series("avg@?")
    assert series.rollouts_T.tolist() == [0, 320]
    assert runs.runs()[0].rollouts_spent == 320
