"""A person's changes to a plan: what follows from them is computed again, and the budget holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk import Fits, Plan, PlanError, Throughput
from isocompute_sdk.planning import change_plan, differences

NAMES = ("surface", "paper", "prior", "published", "timed")
Plans = dict[str, Plan]


def note(plan: Plan) -> dict[str, Any]:
    (found,) = [n for n in plan.notes if n.code == "changed-by-hand"]
    return dict(found.data)


@pytest.mark.parametrize("name", NAMES)
def test_another_group_size_gets_the_steps_rate_and_prediction_that_follow(
    plans: Plans, name: str, tmp_path: Path
) -> None:
    plan = plans[name]
    n = 16 if plan.group_size != 16 else 32
    new = change_plan(plan, {"group_size": str(n)})
    assert (new.group_size, new.problems_per_batch) == (n, plan.problems_per_batch)
    # One more step would not be paid for.
    with pytest.raises(PlanError) as caught:
        change_plan(plan, {"group_size": n, "update_steps": new.update_steps + 1})
    assert caught.value.smallest_budget is not None
    assert new.learning_rate == plan.recipe.learning_rate(new.rollouts_per_batch)
    assert note(new)["changed"] == {"group_size": [plan.group_size, n]}
    if name != "prior":
        fits = plan.fits
        assert fits is not None
        assert new.predicted_reward == pytest.approx(float(fits.predict(new.compute, n, 32).mean), rel=1e-12)
        assert new.extrapolation == pytest.approx(new.compute / (fits.largest_compute or 0))
    else:
        assert new.predicted_reward is None
    before = new.alternatives[0]
    assert (before.group_size, before.update_steps) == (plan.group_size, plan.update_steps)
    assert Plan.load(new.save(tmp_path / "new.json")) == new
    assert new.verdict.kind != "clear"


@pytest.mark.parametrize("name", NAMES)
def test_a_short_run_is_evaluated_as_often_as_asked(plans: Plans, name: str) -> None:
    plan = plans[name]
    short = {"group_size": 8, "update_steps": 99}
    new = change_plan(plan, {**short, "evaluation.every_steps": "5"})
    assert new.evaluation is not None
    assert new.evaluation.every_steps == 5
    assert note(new)["changed"]["evaluation.every_steps"][1] == 5
    kept = change_plan(plan, short)
    assert kept.evaluation is not None
    assert kept.evaluation.every_steps > 9


@pytest.mark.parametrize("name", NAMES)
def test_a_learning_rate_changes_nothing_else(plans: Plans, name: str) -> None:
    plan = plans[name]
    new = change_plan(plan, {"learning_rate": "3e-6"})
    assert new.learning_rate == 3e-6
    assert new.recipe.learning_rate_rule == plan.recipe.learning_rate_rule
    assert [what for what, _, _ in differences(plan, new)] == ["learning_rate"]
    assert new.verdict == plan.verdict
    assert new.alternatives == plan.alternatives


def test_the_same_allocation_is_the_same_plan_but_for_the_note(plans: Plans) -> None:
    for plan in plans.values():
        new = change_plan(plan, {"group_size": plan.group_size, "update_steps": plan.update_steps})
        assert differences(plan, new) == []
        assert new.costs == pytest.approx(plan.costs)
        assert new.breakdown["evaluation"] == pytest.approx(plan.breakdown["evaluation"])


def test_a_batch_can_be_given_with_or_without_n(plans: Plans) -> None:
    plan = plans["paper"]
    by_batch = change_plan(plan, {"rollouts_per_batch": 4 * plan.rollouts_per_batch})
    assert (by_batch.group_size, by_batch.problems_per_batch) == (plan.group_size, 4 * plan.problems_per_batch)
    both = change_plan(plan, {"rollouts_per_batch": "8k", "group_size": 80})
    assert (both.group_size, both.problems_per_batch) == (80, 100)
    for wrong in ({"rollouts_per_batch": 1000}, {"rollouts_per_batch": 64, "group_size": 2, "problems_per_batch": 8}):
        with pytest.raises(PlanError):
            change_plan(plan, wrong)


def test_a_larger_budget_buys_what_the_old_one_did_not(plans: Plans) -> None:
    for name, more in (("paper", "6M"), ("timed", "1200 usd")):
        plan = plans[name]
        steps = plan.update_steps + 20
        with pytest.raises(PlanError) as caught:
            change_plan(plan, {"update_steps": steps})
        assert "--change budget" in (caught.value.shell_hint or "")
        new = change_plan(plan.from_dict(plan.to_dict()), {"update_steps": steps, "budget": more})
        assert new.update_steps == steps
        assert plan.cost < new.cost <= new.budget.available
        assert (new.budget.deadline_hours, new.budget.spent) == (plan.budget.deadline_hours, plan.budget.spent)


def test_a_deadline_is_kept_whatever_the_budget(plans: Plans) -> None:
    plan = plans["timed"]
    new = change_plan(plan, {"budget": "9000 usd"})
    assert new.wall_hours is not None
    assert new.wall_hours <= 24
    assert new.binding == ("deadline",)
    with pytest.raises(PlanError):
        change_plan(plan, {"budget": "9000 usd", "update_steps": new.update_steps + 1})


def test_a_plan_without_its_fits_gets_costs_and_no_prediction(plans: Plans) -> None:
    for plan in plans.values():
        bare = Plan.from_dict(plan.to_dict(with_fits=False))
        new = change_plan(bare, {"update_steps": plan.update_steps // 2})
        full = change_plan(plan, {"update_steps": plan.update_steps // 2})
        assert (new.costs, new.breakdown, new.learning_rate) == (full.costs, full.breakdown, full.learning_rate)
        assert (new.predicted_reward, new.reward_interval) == (None, None)
        assert new.extrapolation == pytest.approx(full.extrapolation)
        assert new.verdict.kind == "undecided"
        assert Plan.from_dict(new.to_dict()) == new
        assert change_plan(bare, {"kl_coef": 0.002}).predicted_reward == plan.predicted_reward


def test_a_changed_recipe_is_said_to_be_unknown_to_the_fits(plans: Plans) -> None:
    new = change_plan(plans["surface"], {"temperature": 0.9, "kl_coef": "0"})
    assert (new.recipe.temperature, new.recipe.kl_coef) == (0.9, 0)
    assert set(note(new)["changed"]) == {"temperature", "kl_coef"}
    assert "kl-entropy-unpaired" in {n.code for n in new.notes}


@pytest.mark.parametrize(
    "wrong",
    [
        {"grup_size": 8},
        {"group_size": 1},
        {"group_size": "many"},
        {"group_size": None},
        {"group_size": []},
        {"learning_rate": [1e-6]},
        {"budget": {1}},
        {"group_size": 8.5},
        {"problems_per_batch": 0},
        {"update_steps": -5},
        {"learning_rate": -1},
        {"learning_rate": "fast"},
        {"learning_rate": float("nan")},
        {"budget": "lots"},
        {"budget": "5 gpu_hours"},
        {"model": " "},
        {"n_problems": 0},
        {"temperature": "hot"},
        {"group_size": 1024},
        {"problems_per_batch": 10**6},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(plans: Plans, wrong: dict[str, Any]) -> None:
    from isocompute_sdk import IsoComputeError

    with pytest.raises(IsoComputeError) as caught:
        change_plan(plans["surface"], wrong)
    assert caught.value.hint


def test_a_batch_whose_speed_is_unknown_is_refused(plans: Plans) -> None:
    from isocompute_sdk import Budget, Planner

    speed = Throughput.model_validate(
        {
            "step_overhead_seconds": 5,
            "rollouts_per_second": 50,
            "gpus": 1,
            "measured": {"rollouts_per_batch": [1024], "runs": 1, "steps": 20},
        }
    )
    fits = plans["surface"].fits
    assert isinstance(fits, Fits)
    plan = Planner(fits, throughput=speed).allocate(Budget(gpu_hours=20), min_update_steps=5)
    assert plan.rollouts_per_batch <= 1024 * 1.25
    with pytest.raises(PlanError):
        change_plan(plan, {"rollouts_per_batch": 4 * plan.rollouts_per_batch})


@given(
    st.sampled_from(NAMES),
    st.fixed_dictionaries(
        {},
        optional={
            "group_size": st.integers(2, 5000),
            "problems_per_batch": st.integers(1, 5000),
            "update_steps": st.integers(1, 10**6),
            "budget": st.floats(1, 1e8),
            "n_problems": st.integers(1, 10**6),
            "learning_rate": st.floats(1e-9, 1.0),
        },
    ),
)
def test_any_change_keeps_the_budget_or_is_refused(plans: Plans, name: str, changes: dict[str, Any]) -> None:
    plan = plans[name]
    if "budget" in changes:
        changes["budget"] = f"{changes['budget']:.6f} {plan.budget.unit}"
    try:
        new = change_plan(plan, changes)
    except (PlanError, ValueError):
        return
    assert new.cost <= new.budget.available
    assert json.loads(json.dumps(new.to_dict()))["group_size"] == changes.get("group_size", plan.group_size)
    assert new.update_steps == changes.get("update_steps", new.update_steps)


def test_an_n_beyond_what_the_runs_predict_has_costs_alone(plans: Plans) -> None:
    plan = plans["surface"]
    assert plan.fits is not None
    far = 4 * plan.fits.group_size_range[1]
    new = change_plan(plan, {"group_size": far, "problems_per_batch": 4, "update_steps": 2})
    assert new.cost == 2 * far * 4
    assert new.predicted_reward is None
    assert new.approval is None
    assert Plan.from_dict(new.to_dict()) == new
