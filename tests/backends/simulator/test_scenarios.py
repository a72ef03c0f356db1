"""Scenarios: a sweep as a user reads it, and the truth behind it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_simulator import FAMILIES, Scenario, draw_scenario
from isocompute_simulator.observation import Noise, evaluation_noise


def drawn_scenario(seed: int, family: str) -> Scenario:
    return draw_scenario(np.random.default_rng(seed), family)


scenarios = st.builds(
    drawn_scenario,
    st.integers(0, 10_000),
    st.sampled_from(FAMILIES),
)


@settings(max_examples=12)
@given(scenarios)
def test_true_reward_never_falls_with_compute_and_stays_in_bounds(scenario: Scenario) -> None:
    rollouts_T = np.r_[0.0, np.geomspace(1.0, 1e10, 300)]
    sizes = np.array([scenario.levels[0], scenario.levels[-1], 2 * scenario.levels[-1]])
    reward_NT = scenario.true_reward(rollouts_T[None, :], sizes[:, None])
    assert np.all(np.diff(reward_NT, axis=1) >= -1e-12)
    assert reward_NT.min() >= scenario.truth.base_reward - 1e-12
    assert reward_NT.max() < 1
    assert np.all(reward_NT[:, 0] == scenario.truth.base_reward)


@settings(max_examples=10)
@given(scenarios)
def test_the_best_n_is_allowed_and_nothing_allowed_beats_it(scenario: Scenario) -> None:
    low, high = scenario.levels[0], scenario.levels[-1]
    for ratio in (1, 3, 10):
        target = ratio * scenario.largest_rollouts
        n, reward = scenario.best(target, low, high)
        assert low <= n <= 2 * high
        assert target / (n * scenario.problems_per_batch[0]) >= 5
        assert reward == scenario.true_reward(target, n)
        tried = np.array([n for n in scenario.levels if target / (n * scenario.problems_per_batch[0]) >= 5])
        assert np.all(scenario.true_reward(target, tried) <= reward + 1e-12)
        assert 0 < reward - scenario.truth.base_reward <= scenario.reward_range + 1e-12


def test_overfitting_makes_the_mean_curve_fall_and_fewer_problems_make_it_fall_earlier() -> None:
    scenario = draw_scenario(np.random.default_rng(4), "overfitting")
    truth = scenario.truth
    assert truth.n_problems is not None
    rollouts_T = np.geomspace(1e3, 1e12, 2000)
    peak = [float(rollouts_T[np.argmax(truth.mean(rollouts_T, 32, n_problems=d))]) for d in (200, 2000, 20000)]
    assert peak[0] < peak[1] < peak[2] < rollouts_T[-1]
    assert float(truth.best(1e12, 32, n_problems=200)) < float(truth.best(1e12, 32, n_problems=20000))


def test_evaluation_noise_has_the_stated_spread_and_correlation() -> None:
    noise = Noise(0.02, 0.6, 0.05, 0.1, 0.0)
    drawn = evaluation_noise(noise, 40_000, np.random.default_rng(0))
    assert drawn.std() == pytest.approx(0.02, rel=0.05)
    assert np.corrcoef(drawn[:-1], drawn[1:])[0, 1] == pytest.approx(0.6, abs=0.03)
