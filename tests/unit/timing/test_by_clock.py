"""Seconds per update from the clock of a log whose framework logs none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk.ingest.attempts import by_clock


def history(path: Path, group_size: int, seconds: float, evaluation: float) -> None:
    """A W&B history of TRL: an update a row, and an evaluation after every fortieth that takes its own time."""
    clock, rows = 0.0, ["_step,_runtime,train/global_step,train/reward,train/completions/mean_length,eval/reward"]
    for step in range(200):
        clock += seconds + (evaluation if step % 40 == 0 else 0.0)
        reward = 0.2 + 0.002 * step
        rows.append(f"{step},{clock},{step},{reward},512,{reward if step % 40 == 0 else ''}")
    (path / f"n{group_size}.csv").write_text("\n".join(rows) + "\n")


def test_a_history_with_a_clock_says_how_long_an_update_takes_without_its_evaluations(tmp_path: Path) -> None:
    for group_size in (8, 64):
        history(tmp_path, group_size, seconds=6 + group_size * 16 / 40, evaluation=600)
    runs = [iso.read(tmp_path / f"n{n}.csv", set={"group_size": n, "problems_per_batch": 16}) for n in (8, 64)]
    speed = iso.Throughput.measure(runs[0].concat(runs[1]), gpus=4)
    assert speed.step_overhead_seconds == pytest.approx(6, rel=0.01)
    assert speed.rollouts_per_second == pytest.approx(40, rel=0.01)
    assert speed.tokens_per_rollout == pytest.approx(512)


def test_stretches_that_are_long_backwards_or_few_say_nothing() -> None:
    each = by_clock([0, 1, 2, 2, 3, 4, 5], [0.0, 2.0, 4.0, 5.0, 3.0, 5.0, 95.0])
    assert each[np.isfinite(each)].tolist() == [2.0, 2.0, 2.0]
    assert np.isnan(by_clock([0, 1, 2], [0.0, 2.0, 4.0])).all()
