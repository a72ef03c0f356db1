"""The recorded runs of the built-in task that ship, and forecasts on a part of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from isocompute_sdk import RunSet

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "benchmarks" / "data" / "recorded"


@pytest.fixture(scope="module")
def benchmark(benchmark_module: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark_module("recorded")


@pytest.mark.parametrize("name", ["easy", "hard"])
def test_the_tables_hold_every_group_size_with_two_seeds_up_to_600k(name: str) -> None:
    runs = RunSet.read(str(DATA / f"{name}_*.csv"))
    series = runs.series("avg@4")
    reached = {(one.group_size, one.seed) for one in series if one.rollouts_T[-1] > 590_000}
    assert {(n, seed) for n in (4, 8, 16, 32, 64, 128, 256) for seed in (0, 1)} <= reached
    for one in series:
        assert one.problems_per_batch == 16
        assert one.rollouts_T[0] == 0
        assert len(one.value_T) >= 30 or one.rollouts_T[-1] < 590_000
    base = {round(float(one.value_T[0]), 2) for one in series}
    assert max(base) - min(base) < 0.03


def test_four_seeds_of_three_group_sizes_of_easy_go_on_to_3m() -> None:
    series = RunSet.read(str(DATA / "easy_long.csv")).series("avg@4")
    ended = {(one.group_size, one.seed) for one in series if one.rollouts_T[-1] > 2_900_000}
    assert ended == {(n, seed) for n in (4, 16, 64) for seed in range(4)}


@pytest.mark.parametrize(("name", "runs", "longest"), [("other_tasks", 15, 590_000), ("few_problems", 9, 150_000)])
def test_runs_of_other_tasks_have_training_rewards_beside_what_validation_shows(
    name: str, runs: int, longest: int
) -> None:
    table = RunSet.read(str(DATA / f"{name}.csv"))
    validation, trained = table.series("avg@4"), {one.run_id: one for one in table.series("train_reward")}
    assert len(validation) >= runs
    assert {one.group_size for one in validation} >= {8, 32, 128}
    for one in validation:
        assert one.rollouts_T[0] == 0
        assert one.rollouts_T[-1] > longest
        assert len(trained[one.run_id].value_T) >= len(one.value_T) - 3
    ends = {one.run_id: trained[one.run_id].value_T[-1] - one.value_T[-1] for one in validation}
    # 64 problems are learned by heart; of thousands most of what is learned is not.
    assert min(ends.values()) > 0.3 if name == "few_problems" else max(ends.values()) < 0.3


def test_provenance_names_task_and_versions() -> None:
    found = json.loads((DATA / "provenance.json").read_text())
    assert {"task-easy", "task-hard", "task-rev31-hard-t0", "task-mul31-easy-t1"} <= set(found["tasks"])
    assert all("torch" in versions for versions in found["versions"].values())
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 1_000_000


def test_a_pilot_of_easy_forecasts_twice_its_compute(benchmark: ModuleType) -> None:
    rows = benchmark.examine(benchmark.Recorded.read("easy"), 150_000.0, (4, 16, 64), (0,))
    errors = [row.error for row in rows if isinstance(row, benchmark.Forecast) and row.factor == 2.0]
    assert len(errors) == 3
    assert np.abs(errors).max() < 0.05
    decided = [row for row in rows if isinstance(row, benchmark.Decision)]
    assert {row.factor for row in decided} == {2.0, 3.0, 8.0}
    assert max(row.regret for row in decided) < 0.03


@pytest.mark.parametrize("origin", [75_000.0, 150_000.0])
def test_a_pilot_of_hard_does_not_exclude_that_most_of_the_rise_is_to_come(
    benchmark: ModuleType, origin: float
) -> None:
    rows = benchmark.examine(benchmark.Recorded.read("hard"), origin, (4, 16, 64), (0,))
    decided = [row for row in rows if isinstance(row, benchmark.Decision)]
    assert decided
    assert all(row.measured < 0.5 for row in decided)
    assert all(row.claimed_low < 0.5 for row in decided)
    # The later second rise is invisible at 75,000 rollouts and has begun at 150,000.
    assert all(row.warned for row in decided) or origin < 150_000


def test_measured_rewards_are_the_best_smoothed_ones_up_to_there(benchmark: ModuleType) -> None:
    at = np.array([0.0, 100.0, 110.0, 1_000.0, 10_000.0])
    reward = np.array([0.9, 0.2, 0.4, 0.6, 0.1])
    assert benchmark.best_smoothed(at, reward, 110.0) == pytest.approx(0.3)
    assert benchmark.best_smoothed(at, reward, 10_000.0) == pytest.approx(0.6)
