"""Plans in time: n, B_p and GPUs chosen together, evaluation within its share, deadlines, and both optima."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isocompute_sdk as iso
from isocompute_sdk import Budget, Evaluation, Fits, Hardware, Plan, PlanError, Planner, Recipe, RunSet, Throughput, fit
from isocompute_sdk.api import run_spec
from isocompute_sdk.errors import SpecError
from isocompute_sdk.planning.plan import answer
from isocompute_sdk.planning.plan_parts import Approval
from isocompute_sdk.planning.pricing import evaluations, interval
from isocompute_sdk.reporting.material import Asked, gather
from isocompute_sdk.reporting.report import build
from isocompute_sdk.specs.throughput import Measurement
from tests.unit.sweeps import Make, codes, noisy

RECIPE = Recipe.preset("easy", min_problems_per_batch=16)
SLOW = Throughput(
    step_overhead_seconds=60,
    rollouts_per_second=100,
    gpus=8,
    gpu_exponent=0.8,
    usd_per_gpu_hour=2,
    tokens_per_rollout=500,
)


CURVE = np.concatenate([[0.0], np.geomspace(500, 6e4, 18)])


def reward(n: int, bp: int, c: float) -> float:
    """Larger n and B_p rise a little later; n = 16 ends a little higher."""
    plateau = {4: 0.60, 16: 0.64, 64: 0.65}[n]
    return float(0.35 + (plateau - 0.35) * -np.expm1(-c / (3e4 * (n / 4) ** 0.4 * (bp / 16) ** 0.15)))


@pytest.fixture(scope="module")
def fits(make_runs: Make) -> Fits:
    levels = [(n, bp) for n in (4, 16, 64) for bp in (16, 64)]
    compute = np.concatenate([[0.0], np.geomspace(4e3, 3e5, 18)])
    return fit(make_runs(noisy(reward, 0.004), levels, compute), draws=40)


def test_the_plan_in_time_is_the_best_of_a_plain_enumeration(fits: Fits) -> None:
    planner = Planner(fits, Hardware(gpus=(8, 32), divisible_by=1), RECIPE, SLOW)
    budget = Budget(gpu_hours=40, deadline_hours=3)
    plan = planner.allocate(budget, spend="all")
    best = -math.inf
    for n, bp, gpus in itertools.product((4, 8, 16, 32, 64), (16, 64), (8, 32)):
        step = SLOW.at_gpus(gpus).step_seconds(n * bp) / 3600
        steps = math.floor(min(40 / gpus, 3) / step)
        if steps >= 20:
            best = max(best, float(fits.predict(n * bp * steps, n, bp).mean))
    assert plan.predicted_reward is not None
    assert plan.predicted_reward >= best - 0.0011
    assert plan.gpu_hours is not None
    assert plan.wall_hours is not None
    assert plan.gpu_hours <= 40
    assert plan.wall_hours <= 3
    assert plan.gpu_hours == pytest.approx(plan.gpus * plan.wall_hours)
    assert plan.usd == pytest.approx(2 * plan.gpu_hours)
    assert plan.hardware.gpus == plan.gpus


@pytest.mark.parametrize("gpus", [4, 8, 16])
@pytest.mark.parametrize("budget", [Budget(rollouts=1e6), Budget(gpu_hours=40)], ids=lambda one: one.unit)
def test_the_only_number_of_gpus_is_that_of_the_plan(fits: Fits, gpus: int, budget: Budget) -> None:
    plan = Planner(fits, Hardware(gpus=gpus), RECIPE, SLOW).allocate(budget)
    assert plan.gpus == gpus
    assert plan.wall_hours is not None
    assert plan.gpu_hours == pytest.approx(gpus * plan.wall_hours)


def test_overhead_makes_larger_batches_worth_it_and_rollouts_know_nothing_of_that(fits: Fits) -> None:
    planner = Planner(fits, None, RECIPE, SLOW)
    timed = planner.allocate(Budget(gpu_hours=20), spend="all")
    counted = planner.allocate(timed.rollouts, spend="all")
    assert timed.rollouts_per_batch > 2 * counted.rollouts_per_batch
    assert counted.gpu_hours is not None
    assert counted.gpu_hours > 20


def test_a_deadline_takes_more_gpus_and_a_measured_speed_keeps_a_margin(fits: Fits) -> None:
    hardware = Hardware(gpus=(8, 16, 64), divisible_by=1)
    relaxed = Planner(fits, hardware, RECIPE, SLOW).allocate(Budget(gpu_hours=60), spend="all")
    pressed = Planner(fits, hardware, RECIPE, SLOW).allocate(Budget(gpu_hours=60, deadline_hours=1.5), spend="all")
    assert relaxed.gpus == 8
    assert pressed.gpus > 8
    assert pressed.binding[-1] in ("deadline", "budget")
    seen = Measurement(rollouts_per_batch=(64, 4096), runs=3, steps=30, relative_error=0.05)
    unsure = SLOW.replace(measured=seen)
    careful = Planner(fits, None, RECIPE, unsure).allocate(Budget(gpu_hours=60, deadline_hours=1.5), spend="all")
    assert careful.wall_hours is not None
    assert careful.wall_hours <= 1.5 / 1.1


def test_speed_near_one_batch_is_not_traded_across_batches(fits: Fits) -> None:
    seen = Measurement(rollouts_per_batch=(512,), runs=2, steps=20)
    plan = Planner(fits, None, RECIPE, SLOW.replace(measured=seen)).allocate(Budget(gpu_hours=30), spend="all")
    assert 512 / 1.25 <= plan.rollouts_per_batch <= 512 * 1.25
    assert "throughput-extrapolated" in codes(plan)
    with pytest.raises(iso.PlanError, match="4,096"):
        Planner(fits, None, RECIPE, SLOW.replace(measured=seen)).allocate(Budget(gpu_hours=30), rollouts_per_batch=4096)
    free = Planner(fits, None, RECIPE, SLOW.replace(measured=seen)).allocate("300k", spend="all")
    assert free.rollouts_per_batch > 512 * 1.25
    # Hours of that batch are unknown, and none are shown; a deadline keeps to those that are known, at its cost.
    assert (free.wall_hours, free.gpu_hours, "start" in free.breakdown) == (None, None, False)
    planner = Planner(fits, None, RECIPE, SLOW.replace(measured=seen.replace(rollouts_per_batch=(64,))))
    late = planner.allocate(Budget(rollouts=3e5, deadline_hours=1e4), spend="all")
    assert late.rollouts_per_batch == 64
    assert late.unlimited is not None
    without = late.unlimited.plan
    assert (without.group_size, without.predicted_reward) == (free.group_size, free.predicted_reward)
    with pytest.raises(iso.PlanError, match="only at 64 rollouts"):
        planner.compare((64, 64), "300k", equal="time")
    with pytest.raises(iso.PlanError, match="only at 64 rollouts"):
        planner.compare((64, 64), late.budget)


def test_pilots_keep_to_the_batches_whose_seconds_are_known(fits: Fits) -> None:
    seen = Measurement(rollouts_per_batch=(64, 4096), runs=2, steps=20, rate_is_limit=True)
    pilot = Planner(fits, None, RECIPE, SLOW.replace(measured=seen)).design_pilot(Budget(gpu_hours=300), spend_all=True)
    free = Planner(fits, None, RECIPE, SLOW).design_pilot(Budget(gpu_hours=300), spend_all=True)
    assert max(run.rollouts_per_batch for run in pilot.runs) <= 4096
    assert max(run.rollouts_per_batch for run in free.runs) > 4096
    one = seen.replace(rollouts_per_batch=(512,))
    with pytest.raises(iso.PlanError, match="512"):
        Planner(fits, None, RECIPE, SLOW.replace(measured=one)).design_pilot(Budget(gpu_hours=300))


def test_every_answer_for_a_budget_on_gpus_keeps_batches_to_multiples_of_them(make_runs: Make) -> None:
    runs = make_runs(lambda n, _, c: 0.2 + (0.5 - 0.04 * np.log2(n)) * c / (c + 500 * n), [(4, 3), (16, 3)], CURVE)
    planner, budget = Planner(fit(runs, draws=40), None, None, SLOW), "60 GPU-hours on 8xH100"
    plan, first = planner.allocate(budget), planner.next_runs(budget)
    assert plan.rollouts_per_batch % 8 == 0
    assert (first.group_size_now, first.problems_per_batch_now) == (plan.group_size, plan.problems_per_batch)
    assert planner.marginal(budget).plan.rollouts_per_batch == plan.rollouts_per_batch


def test_a_budget_on_other_gpus_than_were_timed_needs_to_know_how_speed_grows(fits: Fits) -> None:
    one = SLOW.replace(gpus=1)
    assert Planner(fits, None, RECIPE, one).allocate("60 GPU-hours on 8xH100").gpus == 8
    with pytest.raises(SpecError, match="gpu_exponent"):
        Planner(fits, None, RECIPE, one.replace(gpu_exponent=None)).allocate("60 GPU-hours on 8xH100")
    # Of several numbers those are planned whose speed is known; the answer says so where it says hours.
    for speed, asked in ((SLOW, False), (SLOW.replace(gpu_exponent=None), True)):
        plan = Planner(fits, Hardware(gpus=(8, 16)), RECIPE, speed).allocate("60 GPU-hours", slots=0)
        assert ("16" in dict(answer(plan))["in total"]) == ("--gpu-exponent" in dict(answer(plan))["in total"]) == asked


def test_what_is_not_known_of_the_speed_is_said(fits: Fits) -> None:
    for rollouts in (100, 10**9):
        seen = Measurement(rollouts_per_batch=(16, 64), runs=3, steps=30, rollouts=rollouts)
        speed = SLOW.replace(measured=seen, gpu_exponent=None)
        plan = Planner(fits, Hardware(gpus=8), RECIPE, speed).allocate(Budget(gpu_hours=30), spend="all")
        (note,) = (one for one in plan.notes if one.code == "throughput-extrapolated" and "lengths" in one.data)
        assert note.data["lengths"] == (rollouts < plan.rollouts / 100)
        assert plan.gpus == 8
        for budget in (Budget(gpu_hours=30), Budget(300_000)):
            with pytest.raises(iso.SpecError, match="not for 16"):
                Planner(fits, Hardware(gpus=16), RECIPE, speed).allocate(budget)


@given(st.integers(1, 1000), st.integers(1, 10**5), st.floats(1e-3, 1e5), st.floats(1e-3, 1e5), st.floats(0.001, 1.0))
def test_a_schedule_costs_at_most_its_share_and_is_as_dense_as_that_allows(
    asked: int, steps: int, step: float, one: float, share: float
) -> None:
    every = interval(asked, steps, step, one, share)
    cost = evaluations(steps, every) * one
    if every < steps:
        assert cost <= share * steps * step * (1 + 1e-6)
    if asked < every < steps:
        assert evaluations(steps, max(asked, every - 1)) * one > share * steps * step * (1 - 1e-6) - one


@pytest.mark.parametrize("asked", [None, Evaluation(n_problems=200, samples=4)])
def test_a_total_pays_for_training_and_evaluations(fits: Fits, asked: Evaluation | None) -> None:
    plan = Planner(fits, None, RECIPE, SLOW, evaluation=asked).allocate(Budget(usd=60, deadline_hours=40))
    for unit in ("usd", "wall_hours"):
        parts = [plan.breakdown[part][unit] for part in ("training", "evaluation")]
        assert plan.costs[unit] == pytest.approx(sum(parts))
    assert plan.costs["usd"] <= 60
    assert plan.costs["wall_hours"] <= 40


def test_evaluation_is_counted_thinned_and_carried_into_the_run(fits: Fits) -> None:
    asked = Evaluation(every_steps=5, samples=8, n_problems=200, temperature=1.0)
    planner = Planner(fits, None, RECIPE, SLOW, evaluation=asked)
    plan = planner.allocate(Budget(gpu_hours=30), spend="all", evaluation_share=0.03)
    assert plan.evaluation is not None
    assert plan.evaluation.replace(every_steps=5) == asked
    assert plan.evaluation.every_steps >= 5
    training, evaluation = plan.breakdown["training"], plan.breakdown["evaluation"]
    assert evaluation["gpu_hours"] <= 0.03 * training["gpu_hours"]
    assert plan.cost == pytest.approx(training["gpu_hours"] + evaluation["gpu_hours"])
    assert training["gpu_hours"] + evaluation["gpu_hours"] <= 30
    assert evaluation["rollouts"] == evaluations(plan.update_steps, plan.evaluation.every_steps) * 1600
    assert plan.costs["rollouts"] == training["rollouts"] == plan.rollouts
    assert run_spec(plan, "torch", model="m").evaluation == plan.evaluation
    dear = Planner(fits, None, RECIPE, SLOW, evaluation=Evaluation(n_problems=10_000, samples=8))
    assert "evaluation-above-share" in codes(dear.allocate(Budget(gpu_hours=30), spend="all"))


@pytest.mark.parametrize(
    ("unit", "spent"),
    [("rollouts", 250_000.0), ("gpu_hours", 7.5), ("usd", 90.0), ("tokens", 3e8)],
)
def test_the_smallest_budget_of_a_refusal_pays_for_what_is_spent_already_too(
    fits: Fits, unit: Literal["rollouts", "gpu_hours", "usd", "tokens"], spent: float
) -> None:
    planner = Planner(fits, None, RECIPE, SLOW.replace(tokens_per_rollout=800, usd_per_gpu_hour=3))

    def budget(amount: float, *, set_aside: bool = True) -> Budget:
        purposes = {"pilot": spent / 2, "labelling": spent / 4, "probes": spent / 4}
        return Budget.model_validate({unit: amount, "spent": purposes if set_aside else None})

    smallest: list[float] = []
    for set_aside in (True, False):
        with pytest.raises(PlanError) as caught:
            planner.allocate(budget(spent * 1.001 if set_aside else spent * 0.001, set_aside=set_aside))
        assert caught.value.smallest_budget is not None
        smallest.append(caught.value.smallest_budget)
    assert smallest[0] == pytest.approx(smallest[1] + spent, rel=1e-12)
    assert planner.allocate(budget(smallest[0] * (1 + 1e-9))).cost <= smallest[0] - spent * (1 - 1e-6)
    with pytest.raises(PlanError):
        planner.allocate(budget(smallest[0] * (1 - 1e-6)))


def test_what_is_spent_already_is_not_planned_again(fits: Fits) -> None:
    planner = Planner(fits, None, RECIPE, SLOW)
    whole = planner.allocate(Budget(gpu_hours=30), spend="all")
    rest = planner.allocate(
        Budget(gpu_hours=40, spent={"pilot": 6, "labelling": 1, "probes": 0.5, "lost": 2.5}), spend="all"
    )
    assert (rest.group_size, rest.update_steps) == (whole.group_size, whole.update_steps)
    assert rest.breakdown["pilot"] == {"gpu_hours": 6}
    assert rest.unused_share == pytest.approx(whole.unused_share)
    assert "lost" in rest.summary()
    assert {"40", "10"} <= set(re.findall(r"\d+", str(rest.budget)))
    with pytest.raises(SpecError, match=r"40 gpu_hours.* 40"):
        Budget(gpu_hours=40, spent={"pilot": 40})
    with pytest.raises(SpecError, match="spent"):
        Budget.model_validate({"gpu_hours": 40, "spent": {"lunch": 1}})


def test_a_start_is_paid_for_and_growing_responses_leave_fewer_steps(fits: Fits) -> None:
    def steps(throughput: Throughput) -> int:
        planner = Planner(fits, None, RECIPE, throughput)
        return planner.allocate(
            Budget(gpu_hours=30), problems_per_batch=64, rollouts_per_batch=1024, spend="all"
        ).update_steps

    bare = SLOW.replace(startup_seconds=0)
    assert steps(bare.replace(startup_seconds=1800)) < steps(bare)
    assert steps(bare.replace(length_growth=0.5)) < steps(bare)


def test_the_smallest_batch_is_not_named_beside_limits_that_cost_nothing(fits: Fits) -> None:
    recipe = RECIPE.replace(min_problems_per_batch=64)
    free = Planner(fits, recipe=recipe).allocate("60k", slots=0)
    hardware = Hardware(max_rollouts_per_batch=free.rollouts_per_batch)
    plan = Planner(fits, hardware, recipe).allocate("60k", slots=0)
    lower = Planner(fits, hardware, recipe).allocate("60k", slots=0, problems_per_batch=16)
    assert (lower.predicted_reward or 0) > (plan.predicted_reward or 0) + fits.tolerances.equal
    assert plan.unlimited is not None
    assert plan.unlimited.asked == (f"at most {free.rollouts_per_batch:,} rollouts per batch",)
    # Without the limit the plan is the same.
    assert plan.unlimited.plan.sizes == plan.sizes
    assert plan.sizes not in dict(answer(plan))["your limits"]


def test_tokens_have_one_price_with_and_without_seconds_gpus_and_deadline() -> None:
    rows = [(n, step, n * 32 * step) for n, last in ((8, 900), (16, 450), (64, 110)) for step in range(0, last, 30)]
    columns: dict[str, Any] = {"n": [n for n, _, _ in rows], "step": [step for _, step, _ in rows]}
    columns |= {"avg@4": [reward(n if n != 8 else 4, 16, c) for n, _, c in rows]}
    lengths = {"response_length": [900 * (1 + 0.3 * math.log1p(c / 2e4)) for _, _, c in rows]}
    seconds = {"step_time": [8 + n * 32 / 100 for n, _, _ in rows]}
    plans: list[Plan] = []
    for logged in (lengths, lengths | seconds):
        runs = RunSet.from_columns(columns | logged, problems_per_batch=32)
        planner = Planner(fit(runs, "avg@4", draws=40))
        plans.append(planner.allocate("1B tokens", spend="all", slots=0))
    plans.append(planner.allocate(Budget(tokens=1e9, deadline_hours=1e4), spend="all", slots=0))
    plans.append(planner.allocate(Budget(tokens=1e9, gpus=8), spend="all", slots=0))
    speed = Throughput(rollouts_per_second=50)
    plans.append(Planner(planner.fits, None, None, speed).allocate("1B tokens", spend="all", slots=0))
    assert len({(plan.group_size, plan.rollouts, plan.costs["tokens"]) for plan in plans}) == 1
    for plan in plans:
        note = next(note for note in plan.notes if "mean_tokens_per_rollout" in note.data)
        assert plan.costs["tokens"] == pytest.approx(plan.rollouts * note.data["mean_tokens_per_rollout"])
        assert f"{note.data['mean_tokens_per_rollout']:,.4g}" in note.message
        assert note.data["tokens_per_rollout"] == pytest.approx(900, rel=0.05)
    # Without GPUs, too, evaluations are judged by the hours that they take.
    assert "evaluation-above-share" not in codes(plans[1])


HARDWARE = (None, Hardware(gpus=8))


def test_runs_on_gpus_with_batches_of_their_own_give_hours_once_their_scaling_is_said() -> None:
    runs = {8: ((0, 100, 200, 400, 600, 800), (0.2, 0.3, 0.38, 0.47, 0.53, 0.56), 12.56, 8)}
    runs[32] = ((0, 25, 50, 100, 150, 200), (0.2, 0.27, 0.34, 0.45, 0.54, 0.59), 20.24, 16)
    rows = [
        (n, step, value, t, gpus) for n, (at, got, t, gpus) in runs.items() for step, value in zip(at, got, strict=True)
    ]
    names = ("n", "step", "avg@4", "step_time", "gpus")
    columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    fits = fit(RunSet.from_columns(columns, problems_per_batch=32), "avg@4", draws=40)
    free = Planner(fits).allocate("3M", slots=0)
    assert free.wall_hours is None
    page = str(build(gather(free, Asked())).answer.facts)
    assert "--gpu-exponent" in page
    for timed in (Budget(rollouts=3e6, deadline_hours=1e4), Budget.parse("500 GPU-hours on 8xH100")):
        with pytest.raises(iso.FitError, match="8 and 16 GPUs"):
            Planner(fits).allocate(timed)
    planner = Planner(fits, throughput=Throughput(gpu_exponent=1))
    plans = [planner.allocate(budget, slots=0) for budget in ("3M", Budget(rollouts=3e6, deadline_hours=1e4))]
    assert plans[0].costs == plans[1].costs
    assert plans[0].group_size == free.group_size
    # Of several numbers of GPUs one is taken, and said, where none is stated.
    chosen = [Planner(fits, one, throughput=Throughput(gpu_exponent=1)).allocate("3M", slots=0) for one in HARDWARE]
    assert [plan.gpus for plan in chosen] == [16, 8]
    assert ["--gpus" in str(plan.assumed_of_time) for plan in chosen] == [True, False]
    # A kind that the runs do not state is assumed to be as fast.
    assert "GPUs as fast as those of the runs" in planner.allocate("500 GPU-hours on 8xA100", slots=0).summary()


def test_speed_and_lengths_that_the_runs_logged_convert_a_budget(tmp_path: Path) -> None:
    steps = np.arange(0, 400, 20)
    rows = [
        (n, int(step), name, value)
        for n in (4, 16, 64)
        for step in steps
        for name, value in (
            ("avg@4", reward(n, 16, float(step * n * 16))),
            ("step_time", 4 + n * 16 / 50),
            ("response_length/mean", 640.0),
        )
    ]
    names = ("n", "step", "metric", "value")
    columns: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    columns["bp"] = [16] * len(rows)
    planner = Planner(fit(RunSet.from_columns(columns), "avg@4", draws=40))
    hours = planner.allocate("100 GPU-hours on 8xH100")
    assert hours.throughput is not None
    assert hours.throughput.gpus == 8
    assert hours.throughput.rollouts_per_second == pytest.approx(50, rel=0.05)
    assert hours.costs["gpu_hours"] <= 100
    assert "speed-from-runs" in codes(hours)
    assert "logs" in dict(answer(hours))["in total"]
    tokens = planner.allocate("100M tokens")
    assert tokens.rollouts * 640 <= 100e6
    assert "speed-from-runs" in codes(tokens)
    # What was given is not called that of the runs.
    stated = Planner(planner.fits, throughput=Throughput(tokens_per_rollout=500)).allocate("100M tokens")
    assert not any("tokens_per_rollout" in note.data for note in stated.notes)
    with pytest.raises(PlanError, match=r"the number of GPUs.*\n.*gpus="):
        planner.allocate("100 GPU-hours")
    assert "Throughput(rollouts_per_second" in hours.summary()
    # A budget that needs no hours has the same, by the same clock.
    plain = planner.allocate("1M")
    (time,) = (fact for fact in build(gather(plain, Asked())).answer.facts if fact.label.startswith("Time"))
    assert "the runs had" in time.detail
    own = Planner(planner.fits, throughput=Throughput(rollouts_per_second=20)).allocate("1M")
    (time,) = (fact for fact in build(gather(own, Asked())).answer.facts if fact.label.startswith("Time"))
    assert own.throughput is not None
    assert own.throughput.gpus is None
    assert "the runs had" not in time.detail
    assert "the runs had" in plain.summary()
    assert planner.compare((16, 16), "1M", equal="time").update_steps > 0
    # Of a plan that goes on with a run, an approved part names the time that is still to be paid.
    part = replace(plain, approval=Approval("part", "", plain.update_steps // 2))
    gone = {unit: amount / 4 for unit, amount in plain.costs.items()}
    left = [replace(part, past=past).approved_cost.rpartition(", ")[2] for past in ({}, gone)]
    of_part, to_pay = (float(text.split()[0]) for text in left)
    assert to_pay == pytest.approx(of_part - gone["wall_hours"], abs=0.1)
    assert ["to pay" in text for text in left] == [False, True]
    # What the runs do not say is assumed, and said with what would state it; nobody's number is invented.
    same = planner.allocate(Budget(rollouts=1e6, deadline_hours=20))
    for plan in (hours, same, Plan.load(same.save(tmp_path / "plan.json"))):
        assert "set={'gpus': NUMBER}" in plan.summary()
        assert "--set gpus=NUMBER" in str(build(gather(plan, Asked())).answer.more)
    assert (same.gpus, same.gpu_hours, same.to_dict()["throughput"]["gpus"]) == (None, None, None)
    assert same.wall_hours is not None
    assert same.wall_hours <= 20
    known = Planner(fit(RunSet.from_columns(columns, gpus=8), "avg@4", draws=40))
    assert "set={'gpus'" not in known.allocate("100 GPU-hours on 8xH100").summary()
    in_tokens = known.allocate("100M tokens")
    assert in_tokens.rollouts * 640 <= 100e6
    assert in_tokens.gpu_hours == pytest.approx(8 * (in_tokens.wall_hours or 0))
    # Runs that say their GPUs and no times lack the speed alone.
    rated = [i for i, metric in enumerate(columns["metric"]) if metric == "avg@4"]
    untimed = {name: [values[i] for i in rated] for name, values in columns.items()}
    fits = fit(RunSet.from_columns(untimed, gpus=8), "avg@4", draws=40)
    with pytest.raises(PlanError, match=r"rollouts_per_second") as slow:
        Planner(fits).allocate("100 GPU-hours")
    assert "gpus=" not in str(slow.value)
    assert Planner(fits, throughput=Throughput(rollouts_per_second=50)).allocate("100 GPU-hours").gpus == 8
    with pytest.raises(PlanError, match="usd_per_gpu_hour"):
        planner.allocate(Budget(usd=200, gpus=8))
    with pytest.raises(PlanError, match="16"):
        Planner(planner.fits, Hardware(gpus=16)).allocate("100 GPU-hours on 8xH100")


def test_evaluations_are_priced_as_the_runs_made_them_unless_asked_otherwise(make_runs: Make) -> None:
    def samples(n: int, bp: int, c: float) -> float:
        return 800.0

    levels = [(8, 32), (32, 32)]
    drawn = make_runs(samples, levels, metric="evaluation_rollouts", eval_set="validation")
    fits = fit(make_runs(levels=levels, eval_set="validation").concat(drawn), "avg@4")
    asked = (None, Evaluation(every_steps=5), Evaluation(n_problems=100))
    plans = [Planner(fits, evaluation=one).allocate("1M") for one in asked]
    assert [plan.evaluation.n_problems for plan in plans] == [200, 200, 100]
