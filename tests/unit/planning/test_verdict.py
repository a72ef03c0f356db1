"""A question where no answer is due: ties, n that hardly matters, pilots that cannot decide, budgets to stop at."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from isocompute_sdk import Plan, Planner, RunSet, fit, published_prior
from isocompute_sdk.planning.allocate import MAY_FALL
from isocompute_sdk.planning.decide import ABOVE
from isocompute_sdk.tolerances import Tolerances

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


@pytest.fixture(scope="module")
def clear() -> Plan:
    return plan_of(peaked, "5M", spend="all")


def test_one_n_clearly_ahead_is_called_so(clear: Plan) -> None:
    assert clear.verdict.kind == "clear"
    assert clear.group_size == 32


def test_where_the_octave_above_the_grid_may_be_best_it_is_measured_first() -> None:
    plan = plan_of(lambda n, c: 0.2 + 0.08 * np.log2(n) * -np.expm1(-c / (2e3 * n)), "5M")
    assert plan.verdict.kind in ("measure-first", "likely")
    # The n that was run, the n to run, and how long.
    for number in (max(SIZES), 2 * max(SIZES)):
        assert f"n = {number}" in plan.verdict.sentence
    assert plan.fits is not None
    assert plan.fits.group_size_odds(plan.compute).above_ahead >= ABOVE


def test_ahead_at_the_lower_edge_of_the_grid_is_clear() -> None:
    least = plan_of(small_ahead, "5M")
    assert least.verdict.kind == "clear"
    assert least.group_size == 8


def test_runs_that_contradict_each_other_leave_n_undecided() -> None:
    def odd(n: int, c: np.ndarray) -> np.ndarray:
        return peaked(n, c) + (0.2 * (c > 0) if n == 64 else 0.0)

    sizes = (8, 16, 32, 64, 128)
    plain, contradicted = (plan_of(reward, "5M", sizes=sizes, spend="all") for reward in (peaked, odd))
    assert plain.verdict.kind in ("clear", "tie")
    assert "outlying-run" in {note.code for note in contradicted.notes}
    assert contradicted.verdict.kind not in ("clear", "tie", "stop-spending")


def test_the_verdict_comes_first_everywhere(clear: Plan) -> None:
    told = clear.verdict.sentence
    assert clear.summary().splitlines()[0].endswith(told)
    assert clear._repr_html_().index(told) < clear._repr_html_().index("rollouts for each")
    assert list(clear.to_dict())[2] == "verdict"


def test_n_that_hardly_matters_is_no_recommendation() -> None:
    plan = plan_of(alike, "3M", seeds=3)
    assert plan.verdict.kind == "hardly-matters"


def test_a_pilot_that_is_too_short_cannot_decide() -> None:
    plan = plan_of(unseen, "60M", end=4e5, noise=0.02)
    assert plan.verdict.kind in ("likely", "undecided", "measure-first")
    assert "extrapolation-beyond-3x" in [note.code for note in plan.notes]
    assert plan.extrapolation is not None
    assert plan.extrapolation > 100


def test_noisy_runs_name_the_group_sizes_that_may_be_best() -> None:
    plan = plan_of(lambda n, c: 0.3 + 0.3 * -np.expm1(-c / 3e5) + 0.0 * n, "1M", end=1e6, noise=0.06)
    assert plan.verdict.kind in ("likely", "undecided")
    assert plan.fits is not None
    odds = plan.fits.group_size_odds(plan.compute)
    most = odds.group_size[int(np.argmax(odds.probability_best))]
    assert f"n = {most} ({odds.probability_best.max():.0%})" in plan.verdict.sentence
    assert ("cannot decide" in plan.verdict.sentence) == (plan.verdict.kind == "undecided")


def test_a_failed_backtest_lowers_the_verdict(clear: Plan) -> None:
    assert clear.fits is not None
    assert clear.fits.passport is not None
    assert clear.fits.passport.backtest is not None
    backtest = replace(clear.fits.passport.backtest, coverage=0.0, runs=3)
    fits = replace(clear.fits, passport=replace(clear.fits.passport, backtest=backtest))
    missed = Planner(fits).allocate("5M", spend="all")
    assert missed.verdict.kind == "likely"
    assert "backtest-missed" in missed.verdict.sentence


def test_one_group_size_cannot_decide() -> None:
    plan = plan_of(apart, "5M", sizes=(32,))
    assert plan.verdict.kind in ("undecided", "measure-first")
    assert "only n = 32 was run" in plan.verdict.sentence


def test_a_flat_end_means_stop_spending_where_the_budget_is_near_the_runs() -> None:
    plan = plan_of(flat_and_peaked, "15M", end=6e6, seeds=2)
    assert plan.verdict.kind == "stop-spending"
    assert plan.rollouts < 15e6
    assert "rest-not-worthwhile" in {note.code for note in plan.notes}
    assert plan.stopping is not None
    assert f"{plan.stopping.gain:.3f}" in plan.verdict.sentence
    assert f"{plan.stopping.chance_of_more:.0%}" in plan.verdict.sentence
    far = plan_of(flat_and_peaked, "60M", end=6e6, seeds=2)
    assert far.verdict.kind != "stop-spending"
    assert far.rollouts < 60e6


def test_no_stop_at_an_end_of_the_grid_beyond_which_nothing_was_run() -> None:
    plan = plan_of(flat, "15M", end=6e6, seeds=2)
    assert plan.fits is not None
    assert plan.group_size == plan.fits.group_size_range[0]
    assert plan.rollouts < 15e6
    assert plan.verdict.kind == "clear"


def test_no_stop_where_the_rise_was_not_seen() -> None:
    plan = plan_of(flat_and_peaked, "15M", end=6e6, seeds=2)
    assert plan.verdict.kind == "stop-spending"
    assert plan.fits is not None
    assert plan.fits.passport is not None
    unseen_rise = replace(plan.fits.passport, rise_seen=(0.1, 0.2), most_rise_seen=(0.1, 0.3))
    short = Planner(replace(plan.fits, passport=unseen_rise)).allocate("15M")
    assert short.verdict.kind == "likely"


def test_no_stop_at_a_plateau_that_may_be_a_decline() -> None:
    plan = plan_of(flat_and_peaked, "15M", end=6e6, seeds=2)
    assert plan.verdict.kind == "stop-spending"
    assert plan.fits is not None
    assert plan.fits.surface is not None
    assert plan.fits.surface.declines is not None
    doubtful = replace(plan.fits.surface.declines, probability=MAY_FALL)
    fits = replace(plan.fits, surface=replace(plan.fits.surface, declines=doubtful))
    again = Planner(fits).allocate("15M")
    assert (again.group_size, again.update_steps) == (plan.group_size, plan.update_steps)
    assert again.verdict.kind != "stop-spending"


def test_steps_that_add_next_to_nothing_are_left_out() -> None:
    within = plan_of(flat_and_peaked, "15M", end=6e6, seeds=2)
    assert within.rollouts < 0.9 * 15e6
    (note,) = [note for note in within.notes if note.code == "rest-not-worthwhile"]
    assert note.data["predicted_gain"] < note.data["tolerance"] == Tolerances().nothing
    assert within.fits is not None
    everything = Planner(within.fits).allocate("15M", spend="all")
    assert everything.predicted_reward is not None
    assert everything.predicted_reward == pytest.approx((within.predicted_reward or 0.0) + note.data["predicted_gain"])


def test_a_plan_without_runs_of_ones_own_is_borrowed() -> None:
    assert Planner(published_prior()).allocate("3M").verdict.kind == "borrowed"


def test_the_verdict_survives_without_fits(clear: Plan, tmp_path: Path) -> None:
    bare = clear.to_dict(with_fits=False)
    (tmp_path / "bare.json").write_text(json.dumps(bare))
    assert Plan.load(tmp_path / "bare.json").verdict == clear.verdict
