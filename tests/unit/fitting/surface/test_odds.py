"""Odds of group sizes follow from the draws."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.fitting.surface.answers.odds import (
    DOUBT_COMES_TRUE,
    NEAR_BEST,
    best_size_interval,
    expected_loss,
    group_size_odds,
)
from isocompute_sdk.fitting.surface.model import Layout
from isocompute_sdk.fitting.surface.surface import Surface

SIZES = np.array([4, 8, 16, 32, 64])


def surface(spread: float, seed: int = 0, draws: int = 400) -> Surface:
    """Known curves that favour n = 16 at large compute, with independent errors per octave of n."""
    layout = Layout(
        knots_K=np.arange(2.0, 8.0),
        centre=4.0,
        problems_reference=32.0,
        set_reference=None,
        usual_set=None,
        top=1.0,
        floor=0.0,
    )
    rng = np.random.default_rng(seed)
    theta = np.zeros(layout.size)
    theta[0] = 0.3
    theta[1:7] = [-1.0, -0.6, -0.4, -0.6, -1.0, -1.5]
    theta[7:13] = 10.0
    drawn = np.repeat(theta[None], draws, axis=0)
    drawn[:, 1:7] += spread * rng.standard_normal((draws, 6))
    return Surface(layout, ("hill",) * draws, drawn, 0.01, 0.0, 0.0, 1e6)


def test_without_doubt_the_best_n_is_certain_and_costs_nothing() -> None:
    odds = group_size_odds(surface(0.0), 1e9, SIZES, None, 64)
    assert odds.group_size[odds.best()] == 16
    assert odds.probability_best.tolist() == [0, 0, 1, 0, 0]
    assert odds.expected_regret[2] == 0
    assert np.all(odds.expected_regret[[0, 1, 3, 4]] > 0)
    assert best_size_interval(surface(0.0), 1e9, (4, 64), None, 0.8) == (16, 16)
    np.testing.assert_allclose(odds.spread, 0, atol=1e-12)


def test_doubt_spreads_the_odds_and_nothing_else() -> None:
    odds = group_size_odds(surface(0.5), 1e9, SIZES, None, 64)
    assert odds.probability_best.sum() + odds.probability_above == pytest.approx(1)
    assert 0 < odds.probability_above < 0.1
    assert np.count_nonzero(odds.probability_best) > 2
    assert np.all(odds.expected_regret > 0)
    # What is lost in expectation is least for what is best in expectation.
    assert int(np.argmin(odds.expected_regret)) == odds.best()
    low, high = best_size_interval(surface(0.5), 1e9, (4, 64), None, 0.8)
    assert low < high


def test_where_draws_call_both_ends_best_the_choice_lies_between() -> None:
    ends = np.array([[0.2, 0.1, 0.0, -0.1, -0.2, -0.2], [-0.2, -0.1, 0.0, 0.1, 0.2, 0.2]])
    known = surface(0.0, draws=10)
    torn = known.parameters_DP.copy()
    # Six draws of ten prefer small n, four large n, and each is nearly as sure as the other.
    torn[:, 1:7] = np.where(np.arange(10)[:, None] < 6, ends[0], ends[1])
    odds = group_size_odds(replace(known, parameters_DP=torn), 1e9, SIZES, None, 64)
    assert odds.group_size[int(np.argmax(odds.reward))] == 4
    assert odds.probability_best[[1, 2, 3]].tolist() == [0, 0, 0]
    assert odds.group_size[odds.best()] in (8, 16, 32)
    agreed = group_size_odds(replace(known, parameters_DP=torn[:6], shape_D=known.shape_D[:6]), 1e9, SIZES, None, 64)
    assert agreed.group_size[agreed.best()] == 4


@given(hnp.arrays(float, 6, elements=st.floats(-2, 2)))
def test_where_all_draws_agree_nothing_is_given_up(shares: np.ndarray) -> None:
    known = surface(0.0, draws=3)
    agreed = known.parameters_DP.copy()
    agreed[:, 1:7] = shares
    odds = group_size_odds(replace(known, parameters_DP=agreed), 1e9, np.append(SIZES, 128), None, 64)
    assert odds.expected_regret[odds.best()] == pytest.approx(0, abs=1e-9)


def test_a_fall_that_some_draws_see_at_the_largest_n_keeps_the_choice_away_from_it() -> None:
    rising, falling = [-1.0, -0.6, -0.3, -0.1, 0.0, 0.0], [-1.0, -0.6, -0.3, -0.4, -1.0, -1.0]
    known = surface(0.0, draws=10)
    torn = known.parameters_DP.copy()
    torn[:, 1:7] = np.where(np.arange(10)[:, None] < 7, rising, falling)
    odds = group_size_odds(replace(known, parameters_DP=torn), 1e9, SIZES, None, 64)
    assert odds.group_size[int(np.argmax(odds.probability_best))] == 64
    assert odds.group_size[odds.best()] in (16, 32)


def test_how_densely_candidates_lie_does_not_move_the_choice() -> None:
    one = surface(0.5)
    few = group_size_odds(one, 1e9, SIZES, None, 64)
    # Sizes close to the largest are almost the same candidate again: they must not outvote the others.
    many = group_size_odds(one, 1e9, np.array([4, 8, 16, 32, 58, 60, 62, 64]), None, 64)
    assert many.group_size[many.best()] == few.group_size[few.best()]
    np.testing.assert_allclose(many.squared_octaves[[0, 1, 2, 3, 7]], few.squared_octaves, rtol=0.15)


def test_the_octave_above_the_grid_is_chosen_where_it_is_ahead_and_counts_where_it_is_not() -> None:
    certain = group_size_odds(surface(0.05), 1e9, SIZES[:3], None, 8)
    assert certain.group_size[certain.best()] == 16
    assert certain.on_grid.tolist() == [True, True, False]
    assert certain.group_size[certain.best(conservative=True)] == 8
    # On the grid alone nothing would be lost by 8; the octave above it says otherwise.
    on_grid = group_size_odds(surface(0.05), 1e9, SIZES[:2], None, 8)
    assert on_grid.expected_regret[1] == pytest.approx(certain.expected_regret[1])
    assert on_grid.expected_regret[1] > 0.01
    assert on_grid.probability_above == pytest.approx(certain.probability_best[2])
    assert on_grid.probability_best.sum() + on_grid.probability_above == pytest.approx(1)
    # Too few updates: no candidate, and nothing is lost by leaving it out.
    short = group_size_odds(surface(0.05), 4.9 * 16 * 32, SIZES[:2], 32, 8)
    assert short.probability_above == 0
    falling = group_size_odds(surface(0.05), 1e9, SIZES, None, 32)
    assert falling.group_size[falling.best()] == 16


def test_regret_is_what_is_expected_behind_the_best_and_the_share_of_the_doubt_that_comes_true() -> None:
    one = surface(0.5)
    odds = group_size_odds(one, 1e9, SIZES, None, 64)
    drawn = one.draws(np.full(6, 1e9), np.append(SIZES, 128))
    behind, distance = drawn.mean(axis=0).max() - drawn.mean(axis=0), (drawn.max(axis=1)[:, None] - drawn).mean(axis=0)
    np.testing.assert_allclose(odds.reward, drawn.mean(axis=0)[:5])
    assert odds.doubt == pytest.approx(distance.min())
    np.testing.assert_allclose(odds.expected_regret, (behind + DOUBT_COMES_TRUE[1] * odds.doubt)[:5])
    # Two n differ by what their expected rewards do.
    np.testing.assert_allclose(np.diff(odds.expected_regret), -np.diff(odds.reward))


def test_the_loss_of_a_plan_lies_inside_its_interval_and_grows_with_what_no_run_is_near_to() -> None:
    low, mean, high = expected_loss(np.array([0.0, 0.01]), 0.02)
    assert np.all((low < mean) & (mean < high))
    np.testing.assert_allclose(mean, [0.02 * DOUBT_COMES_TRUE[1], 0.01 + 0.02 * DOUBT_COMES_TRUE[1]])
    assert np.all(expected_loss(np.array([0.0, 0.01]), 0.02, unseen=0.01)[1] > mean)


def test_each_candidate_is_asked_at_what_it_really_spends() -> None:
    spent = np.array([1e4, 1e5, 1e6, 1e7, 1e8])
    one = surface(0.2)
    odds = group_size_odds(one, 1e8, SIZES, None, 64, compute_of_each=spent)
    np.testing.assert_allclose(odds.reward, one.predict(spent, SIZES))


@pytest.mark.parametrize("spread", [0.0, 0.2, 0.6])
def test_the_set_for_the_best_n_holds_a_good_one_as_often_as_asked_and_no_more_than_needed(spread: float) -> None:
    one = surface(spread)
    sizes = 2.0 ** np.linspace(2, 6, 17)
    drawn = one.draws(np.full(17, 1e9), sizes)
    good = drawn.max(axis=1)[:, None] - drawn <= NEAR_BEST * (drawn.mean(axis=0).max() - 0.3)
    widths = []
    for level in (0.5, 0.8, 0.95):
        low, high = best_size_interval(one, 1e9, (4, 64), None, level)
        inside = (sizes >= low * (1 - 1e-9)) & (sizes <= high * (1 + 1e-9))
        held = good[:, inside].any(axis=1).mean()
        assert held >= 0.9 * level
        best = int(np.argmax(drawn.mean(axis=0)))
        assert inside[best]
        count = int(inside.sum())
        starts = range(max(best - count + 2, 0), best + 1)
        assert all(good[:, i : i + count - 1].any(axis=1).mean() < held for i in starts)
        widths.append(count)
    assert widths == sorted(widths)
    assert (widths[0] == 1) or spread > 0


def test_an_n_that_leaves_hardly_an_update_is_not_in_the_set() -> None:
    one = surface(0.6)
    _, high = best_size_interval(one, 32 * 16 * 5, (4, 64), None, 0.95)
    assert high <= 16
    assert best_size_interval(one, 100, (4, 64), None, 0.95) == (4, 4)
