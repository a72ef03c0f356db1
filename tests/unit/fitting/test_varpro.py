"""Plateau and rise by projection equal what a general solver finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import lsq_linear, minimize

from isocompute_sdk.fitting.least_squares import project

seeds = st.integers(0, 2**32 - 1)


def loss(missing: np.ndarray, y: np.ndarray, w: np.ndarray, plateau: float, rise: float) -> float:
    return float(np.sum(w * (y - plateau + rise * missing) ** 2))


@given(seeds, st.integers(3, 30), st.integers(1, 6))
def test_free_fit_equals_lstsq_of_the_best_grid_row(seed: int, points: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    missing = np.sort(rng.uniform(0, 1, (rows, points)), axis=1)[:, ::-1]
    y = 0.5 - 0.2 * missing[0] + rng.normal(0, 0.01, points)
    w = rng.uniform(0.5, 2, points)
    found = project(missing, y[None, :], w[None, :], (-10.0, 10.0))
    best = np.inf
    for row in missing:
        design = np.column_stack([np.ones(points), -row]) * np.sqrt(w)[:, None]
        solution = lsq_linear(design, y * np.sqrt(w), bounds=([-10.0, 0.0], [10.0, 20.0])).x
        best = min(best, loss(row, y, w, *solution))
    chosen = loss(missing[found.grid_index[0]], y, w, found.plateau[0], found.rise[0])
    assert abs(chosen - best) <= 1e-8 * (1 + best)


@given(seeds, st.integers(4, 20), st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (0.0, 100.0)]))
def test_constrained_fit_is_the_minimum_over_the_allowed_triangle(
    seed: int, points: int, bounds: tuple[float, float]
) -> None:
    low, high = bounds
    rng = np.random.default_rng(seed)
    missing = np.sort(rng.uniform(0, 1, points))[::-1]
    y = low + (high - low) * rng.uniform(-0.5, 1.5, points)
    found = project(missing[None, :], y[None, :], np.ones((1, points)), bounds)
    plateau, rise = float(found.plateau[0]), float(found.rise[0])
    slack = 1e-9 * (high - low)
    assert rise >= 0
    assert plateau <= high + slack
    assert plateau - rise >= low - slack
    general = minimize(
        lambda p: loss(missing, y, np.ones(points), p[0], p[1]) / (high - low) ** 2,
        x0=[(low + high) / 2, 0.0],
        method="SLSQP",
        bounds=[(low, high), (0.0, high - low)],
        constraints=[{"type": "ineq", "fun": lambda p: p[0] - p[1] - low}],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert loss(missing, y, np.ones(points), plateau, rise) / (high - low) ** 2 <= general.fun + 1e-8


@given(seeds, st.floats(0.0, 0.9))
def test_known_floor_is_kept_exactly(seed: int, floor: float) -> None:
    rng = np.random.default_rng(seed)
    missing = np.sort(rng.uniform(0, 1, (3, 12)), axis=1)[:, ::-1]
    y = floor + (1 - floor) * rng.uniform(0, 1, 12)
    found = project(missing, y[None, :], np.ones((1, 12)), (0.0, 1.0), floor)
    assert found.plateau[0] - found.rise[0] == np.float64(floor + found.rise[0]) - found.rise[0]
    assert floor <= found.plateau[0] <= 1.0 + 1e-12
    shape = 1 - missing[found.grid_index[0]]
    free = float(np.clip(shape @ (y - floor) / (shape @ shape), 0, 1 - floor))
    assert abs(found.rise[0] - free) <= 1e-9


@given(seeds, st.integers(1, 5))
def test_every_batch_row_is_solved_as_if_alone(seed: int, batch: int) -> None:
    rng = np.random.default_rng(seed)
    missing = np.sort(rng.uniform(0, 1, (4, 15)), axis=1)[:, ::-1]
    y = rng.uniform(0, 1, 15)
    weights = rng.multinomial(15, np.full(15, 1 / 15), size=batch).astype(float)
    together = project(missing, y[None, :], weights, (0.0, 1.0))
    for i in range(batch):
        alone = project(missing, y[None, :], weights[i : i + 1], (0.0, 1.0))
        assert abs(together.plateau[i] - alone.plateau[0]) <= 1e-9
        assert abs(together.rise[i] - alone.rise[0]) <= 1e-9


def test_integer_weights_are_repeated_evaluations() -> None:
    rng = np.random.default_rng(3)
    missing = np.sort(rng.uniform(0, 1, (4, 10)), axis=1)[:, ::-1]
    y = rng.uniform(0.2, 0.8, 10)
    counts = np.array([0, 1, 2, 3, 0, 1, 1, 2, 0, 1])
    weighted = project(missing, y[None, :], counts[None, :].astype(float), (0.0, 1.0))
    repeated = project(np.repeat(missing, counts, axis=1), np.repeat(y, counts)[None, :], np.ones((1, 11)), (0.0, 1.0))
    assert weighted.grid_index[0] == repeated.grid_index[0]
    np.testing.assert_allclose([weighted.plateau, weighted.rise], [repeated.plateau, repeated.rise], rtol=1e-10)


def test_all_weight_on_one_evaluation_gives_a_flat_curve_through_it() -> None:
    missing = np.array([[0.9, 0.5, 0.1]])
    found = project(missing, np.array([[0.2, 0.4, 0.7]]), np.array([[0.0, 3.0, 0.0]]), (0.0, 1.0))
    assert found.plateau[0] - found.rise[0] * 0.5 == pytest.approx(0.4, abs=1e-12)
