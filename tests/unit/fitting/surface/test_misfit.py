"""Lack of fit: its size follows the backtest, within limits."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute_sdk.fitting.surface.misfit import SIZE, learned_size, sample_misfit


def test_errors_as_large_as_predicted_leave_the_size_alone() -> None:
    assert learned_size(1.0, 8) == pytest.approx(1.0)
    assert learned_size(None, 0) == 1.0


def test_larger_errors_ask_for_more_the_more_so_the_more_runs_show_them() -> None:
    sizes = [learned_size(2.0, runs) for runs in (1, 4, 16)]
    assert sizes == sorted(sizes)
    assert sizes[0] > 1.0
    # sqrt((10 + 4 * 2^2) / (10 + 4))
    assert sizes[1] == pytest.approx(np.sqrt(26 / 14))


def test_no_backtest_moves_the_size_out_of_its_limits() -> None:
    assert learned_size(50.0, 60) == SIZE[1]
    assert learned_size(0.0, 60) == SIZE[0]


def test_scaled_draws_are_the_same_draws() -> None:
    drawn = sample_misfit(np.zeros(40), 5, np.random.default_rng(1))
    twice = drawn.scaled(2.0)
    np.testing.assert_array_equal(twice.level_DK, 2.0 * drawn.level_DK)
    np.testing.assert_array_equal(twice.tilt_DK, 2.0 * drawn.tilt_DK)


def test_draws_that_drift_within_the_data_go_further_astray_beyond_them() -> None:
    drift_D = np.repeat([0.0, 0.15, 0.4], 4000)
    drawn = sample_misfit(drift_D, 3, np.random.default_rng(2))
    spread = [float(drawn.tilt_DK[drift_D == drift].std()) for drift in (0.0, 0.15, 0.4)]
    # Standard deviation: 0.015 along n, 0.02 sqrt(1 + (10 s)^2) in common.
    assert spread == pytest.approx([0.025, 0.039, 0.084], rel=0.05)
    assert float(drawn.level_DK[drift_D == 0.4].std()) == pytest.approx(
        float(drawn.level_DK[drift_D == 0].std()), rel=0.1
    )
