"""A question where no answer is due: ties, n that hardly matters, pilots that cannot decide, budgets to stop at."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Budget, Fits, Hardware, Plan, Planner, RunSet, Throughput, fit, published_prior
from isocompute_sdk.phrases import chance_text
from isocompute_sdk.planning import change_plan
from isocompute_sdk.planning.plan import VERDICTS
from isocompute_sdk.planning.verdict import better_reward
from isocompute_sdk.reporting.wording import going_on, instead
from isocompute_sdk.tolerances import EQUAL
from tests.parameters import few
from tests.unit.sweeps import Make, codes, later_and_higher, noisy, recorded

Reward = Callable[[int, np.ndarray], np.ndarray]
SIZES = (8, 32, 128)


def plan_of(
    reward: Reward,
    budget: str,
    end: float = 6e6,
    seeds: int = 1,
    sizes: tuple[int, ...] = SIZES,
    noise: float = 0.003,
    spend: Literal["worthwhile", "all"] = "worthwhile",
) -> Plan:
    rng = np.random.default_rng(1)
    compute = np.concatenate([[0.0], np.geomspace(2e4, end, 24)])
    rows = [
        (n, seed, c, float(v) + noise * rng.standard_normal())
        for n in sizes
        for seed in range(seeds)
        for c, v in zip(compute, reward(n, compute), strict=True)
    ]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("n", "seed", "C", "avg@4"))}
    return Planner(fit(RunSet.from_columns(columns, problems_per_batch=32), draws=60)).allocate(budget, spend=spend)


def apart(n: int, c: np.ndarray) -> np.ndarray:
    return 0.3 + 0.05 * np.log2(n) * -np.expm1(-c / (8e3 * n))


def peaked(n: int, c: np.ndarray) -> np.ndarray:
    return 0.3 + (0.25 - 0.03 * (np.log2(n) - 5) ** 2) * -np.expm1(-c / 2e5)


def alike(n: int, c: np.ndarray) -> np.ndarray:
    return 0.4 + 0.06 * -np.expm1(-c / 1e6) + 0.0 * n


def unseen(n: int, c: np.ndarray) -> np.ndarray:
    return 0.2 + 0.5 * c / (c + 1e7) + 0.0 * n


def flat(n: int, c: np.ndarray) -> np.ndarray:
    return 0.3 + (0.2 - 0.02 * np.log2(n)) * -np.expm1(-c / 3e4)


def flat_and_peaked(n: int, c: np.ndarray) -> np.ndarray:
    return 0.3 + (0.25 - 0.03 * (np.log2(n) - 5) ** 2) * -np.expm1(-c / 3e4)


def small_ahead(n: int, c: np.ndarray) -> np.ndarray:
    return 0.3 + (0.4 - 0.04 * np.log2(n)) * -np.expm1(-c / 2e6)


def late(n: int, c: np.ndarray) -> np.ndarray:
    return 0.2 + (0.6 - 0.02 * abs(np.log2(n) - 5)) * -np.expm1(-c / 8e5)


@pytest.fixture(scope="module")
def clear() -> Plan:
    return plan_of(peaked, "5M", spend="all")


@pytest.fixture(scope="module")
def stopping() -> Plan:
    return plan_of(flat_and_peaked, "15M", seeds=2)


def test_one_n_clearly_ahead_is_called_so_also_at_the_lower_edge_of_the_grid(clear: Plan) -> None:
    least = plan_of(small_ahead, "5M")
    assert [(plan.verdict.kind, plan.group_size) for plan in (clear, least)] == [("clear", 32), ("clear", 8)]


def test_n_that_hardly_matters_is_no_recommendation() -> None:
    assert plan_of(alike, "3M", seeds=3).verdict.kind == "hardly-matters"


@pytest.mark.parametrize("sizes", [(5, 7), (6, 7)])
def test_of_equal_n_one_that_was_run_is_planned(sizes: tuple[int, int]) -> None:
    fits = plan_of(alike, "3M", sizes=sizes, noise=0.01).fits
    assert fits is not None
    ahead = list[bool]()
    for budget in (3e6, 6e6, 12e6):
        plan = Planner(fits).allocate(budget, spend="all")
        reward = {one.group_size: one.predicted_reward or 0.0 for one in plan.alternatives}
        reward[plan.group_size] = plan.predicted_reward or 0.0
        best = max(round(reward[n], 3) for n in sizes)
        assert plan.group_size == fits.best_group_size(budget)[0]
        if plan.group_size not in sizes:
            assert round(reward[plan.group_size], 3) > best
            assert str(plan.group_size) in plan.verdict.sentence
        ahead.append(plan.group_size in sizes and max(reward, key=reward.__getitem__) not in sizes)
    assert any(ahead)


@pytest.mark.slow
def test_where_n_hardly_matters_no_run_at_the_edge_is_asked_for(repository: Path) -> None:
    fits = fit(iso.read(repository / "benchmarks" / "data" / "smollm2" / "sweep" / "smollm2-long.csv"))
    plan = Planner(fits).allocate("1M", mode="conservative")
    assert plan.verdict.kind == "hardly-matters"
    assert "best-group-size-at-grid-edge" not in codes(plan)


def test_where_the_octave_above_the_grid_may_be_best_it_is_measured_first() -> None:
    plan = plan_of(lambda n, c: 0.2 + 0.08 * np.log2(n) * -np.expm1(-c / (2e3 * n)), "5M")
    assert plan.verdict.kind in ("measure-first", "likely")
    # The n that was run, the n to run, and how long.
    for number in (max(SIZES), 2 * max(SIZES)):
        assert f"n = {number}" in plan.verdict.sentence


def test_runs_that_contradict_each_other_leave_n_undecided() -> None:
    def odd(n: int, c: np.ndarray) -> np.ndarray:
        return peaked(n, c) + (0.2 * (c > 0) if n == 64 else 0.0)

    sizes = (8, 16, 32, 64, 128)
    plain, contradicted = (plan_of(reward, "5M", sizes=sizes, spend="all") for reward in (peaked, odd))
    assert plain.verdict.kind in ("clear", "tie")
    assert "outlying-run" in codes(contradicted)
    assert contradicted.verdict.kind not in ("clear", "tie", "stop-spending")


def test_a_pilot_that_is_too_short_cannot_decide() -> None:
    plan = plan_of(unseen, "60M", end=4e5, noise=0.02)
    assert plan.verdict.kind in ("likely", "undecided", "measure-first")
    assert "extrapolation-beyond-3x" in codes(plan)
    assert plan.extrapolation is not None
    assert plan.extrapolation > 100


def test_noisy_runs_name_the_group_sizes_that_may_be_best() -> None:
    plan = plan_of(lambda n, c: 0.3 + 0.3 * -np.expm1(-c / 3e5) + 0.0 * n, "1M", end=1e6, noise=0.06)
    assert plan.verdict.kind in ("likely", "undecided")
    assert plan.fits is not None
    odds = plan.fits.group_size_odds(plan.compute)
    most = odds.group_size[int(np.argmax(odds.probability_best))]
    assert f"n = {most} ({chance_text(odds.probability_best.max())})" in plan.verdict.odds
    assert ("cannot decide" in plan.verdict.sentence) == (plan.verdict.kind == "undecided")


@pytest.mark.parametrize("budget", ["5M", "50M"])
def test_the_likeliest_n_is_named_also_where_it_is_not_about_equal_to_the_plan(budget: str) -> None:
    runs = recorded("mul31-hard")
    plan = Planner(fit(runs)).allocate(budget, slots=0)
    assert plan.odds is not None
    best, n = max((one.odds.probability_best, one.group_size) for one in plan.alternatives if one.odds is not None)
    assert best > plan.odds.probability_best
    assert n not in plan.about_equal
    assert f"n = {n} ({chance_text(best)})" in plan.verdict.odds


@pytest.mark.slow
def test_the_octave_above_the_grid_is_named_as_a_rival_also_where_it_may_not_be_planned() -> None:
    runs = recorded("qwen2.5-7b-easy")
    planner = Planner(fit(runs))
    told = [planner.allocate("4.08M", spend="all", slots=0, beyond_grid=n).verdict.odds for n in (0, 1)]
    for odds in told:
        assert "1024 (" in odds
        assert sum(map(int, re.findall(r"\((\d+) %\)", odds))) >= 79


def test_a_failed_backtest_lowers_the_verdict(clear: Plan) -> None:
    assert clear.fits is not None
    assert clear.fits.passport is not None
    assert clear.fits.passport.backtest is not None
    backtest = replace(clear.fits.passport.backtest, coverage=0.0, runs=3)
    fits = replace(clear.fits, passport=replace(clear.fits.passport, backtest=backtest))
    missed = Planner(fits).allocate("5M", spend="all")
    assert missed.verdict.kind == "likely"
    assert "backtest-missed" in missed.verdict.doubts


def test_one_group_size_cannot_decide() -> None:
    plans = [plan_of(apart, budget, end=end, sizes=(32,)) for budget, end in (("5M", 6e6), ("1M", 6e5))]
    assert [plan.verdict.kind for plan in plans] == ["measure-first", "undecided"]
    # A plan that no run is worth waiting for is the best use of its budget.
    assert [plan.approval is not None and plan.approval.kind for plan in plans] == ["do-not", "approve"]
    assert all("only n = 32 was run" in plan.verdict.sentence for plan in plans)


def test_a_flat_end_means_stop_spending_where_the_budget_is_near_the_runs(stopping: Plan) -> None:
    plan = stopping
    assert plan.verdict.kind == "stop-spending"
    assert plan.rollouts < 0.9 * 15e6
    assert plan.stopping is not None
    assert f"{plan.stopping.gain:.3f}" in plan.verdict.sentence
    assert chance_text(plan.stopping.chance_of_more) in plan.verdict.sentence
    far = plan_of(flat_and_peaked, "60M", seeds=2)
    assert far.verdict.kind != "stop-spending"
    assert far.rollouts < 60e6


def test_no_stop_at_an_end_of_the_grid_beyond_which_nothing_was_run() -> None:
    plan = plan_of(flat, "15M", seeds=2)
    assert plan.fits is not None
    assert plan.group_size == plan.fits.group_size_range[0]
    assert plan.rollouts < 15e6
    assert plan.verdict.kind == "clear"


def test_no_stop_where_the_rise_was_not_seen(stopping: Plan) -> None:
    assert stopping.fits is not None
    assert stopping.fits.passport is not None
    unseen_rise = replace(stopping.fits.passport, rise_seen=(0.1, 0.2), most_rise_seen=(0.1, 0.3))
    short = Planner(replace(stopping.fits, passport=unseen_rise)).allocate("15M")
    assert short.verdict.kind == "likely"


def test_a_plan_of_runs_that_do_not_rise_says_so_in_one_row() -> None:
    columns = {"n": [4] * 12 + [16] * 12, "step": [*range(0, 240, 20)] * 2, "avg@4": [0.3, 0.31, 0.29] * 8}
    rows = Planner(fit(RunSet.from_columns(columns, problems_per_batch=16))).allocate("1M").summary().splitlines()
    assert "not rise" in rows[0]
    assert rows[1].split(maxsplit=1) == ["approval", "Do not approve yet"]


def test_a_plan_without_runs_of_ones_own_is_borrowed() -> None:
    for budget, approval in (("3M", "do-not"), ("1M", "part")):
        plan = Planner(published_prior()).allocate(budget)
        assert plan.verdict.kind == "borrowed"
        # Where no pilot is worth its cost, the plan is itself the first run.
        assert plan.approval is not None
        assert plan.next_runs is not None
        assert (plan.approval.kind, bool(plan.next_runs.runs)) == (approval, approval == "do-not")
        assert (plan.approved_steps < plan.update_steps) == (approval == "part")


def test_what_counts_as_equal_is_equal_however_sure_the_difference_is() -> None:
    rng = np.random.default_rng(0)
    compute = np.concatenate([[0.0], np.geomspace(2e4, 4e6, 60)])
    columns: dict[str, list[float]] = {"n": [], "seed": [], "C": [], "avg@4": []}
    for n in (8, 16, 32, 64):
        reward = 0.4 + (0.2 + 0.0047 * np.log2(n / 8)) * -np.expm1(-compute / 3e4)
        for seed in range(5):
            columns["n"] += [n] * len(compute)
            columns["seed"] += [seed] * len(compute)
            columns["C"] += compute.tolist()
            columns["avg@4"] += (reward + rng.normal(0.0, 0.002, len(compute))).tolist()
    fits = fit(RunSet.from_columns(columns, problems_per_batch=32), draws=100)
    planner = Planner(fits)
    plan = planner.allocate("1M", spend="all", mode="conservative")
    kinds: dict[str, list[int]] = {}
    for other in plan.alternatives:
        if other.kind not in ("near-tie", "close"):
            continue
        kinds.setdefault(other.kind, []).append(other.group_size)
        if other.group_size > 64:
            # An n that was never run is not called equal.
            assert other.kind == "close", other
            assert f"n = {other.group_size} ({other.predicted_reward:.3f}), above" in plan.summary()
            continue
        assert abs(other.expected_loss or 0.0) <= EQUAL, other
    assert kinds["near-tie"]
    assert kinds["close"]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("mul31-hard", 1.0, 9.0), ("qwen2.5-7b-easy", 0.106, 0.15)],
    ids=["one n overtakes another", "many n about equal"],
)
def test_verdicts_do_not_go_back_and_forth_as_the_budget_grows(name: str, least: float, most: float) -> None:
    runs = recorded(name)
    fits = fit(runs)
    assert fits.largest_compute is not None
    budgets = fits.largest_compute * np.geomspace(least, most, 16)
    ties = [Planner(fits).allocate(budget, slots=0).verdict.kind == "tie" for budget in budgets.tolist()]
    assert sum(a != b for a, b in pairwise(ties)) <= 1


@pytest.fixture(scope="module")
def close_runs() -> Planner:
    """Runs of which several n are about equal at large budgets."""
    steps = {
        8: (0, 40, 74, 158, 293, 631, 1166, 2512),
        32: (0, 10, 18, 40, 74, 158, 293, 541),
        128: (0, 2, 5, 10, 18, 40, 74, 136),
    }
    rewards = {
        8: (0.427, 0.586, 0.635, 0.704, 0.762, 0.822, 0.856, 0.901),
        32: (0.427, 0.519, 0.556, 0.614, 0.691, 0.758, 0.818, 0.849),
        128: (0.427, 0.457, 0.513, 0.478, 0.544, 0.618, 0.693, 0.784),
    }
    columns = {
        "n": [n for n in steps for _ in steps[n]],
        "step": [step for n in steps for step in steps[n]],
        "avg@4": [reward for n in rewards for reward in rewards[n]],
    }
    return Planner(fit(RunSet.from_columns(columns, problems_per_batch=16), draws=200))


def test_verdict_and_alternatives_name_the_same_ties(close_runs: Planner) -> None:
    plan = close_runs.allocate("900k")
    assert plan.verdict.kind == "tie"
    equal = {plan.group_size, *(a.group_size for a in plan.alternatives if a.kind == "near-tie")}
    assert len(equal) > 2
    listed = re.search(r"n = ([\d, and]+)", plan.verdict.sentence)
    assert listed is not None
    assert {int(n) for n in re.findall(r"\d+", listed[1])} == equal


@pytest.mark.parametrize("kind", ["tie", "clear"])
def test_beyond_twice_the_runs_a_plan_says_where_to_check_it(kind: str, close_runs: Planner) -> None:
    plans = [close_runs.allocate(budget) for budget in ("600k", "3M")]
    if kind == "clear":
        plans = [plan_of(small_ahead, budget, spend="all") for budget in ("9M", "15M")]
    assert [plan.verdict.kind for plan in plans] == [kind, kind]
    found = [plan.approval for plan in plans if plan.approval is not None]
    assert [one.kind for one in found] == ["approve", "part"]
    assert found[1].step is not None
    assert [f"step {found[1].step:,}" in plan.summary() for plan in plans] == [False, True]


def test_a_plan_beyond_twice_the_largest_run_as_shown_is_checked_before_its_end(close_runs: Planner) -> None:
    seen = close_runs.fits.largest_compute or 0.0
    for reach in (1.97, 2.04, 2.1, 2.24, 4.2, 8.3):
        plan = close_runs.allocate(reach * seen, spend="all", slots=0)
        assert plan.approval is not None
        assert plan.extrapolation is not None
        assert (plan.approval.kind == "approve") == (float(f"{plan.extrapolation:.2g}") <= 2.0)
        assert plan.approval.step is None or plan.approval.step < plan.update_steps


def test_a_check_whose_floor_was_measured_already_is_where_the_approval_ends(close_runs: Planner) -> None:
    kinds = set[str]()
    for plan in (close_runs.allocate("900k"), plan_of(late, "2M", end=8e5)):
        assert plan.approval is not None
        assert plan.gain is not None
        # Of a part, the next plan judges what it measured.
        assert (plan.approval.lowest is None) == (plan.approval.kind == "part")
        if plan.approval.lowest is not None:
            assert plan.approval.lowest > plan.gain.best.reward
            assert f"{plan.approval.lowest:.3f}" in plan.summary()
        kinds.add(plan.approval.kind)
    assert kinds == {"check", "part"}


@pytest.mark.parametrize(("budget", "end"), [("2M", 4e5), ("3M", 8e5)])
def test_an_n_that_was_not_run_is_approved_for_half_at_most(budget: str, end: float) -> None:
    plan = plan_of(late, budget, end=end, spend="all")
    assert plan.group_size not in SIZES
    assert plan.approval is not None
    assert plan.approval.kind == "part"
    assert 2 * plan.approved_steps <= plan.update_steps


def test_a_plan_far_beyond_all_runs_is_approved_up_to_twice_the_largest_only() -> None:
    plan = plan_of(late, "6M", end=4e5)
    assert plan.approval is not None
    assert plan.gain is not None
    assert plan.approval.kind == "part"
    assert plan.approval.step == pytest.approx(2 * 4e5 / plan.rollouts_per_batch, rel=0.05)
    # The screen says how far, of a plan without a prediction too.
    assert "15 x" in replace(plan, predicted_reward=None, reward_interval=None, approval=None).summary()


def test_a_plan_far_beyond_the_runs_at_its_n_is_approved_in_part_where_others_are_as_long() -> None:
    rows = [(n, c, float(small_ahead(n, 10 * c))) for n in (8, 32) for c in np.linspace(0.0, n * 2e4, 20)]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("n", "C", "avg@4"))}
    plan = Planner(fit(RunSet.from_columns(columns, problems_per_batch=32), draws=60)).allocate("600k")
    assert plan.group_size == 8
    assert plan.extrapolation is not None
    assert plan.extrapolation < 1.0
    assert plan.approval is not None
    assert plan.approval.kind == "part"
    assert "3.7 x the largest run at n = 8" in plan.approval.reason


def test_at_an_n_that_was_not_run_half_of_a_plan_is_approved_at_most(make_runs: Make) -> None:
    runs = make_runs(noisy(also_above, 0.005), LEVELS, np.linspace(0.0, 4e5, 21))
    plan = Planner(fit(runs, draws=80)).allocate("640k")
    assert plan.fits is not None
    assert plan.group_size not in plan.fits.group_sizes
    assert plan.approval is not None
    assert plan.approval.kind == "part"
    assert plan.approved_steps <= plan.update_steps / 2


def test_what_a_part_gains_is_what_the_fit_expects_at_its_end(close_runs: Planner) -> None:
    plan = close_runs.allocate("900k")
    assert plan.fits is not None
    assert plan.gain is not None
    assert plan.gain.probability is not None
    assert plan.approval is not None
    part = plan.approval.gain
    assert part is not None
    assert part.interval is not None
    compute = plan.approved_steps * plan.rollouts_per_batch
    expected = plan.fits.predict(compute, plan.group_size, plan.problems_per_batch)
    rewards = [part.best.reward + gain for gain in (*part.interval, part.gain)]
    assert rewards == pytest.approx([float(end) for end in (expected.low, expected.high, expected.mean)])
    assert part.gain < plan.gain.gain
    assert part.probability is not None
    assert 0 < part.probability <= plan.gain.probability
    # A part that gains nothing is called something else: a test.
    idle = [replace(plan.approval, gain=replace(part, gain=gain)) for gain in (-0.1, 0.0002, 0.002)]
    assert [one.label == plan.approval.label for one in idle] == [False, False, True]


def test_a_script_trains_what_is_approved_and_says_where_the_check_is(close_runs: Planner) -> None:
    plan = close_runs.allocate("900k")
    assert plan.approval is not None
    assert plan.approval.kind == "part"
    assert plan.approval.step is not None
    step = plan.approval.step
    whole = change_plan(plan, {"update_steps": plan.update_steps})
    other_rate = change_plan(plan, {"learning_rate": 1e-6})
    for one, trained in ((plan, step), (other_rate, step), (whole, plan.update_steps)):
        script = one.launch_script(model="owner/model")
        assert f'"update_steps": {trained},' in script
        assert (f"step {step:,}" in script) == (trained == step)


def test_a_plan_whose_last_half_is_not_worth_it_is_not_approved(close_runs: Planner) -> None:
    plans = [close_runs.allocate(budget) for budget in ("3M", "30M")]
    assert [plan.last_half is None for plan in plans] == [True, False]
    assert [plan.approval is not None and plan.approval.kind for plan in plans] == ["part", "do-not"]
    assert plans[1].approval is not None
    assert plans[1].approval.smaller is not None
    smaller = close_runs.allocate(plans[1].approval.smaller).approval
    assert smaller is not None
    assert smaller.kind != "do-not"
    assert plans[1].last_half is not None
    assert float(f"{plans[1].last_half:.3f}") < 0.005


@pytest.mark.parametrize(("steps", "is_part"), [(3000, False), (500, True)])
def test_a_batch_far_from_those_that_were_run_is_approved_in_part(
    repository: Path, steps: int, *, is_part: bool
) -> None:
    plan = Planner(fit(iso.read(repository / "docs" / "examples" / "runs.csv"))).allocate("600k", update_steps=steps)
    assert plan.approval is not None
    assert (plan.approval.kind == "part") == is_part
    assert (f"B_p = {plan.problems_per_batch}" in plan.approval.reason) == is_part


def test_a_law_that_the_curves_contradict_decides_nothing(make_runs: Make) -> None:
    runs = make_runs(noisy(later_and_higher(0.08), 0.004), [(n, 32) for n in (8, 32, 128)], np.geomspace(1e4, 4e6, 16))
    found = []
    for budget in np.geomspace(1e5, 1e7, 12):
        plan = Planner(fit(runs, method="paper", points="all")).allocate(float(budget))
        ahead = [one for one in plan.alternatives if one.kind in ("best-by-curves", "beyond-grid")]
        found.append(bool(ahead))
        assert not ahead or plan.verdict.kind == "undecided"
        assert all(f"n = {one.group_size}" in plan.verdict.sentence for one in ahead)
    assert {*found} == {True, False}


def test_what_a_lucky_run_reached_counts_and_it_may_go_on() -> None:
    rng = np.random.default_rng(3)
    rows = [(n, seed, c) for n in (8, 32) for seed in range(6) for c in np.linspace(0.0, 4e5, 20)]
    lucky = {(8, 2): 0.05}
    rewards = [float(small_ahead(n, c)) + lucky.get((n, seed), 0.0) + rng.normal(0, 0.004) for n, seed, c in rows]
    names = [f"n{n}-{seed}" for n, seed, _ in rows]
    columns = {"run": names, "n": [r[0] for r in rows], "C": [r[2] for r in rows], "avg@4": rewards}
    planner = Planner(fit(RunSet.from_columns(columns, problems_per_batch=32), draws=60))
    plan = planner.allocate("600k")
    assert plan.gain is not None
    assert plan.gain.best.run_id == "n8-2"
    assert plan.gain.best.reward == pytest.approx(float(small_ahead(8, 4e5)) + 0.05, abs=0.02)
    # For less than a new run needs to come so far.
    plan = planner.allocate("200k")
    assert plan.approval is not None
    assert plan.approval.kind == "do-not"
    assert going_on(plan) == f"isocompute forecast RUNS --run n8-2 --remaining {plan.rollouts}"
    # What it names pays for as many updates.
    speed = Throughput(rollouts_per_second=47, gpus=8, usd_per_gpu_hour=2.7, tokens_per_rollout=937)
    planner = Planner(planner.fits, throughput=speed)
    for budget in ("24.3 usd", "8.9 gpu_hours", "187.3M tokens"):
        plan = planner.allocate(budget)
        words = shlex.split(going_on(plan))
        remaining = planner.pricing(Budget.parse(words[words.index("--remaining") + 1]))
        assert remaining.affordable_steps(plan.rollouts_per_batch)[0] == plan.update_steps
        assert remaining.available <= plan.budget.amount


@pytest.mark.parametrize("noise", [0.005, 0.05, 0.1])
def test_the_best_run_so_far_is_as_good_as_its_curve_however_noisy_its_evaluations(noise: float) -> None:
    rng = np.random.default_rng(5)
    rows = [(n, c) for n in (8, 32) for c in np.linspace(0.0, 4e5, 120)]
    rewards = [float(small_ahead(n, c)) + rng.normal(0, noise) for n, c in rows]
    columns = {"n": [n for n, _ in rows], "C": [c for _, c in rows], "avg@4": rewards}
    best = fit(RunSet.from_columns(columns, problems_per_batch=32), draws=60).best_reached
    assert best is not None
    assert best.reward == pytest.approx(max(float(small_ahead(n, 4e5)) for n in (8, 32)), abs=0.02)


def test_a_checkpoint_whose_only_evaluation_is_far_below_its_curve_is_not_the_best() -> None:
    rng = np.random.default_rng(7)
    rows = [(n, c) for n in (8, 32) for c in np.linspace(0.0, 4e5, 20)]
    rewards = [0.02 if c == 4e5 else float(small_ahead(n, c)) + rng.normal(0, 0.005) for n, c in rows]
    columns = {"n": [n for n, _ in rows], "C": [c for _, c in rows], "avg@4": rewards}
    best = fit(RunSet.from_columns(columns, problems_per_batch=32), draws=60).best_reached
    assert best is not None
    assert best.compute < 4e5


def test_the_best_run_that_collapsed_is_found_on_both_axes() -> None:
    rng = np.random.default_rng(0)
    steps = np.arange(20, 801, 20)
    rows = [(n, int(step), n * 32 * int(step)) for n in (8, 16, 32) for step in steps]
    rises = {8: 0.5, 16: 0.7, 32: 0.5}
    rewards = [0.2 + rises[n] * -np.expm1(-step / 200) + rng.normal(0, 0.01) for n, step, _ in rows]
    rewards = [0.02 if n == 16 and step > 600 else reward for reward, (n, step, _) in zip(rewards, rows, strict=True)]
    columns = {"n": [n for n, _, _ in rows], "C": [c for *_, c in rows], "tokens": [500 * c for *_, c in rows]}
    runs = RunSet.from_columns({**columns, "avg@4": rewards}, problems_per_batch=32)
    best, in_tokens = (fit(runs, compute=axis, draws=40).best_reached for axis in ("rollouts", "tokens"))
    assert best is not None
    assert in_tokens is not None
    assert best.group_size == in_tokens.group_size == 16
    assert in_tokens.compute == pytest.approx(500 * best.compute)


def test_a_gain_its_interval_and_its_probability_are_one_comparison(close_runs: Planner) -> None:
    plan = close_runs.allocate("600k")
    assert plan.gain is not None
    assert plan.reward_interval is not None
    assert plan.predicted_reward is not None
    assert plan.gain.gain == pytest.approx(plan.predicted_reward - plan.gain.best.reward)
    assert plan.gain.interval == pytest.approx(tuple(end - plan.gain.best.reward for end in plan.reward_interval))
    assert plan.gain.probability is not None
    # A chance of more than nine in ten lies above the lower end of an 80 % interval, one of less below it.
    assert (plan.gain.probability > 0.9) == (plan.gain.interval[0] > 0)


def test_a_plan_below_what_a_run_has_measured_says_so_first_and_is_not_approved() -> None:
    # As recorded: Qwen3-0.6B on MATH-500, three of the runs of rasbt/reasoning-from-scratch.
    runs = [
        [0.156, 0.462, 0.434, 0.428, 0.442, 0.412, 0.370, 0.380, 0.380, 0.336, 0.330],
        [0.156, 0.452, 0.456, 0.418, 0.424, 0.416, 0.424, 0.410, 0.418, 0.394, 0.416],
        [0.156, 0.408, *[0.0] * 9],
    ]
    columns = {
        "run_id": [f"r{i}" for i in range(3) for _ in range(11)],
        "step": [50 * i for _ in range(3) for i in range(11)],
        "acc": [reward for run in runs for reward in run],
    }
    recorded = RunSet.from_columns(columns, group_size=8, problems_per_batch=1)
    planner = Planner(fit(recorded, metric="acc"))
    plan = planner.allocate("3M")
    assert plan.predicted_reward is not None
    assert plan.gain is not None
    reached = plan.gain.best.reward
    assert reached == pytest.approx(0.445, abs=0.01)
    assert 0.4 < plan.predicted_reward < reached
    assert plan.approval is not None
    assert plan.approval.kind == "do-not"
    assert f"{reached:.3f}" in plan.summary().splitlines()[1]
    cost = planner.budget_for(0.4)
    assert cost.reached == plan.gain.best
    assert f"{reached:.3f}" in cost.lines()[0]
    assert planner.budget_for(0.6).reached is None


def test_a_plan_that_gains_nothing_says_so_also_where_a_run_should_come_first() -> None:
    runs = recorded("trl-sort")
    plans = [Planner(fit(runs)).allocate(budget) for budget in ("800k", "960k")]
    assert [plan.next_runs is not None and len(plan.next_runs.runs) for plan in plans] == [0, 1]
    for plan in plans:
        assert plan.approval is not None
        assert plan.gain is not None
        assert str(plan.gain.best) in plan.approval.reason


def test_at_the_top_of_the_range_nothing_is_left_to_gain(make_runs: Make) -> None:
    def solved(n: int, bp: int, c: float) -> float:
        return round(1.0 - 0.6 * float(np.exp(-c / 2e4)), 2)

    planner = Planner(fit(make_runs(solved, LEVELS, np.linspace(0.0, 4e5, 21)), draws=80))
    for best in (planner.allocate("300k"), planner.allocate("8M")):
        assert best.gains_nothing
        assert instead(best, campaign=False) is None
        assert best.approval is not None
        assert best.approval.reason.endswith("nothing is left to gain")


def test_the_only_n_that_the_limits_allow_is_called_that(close_runs: Planner) -> None:
    plans = [
        Planner(close_runs.fits, hardware=Hardware(max_rollouts_per_batch=batch)).allocate("900k")
        for batch in (8 * 16, 32 * 16)
    ]
    assert [len(plan.alternatives) > 0 for plan in plans] == [False, True]
    assert ["8 to 128" in plan.verdict.sentence for plan in plans] == [True, False]
    assert [plan.verdict.kind for plan in plans] == ["clear", "tie"]


# A sweep as a new user makes it: best at its largest n, a budget of 20 times the data in GPU-hours.
LEVELS = [(n, 32) for n in (8, 16, 32, 64)]
SPEED = Throughput(step_overhead_seconds=25, rollouts_per_second=40, gpus=8)


def also_above(n: int, bp: int, c: float) -> float:
    """Every doubling of n comes 1.5 times later and ends .025 higher, also above the grid."""
    octaves = np.log2(n / 8)
    return float(0.42 + (0.10 + 0.025 * octaves) * -np.expm1(-c / (3e4 * 2 ** (0.55 * octaves))))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("last", few([1e5, 4e5], 1))
def test_a_plan_far_beyond_a_rising_sweep_is_no_reason_to_stop(make_runs: Make, seed: int, last: float) -> None:
    fits = fit(make_runs(noisy(also_above, 0.01, seed), LEVELS, np.linspace(0.0, last, 21)), draws=80)
    step = 64 * 32
    hours = 20 * SPEED.gpus * SPEED.wall_hours(step, round(last / step))
    plan = Planner(fits, throughput=SPEED).allocate(Budget(gpu_hours=hours))
    assert plan.verdict.kind in ("measure-first", "undecided", "likely")
    # Steps may be left out only where they really add nothing.
    whole = plan.rollouts / (1 - plan.unused_share)
    at_plan, at_budget = (also_above(plan.group_size, 32, c) for c in (plan.rollouts, whole))
    assert at_budget - at_plan <= 0.002
    assert plan.group_size >= 64
    # The octave above the grid is part of the question, and at least as good by the same fit.
    grid = Planner(fits, throughput=SPEED).allocate(Budget(gpu_hours=hours), beyond_grid=0)
    assert grid.verdict.kind != "stop-spending"
    assert grid.group_size == 64
    assert plan.predicted_reward is not None
    assert grid.predicted_reward is not None
    assert plan.predicted_reward >= grid.predicted_reward


def test_the_page_lists_every_verdict_with_its_words() -> None:
    page = (Path(__file__).parents[3] / "docs" / "planning.md").read_text()
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", page, re.MULTILINE))
    assert listed == VERDICTS


def test_a_plan_whose_runs_forecast_says_to_change_is_not_approved() -> None:
    steps = np.arange(0, 1001, 20.0)
    rng, approvals = np.random.default_rng(0), list[str]()
    for drifts in (False, True):
        kl = np.where(steps > 400, 0.05 if drifts else 0.0005, 0.0005)
        reward = 0.3 + 0.4 * (1 - np.exp(-steps / 600)) + rng.normal(0, 0.004, len(steps))
        runs = RunSet.from_columns({"step": steps, "avg@4": reward, "kl": kl}, group_size=8, problems_per_batch=32)
        fits = fit(runs, draws=60)
        plan = Planner(fits).allocate(2 * 1000 * 256)
        assert plan.approval is not None
        approvals.append(plan.approval.kind)
        # Runs with the same recipe would be in the same trouble.
        assert plan.next_runs is not None
        assert not plan.next_runs.runs or not drifts
        changes = iso.forecast(fits, runs.run_ids[0]).card.action == "change-something"
        assert changes == ("kl-drift" in plan.approval.reason) == drifts
    assert approvals[0] != approvals[1] == "do-not"


@pytest.mark.slow
def test_a_plan_whose_n_collapsed_in_a_run_is_checked_soon_after_that_place() -> None:
    frame = recorded("mul31-hard").filter(metric="avg@4").to_polars()
    for collapses in (False, True):
        lost = (pl.col("group_size") == 8) & (pl.col("rollouts") > 200_000) & pl.lit(collapses)
        runs = iso.read(frame.with_columns(value=pl.when(lost).then(0.01).otherwise("value")))
        plan = Planner(iso.fit(runs)).allocate("3M")
        assert plan.group_size == 8
        assert plan.approval is not None
        at = (plan.approval.step or plan.update_steps) * plan.rollouts_per_batch
        # The runs go on to 600,000.
        assert (at <= 2 * 203_000) is collapses
        assert plan.approval.kind == "part" or not collapses
    # Where they all collapse, another run with their recipe is no plan.
    every = iso.read(frame.with_columns(value=pl.when(pl.col("rollouts") > 200_000).then(0.01).otherwise("value")))
    approval = Planner(iso.fit(every)).allocate("3M").approval
    assert approval is not None
    assert approval.kind == "do-not"
    assert "collapsed" in approval.reason


def test_a_better_reward_is_asked_where_not_every_n_was_run_at_every_b_p(fitted_many: Fits) -> None:
    levels = {bp: {n for n, at in fitted_many.curves if at == bp} for bp in fitted_many.problems_per_batch}
    assert len({frozenset(sizes) for sizes in levels.values()}) > 1
    for bp, sizes in levels.items():
        plan = Planner(fitted_many).allocate(70_000, problems_per_batch=bp, min_update_steps=1)
        assert plan.group_size <= max(sizes)
        better = better_reward(plan)
        assert better is None or plan.gain is None or better > plan.gain.best.reward
