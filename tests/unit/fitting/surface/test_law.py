"""The display law follows n* where it has one direction, and is missing where it has not."""

from __future__ import annotations

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk import FitError
from isocompute_simulator.families import FAMILIES
from isocompute_simulator.scenario import draw_scenario
from tests.unit.sweeps import Make, codes, later_and_higher

COMPUTE = np.concatenate([[0.0], np.geomspace(5e3, 2e7, 25)])


def test_a_growing_best_n_has_a_law_near_the_surfaces_own(make_runs: Make) -> None:
    fits = iso.fit(
        make_runs(later_and_higher(tau=4e3, power=1.2), [(n, 32) for n in (4, 16, 64, 256)], COMPUTE), draws=20
    )
    assert fits.law().rising
    at = np.geomspace(1e5, 2e7, 20)
    assert np.median(np.abs(np.log2(fits.law().predict(at) / fits.best_group_size(at)))) < 0.75


@pytest.mark.parametrize("seed", range(6))
def test_the_law_keeps_to_the_set_of_best_n_at_budgets_that_are_planned(seed: int) -> None:
    scenario = draw_scenario(np.random.default_rng(90_000 + seed), FAMILIES[seed])
    fits = iso.fit(scenario.runs, draws=60)
    for reach in (1, 3, 10):
        budget = reach * scenario.largest_rollouts
        band, law = fits.law_interval(budget), float(fits.law().log2(budget))
        assert band is not None
        low, high = (float(np.log2(end[0])) for end in band)
        # The set is known to a quarter of an octave.
        assert low - 0.25 <= law <= high + 0.25, (scenario.family, reach)
        planned = iso.Planner(fits).allocate(budget, spend="all").group_size
        assert planned == fits.best_group_size(budget)[0]
        assert abs(np.log2(planned) - law) <= 1.5


def test_a_best_n_that_turns_has_no_law_and_still_plans(make_runs: Make) -> None:
    # 16 leads early, 2 in between, 128 late.
    turning = {2: (0.55, 1e5), 16: (0.45, 1e4), 128: (0.7, 1e6)}

    def up_and_down(n: int, bp: int, c: float) -> float:
        top, half = turning[n]
        return float(0.2 + (top - 0.2) * c / (c + half))

    leaders = [max(turning, key=lambda n: up_and_down(n, 32, c)) for c in (5e3, 4e5, 2e7)]
    assert leaders == [16, 2, 128]
    fits = iso.fit(make_runs(up_and_down, [(n, 32) for n in turning], COMPUTE), draws=20)
    if "group_size" in fits.laws:
        pytest.fail(f"n* = {fits.best_group_size(COMPUTE[1:])}")
    assert "not-monotone" in codes(fits)
    assert set(fits.unsupported) >= {"group_size"}
    with pytest.raises(FitError, match="'group_size'"):
        fits.law()
    plan = iso.Planner(fits).allocate("3M")
    assert plan.law_group_size is None
    assert plan.group_size_interval is not None
