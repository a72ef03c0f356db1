"""Odds of group sizes follow from the draws."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute_sdk.fitting.surface.answers import best_size_interval, group_size_odds
from isocompute_sdk.fitting.surface.surface import Layout, Surface
from isocompute_sdk.tolerances import EQUAL, Tolerances

SIZES = np.array([4, 8, 16, 32, 64])


def surface(spread: float, seed: int = 0, draws: int = 400) -> Surface:
    """Known curves that favour n = 16 at large compute, with independent errors per octave of n."""
    layout = Layout(
        knots_K=np.arange(2.0, 8.0),
        centre=4.0,
        problems_reference=32.0,
        set_reference=None,
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


def test_the_octave_above_the_grid_is_chosen_where_it_is_ahead_and_counts_where_it_is_not() -> None:
    certain = group_size_odds(surface(0.05), 1e9, SIZES[:3], None, 8)
    assert certain.group_size[certain.best()] == 16
    assert certain.on_grid.tolist() == [True, True, False]
    # On the grid alone nothing would be lost by 8; the octave above it says otherwise.
    on_grid = group_size_odds(surface(0.05), 1e9, SIZES[:2], None, 8)
    assert on_grid.expected_regret[1] == pytest.approx(certain.expected_regret[1])
    assert on_grid.expected_regret[1] > 0.01
    drawn = surface(0.05).draws(np.full(3, 1e9), SIZES[:3])
    assert on_grid.probability_best.sum() == pytest.approx(1 - certain.probability_best[2])
    assert on_grid.above_ahead == np.mean(drawn[:, 2] - drawn[:, :2].max(axis=1) > EQUAL)
    # Too few updates: no candidate, and nothing is lost by leaving it out.
    short = group_size_odds(surface(0.05), 4.9 * 16 * 32, SIZES[:2], 32, 8)
    assert short.probability_best.sum() == pytest.approx(1)
    falling = group_size_odds(surface(0.05), 1e9, SIZES, None, 32)
    assert falling.group_size[falling.best()] == 16


@pytest.mark.parametrize("spread", [0.0, 0.2, 0.6])
def test_the_set_for_the_best_n_holds_a_good_one_as_often_as_asked_and_no_more_than_needed(spread: float) -> None:
    one = surface(spread)
    sizes = 2.0 ** np.linspace(2, 6, 17)
    drawn = one.draws(np.full(17, 1e9), sizes)
    good = drawn.max(axis=1)[:, None] - drawn <= Tolerances().nothing
    widths = []
    for level in (0.5, 0.8, 0.95):
        low, high = best_size_interval(one, 1e9, (4, 64), level)
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
