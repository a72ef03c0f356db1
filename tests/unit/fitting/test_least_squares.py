"""Batched least squares: the same minima as scipy, whatever company a problem is in."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares

from isocompute_sdk.fitting.least_squares import BatchedFit, least_squares_batch

X = np.linspace(-4, 4, 40)


def sigmoid_problems(count: int, seed: int, noise: float = 0.01) -> np.ndarray:
    """Noisy four-parameter sigmoids, shape (count, 40)."""
    rng = np.random.default_rng(seed)
    low, rise = rng.uniform(0.2, 0.4, (count, 1)), rng.uniform(0.1, 0.5, (count, 1))
    middle, slope = rng.uniform(-2, 2, (count, 1)), rng.uniform(0.5, 2.5, (count, 1))
    return low + rise / (1 + np.exp(-slope * (X - middle))) + noise * rng.standard_normal((count, len(X)))


def solve(data: np.ndarray, **options: object) -> BatchedFit:
    start = np.repeat(np.array([[0.3, 0.3, 0.0, 1.0]]), len(data), axis=0)
    return least_squares_batch(
        lambda p, index: model(p) - data[index],
        lambda p, index: jacobian(p),
        start,
        **options,  # type: ignore[arg-type]
    )


def model(p: np.ndarray) -> np.ndarray:
    return p[:, :1] + p[:, 1:2] * unit(p)


def unit(p: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(p[:, 3:4] * (X - p[:, 2:3]), -60, 60)))


def jacobian(p: np.ndarray) -> np.ndarray:
    s = unit(p)
    bell = p[:, 1:2] * s * (1 - s)
    return np.stack([np.ones_like(s), s, -bell * p[:, 3:4], bell * (X - p[:, 2:3])], axis=1)


def by_scipy(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    start = np.clip([0.3, 0.3, 0.0, 1.0], lower + 1e-9, upper - 1e-9)
    found = least_squares(
        lambda p: model(p[None])[0] - values,
        start,
        jac=lambda p: jacobian(p[None])[0].T,
        bounds=(lower, upper),
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
        max_nfev=2000,
    )
    return 2 * float(found.cost)


@pytest.mark.parametrize(
    ("lower", "upper", "share"),
    [
        ((-np.inf, -np.inf, -np.inf, -np.inf), (np.inf, np.inf, np.inf, np.inf), 1.0),
        ((0.0, 0.0, -5.0, 0.05), (1.0, 1.0, 5.0, 10.0), 1.0),
        # A floor and a slope that many problems want to pass: some then have several minima.
        ((0.35, 0.0, -5.0, 0.05), (1.0, 1.0, 5.0, 1.0), 0.95),
    ],
)
def test_minima_are_scipys_with_and_without_active_bounds(
    lower: tuple[float, ...], upper: tuple[float, ...], share: float
) -> None:
    data = sigmoid_problems(60, seed=3)
    low, high = np.array(lower), np.array(upper)
    found = solve(data, lower=low, upper=high, max_iterations=500, ftol=1e-13, xtol=1e-12)
    reference = np.array([by_scipy(values, low, high) for values in data])
    assert np.mean(found.sse_N <= reference * (1 + 1e-6) + 1e-12) >= share
    assert np.all(found.parameters_NP >= low)
    assert np.all(found.parameters_NP <= high)
    assert found.converged_N.all()
    np.testing.assert_allclose(found.sse_N, ((model(found.parameters_NP) - data) ** 2).sum(axis=1), rtol=1e-12)


def test_normal_equations_may_take_the_place_of_a_jacobian() -> None:
    data = sigmoid_problems(20, seed=6)
    start = np.repeat(np.array([[0.3, 0.3, 0.0, 1.0]]), len(data), axis=0)

    def products(p: np.ndarray, index: np.ndarray, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slopes = jacobian(p)
        return slopes @ slopes.transpose(0, 2, 1), np.einsum("kpt,kt->kp", slopes, residual)

    found = least_squares_batch(lambda p, i: model(p) - data[i], None, start, normal_equations=products)
    np.testing.assert_allclose(found.sse_N, solve(data).sse_N, rtol=1e-9)


def test_a_start_that_cannot_be_evaluated_stays_and_is_marked() -> None:
    data = sigmoid_problems(3, seed=9)
    data[1] = np.nan
    found = solve(data)
    assert found.sse_N[1] == np.inf
    assert not found.converged_N[1]
    assert found.parameters_NP[1].tolist() == [0.3, 0.3, 0.0, 1.0]
    assert found.converged_N[[0, 2]].all()


def test_parameters_that_cannot_move_stay() -> None:
    data = sigmoid_problems(5, seed=11)
    found = solve(data, lower=[0.0, 0.0, 0.5, 0.05], upper=[1.0, 1.0, 0.5, 10.0])
    assert np.all(found.parameters_NP[:, 2] == 0.5)
    assert found.converged_N.all()
