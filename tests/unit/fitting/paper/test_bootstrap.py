"""Bootstrap draws: reproducible, inside the bounds, centred on the fit, monotone."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute_sdk.fitting.allocation import AllocationLaw, sigmoid
from isocompute_sdk.fitting.paper.bootstrap import best_draws, curve_draws, law_draws, reward_draws
from isocompute_sdk.fitting.paper.reward_curve import Points, fit_curve

COMPUTE = np.geomspace(2e4, 4e6, 40)
BOUNDS = (0.0, 1.0)


def noisy(n: int = 8, plateau: float = 0.6, tau: float = 4e5, noise: float = 0.01) -> Points:
    rng = np.random.default_rng(n)
    return Points(n, 32, COMPUTE, plateau - 0.2 * np.exp(-COMPUTE / tau) + rng.normal(0, noise, len(COMPUTE)))


@pytest.mark.parametrize("shape", ["saturating_exponential", "logistic"])
def test_draws_are_curves_of_the_same_kind_around_the_fit(shape: str) -> None:
    points = noisy()
    curve = fit_curve(points, shape)
    drawn = curve_draws(curve, points, 100, BOUNDS, np.random.default_rng(0))
    rewards = reward_draws(curve, drawn, np.geomspace(1e2, 1e9, 100))
    assert rewards.shape == (100, 100)
    assert np.all(np.diff(rewards, axis=1) >= -1e-12)
    assert rewards.min() >= -1e-12
    assert rewards.max() <= 1 + 1e-12
    inside = reward_draws(curve, drawn, COMPUTE)
    np.testing.assert_allclose(np.median(inside, axis=0), curve.predict(COMPUTE), atol=0.006)


def test_the_spread_is_that_of_the_standard_error() -> None:
    points = noisy()
    curve = fit_curve(points, "saturating_exponential")
    drawn = curve_draws(curve, points, 400, BOUNDS, np.random.default_rng(0))
    assert curve.stderr["plateau"] is not None
    assert np.std(drawn[:, 0]) == pytest.approx(curve.stderr["plateau"], rel=0.5)


def test_draws_without_noise_are_the_fit() -> None:
    points = noisy(noise=0.0)
    curve = fit_curve(points, "saturating_exponential")
    drawn = curve_draws(curve, points, 20, BOUNDS, np.random.default_rng(0))
    np.testing.assert_allclose(reward_draws(curve, drawn, COMPUTE), np.tile(curve.predict(COMPUTE), (20, 1)), atol=2e-3)


def test_the_same_generator_gives_the_same_bits_and_another_one_does_not() -> None:
    points = noisy()
    curve = fit_curve(points)
    a, b, c = (curve_draws(curve, points, 30, BOUNDS, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert a.tobytes() == b.tobytes()
    assert a.tobytes() != c.tobytes()


def test_the_best_curve_of_each_draw_is_the_highest_that_has_begun() -> None:
    points = [noisy(8, 0.58, 2e5), noisy(64, 0.63, 6e5), noisy(512, 0.70, 3e6)]
    points[2] = Points(512, 32, COMPUTE[20:], points[2].reward_T[20:])
    curves = [fit_curve(p, "saturating_exponential") for p in points]
    rng = np.random.default_rng(5)
    drawn = [curve_draws(c, p, 25, BOUNDS, rng) for c, p in zip(curves, points, strict=True)]
    at = np.geomspace(1e3, 1e7, 50)
    best = best_draws(curves, drawn, at)
    rewards = np.stack([reward_draws(c, d, at) for c, d in zip(curves, drawn, strict=True)])
    for t, compute in enumerate(at):
        earliest = min(c.first_compute for c in curves)
        begun = [i for i, c in enumerate(curves) if c.first_compute <= max(compute, earliest) * (1 + 1e-9)]
        expected = np.array(begun)[np.argmax(rewards[begun, :, t], axis=0)]
        assert best[:, t].tolist() == expected.tolist()


@pytest.mark.parametrize("falls", [False, True])
def test_redrawn_laws_of_exact_data_are_that_law(falls: bool) -> None:
    truth = AllocationLaw(6.0, -5.0 if falls else 5.0, 6.0, 3.0)
    compute = np.geomspace(1e5, 1e7, 120)
    octaves = np.tile(truth.log2(compute), (3, 1))
    drawn = law_draws(compute, octaves, "log10_rollouts")
    again = sigmoid(np.log10(compute)[None, :], *(drawn[:, i, None] for i in range(4)))
    np.testing.assert_allclose(again, octaves, atol=0.1)


def test_laws_of_rising_and_falling_draws_keep_their_direction() -> None:
    steps = np.linspace(20, 2000, 60)
    rising = 3 + 4 / (1 + np.exp(-0.01 * (steps - 800)))
    drawn = law_draws(steps, np.stack([rising, rising[::-1], np.full(60, 5.0)]), "update_steps")
    assert drawn[0, 1] > 0 > drawn[1, 1]
    flat = sigmoid(steps, *drawn[2])
    np.testing.assert_allclose(flat, 5.0, atol=1e-9)
