"""`Fits`: predictions, intervals, laws by name, saving, refitting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk import FitError, Fits, FitsSet, fit, published, published_prior
from tests.parameters import few
from tests.unit.sweeps import Make, noisy, saturating


@pytest.fixture(scope="module")
def fits(make_runs: Make) -> Fits:
    """Four levels at B_p = 32 with noise."""
    plateau, tau = {8: 0.58, 32: 0.62, 128: 0.67, 512: 0.74}, {8: 1e5, 32: 2e5, 128: 5e5, 512: 2e6}
    reward = saturating(plateau, tau, 0.4)
    return fit(make_runs(noisy(reward, 0.004)), points="all", draws=60, method="paper")


@pytest.fixture(scope="module")
def many(make_runs: Make) -> Fits:
    """A sweep over B_p and n in which large n was run at small B_p only."""
    levels = [(n, bp) for bp in (32, 128, 1024) for n in (8, 32, 128, 512) if n * bp <= 32_768]
    return fit(make_runs(levels=levels), points="all", draws=20, method="paper")


@given(log2_n=st.floats(3, 9))
def test_predictions_rise_with_compute_at_every_group_size(fits: Fits, log2_n: float) -> None:
    compute = np.geomspace(1, 1e12, 200)
    assert np.all(np.diff(fits.predict(compute, 2**log2_n).mean) >= -1e-12)


def test_at_a_level_that_was_run_the_prediction_is_its_curve(fits: Fits) -> None:
    compute = np.geomspace(1e4, 1e7, 20)
    for (n, _), curve in fits.curves.items():
        np.testing.assert_allclose(fits.predict(compute, n).mean, curve.predict(compute), rtol=1e-12)


def test_between_levels_the_prediction_is_linear_in_octaves(fits: Fits) -> None:
    at = 1e6
    a, b = (float(fits.curves[n, 32].predict(at)) for n in (32, 128))
    assert float(fits.predict(at, 64).mean) == pytest.approx((a + b) / 2)
    assert float(fits.predict(at, 32 * 2**0.5).mean) == pytest.approx(0.75 * a + 0.25 * b)


def test_arguments_broadcast(fits: Fits) -> None:
    predicted = fits.predict(np.geomspace(1e5, 1e6, 5)[:, None], [8, 32, 128])
    assert predicted.mean.shape == predicted.low.shape == (5, 3)
    assert fits.predict(1e6, 8).mean.shape == ()
    assert fits.predict([], 8).mean.shape == (0,)


@pytest.mark.parametrize(("wanted", "answers"), [(None, 32), (1, 32), (60, 32), (70, 128), (400, 1024), (10**6, 1024)])
def test_the_nearest_b_p_in_octaves_answers(many: Fits, wanted: int | None, answers: int) -> None:
    assert many.nearest_problems_per_batch(wanted) == answers
    assert many.predict(1e6, 8, wanted).mean == many.predict(1e6, 8, answers).mean


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.predict(1e6, 4), "group_size 4 .* 8 to 512"),
        (lambda f: f.predict(1e6, 1024), "group_size 1024 .* 8 to 512"),
        (lambda f: f.predict(0, 8), r"received \[0.0\]"),
        (lambda f: f.predict(float("nan"), 8), "received .nan"),
        (lambda f: f.predict(1e6, 8, level=1.0), "level = 1.0"),
        (lambda f: f.predict(1e6, 8, kind="both"), "kind = 'both'; accepted: 'mean', 'at', 'run'"),
        (lambda f: f.predict("3M", 8), "received '3M'"),
        (
            lambda f: f.predict([1e5, 1e6, 1e7], [8, 16]),
            r"\(3,\) .*\(2,\) ",
        ),
        (lambda f: f.predict(1e6, 8, level="high"), "level = 'high'"),
        (lambda f: f.predict(1e6, 8, 0), "problems_per_batch = 0"),
        (lambda f: f.predict(1e6, 8, "32"), "problems_per_batch = '32'"),
        (lambda f: f.predict(1e6, 8, float("nan")), "problems_per_batch = nan"),
        (lambda f: f.frontier("3M"), "received '3M'"),
        (lambda f: f.frontier(1e6, 64), r"problems_per_batch = 64.*\[32\]"),
        (lambda f: f.law("groupsize"), "'groupsize'.*group_size, group_size_vs_steps, problems"),
        (lambda f: f.law("group_size_vs_steps"), "'group_size_vs_steps'"),
    ],
)
def test_questions_without_an_answer_are_refused(fits: Fits, call: Callable[[Fits], object], message: str) -> None:
    with pytest.raises(FitError, match=message) as caught:
        call(fits)
    assert caught.value.hint


@pytest.mark.parametrize("level", few([1e-9, 0.1, 0.01, 0.5], 2))
def test_narrow_intervals_hold_what_they_are_about(make_runs: Make, level: float) -> None:
    found = fit(make_runs(), draws=8)
    at = np.geomspace(1e3, 1e9, 40)
    for kind in ("mean", "run"):
        mean, low, high = found.predict(at[:, None], [8, 11, 32, 300, 512], level=level, kind=kind)
        assert np.all((low <= mean) & (mean <= high))
    interval = found.law_interval(at, level)
    assert interval is not None
    size = found.best_group_size(at)
    inside = at <= 4e6
    assert np.all(interval[0] <= size * (1 + 1e-9), where=inside)
    assert np.all(size <= interval[1] * (1 + 1e-9), where=inside)


@pytest.mark.parametrize("source", [published("qwen2.5-7b-instruct/guru-math-easy:joint"), published_prior()])
def test_laws_without_curves_predict_no_reward(source: Fits) -> None:
    for call in (lambda: source.predict(1e6, 64), lambda: source.frontier(1e6), source.handovers, source.select):
        with pytest.raises(FitError, match=source.source or source.method):
            call()


def test_a_fits_set_is_a_mapping_whose_first_metric_decides(fits: Fits, many: Fits) -> None:
    both = FitsSet({"avg@4": fits, "best@4": many})
    assert list(both) == ["avg@4", "best@4"]
    assert len(both) == 2
    assert both.first is fits is both["avg@4"]
    assert repr(both) == "FitsSet(avg@4, best@4)"
    assert "worst@4" not in both
    with pytest.raises(FitError, match=r"'worst@4'.*avg@4, best@4") as caught:
        both["worst@4"]
    assert caught.value.hint
    with pytest.raises(FitError):
        FitsSet({})
