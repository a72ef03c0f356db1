"""Whether rewards show no rise: against curves of known kind and Kendall's own test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.records.reward_metrics import no_rise

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(5, 300), st.integers(1, 4))
def test_a_rise_above_the_noise_is_seen(seed: int, count: int, runs: int) -> None:
    rng = np.random.default_rng(seed)
    curves = [0.3 + 0.2 * np.linspace(0, 1, count) + 1e-3 * rng.standard_normal(count) for _ in range(runs)]
    assert not no_rise(curves)


@given(seeds, st.integers(1, 4))
def test_few_values_cannot_tell(seed: int, count: int) -> None:
    assert not no_rise([np.random.default_rng(seed).random(count)])


@pytest.mark.parametrize("count", [8, 9, 12, 50])
def test_noise_shows_no_rise_in_most_cases(count: int) -> None:
    rng = np.random.default_rng(count)
    flat = [no_rise([rng.random(count)]) for _ in range(400)]
    # Three one-sided tests, 5 % together.
    assert 0.92 < np.mean(flat) < 0.995


@given(seeds, st.integers(8, 100))
def test_what_kendalls_test_calls_a_rise_is_one(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random(count) + rng.uniform(0, 0.5) * np.linspace(0, 1, count)
    from scipy.stats import kendalltau  # takes longer than all other tests of this file

    found = kendalltau(np.arange(count), values, alternative="greater")
    if found.pvalue < 0.015:
        assert not no_rise([values])
