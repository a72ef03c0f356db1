"""Published laws: the printed constants, the corrected slopes, provenance, reward curves where there are any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk import FitError
from isocompute_sdk.laws import digitised

EASY, HARD = "qwen2.5-7b-instruct/guru-math-easy", "qwen2.5-7b-instruct/guru-math-hard"

# As printed in the figures: L, k, midpoint, b, upper plateau (None: corrected, see below).
PRINTED = {
    EASY: (6.09, 4.75, 5.84, 2.73, 451),
    HARD: (4.47, 7.23, 5.84, 2.79, 153),
    f"{EASY}:joint": (5.67, 8.84, 6.08, 3.08, 431),
    f"{HARD}:joint": (3.97, 50.0, 6.13, 3.04, 129),
    f"{EASY}:tokens": (6.62, 3.47, 9.18, 2.64, 614),
}


@pytest.mark.parametrize("name", PRINTED)
def test_laws_carry_the_printed_constants(name: str) -> None:
    law = iso.published(name).law()
    L, k, midpoint, b, plateau = PRINTED[name]
    assert (law.L, law.k, law.midpoint, law.b) == (L, k, midpoint, b)
    assert law.upper_plateau == pytest.approx(plateau, abs=1)
    assert law.saturation == law.upper_plateau


def test_fixed_batch_laws_have_the_slopes_of_the_drawn_curves_not_the_rounded_ones() -> None:
    fits = iso.published(f"{EASY}:fixed-batch")
    by_n, by_problems = fits.law("group_size_vs_steps"), fits.law("problems_per_batch_vs_steps")
    assert by_n.k == pytest.approx(0.0139, abs=1e-4)
    assert by_problems.k == pytest.approx(-0.0111, abs=1e-4)
    assert by_n.rising
    assert not by_problems.rising
    assert by_n.upper_plateau == pytest.approx(549, rel=0.01)
    assert by_problems.saturation == pytest.approx(15, abs=0.5)
    assert fits.rollouts_per_batch == 8192
    assert by_n.x == by_problems.x == "update_steps"
    # Fewer steps: many problems; more steps: large groups.
    assert by_problems.predict(10) > 100 > by_problems.predict(1000)
    assert by_n.predict(10) < 40 < by_n.predict(1000)


def test_a_law_in_steps_decides_at_the_batch_that_it_was_fitted_at_and_nowhere_else() -> None:
    of_steps, of_compute = iso.published(f"{EASY}:fixed-batch"), iso.published(EASY)
    both = replace(of_steps, laws={**of_steps.laws, **of_compute.laws})
    for batch, deciding, other in ((8192, of_steps, of_compute), (16_384, of_compute, of_steps)):
        plans = [iso.Planner(fits).allocate("1M", rollouts_per_batch=batch) for fits in (both, deciding, other)]
        assert plans[0].group_size == plans[1].group_size != plans[2].group_size


@pytest.mark.parametrize("name", [*PRINTED, f"{EASY}:fixed-batch"])
def test_every_law_says_where_it_comes_from(name: str) -> None:
    fits = iso.published(name)
    assert fits.method == "published"
    assert fits.source == name
    assert fits.model == "Qwen/Qwen2.5-7B-Instruct"
    assert fits.n_problems == (5000 if "hard" in name else 6000)


@pytest.mark.parametrize("name", [EASY, HARD])
def test_a_law_that_is_not_published_is_refused_with_what_is(name: str) -> None:
    with pytest.raises(FitError, match=f"'group_size_vs_steps'.*{name}.* group_size"):
        iso.published(name).law("group_size_vs_steps")


@pytest.mark.parametrize(("name", "file"), [(EASY, "sweeps/qwen2.5-7b-easy.csv"), (HARD, "sweeps/qwen2.5-7b-hard.csv")])
def test_reward_curves_reproduce_the_digitised_ones(name: str, file: str) -> None:
    fits, table = iso.published(name), digitised(file)
    for n in fits.group_sizes:
        rows = table["n"] == n
        drawn, curve = table["avg@4"][rows], fits.curves[n, 32]
        # The figures were read to 0.0003.
        assert np.max(np.abs(curve.predict(table["C"][rows]) - drawn)) < 1e-3
        assert curve.shape == "saturating_exponential"
    assert set(fits.group_sizes) == set(table["n"].astype(int))
    # The points of the law go on where no reward was drawn.
    assert fits.largest_compute == float(table["C"].max())


def test_predictions_of_the_published_curves_match_the_levels_in_the_paper() -> None:
    fits = iso.published(EASY)
    start = fits.predict(1e4, [8, 32]).mean
    np.testing.assert_allclose(start, 0.44, atol=0.03)
    plateaus = {n: c.plateau for (n, _), c in fits.curves.items()}
    for n, plateau in ((8, 0.583), (32, 0.596), (128, 0.619), (256, 0.653)):
        assert plateaus[n] == pytest.approx(plateau, abs=0.003)
    assert float(fits.predict(4e6, 512).mean) > 0.67
    hard = iso.published(HARD)
    assert hard.curves[8, 32].plateau == pytest.approx(0.084, abs=0.003)
    (handover,) = hard.handovers()
    assert handover.compute == pytest.approx(0.748e6, rel=0.05)


def test_digitised_tables_are_arrays_and_an_unknown_one_shows_the_names() -> None:
    table = digitised("frontier_points_q1_easy.csv")
    assert set(table) == {"C", "n", "reward"}
    assert {len(column) for column in table.values()} == {36}
    assert all(column.dtype == np.float64 for column in table.values())
    with pytest.raises(FitError, match=r"'x\.csv'.*frontier_points_q1_easy\.csv"):
        digitised("x.csv")
    with pytest.raises(FitError, match="frontier_points"):
        digitised("../catalogue.py")
