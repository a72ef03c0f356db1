"""Record-breaking points: the first evaluation in each higher reward bin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.paper.analysis import record_breaking

rewards = st.lists(st.floats(0, 1), min_size=1, max_size=60).map(np.array)
widths = st.floats(1e-4, 0.5)


def bins(values: np.ndarray, width: float, start: float = 0.0) -> np.ndarray:
    return np.floor((values - start) / width + 1e-9)


@given(rewards, widths)
def test_kept_points_lie_in_strictly_rising_bins_and_the_first_point_is_kept(values: np.ndarray, width: float) -> None:
    kept = record_breaking(values, width)
    assert kept[0] == 0
    assert np.all(np.diff(kept) > 0)
    assert np.all(np.diff(bins(values[kept], width)) > 0)


@given(rewards, widths)
def test_every_dropped_point_has_an_equal_or_higher_bin_before_it(values: np.ndarray, width: float) -> None:
    kept = set(record_breaking(values, width).tolist())
    at = bins(values, width)
    for i in range(len(values)):
        assert (i in kept) == (i == 0 or bool(at[i] > at[:i].max()))


def test_bins_count_from_the_start_and_an_edge_belongs_to_the_bin_above() -> None:
    # 0.1 * 3 is 0.30000000000000004 and 0.3 / 0.1 is 2.9999999999999996: both are the edge of bin 3.
    assert record_breaking(np.array([0.29, 0.3, 0.1 * 3, 0.39, 0.4]), 0.1).tolist() == [0, 1, 4]
    assert record_breaking(np.array([-0.95, -0.91, -0.9]), 0.1, -1.0).tolist() == [0, 2]


def test_records_of_a_noisy_constant_are_biased_upward() -> None:
    rng = np.random.default_rng(1)
    noisy = 0.5 + rng.normal(0, 0.012, (200, 60))
    means = [row[record_breaking(row, 0.005)].mean() for row in noisy]
    assert 0.005 < np.mean(means) - 0.5 < 0.03


@pytest.mark.parametrize("width", [0.0, -0.1, float("nan")])
def test_a_bin_without_width_is_refused(width: float) -> None:
    with pytest.raises(FitError, match="bin_width"):
        record_breaking(np.array([0.1, 0.2]), width)
