"""Reward curves: known truths come back, impossible ones are said to be so, none leaves the metric's range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import FitStatus
from isocompute_sdk.fitting.paper.reward_curve import SHAPES, Points, evaluate, fit_curve

TRUTHS = {
    "saturating_exponential": (0.65, 0.22, (5.8,)),
    "logistic": (0.62, 0.20, (5.6, 1.4)),
    "hill": (0.62, 0.20, (5.6, 1.4)),
}
COMPUTE = np.geomspace(2e4, 6e6, 60)


def truth(shape: str, compute: np.ndarray) -> np.ndarray:
    plateau, rise, parameters = TRUTHS[shape]
    return evaluate(SHAPES[shape], compute, np.array([[plateau, rise, *parameters]]))[0]


def points_of(shape: str, compute: np.ndarray = COMPUTE, noise: float = 0.0, seed: int = 0) -> Points:
    plateau, rise, _ = TRUTHS[shape]
    x = np.concatenate([[0.0], compute]) if shape == "hill" else compute
    y = truth(shape, x) + np.random.default_rng(seed).normal(0, noise, len(x)) if noise else truth(shape, x)
    return Points(8, 32, x, y, plateau - rise if shape == "hill" else None)


def points(compute: list[float], reward: list[float], base: float | None = None) -> Points:
    return Points(8, 32, np.array(compute), np.array(reward), base)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_recovers_its_own_truth(shape: str) -> None:
    curve = fit_curve(points_of(shape), shape)
    plateau, rise, parameters = TRUTHS[shape]
    np.testing.assert_allclose(
        [curve.plateau, curve.rise, *curve.parameters], [plateau, rise, *parameters], rtol=0, atol=1e-6
    )
    assert curve.status is FitStatus.CONVERGED
    assert curve.at_bound == ()
    assert curve.rms < 1e-8
    assert curve.plateau_identified


def test_auto_takes_the_hill_form_where_the_base_reward_is_measured_and_logistic_where_it_is_not() -> None:
    with_base = points_of("hill", noise=0.001)
    without = Points(8, 32, with_base.compute_T[1:], with_base.reward_T[1:], None)
    # With a free floor they are one function; the known floor saves a parameter.
    assert fit_curve(with_base, "auto").shape == "hill"
    assert fit_curve(without, "auto").shape == "logistic"


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 25),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (0.0, 100.0)]),
    st.floats(0, 11),
    st.booleans(),
    st.sampled_from(["auto", "saturating_exponential", "logistic"]),
)
@settings(max_examples=25)
def test_any_data_give_a_monotone_curve_inside_the_bounds(
    seed: int, count: int, bounds: tuple[float, float], log10_start: float, base: bool, shape: str
) -> None:
    rng = np.random.default_rng(seed)
    low, high = bounds
    compute = np.sort(10 ** rng.uniform(log10_start, log10_start + rng.uniform(0.1, 4), count))
    if base:
        compute[0] = 0.0
    reward = low + (high - low) * np.clip(rng.uniform(0, 1, count) * rng.choice([1.0, 1.5]), 0, 1)
    data = Points(8, 32, compute, reward, float(reward[0]) if base else None)
    curve = fit_curve(data, shape, bounds)
    grid = np.concatenate([[0.0], np.geomspace(1e-3, 1e15, 300)])
    predicted = curve.predict(grid)
    slack = 1e-12 * (high - low)
    assert np.all(np.isfinite(predicted))
    assert np.all(np.diff(predicted) >= -slack)
    assert predicted.min() >= low - slack
    assert predicted.max() <= high + slack
    # No worse than a flat line, which every shape holds.
    assert curve.rms <= np.std(reward) * (1 + 1e-9) + 1e-12


def test_a_curve_that_would_start_below_the_range_starts_on_the_bound() -> None:
    compute = np.geomspace(1e5, 1e6, 30)
    curve = fit_curve(Points(8, 32, compute, 0.6 - np.exp(-compute / 1e5)), "saturating_exponential")
    assert curve.plateau - curve.rise == 0.0
    assert curve.at_bound == ("floor",)
    assert curve.status is FitStatus.AT_BOUND
    assert not curve.plateau_identified


def test_a_plateau_on_the_bound_is_a_limit_without_standard_error() -> None:
    compute = np.geomspace(1e4, 1e6, 30)
    curve = fit_curve(Points(8, 32, compute, 0.9 * compute / 1e6), "saturating_exponential")
    assert "plateau" in curve.at_bound
    assert curve.status is FitStatus.AT_BOUND
    assert curve.stderr["plateau"] is None
    hill = fit_curve(Points(8, 32, np.r_[0.0, compute], np.r_[0.0, 0.9 * compute / 1e6], 0.0), "hill")
    assert "plateau" in hill.at_bound
    assert not hill.plateau_identified


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("shape", ["auto", *SHAPES])
def test_constant_rewards_give_a_flat_curve_that_says_that_it_does_not_rise(value: float, shape: str) -> None:
    curve = fit_curve(points([0.0, 1e4, 1e5, 3e5, 1e6, 3e6, 1e7], [value] * 7, value), shape)
    np.testing.assert_allclose(curve.predict([0.0, 1e5, 1e9]), value, atol=1e-9)
    assert curve.status is FitStatus.AT_BOUND
    assert "rise" in curve.at_bound


@pytest.mark.parametrize(("factor", "seen"), [(0.3, False), (1, False), (2, False), (4, True), (10, True)])
def test_a_plateau_counts_as_seen_from_three_times_the_half_way_compute_on(factor: float, seen: bool) -> None:
    half = np.log(2) * 10**5.8
    data = points_of("saturating_exponential", np.geomspace(half * factor / 50, half * factor, 40))
    assert fit_curve(data, "saturating_exponential").plateau_identified is seen


def test_too_little_data_and_unknown_shapes_are_refused_by_name() -> None:
    with pytest.raises(FitError, match=r"n = 8, B_p = 32: 3 "):
        fit_curve(points([1e4, 1e4, 1e4], [0.1, 0.2, 0.3]))
    with pytest.raises(FitError, match=r"n = 8, B_p = 32: 2 "):
        fit_curve(points([0.0, 0.0], [0.1, 0.2]))
    with pytest.raises(FitError, match=r"'sigmoid'.*saturating_exponential, logistic, hill"):
        fit_curve(points_of("logistic"), "sigmoid")
    with pytest.raises(FitError, match=r"'hill'.*n = 8"):
        fit_curve(points_of("logistic"), "hill")
