"""What holds of every plan, whatever the runs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Hardware, PlanError, Planner, RunSet
from tests.unit.sweeps import simulated

SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 60))]
SMALLEST_DIFFERENCE = 5e-4
"""Rewards are shown with three decimals."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_gets_better_by_a_constraint(seed: int) -> None:
    fits = iso.fit(simulated(seed, 1000))
    assert fits.largest_compute is not None
    budget = 2.0 * fits.largest_compute
    free = Planner(fits).allocate(budget)
    assert free.predicted_reward is not None
    batch = free.group_size * free.problems_per_batch
    asked: list[tuple[Hardware, float, dict[str, Any]]] = [
        (Hardware(max_rollouts_per_batch=batch // 2), budget, {}),
        *((Hardware(), budget, {"problems_per_batch": bp}) for bp in fits.problems_per_batch),
        (Hardware(), budget / 2, {}),
    ]
    for hardware, rollouts, fixed in asked:
        with suppress(PlanError):  # no n is left
            plan = Planner(fits, hardware).allocate(rollouts, **fixed)
            assert plan.predicted_reward is not None
            assert plan.predicted_reward <= free.predicted_reward + SMALLEST_DIFFERENCE


@pytest.mark.parametrize("seed", SEEDS)
def test_ten_times_the_compute_everywhere_is_the_same_n(seed: int) -> None:
    runs = simulated(seed, 1000)
    table = runs.to_polars()
    longer = RunSet.from_frame(table.with_columns(pl.col("step") * 10, pl.col("rollouts") * 10))
    short, long = iso.fit(runs), iso.fit(longer)
    assert short.largest_compute is not None
    budget = 2.0 * short.largest_compute
    one, other = Planner(short).allocate(budget), Planner(long).allocate(10 * budget)
    assert (one.group_size, one.problems_per_batch) == (other.group_size, other.problems_per_batch)
    assert other.predicted_reward == pytest.approx(one.predicted_reward, abs=SMALLEST_DIFFERENCE)


def test_fitting_again_with_the_rest_is_fitting_all() -> None:
    runs = simulated(0, 1000)
    half = len(runs.run_ids) // 2
    first = runs.filter(pl.col("run_id").is_in(list(runs.run_ids[:half])))
    rest = runs.filter(pl.col("run_id").is_in(list(runs.run_ids[half:])))
    assert iso.refit(iso.fit(first), rest) == iso.fit(first.concat(rest))
