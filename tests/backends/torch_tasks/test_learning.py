"""What GRPO learns on the Easy set: every group size gets far, and at a small budget small groups are ahead."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.records import RunSeries, RunSet
from isocompute_sdk.specs import Data, Evaluation, Recipe, Study, Sweep
from isocompute_sdk.training import registry
from isocompute_torch.tasks import prepare

ROLLOUTS = {64: 320_000, 16: 160_000, 4: 80_000}
"""Length of a run by group size: all under 600k, and about twice what it takes."""
EARLY = 20_000
ENOUGH = 0.75


def study(group_size: int, seed: int) -> Study:
    """The settings of the quickstart with a longer run and evaluations of twice the samples."""
    return Study(
        name="learning",
        model="task/model",
        data=Data(train="task/train.jsonl", validation="task/validation.jsonl", reward="task/reward.py"),
        recipe=Recipe.preset(
            "hard", learning_rate_anchor=4e-4, temperature=1.0, max_response_tokens=5, min_problems_per_batch=16
        ),
        sweep=Sweep(group_size=(group_size,), problems_per_batch=(16,), rollouts=ROLLOUTS[group_size], seeds=(seed,)),
        evaluation=Evaluation(samples=8, temperature=1.0),
        backend="torch",
        options={"threads": 1, "device": "cpu", "evaluations_per_decade": 12, "probe_problems": 0},
    )


def reward_at(series: RunSeries, rollouts: float) -> float:
    """Mean over the evaluations within a quarter of this budget; one evaluation has a standard deviation of .01."""
    near_T = np.abs(np.log(np.maximum(series.rollouts_T, 1) / rollouts)) <= math.log(1.25)
    return float(series.value_T[near_T].mean())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_every_group_size_learns_the_easy_set_and_small_groups_are_ahead_early(tmp_path: Path, seed: int) -> None:
    task = prepare(tmp_path / "task", kind="easy", seed=seed)
    assert task.base_rewards["validation"] == pytest.approx(0.43, abs=0.03)
    runs = [run for n in ROLLOUTS for run in study(n, seed).expand()]
    carry_out(runs, registry.load("torch"), LocalExecutor(1), tmp_path)
    found = {series.group_size: series for series in RunSet.read(tmp_path).series("avg@4", "validation")}
    assert set(found) == set(ROLLOUTS)
    for n, series in found.items():
        assert series.value_T[0] == pytest.approx(0.43, abs=0.06)
        assert series.rollouts_T[-1] <= ROLLOUTS[n] < 600_000
        assert reward_at(series, ROLLOUTS[n]) > ENOUGH
    early = [reward_at(found[n], EARLY) for n in sorted(found)]
    assert early == sorted(early, reverse=True)
