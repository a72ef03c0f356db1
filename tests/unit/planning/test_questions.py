"""The inverse, the marginal and the comparison of plans."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk import Fits, Hardware, PlanError, Planner, Throughput, fit, published
from isocompute_sdk.planning.comparing import COMPARISON, parse_configuration
from isocompute_sdk.planning.questions import BUDGET_FOR, MARGINAL
from isocompute_sdk.specs import Evaluation
from tests.parameters import few
from tests.unit.sweeps import Make, later_and_higher, noisy

SPEED = Throughput(step_overhead_seconds=20.0, rollouts_per_second=50.0, gpus=8)
level = later_and_higher()
"""Everything is flat beyond 10 M rollouts."""


@pytest.fixture(scope="module")
def fits(make_runs: Make) -> Fits:
    compute = np.concatenate([[0.0], np.geomspace(2e4, 8e6, 24)])
    return fit(make_runs(noisy(level, 0.004), [(n, 32) for n in (8, 32, 128)], compute), draws=40)


@pytest.fixture(scope="module")
def planner(fits: Fits) -> Planner:
    return Planner(fits, throughput=SPEED)


@settings(max_examples=5)
@given(st.floats(math.log(6e4), math.log(6e6)))
def test_the_budget_for_a_reward_is_the_inverse_of_the_reward_of_a_budget(planner: Planner, log_budget: float) -> None:
    budget = math.exp(log_budget)
    plan = planner.allocate(budget, spend="all")
    assert plan.predicted_reward is not None
    found = planner.budget_for(plan.predicted_reward)
    assert found.expected is not None
    # Where n changes with the budget the plan's prediction dips by less than a tie: a little less may do there.
    assert found.expected <= 1.1 * budget
    assert found.plan is not None
    assert found.plan.predicted_reward is not None
    assert found.plan.predicted_reward >= plan.predicted_reward
    if found.expected > 1.1 * 32 * 8 * 20:
        less = planner.allocate(found.expected / 1.1, spend="all").predicted_reward
        assert less is not None
        assert less < plan.predicted_reward
    assert (found.optimistic or 0.0) <= found.expected <= (found.conservative or math.inf)


@pytest.mark.parametrize("factor", few([1.05, 1.8, 1.2, 1.4], 2))
def test_the_budget_for_little_is_enough_for_it(planner: Planner, factor: float) -> None:
    base = planner.budget_for(0.0).base_reward
    least = planner.budget_for(base + 1e-6).expected
    assert least is not None
    reward = planner.allocate(factor * least, spend="all").predicted_reward
    assert reward is not None
    found = planner.budget_for(reward)
    assert found.plan is not None
    assert found.plan.predicted_reward is not None
    assert found.plan.predicted_reward >= reward


def test_the_true_cost_of_a_reward_lies_between_optimistic_and_conservative(planner: Planner) -> None:
    found = planner.budget_for(0.5, level=0.9)
    grid = np.geomspace(2e4, 8e6, 2000)
    best = np.max([[level(n, 32, c) for c in grid] for n in (8, 32, 128)], axis=0)
    truth = float(grid[np.argmax(best >= 0.5)])
    assert found.optimistic is not None
    assert found.conservative is not None
    assert found.optimistic <= truth <= found.conservative


def test_what_cannot_be_reached_is_said_plainly(planner: Planner) -> None:
    found = planner.budget_for(0.95)
    assert not found.reachable
    assert found.largest_reward_high < 0.95
    assert found.to_dict()["expected"] is None
    little = planner.budget_for(0.2)
    assert little.base_reward > 0.2
    # A share that was asked of rewards in percent.
    assert "70" in replace(little, reward=0.7, base_reward=22.0).summary()
    with pytest.raises(PlanError):
        planner.budget_for(1.5)


@pytest.mark.parametrize("reward", [0.5, 0.95])
def test_the_cost_of_a_reward_names_the_limits_that_raise_it(fits: Fits, reward: float) -> None:
    limited = Planner(fits, Hardware(max_rollouts_per_batch=512)).budget_for(reward)
    assert "512" in limited.limits.split()
    assert any(limited.limits in line for line in limited.lines())
    assert not Planner(fits).budget_for(reward).limits


def test_where_batch_and_steps_are_fixed_no_budget_buys_a_reward(planner: Planner) -> None:
    with pytest.raises(PlanError, match="both fixed"):
        planner.budget_for(0.6, rollouts_per_batch=1024, update_steps=200)


def test_a_reward_can_be_priced_in_gpu_hours(planner: Planner) -> None:
    found = planner.budget_for(0.5, unit="gpu_hours")
    assert found.plan is not None
    assert found.expected is not None
    assert found.plan.costs["gpu_hours"] <= found.expected * (1 + 1e-9)
    with pytest.raises(PlanError, match="rollouts_per_second"):
        Planner(planner.fits).budget_for(0.5, unit="gpu_hours")


@settings(max_examples=8)
@given(st.floats(math.log(6e4), math.log(3e7)))
def test_more_budget_never_loses(planner: Planner, log_budget: float) -> None:
    found = planner.marginal(math.exp(log_budget))
    for gain in (found.gain, found.doubling):
        assert gain.mean >= 0
        assert gain.low <= gain.mean <= gain.high


def test_more_budget_pays_early_and_not_late(planner: Planner) -> None:
    early = planner.marginal("400k")
    assert early.verdict == "worth-it"
    assert planner.allocate("800k", spend="all").last_half is None
    late = planner.marginal("60M")
    # A plan for twice as much says the same of its last half.
    twice = planner.allocate("120M", spend="all")
    assert twice.last_half is not None
    assert twice.last_half < late.worthwhile
    assert "not worth it" in twice.summary()
    assert late.verdict == "not-worth-it"
    assert late.doubling.mean < late.worthwhile


@settings(max_examples=6)
@given(st.floats(math.log(6e4), math.log(6e6)))
def test_a_plan_against_itself_gains_nothing(planner: Planner, log_budget: float) -> None:
    budget = math.exp(log_budget)
    plan = planner.allocate(budget)
    for own in (
        (plan.group_size, plan.problems_per_batch),
        (plan.group_size, plan.problems_per_batch, plan.update_steps),
    ):
        found = planner.compare(own, budget)
        assert found.difference == (0.0, 0.0, 0.0)
        assert found.equal_reward.mean == plan.cost
        assert found.gpu_hours_saved == (0.0, 0.0, 0.0)
        assert len(found.lines()) == 1


def test_a_small_n_is_compared_in_reward_rollouts_and_gpu_hours(planner: Planner) -> None:
    found = planner.compare("n=8,bp=32", "4M")
    truth = max(level(n, 32, 4e6) for n in (8, 32, 128)) - level(8, 32, 4e6)
    assert found.difference.low <= truth <= found.difference.high
    assert found.equal_reward.high < 0.5 * 4e6
    assert found.gpu_hours_saved is not None
    # n = 8 takes 16 times the steps of n = 128, each with its overhead.
    assert found.gpu_hours_saved.low > 0.5 * found.costs["gpu_hours"]
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["kind"] == "against"
    assert f" ({found.difference.low:+.3f} to {found.difference.high:+.3f})" in found.lines()[0]
    with pytest.raises(PlanError):
        planner.compare((2**14, 32), "500M")


def test_evaluations_are_paid_for_on_both_sides_of_a_comparison(fits: Fits) -> None:
    planners = [Planner(fits, throughput=SPEED, evaluation=Evaluation(n_problems=d)) for d in (300, 1)]
    dear, cheap = (one.compare("n=8,bp=32", "4M").costs["gpu_hours"] for one in planners)
    # The schedule may cost 5 % of training.
    assert 1.01 * cheap < dear < 1.06 * cheap


def test_curves_without_draws_answer_without_intervals() -> None:
    curves = Planner(published("qwen2.5-7b-instruct/guru-math-easy"))
    assert "no interval" in curves.budget_for(0.6).summary()
    found = curves.compare((16, 32), "3M", problems_per_batch=32) if 16 in curves.fits.group_sizes else None
    found = found or curves.compare((8, 32), "3M")
    assert found.difference.mean > 0
    assert found.to_dict()["difference"]["low"] is None
    assert json.dumps(curves.marginal("3M").to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "given_as", ["n=16,bp=32,m=9", "group_size=16 B_p=32 M=9", {"n": 16, "bp": 32, "m": 9}, (16, 32, 9)]
)
def test_configurations_are_read_in_every_form(given_as: object) -> None:
    assert parse_configuration(given_as) == (16, 32, 9)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("given_as", ["n=16", "n=1,bp=2", "k=3,n=4,bp=2", "", {"n": "many", "bp": 1}])
def test_what_is_no_configuration_is_refused(given_as: object) -> None:
    with pytest.raises(PlanError, match="n=16,bp=32"):
        parse_configuration(given_as)  # pyright: ignore[reportArgumentType]


def test_answers_are_documents_that_can_be_read_back(planner: Planner) -> None:
    answers = (
        (BUDGET_FOR, planner.budget_for(0.5)),
        (BUDGET_FOR, planner.budget_for(0.95)),
        (MARGINAL, planner.marginal("1M")),
        (COMPARISON, planner.compare("n=8,bp=32", "1M")),
    )
    for document, found in answers:
        raw = found.to_dict()
        assert document.from_dict(raw).to_dict() == raw  # type: ignore[attr-defined]
        assert (raw["kind"], raw["schema_version"]) == (document.kind, 1)
