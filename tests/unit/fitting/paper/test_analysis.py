"""The paper's method from runs to laws: what it finds, and what it says that it cannot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk import FitError, FitStatus, Planner, RunSet, fit
from isocompute_sdk.fitting.paper.analysis import record_breaking
from tests.parameters import few
from tests.unit.sweeps import Make, codes, noisy, saturating

COMPUTE = np.geomspace(2e4, 4e6, 25)


THREE = saturating({8: 0.58, 64: 0.63, 512: 0.72}, {8: 2e5, 64: 5e5, 512: 2.2e6}, 0.38)


def test_curves_of_known_truth_are_recovered_by_both_kinds_of_points(make_runs: Make) -> None:
    runs = make_runs(THREE, [(8, 32), (64, 32), (512, 32)])
    for points in ("records", "all"):
        fits = fit(runs, points=points, draws=0, method="paper")
        for n, plateau, tau in ((8, 0.58, 2e5), (64, 0.63, 5e5), (512, 0.72, 2.2e6)):
            curve = fits.curves[n, 32]
            assert curve.plateau == pytest.approx(plateau, abs=1e-6)
            assert 10 ** curve.parameters[0] == pytest.approx(tau, rel=1e-5)


def test_every_run_is_reduced_on_its_own_before_its_seeds_are_pooled(make_runs: Make) -> None:
    reward = noisy(THREE, 0.02)
    seeds = [make_runs(reward, [(8, 32), (64, 32)], seed=s) for s in (0, 1)]
    alone = [fit(runs, draws=0, method="paper").curves[8, 32] for runs in seeds]
    pooled = fit(seeds[0].concat(seeds[1]), draws=0, method="paper").curves[8, 32]
    assert sorted(pooled.reward_T) == sorted([*alone[0].reward_T, *alone[1].reward_T])
    assert np.all(np.diff(pooled.compute_T) >= 0)


def test_a_run_that_sets_no_more_records_is_still_observed(make_runs: Make) -> None:
    # The first evaluation after step 0 is no record, and neither is anything after the plateau is reached.
    compute = [0.0, 1e3, *COMPUTE]
    runs = make_runs(lambda n, bp, c: THREE(n, bp, c) if c > 1e3 else 0.38, [(8, 32), (512, 32)], compute)
    fits = fit(runs, draws=0, method="paper")
    curve = fits.curves[8, 32]
    assert curve.compute_T[-1] < 2e6
    assert (curve.first_compute, curve.last_compute) == (1e3, COMPUTE[-1])
    assert fits.largest_compute == pytest.approx(COMPUTE[-1])
    assert not fits.frontier(np.geomspace(1.1e3, COMPUTE[-1], 50)).extrapolated.any()


def test_step_zero_is_data_and_the_base_reward_is_averaged_over_runs(make_runs: Make) -> None:
    compute = [0.0, *COMPUTE]
    first = make_runs(THREE, [(8, 32), (64, 32)], compute, seed=0)
    second = make_runs(lambda *a: THREE(*a) + 0.02, [(8, 32), (64, 32)], compute, seed=1)
    curve = fit(first.concat(second), points="all", draws=0, method="paper").curves[8, 32]
    assert curve.base_reward == pytest.approx(0.39)
    assert curve.compute_T[:2].tolist() == [0.0, 0.0]
    assert curve.first_compute == pytest.approx(COMPUTE[0])
    assert fit(first, curve="hill", points="all", draws=0, method="paper").curves[8, 32].shape == "hill"


def test_the_law_follows_the_frontier(make_runs: Make) -> None:
    fits = fit(make_runs(THREE, [(8, 32), (64, 32), (512, 32)]), draws=0, method="paper")
    law = fits.law()
    assert law.rising
    at = np.geomspace(5e4, 4e6, 50)
    frontier = np.log2(fits.frontier(at).group_size)
    # A sigmoid cannot follow three steps exactly; it stays within the neighbouring level.
    assert np.median(np.abs(law.log2(at) - frontier)) < 1.0
    assert law.x_range == pytest.approx((np.log10(2e4), np.log10(4e6)))


def test_a_record_that_stands_to_the_end_of_its_run_counts_there(make_runs: Make) -> None:
    def reward(n: int, bp: int, c: float) -> float:
        return 0.3 + 0.25 * -np.expm1(-c / 8e5) if n == 8 else 0.3 if c < 1e5 else 0.35 if c < 8e5 else 0.7

    fits = fit(make_runs(reward, [(8, 32), (64, 32)], [0.0, *COMPUTE]), draws=0, method="paper")
    assert fits.law().log2(4e6) == pytest.approx(6.0, abs=0.1)


def test_two_levels_give_a_step_with_k_at_its_bound(make_runs: Make) -> None:
    fits = fit(make_runs(THREE, [(8, 32), (512, 32)]), draws=0, method="paper")
    law = fits.law()
    assert law.status is FitStatus.AT_BOUND
    assert law.at_bound == ("k",)
    (handover,) = fits.handovers()
    assert 10**law.midpoint == pytest.approx(handover.compute, rel=0.05)
    assert {"few-group-sizes", "law-at-bound"} <= codes(fits)
    (note,) = [n for n in fits.notes if n.code == "law-at-bound"]
    assert "k = 50 is a lower limit" in note.message


def fixed_batch(order: dict[int, int]) -> Callable[[int, int, float], float]:
    """Reward at fixed B: each n is best while C lies in its third of the range, given as n -> third."""
    centres = {0: 4.7, 1: 5.45, 2: 6.3}

    def reward(n: int, bp: int, c: float) -> float:
        # Plateaus rise with the third; later ones start lower.
        third = order[n]
        return 0.5 + 0.05 * third - (0.1 + 0.1 * third) * float(np.exp(-c / 10 ** centres[third]))

    return reward


FIXED = [(8, 1024), (64, 128), (512, 16)]


def test_fixed_batch_laws_in_steps_rise_for_n_and_fall_for_problems(make_runs: Make) -> None:
    fits = fit(
        make_runs(fixed_batch({8: 0, 64: 1, 512: 2}), FIXED, np.geomspace(4e4, 2e7, 60)), points="all", method="paper"
    )
    by_n, by_problems = fits.law("group_size_vs_steps"), fits.law("problems_per_batch_vs_steps")
    assert fits.rollouts_per_batch == 8192
    assert by_n.x == by_problems.x == "update_steps"
    assert by_n.rising
    assert not by_problems.rising
    steps = np.array([10.0, 2000.0])
    assert by_n.predict(steps)[0] < by_n.predict(steps)[1]
    np.testing.assert_allclose(by_n.predict(steps) * by_problems.predict(steps), 8192, rtol=0.35)
    # The law changes n where the best curve does, at C = M B.
    for change in fits.handovers():
        at = change.compute / 8192
        before, after = by_n.predict(np.array([at / 3, at * 3]))
        middle = (change.from_group_size * change.to_group_size) ** 0.5
        assert before < middle < after


def test_a_best_n_that_goes_up_and_down_with_steps_is_not_forced_into_a_law(make_runs: Make) -> None:
    runs = make_runs(
        lambda n, bp, c: {
            8: 0.50 - 0.10 * np.exp(-c / 1e4),
            512: 0.56 - 0.26 * np.exp(-c / 2e5),
            64: 0.66 - 0.40 * np.exp(-c / 3e6),
        }[n],
        FIXED,
        np.geomspace(4e4, 2e7, 60),
    )
    fits = fit(runs, points="all", method="paper")
    sizes = [h.to_group_size for h in fits.handovers()]
    assert sizes == [512, 64]
    for name in ("group_size_vs_steps", "problems_per_batch_vs_steps"):
        with pytest.raises(FitError, match=f"{name!r}.*8192"):
            fits.law(name)
    assert fits.law() is not None


def test_the_batch_of_the_step_laws_can_be_chosen(make_runs: Make) -> None:
    levels = [(8, 64), (64, 8), (8, 512), (64, 64), (512, 8)]
    runs = make_runs(THREE, levels)
    assert fit(runs, draws=0, method="paper").rollouts_per_batch == 4096
    assert fit(runs, draws=0, rollouts_per_batch=512, method="paper").rollouts_per_batch == 512
    with pytest.raises(FitError, match=r"rollouts_per_batch = 1024.*\[512, 4096\]"):
        fit(runs, draws=0, rollouts_per_batch=1024, method="paper")


def test_a_token_axis_is_fitted_in_tokens(make_runs: Make) -> None:
    base = make_runs(THREE, [(8, 32), (64, 32), (512, 32)]).to_polars()
    columns = {name: base[name].to_list() for name in ("group_size", "problems_per_batch", "rollouts", "value")}
    runs = RunSet.from_columns(columns | {"tokens": [1500 * c for c in columns["rollouts"]]}, metric="avg@4")
    in_rollouts, in_tokens = fit(runs, draws=0, method="paper"), fit(runs, draws=0, compute="tokens", method="paper")
    assert in_tokens.law().x == in_tokens.compute == "log10_tokens"
    assert in_tokens.law().midpoint == pytest.approx(in_rollouts.law().midpoint + np.log10(1500), abs=1e-4)
    assert in_tokens.law().k == pytest.approx(in_rollouts.law().k, rel=1e-3)
    for h_tokens, h_rollouts in zip(in_tokens.handovers(), in_rollouts.handovers(), strict=True):
        assert h_tokens.compute == pytest.approx(1500 * h_rollouts.compute, rel=1e-4)
    assert float(in_tokens.law().predict(1500 * 1e6)) == pytest.approx(float(in_rollouts.law().predict(1e6)), rel=1e-3)


def test_runs_without_problems_per_batch_are_fitted_and_say_so() -> None:
    columns = {
        "n": [8] * 25 + [64] * 25,
        "C": [*COMPUTE, *COMPUTE],
        "reward": [THREE(n, 0, c) for n in (8, 64) for c in COMPUTE],
    }
    fits = fit(RunSet.from_columns(columns, metric="avg@4"), draws=20, method="paper")
    assert fits.problems_per_batch == ()
    assert set(fits.curves) == {(8, None), (64, None)}
    assert "sizes-unknown" in codes(fits)
    assert np.isnan(fits.frontier(1e6).problems_per_batch[0])
    assert Planner(fits).allocate("1M").problems_per_batch == 32


def test_runs_with_and_without_problems_per_batch_are_not_mixed(make_runs: Make) -> None:
    known = make_runs(THREE, [(8, 32), (64, 32)])
    unknown = RunSet.from_columns(
        {"n": [512] * 25, "C": COMPUTE, "reward": [THREE(512, 0, c) for c in COMPUTE]}, metric="avg@4"
    )
    with pytest.raises(FitError, match="1 of 3 runs"):
        fit(known.concat(unknown), method="paper")


def test_rewards_that_never_break_a_record_are_refused_with_the_way_out(make_runs: Make) -> None:
    for reward in (lambda *_: 0.5, lambda n, bp, c: 0.6 - 0.05 * np.log10(c)):
        with pytest.raises(FitError, match=r"0 group size.*'avg@4'") as caught:
            fit(make_runs(reward, [(8, 32), (64, 32)]), method="paper")
        assert "[8, 64]" in str(caught.value)


def test_a_configuration_without_a_curve_is_dropped_with_a_note(make_runs: Make) -> None:
    def reward(n: int, bp: int, c: float) -> float:
        return 0.3 if n == 64 else THREE(n, bp, c)

    fits = fit(make_runs(reward, [(8, 32), (64, 32), (512, 32)]), draws=0, method="paper")
    assert fits.group_sizes == (8, 512)
    (note,) = [n for n in fits.notes if n.code == "run-left-out"]
    assert note.data["group_size"] == 64
    assert "run-left-out" not in codes(fit(make_runs(), draws=0, method="paper"))


def test_too_few_evaluations_are_said_to_prove_nothing(make_runs: Make) -> None:
    fits = fit(make_runs(THREE, [(8, 32), (64, 32)], [1e5, 1e6]), method="paper")
    (note,) = [n for n in fits.notes if n.code == "plateau-unidentified"]
    assert set(note.data["status"]) == {"too_few_points"}
    assert {c.status for c in fits.curves.values()} == {FitStatus.TOO_FEW_POINTS}


def test_unseen_plateaus_are_named_and_seen_ones_are_not(make_runs: Make) -> None:
    fits = fit(make_runs(THREE, [(8, 32), (64, 32), (512, 32)]), draws=0, method="paper")
    (note,) = [n for n in fits.notes if n.code == "plateau-unidentified"]
    assert note.data["configurations"] == [[512, 32]]
    marked = [line for line in fits.summary().splitlines() if "plateau" in line and "not identified" in line]
    assert [line.split()[2] for line in marked] == ["512"]
    longer = fit(make_runs(THREE, [(8, 32), (64, 32), (512, 32)], np.geomspace(2e4, 4e7, 40)), draws=0, method="paper")
    assert "plateau-unidentified" not in codes(longer)


def test_a_best_n_on_the_edge_of_the_grid_is_said_to_be_censored(make_runs: Make) -> None:
    assert "best-group-size-at-grid-edge" in codes(
        fit(make_runs(THREE, [(8, 32), (64, 32), (512, 32)], np.geomspace(2e4, 2e7, 40)), draws=0, method="paper")
    )
    assert "best-group-size-at-grid-edge" not in codes(fit(make_runs(), draws=0, method="paper"))


@pytest.mark.parametrize(("limit", "censored"), few([(32_768, True), (32_769, False), (8192, True), (16_384, True)], 2))
def test_a_plateau_within_one_octave_of_the_batch_limit_is_marked(make_runs: Make, limit: int, censored: bool) -> None:
    # The best n at the largest compute is 512 at B_p = 32.
    runs = make_runs(THREE, [(8, 32), (64, 32), (512, 32)], np.geomspace(2e4, 2e7, 40))
    fits = fit(runs, draws=0, max_rollouts_per_batch=limit, method="paper")
    (note,) = [n for n in fits.notes if n.code == "best-group-size-at-grid-edge"]
    assert note.data["near_limit"] == ([[512, 32]] if censored else [])


def test_a_batch_limit_that_the_grid_shows_is_found_without_being_told(make_runs: Make) -> None:
    levels = [(n, bp) for bp in (32, 128) for n in (8, 64, 512) if n * bp <= 16_384] + [(128, 128)]
    reward = saturating({8: 0.5, 64: 0.6, 128: 0.62, 512: 0.7}, {8: 1e5, 64: 2e5, 128: 3e5, 512: 6e5}, 0.38)
    fits = fit(make_runs(reward, levels, np.geomspace(2e4, 2e7, 40)), draws=0, method="paper")
    (note,) = [n for n in fits.notes if n.code == "best-group-size-at-grid-edge"]
    assert note.data["near_limit"] == [[512, 32], [128, 128]]
    assert note.data["max_rollouts_per_batch"] == 16_384


def test_the_papers_method_gives_no_intervals(make_runs: Make) -> None:
    fits = fit(make_runs(), draws=0, method="paper")
    assert fits.law_interval(1e6) is None
    predicted = fits.predict([1e5, 1e6], 8)
    assert np.all(np.isnan(predicted.low) & np.isnan(predicted.high))
    assert np.all(np.isfinite(predicted.mean))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60).map(np.array), st.floats(1e-4, 0.5))
def test_records_are_the_first_evaluations_in_each_higher_bin(values: np.ndarray, width: float) -> None:
    at = np.floor(values / width + 1e-9)
    higher = [i for i in range(len(values)) if i == 0 or at[i] > at[:i].max()]
    assert record_breaking(values, width).tolist() == higher


def test_bins_count_from_the_start_and_an_edge_belongs_to_the_bin_above() -> None:
    # 0.1 * 3 is 0.30000000000000004 and 0.3 / 0.1 is 2.9999999999999996: both are the edge of bin 3.
    assert record_breaking(np.array([0.29, 0.3, 0.1 * 3, 0.39, 0.4]), 0.1).tolist() == [0, 1, 4]
    assert record_breaking(np.array([-0.95, -0.91, -0.9]), 0.1, -1.0).tolist() == [0, 2]
    for width in (0.0, -0.1, float("nan")):
        with pytest.raises(FitError, match="bin_width"):
            record_breaking(np.array([0.1, 0.2]), width)
