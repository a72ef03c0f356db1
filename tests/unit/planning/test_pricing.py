"""Costs, steps and deadlines: exact to the last step, in every unit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk import Budget, Hardware, PlanError, Planner, Throughput
from isocompute_sdk.laws import hedged_prior
from isocompute_sdk.planning.pricing import Pricing, amount_text

SPEED = Throughput(
    step_overhead_seconds=20, rollouts_per_second=64, tokens_per_rollout=1500, gpus=8, usd_per_gpu_hour=2.5
)


def test_a_worked_example_in_every_unit() -> None:
    # One step of 4096: 20 s + 64 s = 84 s; 150 steps take 3.5 h. 300 x 4 responses at steps 0, 10, ..., 150 take 16 x
    # 18.75 s.
    # On 8 GPUs at $2.5.
    pricing, hours = Pricing(Budget(usd=72), SPEED), 3.5 + 300 / 3600
    assert pricing.all_costs(4096, 150) == pytest.approx(
        {
            "rollouts": 614_400,
            "wall_hours": hours,
            "gpu_hours": 8 * hours,
            "tokens": 614_400 * 1500,
            "usd": 20 * hours,
        },
        rel=1e-12,
    )
    assert pricing.affordable_steps(4096) == (150, "budget")
    assert pricing.cost(4096, 150) == pytest.approx(20 * hours)


@pytest.mark.parametrize(("value", "rounded"), [(0.9999, 1.0), (99.99, 100.0)])
def test_an_amount_is_shown_as_the_number_that_it_rounds_to(value: float, rounded: float) -> None:
    assert amount_text(value, "gpu_hours") == amount_text(rounded, "gpu_hours")


def test_a_time_is_also_in_the_unit_that_people_would_use() -> None:
    assert "12 minutes" in amount_text(0.2, "wall_hours")
    assert "3.0 days" in amount_text(72, "wall_hours")
    assert amount_text(12, "wall_hours") == "12.0 hours"


@given(st.integers(1, 65_536), st.integers(1, 10**13))
def test_a_budget_of_exactly_m_steps_buys_m_steps_and_one_rollout_less_does_not(batch: int, steps: int) -> None:
    if batch * steps > 2**53:
        steps = 2**53 // batch
    assert Pricing(Budget(rollouts=batch * steps)).affordable_steps(batch)[0] == steps
    if batch * steps > 1:
        assert Pricing(Budget(rollouts=batch * steps - 1)).affordable_steps(batch)[0] == steps - 1


@given(
    unit=st.sampled_from(["tokens", "gpu_hours", "usd"]),
    amount=st.floats(1e-6, 1e15),
    overhead=st.floats(0, 1000),
    rate=st.floats(1e-3, 1e6),
    batch=st.integers(1, 10**6),
)
def test_affordable_steps_cost_no_more_than_the_budget_not_even_by_rounding(
    unit: str, amount: float, overhead: float, rate: float, batch: int
) -> None:
    speed = Throughput(
        step_overhead_seconds=overhead, rollouts_per_second=rate, tokens_per_rollout=7.3, gpus=3, usd_per_gpu_hour=1.7
    )
    pricing = Pricing(Budget(**{unit: amount}), speed)
    steps, ends_by = pricing.affordable_steps(batch)
    assert ends_by == "budget"
    assert amount < pricing.cost(batch, steps + 1)
    assert pricing.cost(batch, steps) <= amount or steps == 0
    assert pricing.within(batch, max(steps, 0)) or steps == 0


@pytest.mark.parametrize(
    "budget",
    [Budget(rollouts=2e6, spent={"pilot": 3e5}), Budget(usd=900, spent={"pilot": 10}, deadline_hours=30)],
    ids=["rollouts", "dollars and hours"],
)
def test_of_a_run_that_goes_on_only_the_rest_is_to_pay(budget: Budget) -> None:
    # It may have cost less than what these prices say, or more.
    begins, batch = 1500, 1024
    fresh = Pricing(budget, SPEED)
    going = fresh.going_on(batch, begins)
    steps, limit = going.affordable_steps(batch)
    assert limit == fresh.affordable_steps(batch)[1]
    for unit, most in ((budget.unit, budget.available), ("wall_hours", budget.deadline_hours)):
        if most is not None:
            assert fresh.cost_in(unit, batch, steps) - fresh.cost_in(unit, batch, begins) <= most * (1 + 1e-9)
    assert not going.within(batch, steps + 1)
    none, half, whole = going.steps_for([0.0, 0.5, 1.0], batch)
    assert (none, whole) == (begins, steps)
    assert half == pytest.approx((begins + steps) / 2, rel=0.02)


def test_gpus_that_were_given_are_not_asked_for_again() -> None:
    planner = Planner(hedged_prior(), Hardware(gpus=8), throughput=Throughput(usd_per_gpu_hour=2))
    with pytest.raises(PlanError, match="rollouts per second, which") as caught:
        planner.allocate("$2000")
    assert "gpus" not in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("budget", "throughput", "named"),
    [
        (Budget(tokens=1e9), None, "tokens_per_rollout"),
        (Budget(gpu_hours=10), None, "rollouts_per_second=..., gpus"),
        (Budget.parse("10 GPU-hours on 8xH100"), None, "rollouts_per_second"),
        (Budget(usd=10), None, "rollouts_per_second=..., usd_per_gpu_hour=..., gpus"),
        (Budget(usd=10), Throughput(gpus=8), "rollouts_per_second=..., usd_per_gpu_hour"),
        (Budget(rollouts=1e6, deadline_hours=3), None, "rollouts_per_second"),
        (
            Budget(tokens=1e9),
            Throughput(step_overhead_seconds=1, rollouts_per_second=1),
            "tokens_per_rollout",
        ),
        (
            Budget(usd=10),
            Throughput(step_overhead_seconds=1, rollouts_per_second=1, gpus=8),
            "usd_per_gpu_hour",
        ),
        (
            Budget(usd=10),
            Throughput(step_overhead_seconds=1, rollouts_per_second=1, usd_per_gpu_hour=2),
            "gpus",
        ),
    ],
)
def test_what_is_missing_to_translate_a_budget_is_named(
    budget: Budget, throughput: Throughput | None, named: str
) -> None:
    with pytest.raises(PlanError) as caught:
        Pricing(budget, throughput)
    assert f"Throughput({named}=...)" in (caught.value.hint or "")


def test_a_named_gpu_is_no_speed() -> None:
    said: list[str] = []
    for text in ("10 GPU-hours", "10 GPU-hours on 8xANY"):
        with pytest.raises(PlanError) as caught:
            Pricing(Budget.parse(text), None)
        said.append(caught.value.message)
    assert "GPU" in said[1].removeprefix(said[0])
