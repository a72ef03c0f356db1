"""One data set at equal rollouts, steps, time and batch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from isocompute_sdk import Fits, PlanError, Planner, fit
from isocompute_sdk.planning.comparing import COMPARISON, EQUALS
from tests.unit.sweeps import Make, noisy


@pytest.fixture(scope="module")
def script(benchmark_module: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark_module("comparing")


@pytest.fixture(scope="module")
def simulated(script: ModuleType) -> Planner:
    return script.simulated()


@pytest.mark.slow
def test_equal_epochs_and_equal_rollouts_answer_differently_on_one_data_set(script: ModuleType) -> None:
    simulated, drawn = script.simulated(), script.digitised()
    steps = script.rows(simulated, 2, 16, script.SIMULATED_STEPS)
    # At equal steps n = 16 leads by little at 8 times the rollouts; at equal rollouts it is behind, then ahead.
    assert all(0 < row.differences["steps"].mean < 0.03 for row in steps)
    assert steps[0].differences["rollouts"].high < -0.05
    assert steps[-1].differences["rollouts"].low > 0
    for row in steps:
        truth = script.true_reward(512 * row.steps, 16) - script.true_reward(64 * row.steps, 2)
        assert row.differences["steps"].mean == pytest.approx(truth, abs=0.012)
        truth = script.true_reward(512 * row.steps, 16) - script.true_reward(512 * row.steps, 2)
        assert row.differences["rollouts"].mean == pytest.approx(truth, abs=0.012)
    assert script.DIGITISED_STEPS[2:] == (1_000, 1_900)
    ten_epochs = script.rows(drawn, 8, 16, script.DIGITISED_STEPS)[3].differences["steps"]
    assert ten_epochs.low < 0 < ten_epochs.high
    late = script.rows(drawn, 8, 128, script.DIGITISED_STEPS)[2].differences["rollouts"]
    assert late.mean > 0.02


def test_each_question_holds_one_quantity_equal(simulated: Planner) -> None:
    answers = {equal: simulated.compare((2, 32), "1M", equal=equal, reference=(16, 32, 1000)) for equal in EQUALS}
    plan = answers["steps"].plan
    assert (plan.group_size, plan.problems_per_batch, plan.update_steps) == (16, 32, 1000)
    by_steps, by_rollouts, by_time, by_batch = (answers[e] for e in ("steps", "rollouts", "time", "batch"))
    assert (by_steps.problems_per_batch, by_steps.update_steps) == (32, 1000)
    assert (by_rollouts.problems_per_batch, by_rollouts.update_steps) == (32, 8000)
    assert (by_batch.problems_per_batch, by_batch.update_steps) == (256, 1000)
    assert by_time.problems_per_batch == 32
    # One step more, and the evaluation that may come with it.
    assert by_time.costs["wall_hours"] <= plan.wall_hours < by_time.costs["wall_hours"] * (1 + 1 / 400)  # type: ignore[operator]
    for equal, found in answers.items():
        own = found.at_equal[equal]
        assert (own.problems_per_batch, own.update_steps) == (found.problems_per_batch, found.update_steps)
        assert own.difference == found.difference
        assert own.reward == found.configuration_reward
        assert found.equal == equal
        assert found.at_equal == by_steps.at_equal
        assert own.difference.mean == pytest.approx(plan.predicted_reward - own.reward.mean)
        raw = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert COMPARISON.from_dict(raw).to_dict() == raw
        assert f"at equal {equal}" in found.summary()
        assert f"{found.difference.low:+.3f} to {found.difference.high:+.3f}" in found.summary()
    # A configuration with its M is compared as it is, at its own cost.
    as_run = simulated.compare((2, 32, 100), "1M", reference=(16, 32, 1000)).verdict
    assert "equal" not in as_run.split(":")[0]
    for said in ("M = 1,000", "512,000 rollouts", "M = 100", "6,400 rollouts"):
        assert said in as_run


def test_without_an_interval_no_number_stands_in_its_place(fitted: Fits) -> None:
    found = Planner(fitted).compare((8, 32), "3M")
    assert math.isnan(found.difference.low)
    assert "nan" not in found.summary()


@pytest.mark.slow
def test_a_difference_that_is_known_to_be_small_is_a_tie_and_a_wide_one_is_undecided(make_runs: Make) -> None:
    compute = np.concatenate([[0.0], np.geomspace(2e3, 2e6, 40)])

    def verdict(spread: float) -> str:
        level = noisy(lambda n, bp, c: 0.3 + 0.4 * float(-np.expm1(-c / 2e4)), spread)
        planner = Planner(fit(make_runs(level, [(n, 32) for n in (8, 16, 32)], compute), draws=400))
        found = planner.compare((8, 32), "1M", reference=(16, 32), equal="rollouts")
        assert found.difference.low < 0 < found.difference.high
        return found.verdict

    small, wide = verdict(0.002), verdict(0.08)
    assert "equal," in small
    assert "equal," not in wide


@pytest.mark.slow
def test_against_the_best_plan_the_budget_is_the_default(simulated: Planner) -> None:
    found = simulated.compare("n=2,bp=32", "1M")
    assert (found.equal, found.against_plan) == ("budget", True)
    assert found.update_steps == 1_000_000 // 64
    assert found.difference.mean >= 0
    in_rollouts = simulated.compare("n=2,bp=32", "1M", equal="rollouts")
    assert in_rollouts.difference.mean == pytest.approx(found.difference.mean, abs=1e-3)
    # The batch decides B_p.
    assert simulated.compare("n=2", "1M", equal="batch").problems_per_batch == found.plan.rollouts_per_batch // 2


def test_what_cannot_be_held_equal_is_refused(script: ModuleType, simulated: Planner) -> None:
    untimed = Planner(simulated.fits)
    assert set(untimed.compare((2, 32), "1M").at_equal) == {"rollouts", "steps", "batch"}
    for planner, configuration, equal, word in (
        (untimed, (2, 32), "time", "throughput"),
        (simulated, (2, 32), "epochs", "rollouts, steps, time, batch"),
        (simulated, (2, 32, 100), "steps", "M"),
        (simulated, "n=2", "steps", "bp"),
        (simulated, (3, 32), "batch", "batch"),
    ):
        with pytest.raises(PlanError, match=word):
            planner.compare(configuration, "1M", equal=equal, reference=(16, 32))  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="step"):
        simulated.compare((2, 32), 100, reference=(16, 32))
