"""Plans from a surface against the same choice made by hand from its draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Budget, Fits, Hardware, Planner, Recipe, Throughput
from isocompute_sdk.phrases import short
from tests.unit.sweeps import Make, later_and_higher, noisy, recorded

EQUAL, NOTHING = 0.01, 0.0005
"""Rewards that count as equal, and what adds nothing, of a metric in 0 to 1."""


@pytest.fixture(scope="module")
def two_batches(make_runs: Make) -> Fits:
    """A sweep over n at two B_p, of which the larger one is a little worse."""
    rising = later_and_higher()
    reward = noisy(lambda n, bp, c: rising(n, bp, c) - 0.01 * (bp == 64), 0.004, seed=2)
    levels = [(n, bp) for n in (8, 16, 32, 64) for bp in (32, 64)]
    return iso.fit(make_runs(reward, levels, np.geomspace(2e4, 3e6, 20)), draws=60)


@pytest.fixture(scope="module")
def flat(make_runs: Make) -> Fits:
    """A sweep that is flat from a third of its compute on, best at n = 32."""
    top = {8: 0.50, 16: 0.55, 32: 0.60, 64: 0.56, 128: 0.52}
    reward = noisy(lambda n, bp, c: float(0.3 + (top[n] - 0.3) * -np.expm1(-c / 2e5)), 0.003, seed=3)
    return iso.fit(make_runs(reward, [(n, 32) for n in top], np.geomspace(2e4, 4e6, 24)), draws=60)


def mean(fits: Fits, n: int, bp: int, steps: int) -> float:
    return round(float(fits.draws(float(n * bp * steps), n, bp).mean()), 12)


@pytest.mark.parametrize("budget", [1.1e5, 7e5, 2.5e6, 2e7])
def test_the_plan_has_the_largest_expected_reward_of_whole_steps(two_batches: Fits, budget: float) -> None:
    plan = Planner(two_batches).allocate(budget, spend="all", min_update_steps=3, slots=0)
    assert two_batches.passport is not None
    largest = 64 * 2**two_batches.passport.beyond_grid_octaves
    allowed = [
        (n, bp, int(budget // (n * bp)))
        for bp in (32, 64)
        for n in (8, 16, 32, 64, 128)
        if n <= largest and budget // (n * bp) >= 3
    ]
    best = max(allowed, key=lambda one: (mean(two_batches, *one), -one[1], -one[0]))
    assert (plan.group_size, plan.problems_per_batch, plan.update_steps) == best
    assert plan.predicted_reward == pytest.approx(mean(two_batches, *best))
    others = {one for one in allowed if one[1] == best[1] and one[0] != best[0]}
    assert {(a.group_size, a.problems_per_batch, a.update_steps) for a in plan.alternatives} == others
    ties = {a.group_size for a in plan.alternatives if a.kind in ("near-tie", "close")}
    assert ties == {one[0] for one in others if abs(mean(two_batches, *one) - mean(two_batches, *best)) <= EQUAL}


def test_odds_are_shares_of_the_draws(two_batches: Fits) -> None:
    plan = Planner(two_batches).allocate(2.5e6, spend="all", slots=0)
    sizes = sorted({plan.group_size, *(a.group_size for a in plan.alternatives)})
    problems = plan.problems_per_batch
    spent = [float(2.5e6 // (n * problems) * n * problems) for n in sizes]
    drawn_DN = two_batches.draws(spent, sizes, [problems] * len(sizes))
    assert max(sizes) == 128
    best_D = drawn_DN.max(axis=1)
    every = {plan.group_size: plan.odds} | {a.group_size: a.odds for a in plan.alternatives}
    for i, n in enumerate(sizes):
        odds = every[n]
        assert odds is not None
        assert odds.probability_best == pytest.approx(np.mean(np.argmax(drawn_DN, axis=1) == i))
        assert odds.near_best == pytest.approx(np.mean(best_D - drawn_DN[:, i] <= EQUAL))
        assert odds.expected_loss == pytest.approx(np.mean(best_D - drawn_DN[:, i]))


def test_a_plan_stops_at_the_first_step_after_which_almost_nothing_is_gained(flat: Fits) -> None:
    planner = Planner(flat)
    plan, whole = planner.allocate("6M", slots=0), planner.allocate("6M", spend="all", slots=0)
    assert plan.stopping is not None
    assert (plan.group_size, plan.binding[-1]) == (32, "worthwhile")
    full = mean(flat, 32, 32, whole.update_steps)
    rewards = {m: mean(flat, 32, 32, m) for m in range(plan.update_steps - 40, plan.update_steps + 1)}
    enough = [m for m, r in rewards.items() if full - r < NOTHING and round(r, 3) >= round(full, 3)]
    assert plan.update_steps == min(enough)
    assert plan.stopping.gain == pytest.approx(full - rewards[plan.update_steps])
    assert plan.stopping.end_seen
    here_D = flat.draws(float(plan.rollouts), 32, 32)[:, 0]
    sizes = [8, 16, 32, 64, 128, 256]
    drawn_DN = flat.draws([float(6e6 // (n * 32) * n * 32) for n in sizes], sizes, 32)
    assert plan.stopping.chance_of_more == pytest.approx(np.mean(drawn_DN.max(axis=1) - here_D > EQUAL))
    # What it leaves is less than the budget where a deadline allows less, and that is named.
    speed = Throughput(rollouts_per_second=1.0, step_overhead_seconds=0.0)
    soon = Budget(rollouts=6e6, deadline_hours=plan.rollouts / 3600 * 1.5)
    assert Planner(flat, throughput=speed).allocate(soon, slots=0).binding[-2:] == ("deadline", "worthwhile")
    # Leaving out less than a tenth is not worth a note.
    near = planner.allocate(plan.rollouts * 1.08, slots=0)
    assert near.stopping is None
    assert near.update_steps > plan.update_steps


@pytest.mark.parametrize(("probability", "stops"), [(0.45, True), (0.5, False)])
def test_a_plateau_under_a_recipe_that_probably_declines_is_none(flat: Fits, probability: float, stops: bool) -> None:
    assert flat.surface is not None
    assert flat.surface.declines is not None
    never = np.full(len(flat.surface.shape_D), 1e3)
    declines = replace(flat.surface.declines, probability=probability, onset_D=never)
    plan = Planner(replace(flat, surface=replace(flat.surface, declines=declines))).allocate("6M", slots=0)
    assert (plan.verdict.kind == "stop-spending") is stops


@pytest.mark.parametrize(
    ("share", "seen", "later_at"), [(0.75, False, "smaller n"), (0.85, True, "larger n"), (0.85, True, "")]
)
def test_rewards_that_were_seen_to_fall_end_a_run(flat: Fits, share: float, seen: bool, later_at: str) -> None:
    assert flat.surface is not None
    assert flat.surface.declines is not None
    draws = len(flat.surface.shape_D)
    onset_D = np.where(np.arange(draws) < round(share * draws), np.log(3e6), 1e3)
    step = {"smaller n": -1e-9, "larger n": 1e-9, "": 0.0}[later_at]
    declines = replace(flat.surface.declines, probability=0.9, onset_D=onset_D, step_D=np.full(draws, step))
    plan = Planner(replace(flat, surface=replace(flat.surface, declines=declines))).allocate("6M", slots=0)
    assert plan.stopping is not None
    assert plan.stopping.end_seen is seen
    (note,) = (one for one in plan.notes if one.code == "decline-within-budget")
    assert [n for n in ("smaller n", "larger n") if n in note.message] == [later_at] * bool(later_at)


@pytest.mark.slow
def test_a_decline_that_runs_of_this_n_did_not_show_says_how_far_they_went() -> None:
    plan = Planner(iso.fit(recorded("llama-3.1-8b-easy"))).allocate("7.5M")
    (note,) = (one for one in plan.notes if one.code == "decline-within-budget")
    # The run of n = 8 fell, that of n = 16 went on to 500k.
    assert (plan.group_size, f"C = {short(499_829)}" in note.message) == (16, True)
    assert note.data["onset"] < 500_000


def test_the_regret_of_a_prior_is_read_off_the_loss_by_octaves() -> None:
    prior = iso.published_prior()
    draws_D4 = prior.law_draws["group_size"]
    for budget in (1e5, 1e6, 1e8):
        best_D = draws_D4[:, 0] / (1 + np.exp(-draws_D4[:, 1] * (np.log10(budget) - draws_D4[:, 2]))) + draws_D4[:, 3]
        lost = {
            n: np.interp(np.abs(np.log2(n) - best_D), (0, 1, 2, 4, 6), (0, 0.03, 0.17, 0.28, 0.33))
            for n in (8, 16, 32, 64, 128, 256, 512)
        }
        for mode, score in (("expected", np.mean), ("conservative", lambda part: np.quantile(part, 0.9))):
            regret = {n: float(score(part)) for n, part in lost.items()}
            plan = Planner(prior).allocate(budget, mode=mode, slots=0)  # type: ignore[arg-type]
            # Whole steps spend a little less than the budget.
            assert regret[plan.group_size] <= min(regret.values()) + 2e-3
            for a in plan.alternatives:
                assert a.expected_loss == pytest.approx(regret[a.group_size] - regret[plan.group_size], abs=4e-3)


def test_what_ends_the_batch_of_a_fixed_number_of_steps_is_named(two_batches: Fits) -> None:
    speed = Throughput(step_overhead_seconds=10.0, rollouts_per_second=100.0, gpus=8)
    budget = Budget(rollouts=2e6, deadline_hours=4.0)
    for hardware, asked, binding in (
        (Hardware(), "2M", "budget"),
        (Hardware(max_rollouts_per_batch=4096), "2M", "max_rollouts_per_batch"),
        (Hardware(), budget, "deadline"),
    ):
        plan = Planner(two_batches, hardware, throughput=speed).allocate(asked, update_steps=200, slots=0)
        n, problems = plan.group_size, plan.problems_per_batch

        def pays(bp: int, n: int = n, asked: object = asked) -> bool:
            # With 300 x 4 responses every tenth step.
            hours = (200 * (10.0 + n * bp / 100.0) + 21 * 1200 / 100.0) / 3600.0
            return 200 * n * bp <= 2e6 and (asked == "2M" or hours <= 4.0)

        limit = hardware.max_rollouts_per_batch or 10**9
        assert pays(problems)
        assert n * problems <= limit
        assert not pays(problems + 1) or n * (problems + 1) > limit
        assert binding in plan.binding


@pytest.mark.parametrize("recipe", [None, Recipe(min_problems_per_batch=32)], ids=["of the runs", "given"])
def test_in_hours_too_a_plan_takes_a_batch_that_was_run(make_runs: Make, recipe: Recipe | None) -> None:
    def reward(n: int, bp: int, c: float) -> float:
        return float(0.3 + (0.05 * np.log2(n)) * -np.expm1(-c / (2e4 * n)))

    levels = [(n, bp) for n in (8, 16, 32) for bp in (32, 48)]
    fits = iso.fit(make_runs(reward, levels, np.geomspace(2e4, 1e6, 12)), draws=40)
    slow = Throughput(step_overhead_seconds=600.0, rollouts_per_second=1000.0, gpus=8)
    plan = Planner(fits, recipe=recipe, throughput=slow).allocate("100 gpu_hours", slots=0, min_update_steps=1)
    # Each update costs 600 s whatever its batch: the larger of the two that were run, and nothing above it.
    assert plan.problems_per_batch == 48
