"""Unit shapes rise from 0 to 1, whatever their parameters and the size of the compute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.fitting.paper.reward_curve import SHAPES

anchors = st.floats(-3, 15)


@pytest.mark.parametrize("name", SHAPES)
@given(midpoint=anchors, slope=st.floats(0.2, 12))
def test_shapes_rise_from_zero_to_one(name: str, midpoint: float, slope: float) -> None:
    shape = SHAPES[name]
    compute = np.concatenate([[0.0], np.geomspace(1e-6, 1e18, 200)])
    unit = shape.unit(compute, np.array([[midpoint, slope][: len(shape.parameters)]]))[0]
    assert np.all(np.isfinite(unit))
    assert np.all(np.diff(unit) >= 0)
    assert 0 <= unit[0] <= 0.5
    assert unit[-1] <= 1


def test_shapes_are_the_formulas_they_print() -> None:
    c = np.array([1e5, 5e5, 2e6])
    np.testing.assert_allclose(
        SHAPES["saturating_exponential"].unit(c, np.array([[np.log10(5e5)]]))[0], 1 - np.exp(-c / 5e5), rtol=1e-12
    )
    sigmoid = 1 / (1 + np.exp(-1.7 * (np.log(c) - np.log(5e5))))
    hill = 1 / (1 + (5e5 / c) ** 1.7)
    for name, expected in (("logistic", sigmoid), ("hill", hill)):
        np.testing.assert_allclose(
            SHAPES[name].unit(c, np.array([[np.log10(5e5), 1.7]]))[0], expected, rtol=1e-12, err_msg=name
        )


@pytest.mark.parametrize("name", SHAPES)
@given(st.floats(1e-3, 1e12), st.floats(1, 1e6))
def test_start_values_lie_inside_their_bounds(name: str, smallest: float, ratio: float) -> None:
    shape = SHAPES[name]
    grid = shape.grid(smallest, smallest * ratio)
    assert grid.shape == (np.prod([p.levels for p in shape.parameters]), len(shape.parameters))
    for column, parameter in zip(grid.T, shape.parameters, strict=True):
        low, high = parameter.bounds(smallest, smallest * ratio)
        assert low < high
        assert low <= column.min() <= column.max() <= high


def test_a_known_floor_saves_one_parameter() -> None:
    assert {name: shape.n_free for name, shape in SHAPES.items()} == {
        "saturating_exponential": 3,
        "logistic": 4,
        "hill": 3,
    }
