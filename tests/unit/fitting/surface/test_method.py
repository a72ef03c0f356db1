"""`fit(runs)` with a surface: the same bits, any order, exact files, and no sweep too messy to be answered."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from isocompute_sdk import FitError, Fits, IsoComputeError, Planner, RunSet, fit
from isocompute_simulator.families import FAMILIES
from isocompute_simulator.scenario import draw_scenario
from tests.parameters import few
from tests.unit.sweeps import Make, codes, noisy

COMPUTE = np.concatenate([[0.0], np.geomspace(5e3, 1e6, 14)])
LEVELS = [(4, 32), (16, 32), (64, 32), (16, 128)]


def reward(n: int, bp: int, c: float) -> float:
    wobble = 0.01 * np.sin(997 * np.log1p(c) * np.log2(n) + bp)
    return float(0.35 + (0.1 + 0.03 * np.log2(n)) * -np.expm1(-c / (2e4 * n**0.7)) + wobble)


@pytest.fixture(scope="module")
def runs(make_runs: Make) -> RunSet:
    return make_runs(reward, LEVELS, COMPUTE)


@pytest.fixture(scope="module")
def fits(runs: RunSet) -> Fits:
    return fit(runs, draws=30)


def table(runs: RunSet) -> dict[str, list[Any]]:
    frame = runs.to_polars()
    names = {"n": "group_size", "bp": "problems_per_batch", "C": "rollouts", "avg@4": "value", "run_id": "run_id"}
    return {short: frame[name].to_list() for short, name in names.items()}


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_the_order_of_runs_and_rows_changes_no_bit(runs: RunSet, fits: Fits, seed: int) -> None:
    columns = table(runs)
    order = np.random.default_rng(seed).permutation(len(columns["n"]))
    shuffled = RunSet.from_columns({name: [column[i] for i in order] for name, column in columns.items()})
    found = fit(shuffled, draws=30)
    assert found.surface is not None
    assert fits.surface is not None
    assert found.to_dict()["surface"] == fits.to_dict()["surface"]
    assert found.passport == fits.passport
    assert found.notes == fits.notes


def test_both_kinds_of_interval_are_ordered_and_one_run_is_less_certain(fits: Fits) -> None:
    at = np.geomspace(1e3, 1e8, 40)
    for n in (4, 11, 64, 128):
        average, single = (fits.predict(at, n, kind=kind) for kind in ("mean", "run"))  # type: ignore[arg-type]
        for mean, low, high in (average, single):
            assert np.all((low >= 0) & (low <= mean + 1e-12) & (mean <= high + 1e-12) & (high <= 1))
        assert np.all(single.high - single.low >= average.high - average.low - 1e-12)
        wide, narrow = (fits.predict(at, n, level=level) for level in (0.9, 0.5))
        assert np.all(wide.high - wide.low >= narrow.high - narrow.low - 1e-12)


def test_one_octave_beyond_the_grid_is_answered_and_no_more(fits: Fits) -> None:
    assert 0 <= float(fits.predict(1e6, 128).mean) <= 1
    for n in (129, 3):
        with pytest.raises(FitError, match="4 to 128"):
            fits.predict(1e6, n)


@pytest.mark.parametrize("bounds", [(0.0, 100.0), (-1.0, 3.0)])
def test_another_range_of_the_metric_is_the_same_problem(
    make_runs: Make, fits: Fits, bounds: tuple[float, float]
) -> None:
    low, high = bounds
    scaled = fit(make_runs(lambda *a: low + (high - low) * reward(*a), LEVELS, COMPUTE), draws=30, bounds=bounds)
    at = np.geomspace(1e4, 3e6, 20)
    a, b = scaled.predict(at, 16), fits.predict(at, 16)
    assert np.all((a.low >= low) & (a.high <= high))
    np.testing.assert_allclose((a.mean - low) / (high - low), b.mean, atol=0.01)
    here, there = (Planner(one).allocate("1M") for one in (scaled, fits))
    assert (here.tolerances.span, here.verdict.kind) == ((high - low) * there.tolerances.span, there.verdict.kind)


def test_too_few_evaluations_are_refused_with_what_is_missing(make_runs: Make) -> None:
    with pytest.raises(FitError, match=r"3 evaluation.*'avg@4'.*3 run"):
        fit(make_runs(reward, LEVELS[:3], [0.0, 1e5]))


def test_problem_set_sizes_that_vary_are_an_input(make_runs: Make) -> None:
    def capped(size: int) -> Callable[[int, int, float], float]:
        return lambda n, bp, c: reward(n, bp, c) - (0.1 if size == 500 else 0.0) * (1 - np.exp(-c / 1e5))

    small, large = (
        make_runs(capped(size), LEVELS[:3], COMPUTE, n_problems=size, run_id=None, seed=i)
        for i, size in enumerate((500, 6000))
    )
    found = fit(small.concat(large), pool=("n_problems",), draws=30)
    assert found.surface is not None
    by_size = found.surface.predict(1e6, 16.0, 32.0, np.array([500.0, 6000.0]))
    assert by_size[1] - by_size[0] == pytest.approx(0.1, abs=0.04)
    # If each n has its own set, what looks like n may be the set.
    apart = [small.filter(group_size=LEVELS[0][0]), large.filter(group_size=LEVELS[1][0])]
    with pytest.raises(FitError, match="n_problems"):
        fit(apart[0].concat(apart[1]), draws=2)


MESSY_VALUES = ("rising", "constant", "at bounds", "noise", "falling")


@st.composite
def messy(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Sweeps as they come: few or odd n, lone points, constants, bounds, gaps, huge n, no step 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.lists(st.sampled_from([1, 2, 3, 8, 24, 512, 65_536]), min_size=1, max_size=4, unique=True))
    problems = draw(st.sampled_from([(32,), (None,), (1, 4096), (16, 32)]))
    kind = draw(st.sampled_from(MESSY_VALUES))
    rows: dict[str, list[Any]] = {name: [] for name in ("n", "bp", "C", "avg@4", "run_id")}
    for n in levels:
        for bp in problems:
            count = draw(st.sampled_from([1, 2, 5, 30]))
            largest = draw(st.sampled_from([2e2, 1e6, 1e13]))
            compute = np.unique(np.round(np.geomspace(1e2, largest, count), 3))
            if draw(st.booleans()):
                compute = np.concatenate([[0.0], compute])
            for c, value in zip(compute, _values(kind, compute, rng), strict=True):
                for name, entry in zip(rows, (n, bp, float(c), float(value), f"{n}-{bp}"), strict=True):
                    rows[name].append(entry)
    return rows


def _values(kind: str, compute: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if kind == "constant":
        return np.full(len(compute), rng.choice([0.0, 0.5, 1.0]))
    if kind == "at bounds":
        return rng.integers(0, 2, len(compute)).astype(float)
    noise = rng.choice([0.0, 0.02, 0.3]) * rng.standard_normal(len(compute))
    trend = {"rising": 1.0, "falling": -0.5, "noise": 0.0}[kind] * compute / (compute + 1e5)
    return np.clip(0.4 + 0.4 * trend + noise, 0, 1)


def answered(ask: Callable[[], Any], refusal: str) -> Any:
    """The answer, or None where it is refused for the one reason that there may be."""
    try:
        return ask()
    except IsoComputeError as error:
        if refusal in error.message:
            return None
        raise


# Shrinking would fit thousands of sweeps; one is small enough to read as it was drawn.
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)


@settings(max_examples=10, phases=NO_SHRINKING)
@given(messy())
def test_messy_sweeps_are_answered_within_bounds_or_refused_in_words(rows: dict[str, list[Any]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What is refused is refused in words of our own; anything else is a failure of this test.
        found = answered(lambda: fit(RunSet.from_columns(rows), draws=5), "evaluation")
        if found is None:
            return
        smallest, largest = found.group_size_range
        sizes = np.unique(np.array([smallest, (smallest + largest) / 2, largest, 2 * largest]))
        for n in sizes:
            for part in found.predict(np.geomspace(1.0, 1e14, 25), n):
                assert np.all((part >= 0) & (part <= 1))
        assert Fits.from_dict(found.to_dict()) == found
        assert found.summary().count("\n") > 1
        plan = answered(lambda: Planner(found).allocate("1G", min_update_steps=5), "group size")
        if plan is None:
            return
        assert max(smallest, 2) <= plan.group_size <= max(2 * largest, 2)
        assert plan.predicted_reward is None or 0 <= plan.predicted_reward <= 1


@pytest.mark.parametrize(
    ("change", "first", "code"),
    [
        (lambda n, bp, c: reward(n, bp, c) if c < 3e5 or n != 16 else 0.36, 0, "collapsed-run"),
        (lambda n, bp, c: reward(n, bp, c) - (0.1 if c > 3e5 and n == 16 else 0.0), 0, "decayed-run"),
        (reward, 1, "base-reward-unmeasured"),
    ],
)
def test_what_was_repaired_or_is_missing_is_said(
    make_runs: Make, change: Any, first: int, code: str, fits: Fits
) -> None:
    compute = np.concatenate([[0.0], np.geomspace(5e3, 1e6, 50)])
    found = fit(make_runs(change, LEVELS, compute[first:]), draws=10)
    assert code in codes(found)
    assert code not in codes(fits)


def test_how_far_a_curve_misses_is_measured_at_its_evaluations(fits: Fits) -> None:
    for curve in fits.curves.values():
        missed = curve.reward_T - curve.predict(curve.compute_T)
        assert curve.rms == pytest.approx(np.sqrt(np.mean(missed**2)), rel=0.05)


def test_the_fall_of_one_of_two_seeds_counts_for_no_misfit(make_runs: Make, runs: RunSet, fits: Fits) -> None:
    fallen = make_runs(lambda n, bp, c: reward(n, bp, c) if c < 2e5 else 0.02, [(16, 32)], COMPUTE, seed=1)
    found = fit(runs.concat(fallen), draws=10)
    assert "collapsed-run" in codes(found)
    assert found.curves[16, 32].rms == pytest.approx(fits.curves[16, 32].rms, abs=0.01)
    assert Fits.from_dict(found.to_dict()).curves[16, 32].rms == found.curves[16, 32].rms


def test_draws_are_what_predictions_average(fits: Fits) -> None:
    compute = np.geomspace(1e4, 3e6, 7)
    drawn = fits.draws(compute, 16)
    assert drawn.shape[1] == 7
    predicted = fits.predict(compute, 16)
    np.testing.assert_allclose(drawn.mean(axis=0), predicted.mean)
    low, high = np.quantile(drawn, [0.1, 0.9], axis=0)
    assert fits.surface is not None
    seen = compute <= fits.surface.largest_compute
    assert 0 < np.count_nonzero(seen) < len(compute)
    np.testing.assert_allclose(np.minimum(low, predicted.mean)[seen], predicted.low[seen])
    np.testing.assert_allclose(np.maximum(high, predicted.mean)[seen], predicted.high[seen])
    # Beyond the data intervals allow for what the curves cannot follow.
    assert np.all(predicted.high[~seen] > high[~seen])
    assert fits.draws(1e6, [4, 64]).shape[1] == 2
    with pytest.raises(FitError):
        fits.draws(1e6, 1024)


def test_after_a_decline_the_reward_at_c_is_lower_than_the_best_up_to_it(make_runs: Make) -> None:
    def declining(n: int, bp: int, c: float) -> float:
        late = np.maximum(np.log(max(c, 1.0) / 4e5), 0.0)
        return float(0.4 + (0.15 + 0.01 * np.log2(n)) * (-np.expm1(-c / (1e3 * n)) - 0.3 * late))

    compute = np.concatenate([[0.0], np.geomspace(5e3, 2e6, 40)])
    fits = fit(make_runs(noisy(declining, 0.005, seed=3), [(n, 32) for n in (8, 32, 128)], compute))
    best, at = (fits.predict(2e6, [8, 32, 128], kind=kind) for kind in ("mean", "at"))
    assert np.all(best.mean - at.mean > 0.04)
    true_best = 0.4 + 0.15 + 0.01 * np.array([3, 5, 7])
    np.testing.assert_allclose(best.mean, true_best, atol=0.025)
    np.testing.assert_allclose(at.mean, true_best - 0.3 * np.log(5) * (true_best - 0.4), atol=0.05)
    # More compute adds nothing to the best checkpoint once every run was seen to fall.
    assert np.all(np.abs(fits.predict(2e7, [8, 32, 128]).mean - best.mean) < 0.01)
    assert fits.surface is not None
    assert fits.surface.declines is not None
    assert fits.surface.declines.probability > 0.9


def test_the_plateau_of_runs_that_fall_while_they_rise_is_that_of_the_best_checkpoint(make_runs: Make) -> None:
    def falling(n: int, bp: int, c: float) -> float:
        return float(0.3 + 0.45 * -np.expm1(-min(c, 1.5e5) / 8e4) - max(c - 1.5e5, 0.0) / 3e5)

    compute = np.linspace(0.0, 3e5, 21)
    fits = fit(make_runs(noisy(falling, 0.005, seed=3), [(n, 16) for n in (8, 16, 32)], compute))
    curves = fits.curves.values()
    np.testing.assert_allclose([curve.plateau for curve in curves], 0.68, atol=0.04)
    # What the passport says of the rise, the curves say too.
    assert fits.passport is not None
    assert fits.passport.rise_seen[0] > 0.95
    assert all(curve.plateau_identified for curve in curves)
    assert "plateau-unidentified" not in {note.code for note in fits.notes}


def test_an_outlying_run_is_named_and_does_not_decide() -> None:
    compute = np.concatenate([[0.0], np.geomspace(5e3, 2e6, 30)])
    rng = np.random.default_rng(5)
    columns: dict[str, list[float]] = {"n": [], "C": [], "seed": [], "reward": []}
    for n in (4, 8, 16, 32, 64):
        for seed in (0, 1):
            value = 0.4 + (0.1 + 0.02 * np.log2(n)) * -np.expm1(-compute / 5e4)
            value = value + (0.2 if (n, seed) == (8, 1) else 0.0) * (compute > 0)
            columns["n"] += [n] * len(compute)
            columns["seed"] += [seed] * len(compute)
            columns["C"] += compute.tolist()
            columns["reward"] += (value + rng.normal(0, 0.008, len(compute))).tolist()
    fits = fit(RunSet.from_columns(columns, metric="avg@4", problems_per_batch=32))
    (note,) = [note for note in fits.notes if note.code == "outlying-run"]
    (run,) = note.data["runs"]
    assert "seed1" in run
    assert "n8" in run
    assert 0.08 < note.data["runs"][run] < 0.28
    odds = fits.group_size_odds(2e6)
    assert odds.group_size[odds.best()] >= 32


LONG = np.concatenate([[0.0], np.geomspace(5e3, 2e7, 25)])


@pytest.mark.parametrize("seed", few(range(6), 1))
def test_the_law_keeps_to_the_set_of_best_n_at_budgets_that_are_planned(seed: int) -> None:
    scenario = draw_scenario(np.random.default_rng(90_000 + seed), FAMILIES[seed])
    fits = fit(scenario.runs, draws=200)
    for reach in (1, 3, 10):
        budget = reach * scenario.largest_rollouts
        planned = Planner(fits).allocate(budget, spend="all").group_size
        assert planned == fits.best_group_size(budget)[0]
        if not fits.laws:
            # A best n that turns has none.
            continue
        band, law = fits.law_interval(budget), float(fits.law().log2(budget))
        assert band is not None
        low, high = (float(np.log2(end[0])) for end in band)
        # The set is known to a quarter of an octave.
        assert low - 0.25 <= law <= high + 0.25, (scenario.family, reach)
        assert abs(np.log2(planned) - law) <= 1.5


def test_a_best_n_that_turns_has_no_law_and_still_plans(make_runs: Make) -> None:
    # 16 leads early, 2 in between, 128 late.
    turning = {2: (0.55, 1e5), 16: (0.45, 1e4), 128: (0.7, 1e6)}

    def up_and_down(n: int, bp: int, c: float) -> float:
        top, half = turning[n]
        return float(0.2 + (top - 0.2) * c / (c + half))

    leaders = [max(turning, key=lambda n: up_and_down(n, 32, c)) for c in (5e3, 4e5, 2e7)]
    assert leaders == [16, 2, 128]
    fits = fit(make_runs(up_and_down, [(n, 32) for n in turning], LONG), draws=20)
    if "group_size" in fits.laws:
        pytest.fail(f"n* = {fits.best_group_size(LONG[1:])}")
    assert set(fits.unsupported) >= {"group_size"}
    with pytest.raises(FitError, match="'group_size'"):
        fits.law()
    plan = Planner(fits).allocate("3M")
    assert plan.law_group_size is None
    assert plan.group_size_interval is not None
