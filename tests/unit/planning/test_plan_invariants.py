"""Whatever the budget, unit, hardware and fixed values: a plan is executable, or refused with what would work."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import isocompute_sdk as iso
from isocompute_sdk.planning.choosing.pricing import Pricing

EASY, HARD = "qwen2.5-7b-instruct/guru-math-easy", "qwen2.5-7b-instruct/guru-math-hard"
UNITS = ("rollouts", "tokens", "gpu_hours", "usd")

throughputs = st.builds(
    iso.Throughput,
    step_overhead_seconds=st.floats(0, 300),
    rollouts_per_second=st.floats(0.5, 5000),
    tokens_per_rollout=st.floats(10, 8000),
    gpus=st.integers(1, 64),
    usd_per_gpu_hour=st.floats(0.1, 10),
)
hardware = st.builds(
    iso.Hardware,
    max_rollouts_per_batch=st.one_of(st.none(), st.integers(256, 65_536)),
    divisible_by=st.one_of(st.none(), st.integers(1, 48)),
)
sources = st.sampled_from([EASY, HARD, f"{EASY}:joint", f"{EASY}:tokens", "prior"])


def fits_of(name: str) -> iso.Fits:
    return iso.published_prior() if name == "prior" else iso.published(name)


def cost(unit: str, throughput: iso.Throughput, batch: int, steps: int) -> float:
    """Recomputed here from the definitions, not through the planner."""
    rollouts = batch * steps
    hours = steps * (throughput.step_overhead_seconds + batch / throughput.rollouts_per_second) / 3600
    return {
        "rollouts": rollouts,
        "tokens": rollouts * (throughput.tokens_per_rollout or math.nan),
        "gpu_hours": hours * throughput.gpus,
        "usd": hours * throughput.gpus * (throughput.usd_per_gpu_hour or math.nan),
        "wall_hours": hours,
    }[unit]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    source=sources,
    unit=st.sampled_from(UNITS),
    rollouts=st.floats(4, 8.5).map(lambda e: 10**e),
    throughput=throughputs,
    machine=hardware,
    preset=st.sampled_from(["easy", "hard", "mixture"]),
    problems=st.one_of(st.none(), st.integers(1, 2048)),
    steps=st.one_of(st.none(), st.integers(20, 5000)),
    deadline=st.one_of(st.none(), st.floats(0.5, 1000)),
    mode=st.sampled_from(["expected", "conservative"]),
)
def test_every_plan_is_executable_and_within_its_budget(
    source: str,
    unit: str,
    rollouts: float,
    throughput: iso.Throughput,
    machine: iso.Hardware,
    preset: str,
    problems: int | None,
    steps: int | None,
    deadline: float | None,
    mode: str,
) -> None:
    recipe = iso.Recipe.preset(preset)
    amount = cost(unit, throughput, 1024, max(1, int(rollouts / 1024)))
    budget = iso.Budget(**{unit: amount}, deadline_hours=deadline)
    planner = iso.Planner(fits_of(source), machine, recipe, throughput)
    try:
        plan = planner.allocate(budget, problems_per_batch=problems, update_steps=steps, mode=mode)
    except iso.PlanError as refusal:
        if refusal.smallest_budget is not None and deadline is None:
            again = iso.Budget(**{unit: refusal.smallest_budget * (1 + 1e-9)})
            enough = planner.allocate(again, problems_per_batch=problems, update_steps=steps, mode=mode)
            assert enough.cost <= again.amount * (1 + 1e-6)
            with pytest.raises(iso.PlanError):
                planner.allocate(
                    iso.Budget(**{unit: refusal.smallest_budget * 0.99}),
                    problems_per_batch=problems,
                    update_steps=steps,
                    mode=mode,
                )
        return
    n, bp, m = plan.group_size, plan.problems_per_batch, plan.update_steps
    assert all(isinstance(value, int) for value in (n, bp, m))
    assert n >= 2
    assert n & (n - 1) == 0
    assert bp == problems if problems is not None else bp >= recipe.min_problems_per_batch
    assert m == steps if steps is not None else m >= 2 * recipe.warmup_steps
    assert machine.max_rollouts_per_batch is None or n * bp <= machine.max_rollouts_per_batch
    assert (n * bp) % machine.divisor == 0
    assert plan.cost == pytest.approx(cost(unit, throughput, n * bp, m), rel=1e-9)
    assert plan.cost <= amount * (1 + 1e-6)
    if deadline is not None:
        assert cost("wall_hours", throughput, n * bp, m) <= deadline * (1 + 1e-6)
    codes = {note.code for note in plan.notes}
    if steps is None and m >= 40 and "rest-not-worthwhile" not in codes and plan.binding[-1] == "budget":
        assert plan.cost >= 0.97 * amount
    if plan.unused_share > 0.03 and "rest-not-worthwhile" not in codes:
        assert "unused-budget" in codes
    for other in plan.alternatives:
        assert (
            cost(unit, throughput, other.group_size * other.problems_per_batch, other.update_steps) <= amount * 1.000001
        )
    assert iso.Plan.from_dict(plan.to_dict()).to_dict() == plan.to_dict()


@settings(max_examples=60)
@given(
    batch=st.sampled_from([1024, 4096, 8192, 16_384]),
    steps=st.one_of(st.none(), st.integers(20, 2000)),
    rollouts=st.floats(5, 8).map(lambda e: 10**e),
)
def test_with_a_fixed_batch_n_divides_it_and_the_unused_share_is_reported(
    batch: int, steps: int | None, rollouts: float
) -> None:
    planner = iso.Planner(iso.published(f"{EASY}:fixed-batch"))
    needed = batch * (20 if steps is None else steps)
    if rollouts < needed:
        with pytest.raises(iso.PlanError) as refusal:
            planner.allocate(rollouts, rollouts_per_batch=batch, update_steps=steps)
        assert refusal.value.smallest_budget == needed
        return
    plan = planner.allocate(rollouts, rollouts_per_batch=batch, update_steps=steps)
    assert plan.rollouts_per_batch == batch
    assert plan.rollouts <= rollouts
    codes = {note.code for note in plan.notes}
    assert ("fixed-batch-of-another-size" in codes) == (batch != 8192)
    assert ("unused-budget" in codes) == (plan.unused_share > 0.03)


@given(st.floats(4, 8).map(lambda e: 10**e), st.floats(1.0, 30.0))
def test_a_larger_budget_never_gets_a_smaller_group(rollouts: float, factor: float) -> None:
    planner = iso.Planner(iso.published(EASY))
    assume(rollouts >= 6000)
    small, large = planner.allocate(rollouts), planner.allocate(rollouts * factor)
    assert large.group_size >= small.group_size


@given(throughputs, st.integers(1, 100_000), st.integers(1, 10_000), st.sampled_from(UNITS))
def test_affordable_steps_are_the_most_that_fit(throughput: iso.Throughput, batch: int, steps: int, unit: str) -> None:
    amount = cost(unit, throughput, batch, steps)
    assume(amount > 1e-12)
    pricing = Pricing(iso.Budget(**{unit: amount}), throughput)
    assert pricing.within(batch, steps)
    assert not pricing.within(batch, steps + 1)
