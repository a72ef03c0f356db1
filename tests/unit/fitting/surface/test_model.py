"""The surface's formula: its derivatives, its interpolation, and bounds that nothing can leave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import isocompute_sdk as iso
from isocompute_sdk.auditing.backtest import pilots
from isocompute_sdk.fitting.surface.prior import Prior
from isocompute_sdk.fitting.surface.surface import LEARNED, UNIT_SHAPES, Layout, curve, curve_and_slopes
from tests.unit.sweeps import corpus

shapes = pytest.mark.parametrize("shape", UNIT_SHAPES)


def layout(varies_sets: bool = False, top: float = 1.0, floor: float = 0.0) -> Layout:
    return Layout(
        knots_K=np.arange(2.0, 10.0),
        centre=5.0,
        problems_reference=16.0,
        set_reference=1000.0 if varies_sets else None,
        top=top,
        floor=floor,
    )


@shapes
@given(
    st.floats(-0.2, 0.8), st.floats(-4, 4), st.floats(8, 16), st.floats(-1.5, 1.5), st.floats(6, 18), st.floats(0.9, 5)
)
def test_derivatives_equal_finite_differences(
    shape: str, base: float, share: float, midpoint: float, slope: float, log_compute: float, top: float
) -> None:
    at, parameters = np.array([log_compute]), np.array([base, share, midpoint, slope])
    value, slopes = curve_and_slopes(shape, parameters, at, top)
    assert value == pytest.approx(curve(shape, parameters, at, top))
    for i in range(4):
        step = np.zeros(4)
        step[i] = 1e-6
        difference = (curve(shape, parameters + step, at, top) - curve(shape, parameters - step, at, top)) / 2e-6
        assert slopes[i] == pytest.approx(difference, rel=1e-4, abs=1e-7)


def test_design_rows_interpolate_between_octaves_and_stay_beyond_the_outermost() -> None:
    one = layout()
    theta = np.random.default_rng(0).standard_normal(one.size)
    nan = np.full(1, np.nan)

    def at(x: float) -> np.ndarray:
        return one.design(np.array([x]), nan, nan)[0] @ theta

    np.testing.assert_allclose(at(4.25), 0.75 * at(4) + 0.25 * at(5))
    np.testing.assert_allclose(at(1.0), at(2.0))
    np.testing.assert_allclose(at(30.0), at(9.0))
    base, share, midpoint, slope = at(6.0)
    count = len(one.knots_K)
    assert (base, share, midpoint) == (theta[0], theta[1 + 4], theta[1 + count + 4])
    assert slope == pytest.approx(theta[1 + 2 * count] + theta[2 + 2 * count] * (6.0 - one.centre))


def test_b_p_and_d_count_in_octaves_from_their_references() -> None:
    one = layout(varies_sets=True)
    theta = np.random.default_rng(1).standard_normal(one.size)
    after = 1 + 2 * len(one.knots_K)
    x = np.array([7.0])

    def at(problems: float, sets: float) -> np.ndarray:
        return one.design(x, np.array([problems]), np.array([sets]))[0] @ theta

    reference = at(np.nan, np.nan)
    np.testing.assert_allclose(at(16, 1000), reference)
    doubled = at(32, 1000) - reference
    np.testing.assert_allclose(doubled, [0, theta[after + 2], theta[after + 3], 0], atol=1e-12)
    halved = at(16, 500) - reference
    tilt = theta[after + 4] + theta[after + 5] * (7.0 - one.centre)
    np.testing.assert_allclose(halved, [0, -tilt, 0, 0], atol=1e-12)


@pytest.mark.parametrize("varies_sets", [False, True])
@pytest.mark.parametrize("kind", [0, 1])
def test_the_prior_determines_every_parameter(varies_sets: bool, kind: int) -> None:
    one = layout(varies_sets)
    weights, wanted = Prior.learned().rows(one, midpoint=11.0, base=(0.3, 0.01), kind=kind)
    assert weights.shape == (len(wanted), one.size)
    assert np.linalg.matrix_rank(weights) == one.size
    mean = np.linalg.lstsq(weights, wanted, rcond=None)[0]
    assert mean[0] == pytest.approx(0.3, abs=1e-6)


def test_every_family_of_the_corpus_is_judged_by_a_prior_of_the_others() -> None:
    families = {sweep.provenance.family for sweep in corpus()}
    assert families == set(LEARNED["families"])
    assert all(Prior.learned(family) != Prior.learned() for family in families)
    for pilot in [next(pilots(sweep)) for sweep in corpus() if sweep.name == "qwen3-4b-hard"]:
        assert pilot.fits.options["without"] == pilot.sweep.provenance.family
    with pytest.raises(iso.FitError, match="accepted: arithmetic"):
        Prior.learned("nobody's")


@shapes
@given(
    arrays(float, 4, elements=st.floats(-1e3, 1e3)),
    st.floats(0, 1),
    st.floats(-50, 80),
    st.sampled_from([(0.0, 1.0), (-2.0, 5.0), (0.0, 100.0)]),
)
def test_curves_never_leave_the_bounds(
    shape: str, parameters: np.ndarray, share_of_range: float, log_compute: float, bounds: tuple[float, float]
) -> None:
    floor, top = bounds
    parameters[0] = floor + share_of_range * (top - floor)
    parameters[3] = np.clip(parameters[3], -5, 5)
    value = float(curve(shape, parameters, np.array(log_compute), top))
    assert parameters[0] - 1e-9 <= value <= top + 1e-9
