"""Runs as the surface sees them: falls and dips cut, outliers moved, bins that keep what they average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from isocompute_sdk.fitting.surface.data import (
    SurfaceRun,
    pooled_noise,
    prepare,
    rough_noise,
    without_outliers,
)

MakeRun = Callable[..., SurfaceRun]
COMPUTE = np.geomspace(1e3, 1e6, 60)
rewards = st.lists(st.floats(0, 1), min_size=1, max_size=80)


def rising(c: np.ndarray) -> np.ndarray:
    return 0.3 + 0.3 * -np.expm1(-c / 5e4)


def falling_to(level: float, after: float = 3e5) -> Callable[[np.ndarray], np.ndarray]:
    """Rises, and drops to `level` from `after` on."""
    return lambda c: np.where(c > after, level, rising(c))


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_tail_of_a_collapsed_run_is_dropped(make_run: MakeRun, noise: float) -> None:
    (run,) = prepare([make_run(falling_to(0.3), COMPUTE, noise=noise)])
    assert run.fault == "collapse"
    assert run.fault_compute is not None
    # Smoothing over five evaluations blurs where it began.
    assert run.fault_compute == pytest.approx(3e5, rel=0.5)
    assert run.reward_J.min() >= rising(COMPUTE[:1]).min() - 4 * noise
    assert run.reward_J[-1] == pytest.approx(0.6, abs=0.03)
    assert np.exp(run.log_compute_J[-1]) <= run.fault_compute * (1 + 1e-9)
    assert run.last_compute == COMPUTE[-1]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_the_peak_before_a_sudden_fall_is_no_outlier_and_the_fall_no_noise(make_run: MakeRun, seed: int | None) -> None:
    noise = 0.0 if seed is None else 0.012

    def seen(c: np.ndarray) -> np.ndarray:
        return np.where(c > 1.5e5, np.maximum(0.681 - (c - 1.5e5) / 6e4, 0.0), 0.3 + 0.45 * -np.expm1(-c / 8e4))

    (run,) = prepare([make_run(seen, np.linspace(0.0, 3e5, 11), noise=noise, seed=seed or 0)])
    assert run.fault is not None
    assert run.outliers <= 1
    assert run.noise < 0.03
    # Smoothing may take the last one or two before the fall for a part of it.
    assert run.reward_J.max() == pytest.approx(0.681, abs=0.08)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_decayed_run_is_cut_at_its_peak_and_its_fall_is_measured(make_run: MakeRun, noise: float) -> None:
    (run,) = prepare([make_run(falling_to(0.5), COMPUTE, noise=noise)])
    assert run.fault == "decay"
    assert run.fault_compute is not None
    assert run.fault_compute == pytest.approx(3e5, rel=0.5)
    assert np.exp(run.log_compute_J[-1]) <= run.fault_compute * (1 + 1e-9)
    assert run.reward_J[-1] == pytest.approx(0.6, abs=0.02)
    assert run.last_compute == COMPUTE[-1]
    assert run.decline is not None
    # A third of the gain is lost within the last unit of log compute.
    assert 0.15 < run.decline < 0.6


def test_a_slow_straight_decline_is_seen_and_its_rate_measured(make_run: MakeRun) -> None:
    def declining(c: np.ndarray) -> np.ndarray:
        return rising(c) - 0.1 * np.maximum(np.log(c / 2e5), 0.0)

    (run,) = prepare([make_run(declining, COMPUTE, noise=0.01)])
    assert run.fault == "decay"
    assert run.fault_compute == pytest.approx(2.5e5, rel=0.5)
    assert run.decline == pytest.approx(0.1 / 0.3, rel=0.5)


@pytest.mark.parametrize("low", [1, 4])
def test_one_low_evaluation_at_the_end_is_no_fall_and_four_are(make_run: MakeRun, low: int) -> None:
    # SmolLM2 at n = 16 up to 28,800 rollouts; its last evaluation was low, and it rose to .57.
    seen = [0.415, 0.475, 0.471, 0.487, 0.481, 0.511, 0.523, 0.527, 0.497, 0.509, 0.491] + low * [0.416]
    run = make_run(rising, 2400.0 * np.arange(1, len(seen) + 1), noise=0.0)
    (cut,) = prepare([replace(run, reward_T=np.array(seen))])
    assert (cut.fault is not None) is (low == 4)


def test_wild_evaluations_are_moved_to_their_neighbours_and_counted(make_run: MakeRun) -> None:
    clean = make_run(rising, COMPUTE, noise=0.01)
    reward = clean.reward_T.copy()
    reward[[10, 30, 31]] = 1.0
    (run,), (plain,) = prepare([replace(clean, reward_T=reward)]), prepare([clean])
    assert run.outliers == 3
    assert plain.outliers == 0
    assert run.noise == pytest.approx(plain.noise, rel=0.55)
    np.testing.assert_allclose(run.reward_J, plain.reward_J, atol=0.04)


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_neither_collapse_nor_decay(make_run: MakeRun, seed: int) -> None:
    (run,) = prepare([make_run(rising, COMPUTE, noise=0.02, seed=seed)])
    assert run.fault is None
    (flat,) = prepare([make_run(lambda c: np.full(len(c), 0.4), COMPUTE, noise=0.02, seed=seed)])
    assert flat.fault is None


def test_the_base_model_is_kept_apart(make_run: MakeRun) -> None:
    with_base = make_run(rising, np.concatenate([[0.0], COMPUTE]))
    (run,) = prepare([with_base])
    assert run.base_reward.tolist() == [0.3]
    assert run.count_J.sum() == len(COMPUTE)
    (without,) = prepare([make_run(rising, COMPUTE)])
    assert len(without.base_reward) == 0


@pytest.mark.parametrize("where", [0, 1, 20, -2, -1])
@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_one_wrong_evaluation_is_moved_wherever_it_stands(where: int, wrong: float) -> None:
    noise = 0.01
    values = rising(COMPUTE) + noise * np.random.default_rng(4).standard_normal(len(COMPUTE))
    hit = values.copy()
    hit[where] = wrong
    cleaned = without_outliers(hit, noise)
    assert abs(cleaned[where] - values[where]) < 6 * noise
    np.testing.assert_array_equal(np.delete(cleaned, where), np.delete(without_outliers(values, noise), where))


def test_a_short_stretch_of_wrong_evaluations_is_moved_and_a_collapse_is_not() -> None:
    values = rising(COMPUTE)
    hit = values.copy()
    hit[20:23] = 1.0
    assert np.abs(without_outliers(hit, 0.01) - values).max() < 0.05
    for begin in (40, -2):
        collapsed = values.copy()
        collapsed[begin:] = 0.3
        np.testing.assert_array_equal(without_outliers(collapsed, 0.01)[begin:], collapsed[begin:])


def test_steep_ends_of_a_curve_are_no_outliers() -> None:
    steep = 0.2 + 0.5 * -np.expm1(-np.geomspace(1e4, 1e6, 12) / 3e4)
    np.testing.assert_array_equal(without_outliers(steep, 0.005), steep)
    np.testing.assert_array_equal(without_outliers(steep[::-1], 0.005), steep[::-1])


@pytest.mark.parametrize(("first", "outliers"), [(0.389, 0), (0.1, 1)])
def test_a_first_evaluation_between_the_base_model_and_the_next_is_no_outlier(first: float, outliers: int) -> None:
    reward = np.array([0.21, first, 0.479, 0.52, 0.542, 0.561, 0.58, 0.591, 0.602, 0.611, 0.618])
    (run,) = prepare([SurfaceRun("n32", 32, 32, 40960.0 * np.arange(11), reward)])
    assert run.outliers == outliers


@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.01])
def test_noise_scales_with_the_rewards(noise: float) -> None:
    values = np.linspace(0.2, 0.8, 60) + noise * np.random.default_rng(4).standard_normal(60)
    for series in (values, np.zeros(9), values[:2]):
        alone, correlation = pooled_noise([series])
        assert pooled_noise([64 * series], 64.0) == pytest.approx((64 * alone, correlation))
        assert rough_noise([64 * series], 64.0) == pytest.approx(64 * rough_noise([series]))
