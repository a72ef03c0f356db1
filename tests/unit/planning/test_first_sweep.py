"""A sweep as a new user makes it: n = 8 to 64, best at 64, a budget of 20 times the data in GPU-hours."""

from __future__ import annotations

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Budget, Planner, RunSet, Throughput

SIZES, PROBLEMS = (8, 16, 32, 64), 32
SPEED = Throughput(step_overhead_seconds=25, rollouts_per_second=40, gpus=8)
TIMES_THE_DATA = 20


def reward(n: int, c: np.ndarray) -> np.ndarray:
    """Every doubling of n comes 1.5 times later and ends .025 higher, also above the grid."""
    octaves = np.log2(n / 8)
    return 0.42 + (0.10 + 0.025 * octaves) * -np.expm1(-c / (3e4 * 2 ** (0.55 * octaves)))


def sweep(seed: int, last: float) -> RunSet:
    rng = np.random.default_rng(seed)
    compute = np.linspace(0.0, last, 21)
    columns: dict[str, list[float]] = {"n": [], "C": [], "avg@4": []}
    for n in SIZES:
        columns["n"] += [n] * 21
        columns["C"] += compute.tolist()
        columns["avg@4"] += (reward(n, compute) + rng.normal(0.0, 0.01, 21)).tolist()
    return RunSet.from_columns(columns, problems_per_batch=PROBLEMS)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("last", [1e5, 4e5])
def test_a_plan_far_beyond_a_rising_sweep_is_no_reason_to_stop(seed: int, last: float) -> None:
    fits = iso.fit(sweep(seed, last), draws=80)
    step = SIZES[-1] * PROBLEMS
    hours = TIMES_THE_DATA * SPEED.gpus * SPEED.wall_hours(step, round(last / step))
    plan = Planner(fits, throughput=SPEED).allocate(Budget(gpu_hours=hours))
    assert plan.verdict.kind in ("measure-first", "undecided", "likely")
    # Steps may be left out only where they really add nothing.
    whole = plan.rollouts / (1 - plan.unused_share)
    at_plan, at_budget = reward(plan.group_size, np.array([plan.rollouts, whole]))
    assert at_budget - at_plan <= 0.002
    assert plan.group_size >= SIZES[-1]
    # The octave above the grid is part of the question, and at least as good by the same fit.
    grid = Planner(fits, throughput=SPEED).allocate(Budget(gpu_hours=hours), beyond_grid=0)
    assert grid.verdict.kind != "stop-spending"
    assert grid.group_size == SIZES[-1]
    assert plan.predicted_reward is not None
    assert grid.predicted_reward is not None
    assert plan.predicted_reward >= grid.predicted_reward
