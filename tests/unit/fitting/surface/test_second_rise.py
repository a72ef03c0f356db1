"""best@k that still rises lets rewards beyond the runs rise more; without best@k nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk.fitting.surface.data import BestAtK, SurfaceRun, prepare
from isocompute_sdk.fitting.surface.passport import backtest
from isocompute_sdk.fitting.surface.posterior import fit_surface
from isocompute_sdk.fitting.surface.surface import Surface

MakeSweep = Callable[..., list[SurfaceRun]]
LEVELS = np.array([4.0, 16.0, 64.0, 256.0])
RECORDED = Path(__file__).parents[4] / "isocompute_sdk" / "laws" / "data" / "sweeps" / "mul31-hard-t1.csv"


def with_best(runs: Sequence[SurfaceRun], slope: float, after: float = 0.0) -> list[SurfaceRun]:
    """best@4 that changes by `slope` per doubling; beyond a third of the compute by `after` more."""
    found: list[SurfaceRun] = []
    for i, run in enumerate(runs):
        end = run.compute_T[-1]
        octaves = np.log2(np.maximum(run.compute_T, 1.0) / end)
        noise = 0.01 * np.random.default_rng(i).standard_normal(len(octaves))
        late = np.maximum(np.log2(np.maximum(run.compute_T, 1.0) / (end / 3.0)), 0.0)
        found.append(replace(run, best=BestAtK("best@4", run.compute_T, 0.6 + slope * octaves + after * late + noise)))
    return found


def fitted(runs: Sequence[SurfaceRun]) -> Surface:
    return fit_surface(prepare(runs), (0.0, 1.0), 60, np.random.default_rng(0))


@pytest.fixture(scope="module")
def pilot() -> iso.RunSet:
    task = iso.RunSet.read(str(RECORDED)).filter(pl.col("run_id").str.starts_with("mul31-hard-t1"))
    return task.filter(pl.col("rollouts") <= 75_000)


@pytest.fixture(scope="module")
def fits(pilot: iso.RunSet) -> iso.Fits:
    return iso.fit(pilot, "avg@4", pool=("learning_rate",))


def test_the_more_best_at_k_rises_the_more_is_predicted_beyond_the_runs_and_the_same_inside(
    make_sweep: MakeSweep,
) -> None:
    runs = make_sweep(last=1e5)
    led = [fitted(with_best(runs, slope)) for slope in (-0.05, -0.002, 0.0, 0.002, 0.005, 0.05)]
    odds = [one.second_rise.probability for one in led if one.second_rise is not None]
    assert len(odds) == len(led)
    assert np.all(np.diff(odds) >= 0)
    assert odds[0] < 0.01
    for compute in (1e5, 2e5, 8e5, 3e6):
        rewards = [surface.predict(compute, LEVELS) for surface in led]
        assert np.all(np.diff(rewards, axis=0) >= -1e-9)
        if compute > 1e5:
            assert np.max(rewards[-1] - rewards[0]) > 0.005
    inside = np.geomspace(1e3, 1e5, 4)
    assert led[-1].draws(inside, LEVELS).tobytes() == fitted(runs).draws(inside, LEVELS).tobytes()


def test_what_a_second_rise_adds_grows_with_compute_and_stays_within_the_bounds(make_sweep: MakeSweep) -> None:
    surface = fitted(with_best(make_sweep(last=1e5), 0.05))
    compute = np.geomspace(1e5, 1e8, 25)
    mean, low, high = surface.interval("mean", 0.8, compute, 16.0)
    assert np.all(np.diff(mean) >= -1e-9)
    assert np.all((low <= mean) & (mean <= high))
    drawn = surface.draws(compute, 16.0)
    assert 0.0 <= drawn.min() <= drawn.max() <= 1.0


def test_a_backtest_does_not_see_best_at_k_of_the_part_that_it_hides(make_sweep: MakeSweep) -> None:
    tests = [
        backtest(prepare(with_best(make_sweep(), slope, after)), (0.0, 1.0), np.random.default_rng(0))
        for slope, after in ((0.05, 0.0), (0.05, -0.3), (-0.05, 0.0))
    ]
    rising, falling_later, falling = (
        None if test is None else [run.predicted for run in test.by_run] for test in tests
    )
    assert rising is not None
    assert rising == falling_later
    assert rising != falling


def test_a_fit_finds_best_at_k_beside_its_metric(pilot: iso.RunSet, fits: iso.Fits) -> None:
    assert fits.surface is not None
    assert fits.surface.second_rise is not None
    assert fits.surface.second_rise.metric == "best@4"
    sizes, compute = [8, 16, 32, 64, 128], 3 * fits.surface.largest_compute
    plain = replace(fits.surface, second_rise=None)
    assert max(fits.surface.predict(compute, sizes) - plain.predict(compute, sizes)) > 0.02
    worst = iso.fit(pilot, "worst@4", pool=("learning_rate",))
    assert worst.surface is not None
    assert worst.surface.second_rise is not None
    assert worst.surface.second_rise.metric is None


def test_a_late_rise_of_recorded_runs_is_missed_by_less_with_best_at_k(pilot: iso.RunSet, fits: iso.Fits) -> None:
    whole = iso.RunSet.read(str(RECORDED)).filter(pl.col("run_id").str.starts_with("mul31-hard-t1"))
    reached = {one.group_size: float(one.value_T[-3:].mean()) for one in whole.series("avg@4")}
    sizes, true = list(reached), np.array(list(reached.values()))
    alone = iso.fit(pilot.filter(metric="avg@4"), "avg@4", pool=("learning_rate",))
    missed = [float(np.mean(np.abs(true - one.predict(6e5, sizes, 16).mean))) for one in (fits, alone)]
    assert missed[0] < 0.75 * missed[1]
