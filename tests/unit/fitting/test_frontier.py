"""The envelope is never below a curve that takes part, and hands over where the curves cross."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.fitting.arrays import FitStatus
from isocompute_sdk.fitting.fit_parts import frontier, handovers, log_grid, span
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve


def curve(
    n: int, plateau: float, rise: float, tau: float, first: float = 1e4, last: float = 5e6, bp: int | None = 32
) -> RewardCurve:
    observed = np.geomspace(first, last, 10)
    return RewardCurve(
        group_size=n,
        problems_per_batch=bp,
        shape="saturating_exponential",
        plateau=plateau,
        rise=rise,
        parameters=(float(np.log10(tau)),),
        status=FitStatus.CONVERGED,
        at_bound=(),
        stderr={},
        rms=0.0,
        aicc=0.0,
        compute_T=observed,
        reward_T=plateau - rise * np.exp(-observed / tau),
    )


# Coarse values: curves that differ by rounding errors only would hand over at every one of them.
coarse = st.integers(30, 100).map(lambda percent: percent / 100)
curves_drawn = st.lists(
    st.tuples(coarse, st.integers(0, 10), st.integers(20, 35), st.integers(9, 18), st.integers(1, 6)),
    max_size=6,
    min_size=1,
).map(
    lambda drawn: [
        curve(
            2 ** (i + 2), plateau, plateau * share / 10, 10 ** (tau / 5), 10 ** (first / 3), 10 ** ((first + span) / 3)
        )
        for i, (plateau, share, tau, first, span) in enumerate(drawn)
    ]
)


@given(curves_drawn)
def test_the_frontier_is_the_best_of_the_curves_that_have_begun(curves: list[RewardCurve]) -> None:
    at = np.geomspace(1e2, 1e9, 80)
    best = frontier(curves, at)
    for i, c in enumerate(at):
        earliest = min(k.first_compute for k in curves)
        begun = [k for k in curves if k.first_compute <= max(c, earliest) * (1 + 1e-9)]
        rewards = {k.group_size: float(k.predict(c)) for k in begun}
        assert best.reward[i] == max(rewards.values())
        assert rewards[int(best.group_size[i])] == best.reward[i]
        winner = next(k for k in curves if k.group_size == best.group_size[i])
        inside = winner.first_compute * (1 - 1e-9) <= c <= winner.last_compute * (1 + 1e-9)
        assert bool(best.extrapolated[i]) is not inside


@given(curves_drawn)
def test_handovers_are_exactly_the_changes_of_the_best_curve(curves: list[RewardCurve]) -> None:
    low, high = span(curves)
    found = handovers(curves)
    edges = [low, *(h.compute for h in found), high]
    assert edges == sorted(edges)
    for previous, h, following in zip(edges, found, edges[2:], strict=False):
        before, after = (int(frontier(curves, h.compute * f).group_size[0]) for f in (1 - 1e-5, 1 + 1e-5))
        if previous < h.compute * (1 - 1e-5) and h.compute * (1 + 1e-5) < following:
            assert (before, after) == (h.from_group_size, h.to_group_size)
    grid = log_grid(low, high, 400)
    best = frontier(curves, grid).group_size
    assert len(found) == np.count_nonzero(best[1:] != best[:-1])


def test_a_better_curve_takes_over_only_from_its_first_evaluation_on() -> None:
    late = curve(512, 0.9, 0.1, 1e4, first=1e6)
    early = curve(8, 0.5, 0.1, 1e5)
    best = frontier([early, late], [1e3, 5e5, 0.999e6, 1e6, 5e6])
    assert best.group_size.tolist() == [8, 8, 8, 512, 512]
    assert best.extrapolated.tolist() == [True, False, False, False, False]
    handover = handovers([early, late])
    assert [(h.from_group_size, h.to_group_size) for h in handover] == [(8, 512)]
    assert handover[0].compute == pytest.approx(1e6, rel=1e-5)
