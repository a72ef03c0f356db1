"""Allocation laws: known parameters come back, steps are limits, bad input is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.allocation import AllocationLaw, sigmoid
from isocompute_sdk.fitting.arrays import FitStatus


def drawn(law: AllocationLaw, values: np.ndarray) -> AllocationLaw:
    return AllocationLaw.fit(values, law.predict(rollouts=values), law.x)


def values(law: AllocationLaw) -> tuple[float, ...]:
    return law.L, law.k, law.midpoint, law.b


@given(
    L=st.floats(1.5, 9),
    k=st.floats(1.5, 30),
    midpoint=st.floats(5.3, 6.7),
    b=st.floats(0.5, 5),
    falls=st.booleans(),
    tokens=st.booleans(),
)
@settings(max_examples=12)
@example(L=6.09, k=4.75, midpoint=5.84, b=2.73, falls=False, tokens=False)
@example(L=4.47, k=7.23, midpoint=5.84, b=2.79, falls=False, tokens=False)
@example(L=6.62, k=3.47, midpoint=6.18, b=2.64, falls=False, tokens=True)
def test_laws_in_compute_are_recovered_to_1e6(
    L: float, k: float, midpoint: float, b: float, falls: bool, tokens: bool
) -> None:
    shift = 3.0 if tokens else 0.0
    truth = AllocationLaw(L, -k if falls else k, midpoint + shift, b, x="log10_tokens" if tokens else "log10_rollouts")
    found = drawn(truth, np.geomspace(10 ** (4.5 + shift), 10 ** (7.5 + shift), 300))
    np.testing.assert_allclose(values(found), values(truth), rtol=0, atol=1e-6)
    assert found.status is FitStatus.CONVERGED
    assert found.x == truth.x
    assert found.rising is not falls
    assert found.saturation == pytest.approx(2**b if falls else 2 ** (L + b), rel=1e-5)
    assert found.upper_plateau == pytest.approx(2 ** (L + b), rel=1e-5)


@given(
    L=st.floats(1.5, 10), width=st.floats(2, 20), middle=st.floats(0.25, 0.75), b=st.floats(0.5, 5), falls=st.booleans()
)
@settings(max_examples=12)
@example(L=7.12, width=0.01393 * 1980, middle=0.2, b=1.98, falls=False)
def test_laws_in_steps_are_recovered_to_1e6(L: float, width: float, middle: float, b: float, falls: bool) -> None:
    steps = np.linspace(20, 2000, 300)
    k = width / 1980
    truth = AllocationLaw(L, -k if falls else k, 20 + 1980 * middle, b, x="update_steps")
    found = drawn(truth, steps)
    np.testing.assert_allclose(found.predict(steps), truth.predict(steps), rtol=1e-6)
    np.testing.assert_allclose((found.L, found.b), (L, b), rtol=0, atol=1e-6)
    np.testing.assert_allclose((found.k, found.midpoint), (truth.k, truth.midpoint), rtol=1e-6)
    assert found.status is FitStatus.CONVERGED


@pytest.mark.parametrize("seed", range(3))
def test_no_start_from_a_dense_search_beats_the_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    compute = np.geomspace(1e5, 1e7, 30)
    sizes = 2.0 ** rng.integers(3, 10, 30)
    ours = AllocationLaw.fit(compute, sizes)
    x, y = np.log10(compute), np.log2(sizes)
    k, middle = (
        a.ravel()[:, None]
        for a in np.meshgrid(np.r_[np.geomspace(0.5, 50, 60), -np.geomspace(0.5, 50, 60)], np.linspace(4.5, 7.5, 80))
    )
    unit = sigmoid(x, 1.0, k, middle, 0.0)
    centred = unit - unit.mean(axis=1, keepdims=True)
    height = (centred @ (y - y.mean())) / np.maximum((centred**2).sum(axis=1), 1e-12)
    base = y.mean() - height * unit.mean(axis=1)
    allowed = (height >= 0) & (height <= 12) & (base >= 0) & (base <= 12)
    residual = height[:, None] * unit + base[:, None] - y
    least = np.sqrt((residual[allowed] ** 2).mean(axis=1).min())
    assert ours.rms is not None
    # A minimum inside the bounds is preferred to a slightly better one on the bound of k.
    assert ours.rms <= least * 1.05


def test_one_best_size_everywhere_is_a_flat_law() -> None:
    law = AllocationLaw.fit([1e5, 1e6, 1e7], [64, 64, 64])
    assert law.status is FitStatus.AT_BOUND
    assert law.at_bound == ("L",)
    np.testing.assert_array_equal(law.predict([1.0, 1e6, 1e12]), 64.0)
    assert law.upper_plateau == law.lower_plateau == law.saturation == 64


@pytest.mark.parametrize("count", [2, 3, 4])
def test_as_many_parameters_as_points_prove_nothing(count: int) -> None:
    law = AllocationLaw.fit(np.geomspace(1e5, 1e6, count), 2.0 ** np.arange(3, 3 + count))
    assert law.status is FitStatus.TOO_FEW_POINTS
    assert set(law.stderr.values()) == {None}


@given(
    L=st.floats(0, 24),
    k=st.floats(-1e3, 1e3),
    midpoint=st.floats(-10, 20),
    b=st.floats(-5, 12),
    compute=st.floats(1e-300, 1e300),
)
def test_a_law_stays_between_its_plateaus_for_any_compute(
    L: float, k: float, midpoint: float, b: float, compute: float
) -> None:
    law = AllocationLaw(L, k, midpoint, b)
    n = float(law.predict(compute))
    assert law.lower_plateau * (1 - 1e-12) <= n <= law.upper_plateau * (1 + 1e-12)
    assert law.log2(compute) == pytest.approx(np.log2(n))


@pytest.mark.parametrize(
    ("x_values", "sizes", "x", "message"),
    [
        ([], [], "log10_rollouts", "0 points"),
        ([1e5, 1e6], [8], "log10_rollouts", "2 x values.* 1 "),
        ([0, 1e6], [8, 16], "log10_rollouts", r"received \[0.0\]"),
        ([1e5, float("nan")], [8, 16], "log10_rollouts", "received .nan"),
        ([1e5, float("inf")], [8, 16], "update_steps", "received .*inf"),
        ([-1, 10], [8, 16], "update_steps", r"received \[-1.0\]"),
        ([1e5, 1e6], [8, float("inf")], "log10_rollouts", r"received \[inf\]"),
        ([1e5, 1e6], [8, 0], "log10_rollouts", r"received \[0.0\]"),
        (
            [1e5, 1e6],
            [8, 16],
            "log2_rollouts",
            "'log2_rollouts'.*log10_rollouts, log10_tokens",
        ),
        (["a", "b"], [8, 16], "log10_rollouts", "received \\['a', 'b'\\]"),
        ([1e5, 1e6], [8, None], "log10_rollouts", r"received \[nan\]"),
    ],
)
def test_bad_points_are_refused_with_what_was_received(x_values: list, sizes: list, x: str, message: str) -> None:
    with pytest.raises(FitError, match=message):
        AllocationLaw.fit(x_values, sizes, x)


def test_predicting_at_no_compute_is_refused() -> None:
    with pytest.raises(FitError, match=r"\[0\.0\]"):
        AllocationLaw(6, 5, 6, 3).predict(0)
    assert AllocationLaw(6, 0.01, 90, 3, x="update_steps").predict(0) > 0
