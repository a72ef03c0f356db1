"""A run that logs with OpenRLHF's own classes (logger, TensorboardLogger, eval metrics), killed, resumed, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_openrlhf import OpenRLHFBackend
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import registry


def samples(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("samples.*.jsonl") for line in file.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda record: record["time"])


def table(runs: iso.RunSet, eval_set: str, metric: str) -> dict[float, float]:
    """Step -> value."""
    frame = runs.to_polars().filter((pl.col("eval_set") == eval_set) & (pl.col("metric") == metric))
    return dict(zip(frame["step"], frame["value"], strict=True))


def test_a_killed_and_resumed_run_is_read_back_exactly(resumed_openrlhf: tuple[RunSpec, Path]) -> None:
    small, resumed = resumed_openrlhf
    runs = OpenRLHFBackend().read_records(resumed)
    # The one of step 4 came from the first attempt, although the first attempt's events were lost with it.
    assert table(runs, "train", "loss") == {step: -0.25 * step for step in (1, 3, 4, 5, 6, 7)}
    summary = json.loads((resumed / "model" / "summary.json").read_text())
    rewards = table(runs, "train", "train_reward")
    assert [rewards[step] for step in (5, 6, 7)] == pytest.approx([np.mean(r) for r in summary["rewards"]], abs=1e-6)
    frame = runs.to_polars()
    assert frame.filter(pl.col("step") == 7)["rollouts_spent"].unique().to_list() == [small.rollouts + 6]
    assert frame.filter(pl.col("step") == 7)["rollouts"].unique().to_list() == [small.rollouts]
    assert frame.filter(pl.col("step") == 7)["tokens"].unique().to_list() == [42 * 10.0]
    assert frame.filter(pl.col("step") == 7)["gpu_seconds"].unique().to_list() == [7 * 1.25]
    (info,) = runs.runs()
    assert info.context == {**{k: v for k, v in small.context().items() if k in info.context}, "n_problems": 5}
    assert (info.group_size, info.problems_per_batch, info.seed) == (2, 3, 0)
    assert {note.code for note in runs.notes} == {"values-not-finite", "attempts-stitched"}
    (watch,) = registry.watches([resumed])
    status = watch.status()
    assert (status.run_id, status.state, status.step, status.rollouts) == ("contract", "finished", 7, small.rollouts)
    assert status.train_reward == pytest.approx(rewards[7], abs=1e-6)
    (average,) = runs.series(f"avg@{small.evaluation.samples}", "validation")
    assert status.headline == (f"avg@{small.evaluation.samples}", pytest.approx(average.value_T[-1], abs=1e-6))


def test_evaluations_are_exact_and_agree_with_the_log(resumed_openrlhf: tuple[RunSpec, Path]) -> None:
    _, resumed = resumed_openrlhf
    runs = OpenRLHFBackend().read_records(resumed)
    records = samples(resumed)
    for attempt, step in ((1, 3), (2, 6)):
        mine = [r["score"] for r in records if (r["attempt"], r["split"]) == (attempt, "validation")]
        scores = np.array(mine).reshape(2, 4)
        exact = {"avg@4": scores.mean(), "best@4": scores.max(axis=1).mean(), "worst@4": scores.min(axis=1).mean()}
        for metric, value in exact.items():
            assert table(runs, "validation", metric)[step] == pytest.approx(value)
    assert set(table(runs, "validation", "avg@2")) == {3.0, 6.0}
    assert table(runs, "validation", "response_length") == {3: 7.0, 6: 7.0}
