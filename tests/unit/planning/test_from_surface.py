"""Plans from a surface: what they carry, how several metrics stand side by side, and that laws are not needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute_sdk import Budget, Evaluation, Fits, FitsSet, Plan, PlanError, Planner, Recipe, RunSet, Throughput, fit
from isocompute_sdk.planning import change_plan

LEVELS = (4, 16, 64, 256)
COMPUTE = np.concatenate([[0.0], np.geomspace(5e3, 2e6, 25)])


def sharpening(n: int, c: float) -> float:
    """Larger n rises later and higher."""
    return float(0.35 + (0.1 + 0.04 * np.log2(n)) * -np.expm1(-c / (3e3 * n)))


def coverage(n: int, c: float) -> float:
    """Smaller n is better at any compute."""
    return float(0.6 + (0.25 - 0.03 * np.log2(n)) * -np.expm1(-c / (2e3 * n)))


@pytest.fixture(scope="module")
def runs() -> RunSet:
    rng = np.random.default_rng(0)
    rows = [(n, 32, float(c), sharpening(n, c), coverage(n, c)) for n in LEVELS for c in COMPUTE]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("n", "bp", "C", "avg@4", "best@4"))}
    for metric in ("avg@4", "best@4"):
        columns[metric] = (np.array(columns[metric]) + 0.004 * rng.standard_normal(len(rows))).tolist()
    return RunSet.from_columns(columns)


@pytest.fixture(scope="module")
def both(runs: RunSet) -> FitsSet:
    return fit(runs, ["avg@4", "best@4"], draws=30)


def test_metrics_stand_side_by_side_and_far_ones_are_named(both: FitsSet) -> None:
    assert all(fits.method == "surface" for fits in both.values())
    plan = Planner(both).allocate("2M", spend="all")
    assert plan.metric == "avg@4"
    assert plan.group_size >= 128
    assert plan.other_metrics["best@4"] <= 8
    (note,) = [note for note in plan.notes if note.code == "metrics-disagree"]
    assert note.data == {"group_size": plan.group_size, "others": plan.other_metrics}
    assert f"best n for best@4        {plan.other_metrics['best@4']}" in plan.summary()
    assert "best n for best@4" in plan._repr_html_()
    assert plan.to_dict()["other_metrics"] == plan.other_metrics
    alone = Planner(both["best@4"]).allocate("2M", spend="all")
    assert alone.group_size == plan.other_metrics["best@4"]


def test_the_surface_decides_whatever_its_law_says(both: FitsSet) -> None:
    fits: Fits = both.first
    without = replace(fits, laws={}, unsupported={"group_size": "left out"})
    a, b = (Planner(one).allocate("1M") for one in (fits, without))
    assert (a.group_size, a.update_steps, a.predicted_reward) == (b.group_size, b.update_steps, b.predicted_reward)
    assert b.law_group_size is None
    assert b.group_size_interval == a.group_size_interval


def test_a_plan_goes_on_from_the_pilot_run_with_its_n(both: FitsSet) -> None:
    planner = Planner(both["avg@4"])
    budget = Budget(rollouts=2e6, spent={"pilot": 5e5, "lost": 1e5})
    fresh = planner.allocate(budget, spend="all", problems_per_batch=32)
    batch = 32 * fresh.group_size
    begins = round(4e5 / batch)
    fixed: dict[str, Any] = {"spend": "all", "problems_per_batch": 32}
    again = planner.allocate(budget, **fixed, continued={(fresh.group_size, 32): begins})
    assert again.group_size == fresh.group_size
    assert again.update_steps == int(1.4e6 / batch + begins)
    assert again.budget == fresh.budget == budget
    assert (again.past, fresh.past) == ({"rollouts": begins * batch}, {})
    assert again.to_pay("rollouts") == again.cost - begins * batch
    assert again.gain is not None
    assert again.gain.run_to_go_on is None
    assert again.to_pay("rollouts") <= again.budget.available < again.cost
    # A change by hand goes on with the run as well, but for another n; and only a plan with this n and B_p does.
    assert change_plan(again, {"learning_rate": 1e-6}).past == again.past
    with pytest.raises(PlanError, match="cost"):
        change_plan(again, {"group_size": 2 * again.group_size, "update_steps": again.update_steps})
    other = planner.allocate(budget, **fixed, continued={(fresh.group_size, 64): begins})
    assert other == fresh


def test_hours_that_a_run_has_trained_are_past_and_not_before_the_deadline_of_a_plan_that_goes_on(
    both: FitsSet,
) -> None:
    planner = Planner(both["avg@4"], throughput=Throughput(rollouts_per_second=20, startup_seconds=0))
    budget = Budget(rollouts=2e6, spent={"pilot": 5e5}, deadline_hours=10)
    fixed: dict[str, Any] = {"spend": "all", "problems_per_batch": 32}
    fresh = planner.allocate(budget, **fixed)
    begins = fresh.update_steps // 2
    again = planner.allocate(budget, **fixed, continued={(fresh.group_size, 32): begins})
    assert "deadline" in fresh.binding
    assert (again.group_size, again.budget.deadline_hours) == (fresh.group_size, 10)
    assert again.update_steps == pytest.approx(fresh.update_steps + begins, rel=0.01)
    assert again.to_pay("wall_hours") <= 10 < again.costs["wall_hours"]


def test_a_long_pilot_run_of_an_n_that_is_nearly_as_good_decides(both: FitsSet) -> None:
    planner = Planner(both["avg@4"])
    budget = Budget(rollouts=2e6, spent={"pilot": 1.9e6})
    fresh = planner.allocate(budget, spend="all", problems_per_batch=32, min_update_steps=1)
    larger = 2 * fresh.group_size
    chosen = planner.allocate(
        budget,
        spend="all",
        problems_per_batch=32,
        min_update_steps=1,
        continued={(larger, 32): int(1.8e6 / (32 * larger))},
    )
    assert chosen.group_size == larger
    assert chosen.rollouts > 10 * fresh.rollouts


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ({}, Budget(rollouts=1e6)),
        ({"recipe": Recipe(min_problems_per_batch=64)}, Budget(rollouts=1e6)),
        # Evaluations that cost half as much as training buy fewer steps.
        (
            {
                "throughput": Throughput(step_overhead_seconds=5, rollouts_per_second=50, gpus=8),
                "evaluation": Evaluation(n_problems=5000, samples=16),
            },
            Budget(gpu_hours=20),
        ),
    ],
)
def test_the_planner_of_a_plan_makes_it_again(
    both: FitsSet, given: dict[str, Any], budget: Budget, tmp_path: Path
) -> None:
    plan = Planner(both.first, **given).allocate(budget)
    again = Planner.of(Plan.load(plan.save(tmp_path / "plan.json"))).allocate(budget)
    for name in ("group_size", "problems_per_batch", "update_steps", "cost", "predicted_reward", "recipe"):
        assert getattr(again, name) == getattr(plan, name)


@pytest.mark.parametrize("budget", ["300k", "1M", "20M"])
def test_a_saved_plan_decides_other_budgets_as_its_runs_do(both: FitsSet, budget: str, tmp_path: Path) -> None:
    kept = Plan.load(Planner(both.first).allocate("3M").save(tmp_path / "plan.json"))
    assert Planner.of(kept).allocate(budget) == Planner(both.first).allocate(budget)


def test_a_saved_plan_takes_no_gpus_for_given_that_nobody_gave(both: FitsSet) -> None:
    plan = Planner(both.first, throughput=Throughput(rollouts_per_second=50)).allocate("3M", slots=0)
    assert (plan.gpus, plan.gpu_hours) == (None, None)
    assert plan.wall_hours is not None
    assert Plan.from_dict(plan.to_dict()).gpus is None


def test_a_conservative_plan_takes_the_best_n_that_was_run(both: FitsSet) -> None:
    planner, largest = Planner(both.first), both.first.group_size_range[1]
    plan, careful = (planner.allocate("50M", spend="all", mode=mode) for mode in ("expected", "conservative"))
    assert plan.group_size > largest >= careful.group_size
    assert [a.group_size for a in plan.alternatives if a.kind == "on-grid"] == [careful.group_size]
    assert [a.group_size > largest for a in careful.alternatives if a.kind == "beyond-grid"] == [True]
    assert "conservative" not in {a.kind for a in plan.alternatives}
    # Where the default stays on the grid, both are one.
    plans = [planner.allocate("100k", mode=mode).group_size for mode in ("expected", "conservative")]
    assert plans[0] == plans[1] <= largest
