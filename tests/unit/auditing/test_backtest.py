"""Backtests: pilots see the past only, truths are what the runs reached, and tables count what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk.auditing import backtest as back
from isocompute_sdk.auditing.backtest import Pilot, best_smoothed, pilots
from isocompute_sdk.errors import FitError
from isocompute_sdk.planning.plan import VERDICTS

COMPUTE = np.geomspace(1_000, 128_000, 29)
RATES = {8: (0.5, 5_000.0), 32: (0.6, 20_000.0), 128: (0.7, 60_000.0)}
"""n -> plateau and compute of the rise: small n leads early, large n late."""


def reward(n: int, rollouts: np.ndarray) -> np.ndarray:
    plateau, rise = RATES[n]
    return 0.3 + (plateau - 0.3) * (1 - np.exp(-rollouts / rise))


def runs_of(seeds: int, noise: float = 0.003) -> iso.RunSet:
    columns: dict[str, list[float]] = {name: [] for name in ("n", "seed", "C", "avg@4")}
    for n in RATES:
        for seed in range(seeds):
            rng = np.random.default_rng([n, seed])
            columns["n"] += [n] * len(COMPUTE)
            columns["seed"] += [seed] * len(COMPUTE)
            columns["C"] += COMPUTE.tolist()
            columns["avg@4"] += (reward(n, COMPUTE) + rng.normal(0, noise, len(COMPUTE))).tolist()
    return iso.RunSet.from_columns(columns, problems_per_batch=4, model="m", train_data="d")


def first_half(seeds: int) -> Pilot:
    (sweep,) = back.own_sweeps(runs_of(seeds))
    (pilot,) = pilots(sweep, cuts=(0.5,))
    return pilot


def test_a_pilot_holds_one_seed_up_to_the_cut() -> None:
    pilot = first_half(2)
    assert pilot.target == pytest.approx(128_000)
    assert max(run.rollouts for run in pilot.runs.runs()) <= 64_001
    assert {run.seed for run in pilot.runs.runs()} == {0}
    assert {n: len(at) for n, (at, _) in pilot.curves.items()} == dict.fromkeys(RATES, int(np.sum(COMPUTE <= 64_001)))


def test_the_truth_is_that_of_the_other_seeds_and_of_the_run_itself_where_there_is_none() -> None:
    apart, same = first_half(2), first_half(1)
    assert (apart.same_run, same.same_run) == (False, True)
    series = {(run.group_size, run.seed): run for run in runs_of(2).series("avg@4")}
    for pilot, seed in ((apart, 1), (same, 0)):
        for n, value in pilot.truth.items():
            run = series[n, seed]
            assert value == best_smoothed((run.rollouts_T, run.value_T), 128_000)


def test_group_sizes_with_too_few_evaluations_and_pilots_of_one_are_left_out() -> None:
    runs = runs_of(1)
    late = runs.to_polars().filter(~((runs.to_polars()["group_size"] == 128) & (runs.to_polars()["rollouts"] < 30_000)))
    (sweep,) = back.own_sweeps(iso.RunSet.from_frame(late))
    assert [list(pilot.truth) for pilot in pilots(sweep, cuts=(0.3, 0.5))] == [[8, 32], [8, 32, 128]]
    assert list(pilots(sweep, cuts=(0.001,))) == []
    with pytest.raises(FitError, match="min_evaluations"):
        back.backtest(runs, cuts=(0.001,))


def test_the_best_checkpoint_is_smoothed_over_a_factor_of_compute() -> None:
    curve = np.array([0.0, 100.0, 110.0, 1_000.0, 10_000.0]), np.array([0.9, 0.2, 0.4, 0.6, 0.1])
    assert best_smoothed(curve, 110.0) == pytest.approx(0.3)
    assert best_smoothed(curve, 10_000.0) == pytest.approx(0.6)
    assert best_smoothed(curve, 1.0) == -math.inf


def test_a_run_that_ends_early_is_predicted_where_it_ends() -> None:
    table = runs_of(1, noise=0.0).to_polars()
    short = table.filter(~((table["group_size"] == 128) & (table["rollouts"] > 40_000)))
    (pilot,) = pilots(back.own_sweeps(iso.RunSet.from_frame(short))[0], cuts=(0.25,))
    end = float(short.filter(short["group_size"] == 128)["rollouts"].max())  # pyright: ignore[reportArgumentType]
    said = back.planner(pilot).mean_N
    assert said is not None
    assert said[2] == pytest.approx(float(pilot.fits.predict(end, 128, 4).mean))
    assert said[0] == pytest.approx(float(pilot.fits.predict(pilot.target, 8, 4).mean))


def test_drawn_curves_get_the_noise_of_an_evaluation_and_truths_do_not() -> None:
    (sweep,) = back.own_sweeps(runs_of(1, noise=0.0))
    noisy = sweep._replace(provenance=sweep.provenance.replace(evaluation_sd=0.01))
    (pilot,) = pilots(noisy, cuts=(0.5,))
    (plain,) = pilots(sweep, cuts=(0.5,))
    assert pilot.truth == plain.truth
    off = np.concatenate([pilot.curves[n][1] - plain.curves[n][1] for n in RATES])
    assert 0.007 < off.std() < 0.013
    shown = {run.group_size: run.value_T.tolist() for run in pilot.runs.series("avg@4")}
    assert shown == {n: value.tolist() for n, (_, value) in pilot.curves.items()}


def fixed(n: int, width: float) -> back.Method:
    """Chooses one n and predicts every truth .01 too high."""

    def method(pilot: Pilot) -> back.Answer:
        mean = np.array(list(pilot.truth.values())) + 0.01
        return back.Answer(n, mean, mean - width, mean + width)

    return method


def silent(pilot: Pilot) -> back.Answer:
    raise FitError("no answer", "None.")


def test_regret_error_coverage_and_score_are_counted() -> None:
    pilot = first_half(1)
    methods = {"mine": fixed(8, 0.02), "narrow": fixed(128, 0.005), "best pilot": back.best_pilot, "silent": silent}
    found = back.judge([pilot], methods)
    (row,) = found.regrets()
    best = max(pilot.truth.values())
    assert row["mine"]["mean"] == pytest.approx(best - pilot.truth[8])
    assert row["narrow"]["worst"] == 0.0
    assert row["silent"]["answers"] == 0
    assert (row["same_run"], row["pilots"], row["standard_error"]) == (True, 1, None)
    assert row["behind"] == pytest.approx(row["mine"]["mean"] - row["best pilot"]["mean"])
    wide, narrow = found.accuracy()
    assert (wide["held"], narrow["held"], wide["predictions"]) == (3, 0, 3)
    assert (wide["error"], wide["bias"]) == (pytest.approx(0.01), pytest.approx(0.01))
    assert wide["score"] == pytest.approx(0.04)
    assert narrow["score"] == pytest.approx(0.01 + 10 * 0.005)
    assert "no answer" in found.table()


def test_a_standard_error_counts_whole_sweeps() -> None:
    mean, error = back.clustered(["a", "a", "b", "b"], [0.1, 0.1, 0.3, 0.3])
    assert (mean, error) == (pytest.approx(0.2), pytest.approx(0.1))
    assert back.clustered(["a", "a"], [0.1, 0.3]) == (pytest.approx(0.2), None)


def test_every_method_answers_on_runs_of_ones_own() -> None:
    found = iso.backtest(runs_of(2), cuts=(0.5,))
    chosen = {row.method: row.group_size for row in found.choices}
    assert set(chosen) == set(back.METHODS)
    assert (chosen["best pilot"], chosen["largest n"]) == (32, 128)
    assert {row.method for row in found.rows if row.predicted is not None} == {"planner"}
    assert found.to_dict()["regrets"][0]["best pilot"]["worst"] > 0.03
    assert found.to_frame().height == len(found.rows)


def test_the_range_of_the_rewards_is_asked_for_as_by_an_audit() -> None:
    rows = runs_of(2).to_polars()
    percent = iso.RunSet.from_frame(rows.with_columns(value=100 * rows["value"]))
    for ask in (iso.audit, iso.backtest):
        with pytest.raises(FitError) as refused:
            ask(percent)
        assert refused.value.options == ("--bounds 0 100",)
    shares, found = (iso.backtest(one, cuts=(0.5,), bounds=(0, top)) for one, top in ((runs_of(2), 1), (percent, 100)))
    assert [row.group_size for row in found.choices] == [row.group_size for row in shares.choices]


def test_runs_of_one_group_size_are_refused_by_name() -> None:
    with pytest.raises(iso.RecordError, match=r"n = \[8\]"):
        iso.backtest(runs_of(1).filter(group_size=8))


def by_batch(problems_per_batch: dict[int, int], top: float = 1.0) -> iso.RunSet:
    rows = [(n, bp, c, top * float(reward(n, np.array(c)))) for n, bp in problems_per_batch.items() for c in COMPUTE]
    columns = dict(zip(("n", "bp", "C", "avg@4"), map(list, zip(*rows, strict=True)), strict=True))
    return iso.RunSet.from_columns(columns, model="m", train_data="d")


def test_runs_that_no_pilot_can_compare_are_named_with_what_is_missing() -> None:
    with pytest.raises(FitError, match="n = 8 at B_p = 16, n = 32 at B_p = 4") as refused:
        back.backtest(by_batch({8: 16, 32: 4, 128: 1}))
    assert "min-evaluations" not in str(refused.value.shell_hint)
    with pytest.raises(FitError) as refused:
        back.backtest(by_batch({8: 4, 32: 4}), min_evaluations=50)
    assert "min-evaluations" in str(refused.value.shell_hint)


def test_runs_of_equal_steps_are_compared_where_all_n_were_measured() -> None:
    rows = [(n, step, 1.0 - float(np.exp(-n * step / 2e4))) for n in (8, 32) for step in range(0, 4001, 100)]
    columns = dict(zip(("n", "step", "avg@4"), map(list, zip(*rows, strict=True)), strict=True))
    found = back.backtest(iso.RunSet.from_columns(columns, problems_per_batch=4, model="m", train_data="d"))
    assert max(row.regret for row in found.rows) < 0.01


@pytest.mark.parametrize(("gap", "lost"), [(1.0, True), (0.02, False)])
def test_what_counts_as_equal_is_a_share_of_the_range(gap: float, lost: bool) -> None:
    methods = {"smallest": lambda pilot: back.Answer(8, verdict="likely")}
    for span in (1.0, 100.0):
        found = back.backtest(by_batch({8: 4, 32: 4}, gap * span), bounds=(0.0, span), methods=methods)
        (said,) = found.verdicts()
        assert said["lose"] == (said["choices"] if lost else 0)
        assert found.tables()[-1][1][0] == VERDICTS[said["verdict"]]
