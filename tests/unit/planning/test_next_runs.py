"""What to run next: savings, costs and documents, on surfaces fitted to simulated sweeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk import (
    Budget,
    Fits,
    Hardware,
    PlanError,
    Planner,
    Recipe,
    RunSet,
    Throughput,
    fit,
    published,
    published_prior,
)
from isocompute_sdk.cli.shared.display import briefly
from isocompute_sdk.planning import NextRuns, PilotDesign
from isocompute_sdk.planning.next_runs import named
from isocompute_sdk.planning.pricing import FEWEST_EVALUATIONS, amount_text
from isocompute_sdk.planning.trials import FRACTIONS, Choices, Outlook, Trial, prospects, runs_of
from tests.parameters import few
from tests.unit.sweeps import Make, later_and_higher, noisy

SPEED = Throughput(step_overhead_seconds=20.0, rollouts_per_second=50.0, gpus=8)
BUDGET = 3e6
CURVE = later_and_higher(0.08)


@pytest.fixture(scope="module")
def short_sweep(make_runs: Make) -> Fits:
    """Short runs, of which the largest n has hardly begun to rise."""
    compute = np.concatenate([[0.0], np.geomspace(1e4, 6e4, 16)])
    return fit(make_runs(noisy(CURVE, 0.01), [(n, 32) for n in (8, 32, 128)], compute), draws=200)


@pytest.fixture(scope="module")
def planner(short_sweep: Fits) -> Planner:
    return Planner(short_sweep, throughput=SPEED)


def test_runs_of_an_open_question_save_more_than_nothing(planner: Planner) -> None:
    found = planner.next_runs(BUDGET, slots=2)
    assert found.runs
    assert 0 < found.saving <= found.regret_now
    assert found.cost == pytest.approx(sum(run.cost for run in found.runs))
    assert found.saving == pytest.approx(sum(run.saves for run in found.runs))
    assert 0 < found.share < 0.7
    # Shares are of the whole budget, also where a part of it is spent.
    later = planner.next_runs(Budget(rollouts=2 * BUDGET, spent={"pilot": BUDGET}), slots=2)
    assert later.share == pytest.approx(found.share / 2)
    assert later.reason == found.reason.replace(f"{found.share:.1%}", f"{later.share:.1%}")
    assert all(run.rollouts <= BUDGET for run in found.runs)


@pytest.mark.parametrize("hours", [10.0, 20.0])
def test_hours_to_a_deadline_count_as_a_budget_in_hours_does(planner: Planner, hours: float) -> None:
    bought = planner.allocate(Budget(gpu_hours=8 * hours), slots=2)
    late = planner.allocate(Budget(rollouts=1e12, deadline_hours=hours), slots=2)
    one, other = (plan.next_runs for plan in (bought, late))
    assert one is not None
    assert other is not None
    assert [(run.sizes, run.continues) for run in one.runs] == [(run.sizes, run.continues) for run in other.runs]
    assert one.runs
    assert (one.group_size_now, one.saving) == (other.group_size_now, pytest.approx(other.saving))
    design, timed = (planner.design_pilot(plan.budget) for plan in (bought, late))
    assert [run.sizes for run in design.runs] == [run.sizes for run in timed.runs]
    assert design.pilot_share == timed.pilot_share


def test_runs_that_do_not_say_their_batch_are_judged_as_if_it_were_that_of_the_plan(make_runs: Make) -> None:
    runs = make_runs(
        noisy(CURVE, 0.01), [(n, 32) for n in (8, 32, 128)], np.concatenate([[0.0], np.geomspace(1e4, 6e4, 16)])
    )
    silent = RunSet.from_frame(runs.to_polars().drop("problems_per_batch"))
    said, unsaid = (
        Planner(fit(one, draws=200), throughput=SPEED).next_runs(
            BUDGET, slots=2, ended=runs.run_ids, problems_per_batch=32
        )
        for one in (runs, silent)
    )
    assert said.runs
    assert [run.sizes for run in said.runs] == [run.sizes for run in unsaid.runs]
    assert unsaid.saving == pytest.approx(said.saving)


def test_every_run_may_go_on_by_its_name_from_its_last_step(make_runs: Make) -> None:
    levels = [(8, 32), (8, 64), (32, 32)]
    parts = [make_runs(noisy(CURVE, 0.01), levels, np.geomspace(1e4, end, 8)) for end in (4e4, 9e4)]
    tables = [part.to_polars().with_columns(run_id=pl.col("run_id") + f"-{i}") for i, part in enumerate(parts)]
    runs = RunSet.from_frame(pl.concat(tables))
    found = {one.continues: one for one in runs_of(fit(runs, draws=5))}
    assert found.keys() == set(runs.run_ids)
    for run in runs.runs():
        trial = found[run.run_id]
        assert (trial.group_size, trial.problems_per_batch) == (run.group_size, run.problems_per_batch)
        assert trial.begins == trial.update_steps
        assert abs(trial.rollouts - run.rollouts) <= trial.group_size * trial.problems_per_batch


@pytest.mark.parametrize("budget", few([1e6, 1e7, 3e5, 3e6], 2))
def test_more_slots_never_save_less(planner: Planner, budget: float) -> None:
    savings = [planner.next_runs(budget, slots=slots).saving for slots in (1, 2, 4)]
    assert savings == sorted(savings)
    assert savings[0] >= 0


def test_what_one_run_costs_is_said_once_and_its_problems_per_batch_where_the_plan_has_others(planner: Planner) -> None:
    found = planner.next_runs("3M", slots=1)
    (run,) = found.runs
    assert found.summary().count(amount_text(run.cost, "rollouts")) == 1
    assert "B_p" not in named([run], run.problems_per_batch)
    assert f"B_p = {run.problems_per_batch}" in named([run], 2 * run.problems_per_batch)
    # A run that goes on, a new one and a second one of its n are told apart.
    ways = [replace(run, continues=of, seed=seed) for of, seed in ((None, 0), (None, 2), ("a", 0))]
    assert len({named([one], run.problems_per_batch) for one in ways}) == len(ways)
    for problems in (run.problems_per_batch, 2 * run.problems_per_batch):
        plan = planner.allocate("3M", problems_per_batch=problems, slots=0)
        assert ("B_p" in briefly(run, plan, "rollouts")) is (problems != run.problems_per_batch)


def test_costs_are_in_the_unit_of_the_budget(planner: Planner) -> None:
    rollouts = planner.next_runs("3M", slots=1)
    hours = planner.next_runs("200 gpu_hours", slots=1)
    assert rollouts.unit == "rollouts"
    assert hours.unit == "gpu_hours"
    for run in hours.runs:
        expected = 8 * SPEED.wall_hours(run.group_size * run.problems_per_batch, run.update_steps)
        if run.continues is None:
            # Evaluations may add 5 %.
            assert expected < run.cost < 1.06 * expected
    for run in rollouts.runs:
        assert run.cost <= run.rollouts


def test_a_run_that_fell_is_not_continued(make_runs: Make, planner: Planner) -> None:
    assert "n128-bp32-seed0" in {run.continues for run in planner.next_runs(BUDGET, slots=3).runs}

    def collapsing(n: int, bp: int, c: float) -> float:
        return 0.1 if n == 128 and c > 3.6e4 else CURVE(n, bp, c)

    compute = np.concatenate([[0.0], np.geomspace(1e4, 6e4, 16)])
    fits = fit(make_runs(noisy(collapsing, 0.01), [(n, 32) for n in (8, 32, 128)], compute), draws=100)
    found = Planner(fits).next_runs(BUDGET, slots=3).runs
    assert 128 in {run.group_size for run in found}
    assert "n128-bp32-seed0" not in {run.continues for run in found}


def test_a_limit_on_the_cost_is_kept(planner: Planner) -> None:
    found = planner.next_runs(BUDGET, slots=4, most=1e5)
    assert found.cost <= 1e5 * (1 + 1e-9)
    # A plan names the same runs before it; with nothing to pay them from, none.
    plan, none = (planner.allocate(BUDGET, slots=4, most=most).next_runs for most in (1e5, 0.0))
    assert plan == found
    assert none is not None
    assert none.runs == ()


def test_nothing_is_run_where_the_answer_is_known(make_runs: Make) -> None:
    compute = np.concatenate([[0.0], np.geomspace(1e4, 3e6, 40)])
    top = {8: 0.40, 16: 0.45, 32: 0.5, 64: 0.45, 128: 0.4}
    plain = noisy(lambda n, bp, c: 0.2 + (top[n] - 0.2) * float(-np.expm1(-c / 5e4)), 0.002)
    found = Planner(fit(make_runs(plain, [(n, 32) for n in top], compute), draws=100)).next_runs(4e6)
    assert found.regret_after <= found.regret_now < 0.02
    assert found.saving < 0.005


@pytest.mark.parametrize("problems", [8, 16])
def test_runs_that_come_first_never_cost_more_than_the_plan(problems: int) -> None:
    rewards = [0.498, 0.565, 0.653, 0.721, 0.775, 0.809, 0.824, 0.836, 0.845, 0.835, 0.847]
    columns = {"step": [2 * i for i in range(11)], "acc": rewards}
    runs = RunSet.from_columns(columns, group_size=4, problems_per_batch=problems)
    plan = Planner(fit(runs, metric="acc", draws=100)).allocate("1M")
    assert plan.next_runs is not None
    # The larger plan pays for the shortest trial of 1 % of the budget, the smaller one does not.
    assert bool(plan.next_runs.runs) == (plan.cost > 9_984)
    assert plan.next_runs.cost <= plan.cost


def test_what_is_saved_is_read_back(planner: Planner) -> None:
    found = planner.next_runs(BUDGET, slots=2)
    assert NextRuns.from_dict(found.to_dict()) == found
    design = Planner(published_prior()).design_pilot(BUDGET)
    assert PilotDesign.from_dict(design.to_dict()) == design


def test_a_budget_that_pays_for_a_pilot_does_so_if_it_is_larger() -> None:
    planner = Planner(published_prior())
    advised = [bool(planner.design_pilot(budget).runs) for budget in (1e6, 2e6, 4e6, 8e6)]
    assert advised == sorted(advised)
    assert len({*advised}) == 2


def test_without_data_a_pilot_is_designed(planner: Planner) -> None:
    design = Planner(published_prior()).design_pilot("3M")
    assert [one.share for one in design.by_share] == [0.02, 0.05, 0.1, 0.2, 0.35]
    regrets = [one.regret for one in design.by_share]
    assert min(regrets) < design.first.regret_now
    assert len({run.group_size for run in design.runs}) >= 3
    assert design.first.cost <= design.pilot_share * 3e6
    assert Planner(published_prior()).next_runs("3M").runs


def test_a_pilot_is_priced_on_the_gpus_that_were_given() -> None:
    speed, law = Throughput(rollouts_per_second=60), published_prior()
    here = Planner(law, throughput=speed.replace(gpus=8)).design_pilot("200 GPU-hours")
    assert here.runs
    assert Planner(law, Hardware(gpus=8), throughput=speed).design_pilot("200 GPU-hours") == here
    assert Planner(law, throughput=speed).design_pilot("200 GPU-hours on 8xH100") == here


@settings(max_examples=12, deadline=None)
@given(
    budget=st.floats(5.0, 9.0).map(lambda exponent: 10.0**exponent),
    floor=st.sampled_from([8, 32, 128]),
)
def test_a_designed_pilot_keeps_its_share_its_lengths_and_its_reach(budget: float, floor: int) -> None:
    design = Planner(published_prior(), recipe=Recipe(min_problems_per_batch=floor)).design_pilot(budget)
    assert design.first.cost <= design.pilot_share * budget * (1 + 1e-9)
    assert all(run.rollouts == run.group_size * floor * run.update_steps for run in design.runs)
    assert len({run.group_size for run in design.runs}) == len(design.runs)
    lengths = [run.rollouts for run in sorted(design.runs, key=lambda run: run.group_size)]
    assert lengths == sorted(lengths)
    # Three group sizes of 30 updates: n = 8, 16 and 32 with rollouts that grow as n^.75.
    if 0.35 * budget > 1.3 * 30 * floor * 32 * (1 + 0.5**0.75 + 0.25**0.75):
        assert all(run.update_steps >= 30 for run in design.runs)
        assert not design.runs or len(design.runs) >= 3


def test_new_runs_are_long_enough_to_leave_their_warm_up(planner: Planner) -> None:
    asked = [planner.next_runs(budget, slots=4).runs for budget in (5e5, 1e6, 3e6, 3e7)]
    new = [run.update_steps for runs in asked for run in runs if run.continues is None]
    assert new
    assert min(new) >= 30


@pytest.mark.slow
def test_longer_runs_leave_less_expected_regret(make_runs: Make) -> None:
    def regret(longest: float, seed: int) -> float:
        compute = np.concatenate([[0.0], np.geomspace(longest / 40, longest, 20)])
        runs = make_runs(noisy(CURVE, 0.01, seed), [(n, 32) for n in (8, 32, 128)], compute)
        return Planner(fit(runs)).next_runs(4e6).regret_now

    short, long = (np.mean([regret(longest, seed) for seed in (3, 4, 5)]) for longest in (4e5, 1.6e6))
    assert long < short


def test_a_budget_for_nothing_is_refused(planner: Planner) -> None:
    with pytest.raises(PlanError):
        Planner(published_prior()).design_pilot(100)
    with pytest.raises(PlanError):
        planner.next_runs(BUDGET, slots=0)
    with pytest.raises(PlanError):
        planner.next_runs(BUDGET, update_steps=100)
    with pytest.raises(PlanError):
        Planner(published_prior()).next_runs()


def test_runs_are_judged_at_the_target_and_not_at_their_own_compute(make_runs: Make) -> None:
    compute = np.concatenate([[0.0], np.geomspace(1e4, 4e5, 24)])
    # Of a metric from -1 to 1.
    rewards = noisy(later_and_higher(0.16, per_octave=0.06, base=-0.3), 0.01, seed=1)
    runs = make_runs(rewards, [(n, 32) for n in (4, 8, 16, 32, 64)], compute)
    fits = fit(runs, bounds=(-1, 1), draws=200)
    late, early = prospects(fits, [(64, 32, 4e5), (4, 32, 4e5)], 4e6)
    # n = 64 trails at 4e5 and wins at 4e6; n = 4 leads early and is flat.
    assert fits.predict(1e5, 64).mean < fits.predict(1e5, 4).mean
    assert not late.hopeless
    assert early.hopeless
    assert early.chance < late.chance
    assert late.chance == 1
    # Finished runs are rivals; second seeds share the fate of the first; a run in its warm-up is not judged.
    several = prospects(fits, [(4, 32, 4e5), (4, 32, 3e5)], 4e6, ended=[(32, 32), (64, 32)])
    assert [one.hopeless for one in several] == [True, True]
    assert not prospects(fits, [(4, 32, 1000.0)], 4e6, ended=[(32, 32), (64, 32)])[0].hopeless
    # Of two that are equally good one stays.
    twins = prospects(fits, [(63, 32, 4e5), (64, 32, 4e5)], 4e6)
    assert sum(one.hopeless for one in twins) < 2
    with pytest.raises(PlanError):
        prospects(fits, [], 4e6)


@pytest.mark.parametrize("floor", few([64, 32], 1))
def test_new_runs_take_a_batch_of_the_data_that_is_allowed(make_runs: Make, floor: int) -> None:
    compute = np.concatenate([[0.0], np.geomspace(1e4, 6e4, 16)])
    fits = fit(make_runs(noisy(CURVE, 0.01), [(n, bp) for n in (8, 32, 128) for bp in (32, 64)], compute), draws=200)
    planner = Planner(fits, recipe=Recipe(min_problems_per_batch=floor), throughput=SPEED)
    batches = {
        run.problems_per_batch
        for budget in ("100 gpu_hours", "200 gpu_hours", "2M")
        for run in planner.next_runs(budget, slots=3).runs
        if run.continues is None
    }
    assert batches <= {bp for bp in (32, 64) if bp >= floor}
    assert batches


def test_a_run_that_goes_on_is_evaluated_as_often_as_a_new_one_of_what_it_adds(planner: Planner) -> None:
    found = [run for run in planner.next_runs(BUDGET, slots=4).runs if run.continues is not None]
    assert found
    begun = {one.continues: one.begins for one in runs_of(planner.fits)}
    for run in found:
        assert (run.update_steps - begun[run.continues]) / run.every_steps >= FEWEST_EVALUATIONS - 1


def test_runs_let_a_plan_choose_what_lies_between_their_group_sizes(planner: Planner) -> None:
    assert planner.fits.surface is not None
    pairs = [(n, bp) for n in (4, 8, 16, 32, 64) for bp in (32, 64)]
    steps = np.full((len(pairs), len(FRACTIONS)), 100)
    choices = Choices.of(planner.fits.surface, pairs, steps, 1, planned=[8])
    assert choices is not None
    allowed = choices.allowed([Trial(32, 32, 100, 0, 0.0)])
    assert {pair for pair, can in zip(pairs, allowed, strict=True) if can} == {
        (n, bp) for n in (8, 16, 32) for bp in (32, 64)
    }


def test_what_a_run_that_goes_on_will_show_is_not_bought_twice(planner: Planner) -> None:
    free = planner.next_runs(BUDGET, slots=2)
    assert free.runs
    longest = runs_of(planner.fits)
    going = {one.continues: 20 * one.update_steps for one in longest if one.continues is not None}
    beside = planner.next_runs(BUDGET, slots=2, going=going)
    assert not {run.continues for run in beside.runs} & set(going)
    assert beside.saving < free.saving


def test_a_run_shows_only_what_lies_between_its_begin_and_its_end(planner: Planner) -> None:
    surface = planner.fits.surface
    assert surface is not None
    one = Choices.of(surface, [(8, 32)], np.full((1, len(FRACTIONS)), 100), 1)
    assert one is not None
    for run in runs_of(planner.fits):
        batch, end = run.group_size * run.problems_per_batch, 3 * run.update_steps
        for begins in (0, run.begins):
            (shown_DQ,), _ = Outlook(surface, one, np.random.default_rng(0)).shown(
                [replace(run, update_steps=end, begins=begins)]
            )
            at = batch * np.geomspace(begins or end / 20, end, 50)
            within = surface.draws(at, np.full(50, float(run.group_size)), float(run.problems_per_batch), at=True)
            within = within - within[:, :1] if begins else within
            assert np.all(shown_DQ >= within.min(axis=1, keepdims=True) - 1e-3)
            assert np.all(shown_DQ <= within.max(axis=1, keepdims=True) + 1e-3)


@pytest.mark.parametrize("budget", ["300k", "3M", "30M"])
@pytest.mark.parametrize("fits", [published_prior(), published("qwen2.5-7b-instruct/guru-math-easy")])
def test_without_runs_the_same_n_is_planned_and_named(fits: Fits, budget: str) -> None:
    planner = Planner(fits)
    assert planner.next_runs(budget).group_size_now == planner.allocate(budget).group_size
    if fits.method == "prior":
        assert planner.design_pilot(budget).first.group_size_now == planner.allocate(budget).group_size
