"""One decision, whatever the runs: every command shows the same fields, and nothing allowed is better than the plan."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Audit, Fits, Hardware, Plan, PlanError, Planner, RunSet
from isocompute_sdk.fitting.measured_runs import left_out
from isocompute_sdk.health.findings import FALLS
from isocompute_sdk.planning.plan import best_sizes
from isocompute_sdk.reporting.material import Asked, gather
from tests.parameters import few
from tests.unit.sweeps import Make, later_and_higher, noisy, simulated

Command = Callable[..., subprocess.CompletedProcess[str]]


def shown(reward: float) -> float:
    return round(reward, 3)


def check_sweep(runs: RunSet) -> Fits:
    fits = iso.fit(runs)
    assert fits.largest_compute is not None
    planner, budget = Planner(fits), 3.0 * fits.largest_compute
    plan = planner.allocate(budget)
    assert planner.allocate(budget) == plan
    assert Plan.from_dict(plan.to_dict()) == plan
    assert planner.next_runs(budget) == plan.next_runs
    page = gather(fits, Asked(budget=iso.Budget(rollouts=budget)))
    assert page.plan == plan
    check_consistent(plan)
    check_forecast(planner, plan)
    return fits


def check_forecast(planner: Planner, plan: Plan) -> None:
    """The forecast of the best run keeps what the plan is measured against, and weighs the plan as a new run."""
    if plan.gain is None:
        return
    best, fits = plan.gain.best, planner.fits
    assert fits.table is not None
    rest = planner.replan(fits.table, plan.budget, run_id=best.run_id)
    kept = rest.forecast.card.keep
    assert (kept.rollouts, kept.reward) == (best.compute, pytest.approx(best.reward))
    assert rest.best is None
    new = [one for one in rest.options if one.name == "new-run"]
    assert bool(new) <= (not plan.gains_nothing)
    assert plan.approval is not None
    if rest.remaining == plan.rollouts:
        assert rest.follow != "new-run" or plan.approval.kind != "do-not"
    for one in new:
        assert (one.group_size, one.problems_per_batch) == (plan.group_size, plan.problems_per_batch)
        assert (one.update_steps, shown(one.reward)) == (plan.update_steps, shown(plan.predicted_reward or 0.0))
    if plan.gain.run_to_go_on == best.run_id and rest.remaining == plan.rollouts:
        (far,) = (one for one in rest.options if one.name == "go-on")
        assert far.reward == pytest.approx(best.reward + plan.gain.going_on, abs=0.01)


def check_consistent(plan: Plan) -> None:
    """No field of a decision contradicts another."""
    first = plan.next_runs
    assert first is not None
    assert plan.fits is not None
    # Where no run rises nothing is predicted.
    assert (plan.odds is None) == (plan.predicted_reward is None) == (plan.fits.flat_runs is not None)
    rewards = [one.predicted_reward for one in plan.alternatives if one.predicted_reward is not None]
    assert not rewards or shown(plan.predicted_reward or 0.0) >= shown(max(rewards))
    if plan.odds is not None:
        assert first.regret_now == pytest.approx(plan.odds.expected_loss)
        equal = [one.group_size for one in plan.alternatives if one.kind == "near-tie"]
        run = [one for one in plan.alternatives if one.group_size <= plan.fits.group_size_range[1]]
        apart = {one.group_size: abs(one.expected_loss or 0.0) for one in run}
        # None that is nearer is left out, but for what rounding hides.
        furthest = max((apart[n] for n in equal), default=0.0) - 0.0015 * plan.tolerances.span
        assert {n for n in apart if apart[n] < furthest} <= {*equal}
        assert best_sizes(plan) == ", ".join(map(str, sorted([plan.group_size, *equal])))
        if plan.gain is not None and plan.gain.run_to_go_on and plan.gain.further >= plan.tolerances.equal:
            assert plan.approval is not None
            assert plan.approval.kind == "do-not" or plan.gain.run_to_go_on in plan.approval.reason
        if plan.gain is not None and plan.gain.probability is not None and abs(plan.gain.gain) > 1e-3:
            assert (plan.gain.probability > 0.5) == (plan.gain.gain > 0)
        # Decided only where a reader of the odds says so.
        assert plan.verdict.kind != "clear" or (plan.odds.probability_best >= 0.8 and not equal)
        assert plan.verdict.kind != "tie" or equal
    assert (plan.verdict.kind == "measure-first") == bool(first.runs)
    assert (first.group_size_now, first.problems_per_batch_now) == (plan.group_size, plan.problems_per_batch)


def check_audit(audit: Audit, fits: Fits) -> None:
    """An audit has the fits of the plan: their rewards, best run, falls and rise; its best n is its highest."""
    (group,) = audit.groups
    assert group.fits is not None
    assert group.fits.best_reached == fits.best_reached
    fell = {run: FALLS[note.code] for note in fits.notes if note.code in FALLS for run in note.data["runs"]}
    assert {run.run_id: run.fault for run in group.runs if run.fault} == fell
    if fits.no_rise:
        assert {run.standing for run in group.runs} == {"not-judged"}
        return
    unused = left_out(fits.notes)
    # One that fell at once was best as the base model; one that is left out counts by what it measured.
    for run in (one for one in group.runs if one.useful > 0 and one.run_id not in unused):
        expected = fits.predict(run.useful, run.group_size, run.problems_per_batch)
        assert shown(run.expected or 0.0) == shown(float(expected.mean))
        assert shown(run.best_reward or 0.0) >= shown(run.expected or 0.0)


def check_status(rows: list[dict[str, Any]], audit: Audit, fits: Fits) -> None:
    """The list of runs has the falls and the rise of the plan."""
    runs = [run for group in audit.groups for run in group.runs]
    assert {row["run_id"]: (row["group_size"], row["rollouts"], row["fault"]) for row in rows} == {
        run.run_id: (run.group_size, run.rollouts, run.fault) for run in runs
    }
    assert not fits.no_rise or not any(row["rises"] for row in rows)


@pytest.mark.parametrize("seed", few(range(200), 10))
def test_every_command_shows_one_decision(seed: int, isocompute: Command, tmp_path: Path) -> None:
    runs = simulated(seed)
    fits = check_sweep(runs)
    audit = iso.audit(runs)
    check_audit(audit, fits)
    runs.to_polars().write_csv(tmp_path / "runs.csv")
    check_status(json.loads(isocompute("status", "runs.csv", "--json").stdout)["runs"], audit, fits)


@pytest.mark.parametrize("budget", few(["300k", "2 gpu_hours"], 1))
def test_a_configuration_that_a_person_names_has_the_odds_of_the_plan(budget: str) -> None:
    speed = iso.Throughput(step_overhead_seconds=5, rollouts_per_second=60, gpus=1)
    planner = Planner(iso.fit(simulated(0)), throughput=speed)
    plan = planner.allocate(budget, spend="all")
    named = {"n": plan.group_size, "bp": plan.problems_per_batch, "m": plan.update_steps}
    reference = planner.compare("n=8,bp=32", budget, reference=",".join(f"{k}={v}" for k, v in named.items())).plan
    assert reference.odds is not None
    assert plan.odds is not None
    # What the plan's cost buys at another n may be one update less than what the budget buys.
    assert reference.odds.near_best == pytest.approx(plan.odds.near_best, abs=0.02)
    assert reference.odds.expected_loss == pytest.approx(plan.odds.expected_loss, abs=1e-4)


@pytest.mark.slow
def test_more_budget_never_predicts_less(make_runs: Make) -> None:
    levels = [(n, bp) for n in (8, 32, 128) for bp in (32, 128)]
    planner = Planner(iso.fit(make_runs(levels=levels), draws=40))
    rewards = [planner.allocate(budget, slots=0).predicted_reward or 0.0 for budget in np.geomspace(2e5, 2e7, 40)]
    assert np.all(np.diff([shown(reward) for reward in rewards]) >= 0)


def test_names_of_runs_decide_nothing(make_runs: Make) -> None:
    reward = noisy(later_and_higher(0.0, 0.05, 8e3, base=0.3), 0.01, seed=3)
    table = make_runs(reward, [(8, 32), (8, 64), (32, 32), (128, 32)], np.geomspace(2e4, 1e6, 12)).to_polars()
    names = sorted(set(table["run_id"].to_list()))
    other = dict(zip(names, reversed([f"run{i}" for i in range(len(names))]), strict=True))
    plans = [
        Planner(iso.fit(RunSet.from_frame(one))).allocate("2M")
        for one in (table, table.with_columns(run_id=table["run_id"].replace(other)))
    ]
    assert len({(plan.group_size, plan.problems_per_batch, plan.update_steps) for plan in plans}) == 1
    assert plans[0].predicted_reward == plans[1].predicted_reward


def test_with_a_fixed_batch_every_n_is_judged_at_its_own_b_p(make_runs: Make) -> None:
    def steep(n: int, bp: int, c: float) -> float:
        return 0.3 + 0.1 * -float(np.expm1(-c / 1e5)) + 0.03 * float(np.log2(bp)) * -float(np.expm1(-c / 1e5)) / 2

    levels = [(n, bp) for n in (8, 32, 128) for bp in (32, 128, 512)]
    fits: Fits = iso.fit(make_runs(steep, levels), draws=60)
    plan = Planner(fits).allocate("4M", rollouts_per_batch=4096, update_steps=900)
    rewards = {n: float(fits.predict(4096 * 900, n, 4096 // n).mean) for n in (8, 16, 32, 64, 128)}
    assert plan.group_size == max(rewards, key=rewards.__getitem__)


@pytest.mark.parametrize("n_problems", [20, 100, 1000])
def test_no_batch_holds_more_problems_than_there_are(make_runs: Make, n_problems: int) -> None:
    levels = [(n, bp) for n in (8, 32, 128) for bp in (32, 128)]
    planner = Planner(iso.fit(make_runs(levels=levels), draws=20))
    for budget in (2e5, 2e6, 2e7):
        plan = planner.allocate(budget, n_problems=n_problems)
        assert plan.problems_per_batch <= n_problems
        assert plan.next_runs is not None
        assert all(run.problems_per_batch <= n_problems for run in plan.next_runs.runs)


def test_a_plan_of_runs_on_problem_sets_of_several_sizes_is_for_one_of_them_and_says_which(make_runs: Make) -> None:
    def on(n_problems: int, levels: Sequence[tuple[int, int]]) -> iso.RunSet:
        best = 8 if n_problems == 500 else 128
        gain = lambda n, _, c: 0.3 + (0.3 - 0.04 * abs(np.log2(n / best))) * -float(np.expm1(-c / 1e5))  # noqa: E731
        runs = make_runs(gain, levels, n_problems=n_problems).to_polars()
        return iso.RunSet.from_columns(runs.with_columns(run_id=runs["run_id"] + f"-{n_problems}"))

    runs = on(6000, [(8, 32), (32, 32), (128, 32)]).concat(on(500, [(8, 32), (128, 32)]))
    planner = Planner(iso.fit(runs, draws=20))
    plan = planner.allocate("1M")
    assert plan.n_problems == 6000
    assert "6,000 training problems; the runs had 6,000, 500" in plan.summary()
    asked = [planner.allocate("1M", n_problems=size) for size in (6000, 500)]
    assert [one.group_size for one in asked] == [plan.group_size, asked[1].group_size]
    assert asked[0].predicted_reward == plan.predicted_reward != asked[1].predicted_reward
    # What a run has left is planned for its own problems.
    run = next(one.run_id for one in runs.runs() if one.context["n_problems"] == 500)
    # For those a new run gains nothing over the best one.
    assert "new-run" not in {one.name for one in planner.replan(runs, "2M", run_id=run).options}


SEEDS = few(range(60), 1)
SMALLEST_DIFFERENCE = 5e-4
"""Rewards are shown with three decimals."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_gets_better_by_a_constraint(seed: int) -> None:
    fits = iso.fit(simulated(seed, 1000))
    assert fits.largest_compute is not None
    budget = 2.0 * fits.largest_compute
    free = Planner(fits).allocate(budget)
    assert (free.predicted_reward is None) == (fits.flat_runs is not None)
    batch = free.group_size * free.problems_per_batch
    asked: list[tuple[Hardware, float, dict[str, Any]]] = [
        (Hardware(max_rollouts_per_batch=batch // 2), budget, {}),
        *((Hardware(), budget, {"problems_per_batch": bp}) for bp in fits.problems_per_batch),
        (Hardware(), budget / 2, {}),
    ]
    for hardware, rollouts, fixed in asked:
        with suppress(PlanError):  # no n is left
            plan = Planner(fits, hardware).allocate(rollouts, **fixed)
            assert (plan.predicted_reward is None) == (free.predicted_reward is None)
            assert (plan.predicted_reward or 0.0) <= (free.predicted_reward or 0.0) + SMALLEST_DIFFERENCE


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
