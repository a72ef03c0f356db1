"""The passport says what was seen, its backtest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isocompute_sdk.api import fit
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.data import SurfaceRun, prepare
from isocompute_sdk.fitting.surface.method import SurfaceOptions, fit_joint
from isocompute_sdk.fitting.surface.passport import Passport, backtest
from isocompute_sdk.records import RunSet

MakeRun = Callable[..., SurfaceRun]
MakeSweep = Callable[..., list[SurfaceRun]]


def fitted(runs: list[SurfaceRun], draws: int = 30) -> Fits:
    return fit_joint(runs, "avg@4", (0.0, 1.0), SurfaceOptions(), draws, np.random.default_rng(0))


def passport(runs: list[SurfaceRun]) -> Passport:
    found = fitted(runs).passport
    assert found is not None
    return found


@pytest.fixture(scope="module")
def known(make_sweep: MakeSweep) -> Passport:
    return passport(make_sweep())


def test_the_backtest_hides_the_last_part_and_comes_first(known: Passport) -> None:
    test = known.backtest
    assert test is not None
    assert test.hidden_beyond == pytest.approx(1e6 / 3)
    assert test.runs == 4
    assert 1 < test.factor <= 4
    # The sweep goes on as it began.
    assert abs(test.mean_error) <= test.rms_error < 0.04
    assert test.coverage >= 0.5
    first, *rest = known.lines()
    assert first.startswith("backtest: ")
    assert "333k" in first
    assert f"{test.rms_error:.3f}" in first
    assert not any("backtest" in line for line in rest)


@pytest.mark.parametrize(("outliers", "evaluations", "many"), [(2, 36, False), (3, 36, True), (3, 200, False)])
def test_many_outlying_evaluations_are_at_least_three(
    known: Passport, outliers: int, evaluations: int, many: bool
) -> None:
    one = replace(known, outlying_evaluations={"run": outliers}, evaluations=evaluations)
    assert ("outlying-evaluations" in one.doubts) == many


def test_a_sweep_that_breaks_off_is_seen_to_have_been_missed(make_sweep: MakeSweep) -> None:
    late = [
        replace(run, reward_T=run.reward_T + 0.25 * (run.compute_T > 4e5)) for run in make_sweep(noise=0.005, seeds=2)
    ]
    found = fitted(late)
    assert found.passport is not None
    assert found.passport.backtest is not None
    assert found.passport.backtest.mean_error > 0.1
    assert found.passport.backtest.coverage < 0.5
    assert "backtest-missed" in {note.code for note in found.notes}


def test_the_hidden_part_does_not_reach_the_fit(make_sweep: MakeSweep) -> None:
    runs = make_sweep(noise=0.0)
    changed = [replace(run, reward_T=np.where(run.compute_T > 5e5, 0.9, run.reward_T)) for run in runs]
    a, b = (backtest(prepare(one), (0.0, 1.0), np.random.default_rng(0)) for one in (runs, changed))
    assert a is not None
    assert b is not None
    assert a.hidden_beyond == b.hidden_beyond
    assert a.factor == b.factor
    assert b.mean_error > a.mean_error + 0.1


def test_without_enough_left_there_is_no_backtest(make_sweep: MakeSweep) -> None:
    short = passport(make_sweep(points=2))
    assert short.backtest is None
    assert short.lines()[0].startswith("backtest: ")
    assert len(short.lines()) == 4
    assert passport(make_sweep(levels=(16,))).backtest is None


@pytest.mark.slow
def test_the_share_of_the_rise_grows_with_the_length_of_runs(make_sweep: MakeSweep) -> None:
    short, long = (passport(make_sweep(last=last)).rise_seen for last in (5e4, 2e7))
    assert 0 <= short[0] <= short[1] <= 1
    assert short[0] < long[0]
    assert long[1] > 0.9


def test_the_best_n_at_the_edge_is_named(make_run: MakeRun) -> None:
    compute = np.concatenate([[0.0], np.geomspace(2e3, 1e6, 30)])

    def sweep(slope: float) -> list[SurfaceRun]:
        return [
            make_run(
                lambda c, n=n: 0.3 + (0.2 + slope * np.log2(n / 16)) * -np.expm1(-c / 3e4),
                compute,
                noise=0.003,
                seed=n,
                group_size=n,
                run_id=str(n),
            )
            for n in (4, 16, 64)
        ]

    rising, falling = passport(sweep(0.04)), passport(sweep(-0.04))
    assert (rising.best_at_edge, falling.best_at_edge) == ("largest", "smallest")
    assert falling.beyond_grid_octaves == rising.beyond_grid_octaves == 1
    assert rising.gain_between_levels == pytest.approx(0.16, abs=0.04)


def test_b_p_whose_runs_collapsed_are_named(make_sweep: MakeSweep) -> None:
    steady = make_sweep()
    broken = [
        replace(
            run,
            run_id=f"{run.run_id}-small",
            problems_per_batch=8,
            reward_T=np.where(run.compute_T > 3e5, 0.35, run.reward_T),
        )
        for run in steady
    ]
    assert passport([*steady, *broken]).unstable_problems_per_batch == (8,)
    assert passport(steady).unstable_problems_per_batch == ()


def test_a_steep_rise_between_few_evaluations_is_no_noise() -> None:
    rng = np.random.default_rng(0)
    rows = [
        (n, seed, c, 30 + (20 + 3 * np.log2(n)) * -np.expm1(-c / 60e3 * n**-0.4) + rng.normal(0, 0.1))
        for n in (8, 16, 32)
        for seed in range(3)
        for c in np.linspace(0, 4e5, 14)
    ]
    columns = dict(zip(("n", "seed", "C", "avg@4"), map(list, zip(*rows, strict=True)), strict=True))
    fits = fit(RunSet.from_columns(columns, problems_per_batch=32), bounds=(0, 100), draws=20)
    assert fits.passport is not None
    assert fits.passport.noise <= max(curve.rms for curve in fits.curves.values())
