"""avg@k, best@k, worst@k against enumeration of all subsets, and the laws they obey."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isocompute_sdk.errors import RecordError
from isocompute_sdk.metrics import average_of, avg_at_k, best_at_k, k_metrics, max_weights, worst_at_k

ESTIMATORS = {avg_at_k: np.mean, best_at_k: np.max, worst_at_k: np.min}
examples = settings(deadline=None)
rewards = arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 7)),
    elements=st.floats(-100, 100, allow_subnormal=False),
)
binary = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 20)), elements=st.sampled_from([0.0, 1.0]))


@examples
@given(rewards, st.data())
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equals_the_mean_over_all_subsets(estimator, rewards_P_N, data):
    k = data.draw(st.integers(1, rewards_P_N.shape[1]))
    reduce = ESTIMATORS[estimator]
    brute = np.mean([[reduce(subset) for subset in combinations(row, k)] for row in rewards_P_N])
    assert estimator(rewards_P_N, k) == pytest.approx(brute, rel=1e-12, abs=1e-10)


@examples
@given(binary, st.data())
def test_best_of_binary_rewards_is_pass_at_k(rewards_P_N, data):
    samples = rewards_P_N.shape[1]
    k = data.draw(st.integers(1, samples))
    right_P = rewards_P_N.sum(axis=1).astype(int)
    passed = [1 - math.comb(samples - right, k) / math.comb(samples, k) for right in right_P.tolist()]
    assert best_at_k(rewards_P_N, k) == pytest.approx(np.mean(passed), abs=1e-12)


@examples
@given(rewards, st.data())
def test_missing_samples_are_as_if_never_drawn(rewards_P_N, data):
    k = data.draw(st.integers(1, rewards_P_N.shape[1]))
    padded = np.insert(rewards_P_N, data.draw(st.integers(0, rewards_P_N.shape[1])), np.nan, axis=1)
    for estimator in ESTIMATORS:
        assert estimator(padded, k) == pytest.approx(estimator(rewards_P_N, k), rel=1e-12, abs=1e-12)


def test_thousands_of_samples_neither_overflow_nor_lose_digits():
    for samples, k in [(2048, 1), (2048, 4), (2048, 1024), (2048, 2047), (2048, 2048)]:
        weights_N = max_weights(samples, k)
        exact = [math.comb(i, k - 1) / math.comb(samples, k) if i >= k - 1 else 0.0 for i in range(samples)]
        np.testing.assert_allclose(weights_N, exact, rtol=1e-11, atol=1e-300)
        assert weights_N.sum() == pytest.approx(1, abs=1e-12)


def test_equal_rewards_are_returned_unrounded():
    assert best_at_k(np.full((1, 2048), 0.1), 17) == 0.1
    assert worst_at_k(np.full((3, 2048), 1.0), 17) == 1.0
    assert math.copysign(1, worst_at_k(np.zeros((2, 4)), 2)) == 1


def test_too_few_samples_are_an_error_unless_asked_for():
    ragged = [[1.0, 0.0, 1.0], [1.0, np.nan, np.nan]]
    with pytest.raises(RecordError, match=r"problem 1 .*k = 2.*1 of 2"):
        best_at_k(ragged, 2)
    for estimator in ESTIMATORS:
        assert math.isnan(estimator(ragged, 2, insufficient="nan"))
        assert estimator(ragged, 2, insufficient="skip") == estimator(ragged[:1], 2)
    with pytest.raises(RecordError, match=r"2 problems.*k = 4"):
        worst_at_k(ragged, 4, insufficient="skip")


@pytest.mark.parametrize(
    ("bad", "k", "message"),
    [
        ([1.0, 0.0], 1, r"shape \(2,\); accepted: \(problems, samples\)"),
        (np.empty((0, 4)), 1, r"shape \(0, 4\)"),
        ([[1, 2], [3]], 1, "not an array of numbers"),
        ([["right"]], 1, "not an array of numbers"),
        ([[1.0, np.inf]], 1, r"rewards\[0, 1\]: received inf"),
        ([[1e308, 1e308]], 1, r"rewards\[0, 0\]: received 1e\+308; accepted: finite numbers up to 1e\+300"),
        (np.array([[1j]]), 1, "they are complex"),
        ([[1.0]], 0, "k: received 0; accepted: whole numbers >= 1"),
        ([[1.0]], 1.5, "k: received 1.5"),
        ([[1.0]], True, "k: received True"),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_bad_rewards_are_refused(estimator, bad, k, message):
    with pytest.raises(RecordError, match=message):
        estimator(bad, k)


def test_an_unknown_treatment_of_missing_samples_is_refused():
    with pytest.raises(RecordError, match=r"'drop'.*'error', 'nan', 'skip'"):
        avg_at_k([[1.0]], 1, insufficient="drop")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("samples", "ks"), [(1, [1]), (2, [2]), (3, [2, 3]), (4, [2, 4]), (6, [2, 4, 6]), (8, [2, 4, 8]), (9, [2, 4, 8, 9])]
)
def test_k_metrics_are_those_of_powers_of_two_and_of_all_samples(samples, ks):
    rewards_P_N = np.random.default_rng(samples).random((3, samples))
    expected = {f"{name.__name__.removesuffix('_at_k')}@{k}": name(rewards_P_N, k) for k in ks for name in ESTIMATORS}
    assert k_metrics(rewards_P_N) == expected


def test_k_metrics_leave_out_problems_with_too_few_samples():
    metrics = k_metrics([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, np.nan, 1.0]])
    assert metrics["avg@2"] == pytest.approx((0.25 + 1) / 2)
    assert metrics["best@2"] == pytest.approx((0.5 + 1) / 2)
    assert metrics["avg@4"] == pytest.approx(0.25)
    assert set(k_metrics([[1.0, np.nan, 0.0]])) == {"avg@2", "best@2", "worst@2"}


@given(st.integers(1, 10**6))
def test_the_name_of_an_average_says_its_k_and_other_names_none(k):
    assert average_of(f"avg@{k}") == k
    for other in (f"best@{k}", f"avg@0{k}", f"avg@-{k}", f"avg@{k}.5", f"my_avg@{k}", f"avg@{k} "):
        assert average_of(other) is None
