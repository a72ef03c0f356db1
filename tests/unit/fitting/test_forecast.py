"""Forecasts of one run: against known curves, real recorded runs and digitised panels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Forecast, RunSet
from isocompute_sdk.fitting.forecast import forecast_run
from isocompute_sdk.fitting.run_surface import Trouble
from isocompute_sdk.health.findings import FALLS
from isocompute_sdk.health.live_run import live_run
from isocompute_sdk.phrases import chance_text, short
from isocompute_sdk.records.reward_metrics import no_rise_note
from tests.unit.sweeps import recorded


def run_of(
    reward: np.ndarray, steps: np.ndarray, run_id: str = "live", metric: str = "avg@4", eval_set: str = "validation"
) -> RunSet:
    """One run with n = 8 and B_p = 32."""
    table = {"step": steps, "value": reward}
    return RunSet.from_columns(
        table, metric=metric, eval_set=eval_set, run_id=run_id, group_size=8, problems_per_batch=32
    )


def saturating(steps: np.ndarray, tau: float = 400.0) -> np.ndarray:
    return 0.45 + 0.25 * (1.0 - np.exp(-steps / tau))


def noisy(values: np.ndarray, sd: float = 0.01, seed: int = 0) -> np.ndarray:
    return np.clip(values + np.random.default_rng(seed).normal(0.0, sd, len(values)), 0.0, 1.0)


STEPS = np.arange(0, 1001, 20.0)


def test_a_saturated_run_is_flat_and_stops() -> None:
    found = iso.forecast(run_of(noisy(saturating(STEPS, 100.0), 0.005, seed=1), STEPS))
    assert found.card.action == "stop-here"
    assert found.flat.now > 0.8
    # A later fall is part of what is ahead, as likely as it is beforehand, and the text says so.
    assert found.falling < found.falling_ahead < 0.3
    assert chance_text(found.falling_ahead) in found.summary()
    # What going on is expected to reach stands beside the advice, and in the row of that multiple.
    assert f" {found.at(2).best:.3f};" in found.card.reason
    assert abs(found.at(2).reward - 0.70) < 0.012
    assert found.at(2).low <= 0.70 <= found.at(2).high


def test_where_nothing_rises_no_forecast_is_shown() -> None:
    noise = run_of(noisy(np.full(len(STEPS), 0.3), 0.01, seed=1), STEPS)
    found = iso.forecast(noise)
    assert not found.rises
    assert found.card.reason == no_rise_note(found.metric, 1).message
    assert f"{found.ahead[-1].best:.3f}" not in found.summary()
    assert iso.forecast(run_of(noisy(saturating(STEPS, 100.0), 0.005, seed=1), STEPS)).rises


@pytest.mark.parametrize("name", ["llama-3.1-8b-easy", "qwen3-4b-easy", "mul31-hard-t1", "trl-pair"])
def test_plans_and_forecasts_agree_on_the_best_that_a_run_reached(name: str) -> None:
    """With runs that fell, that rise, and that the curve misses."""
    fits = iso.fit(recorded(name))
    assert isinstance(fits, iso.Fits)
    assert fits.best_reached is not None
    kept = {run: iso.forecast(fits, run).card.keep for run in fits.size_by_run}
    best = max(kept, key=lambda run: kept[run].reward or 0.0)
    assert kept[best].reward == pytest.approx(fits.best_reached.reward)
    assert kept[best].rollouts == fits.best_reached.compute
    assert fits.best_reached.run_id in (best, None)


@pytest.mark.parametrize("samples", ["8", "?"])
def test_a_run_whose_average_stands_in_for_another_is_forecast_with_the_others(samples: str) -> None:
    compute = np.arange(0, 20) * 5120.0
    rows = [
        (n, c, f"avg@{k}", 0.3 + 0.3 * c / (c + 3e4)) for n, k in ((8, "4"), (32, "4"), (16, samples)) for c in compute
    ]
    columns = {"n": [r[0] for r in rows], "C": [r[1] for r in rows], "metric": [r[2] for r in rows]}
    runs = RunSet.from_columns({**columns, "value": [r[3] for r in rows]}, problems_per_batch=32)
    (own,) = (run.run_id for run in runs.runs() if run.group_size == 16)
    fits = iso.fit(runs, "avg@4")
    assert isinstance(fits, iso.Fits)
    rest = iso.Planner(fits).replan(runs, "200k", run_id=own)
    assert rest.metric == iso.forecast(runs, own).metric == f"avg@{samples}"
    others = {run for run in runs.run_ids if run != own}
    assert (
        {*rest.forecast.borrowed}
        == {*iso.forecast(runs, own).borrowed}
        == {*iso.forecast(fits, own).borrowed}
        == others
    )


def test_bounds_in_percent_of_rewards_that_are_shares_are_refused() -> None:
    shares = saturating(STEPS, 100.0)
    with pytest.raises(iso.FitError) as caught:
        iso.forecast(run_of(shares, STEPS), bounds=(0, 100))
    assert caught.value.options == ("--bounds 0 1",)
    assert iso.forecast(run_of(100 * shares, STEPS), bounds=(0, 100)).reward > 10


@pytest.mark.parametrize("bounds", [(0, 1), (0, 100)])
def test_runs_in_percent_beside_shares_are_refused_by_name_unless_they_have_no_reward(
    bounds: tuple[float, float],
) -> None:
    def beside(scale: float) -> RunSet:
        parts = (run_of(100 * saturating(STEPS), STEPS, "hundred"), run_of(scale * saturating(STEPS), STEPS, "other"))
        return parts[0].concat(parts[1])

    with pytest.raises(iso.FitError, match="other look like shares of 1, hundred like percent"):
        iso.fit(beside(1.0), bounds=bounds, draws=4)
    stray = run_of(np.where(STEPS == 40, 45.0, saturating(STEPS)), STEPS, "stray")
    with pytest.raises(iso.FitError, match="'stray', C ="):
        iso.fit(run_of(saturating(STEPS), STEPS).concat(stray))
    with pytest.raises(iso.FitError, match="tiny part"):
        iso.forecast(beside(1.0), "other", bounds=(0, 100))
    for scale in (0.0, 2.0):
        assert iso.fit(beside(scale), bounds=(0, 100), draws=4).bounds == (0, 100)


@pytest.mark.parametrize("usual", [(0, 1), (-1, 1), (0, 100), (-50, 100), (0, 300), (0, 1.544)])
def test_bounds_are_proposed_if_they_are_usual_and_never_made_of_the_rewards(usual: tuple[float, float]) -> None:
    low, high = usual
    rewards = low + (high - low) * np.linspace(0.0, 1.0, len(STEPS))
    with pytest.raises(iso.FitError) as caught:
        iso.forecast(run_of(rewards, STEPS), bounds=(0.2, 0.4))
    (option,) = caught.value.options
    proposed = f"{low} {high}" if usual in ((0, 1), (-1, 1), (0, 100)) else "LOW HIGH"
    assert option == f"--bounds {proposed}"
    assert f"{low:g} to {high:g}" in str(caught.value)


def test_a_doubling_gains_more_than_a_tie_until_the_run_is_flat() -> None:
    runs = run_of(noisy(0.3 + 0.5 / (1 + (100 / np.maximum(STEPS, 1e-9)) ** 0.8), 0.001), STEPS)
    found = iso.forecast(runs)
    flat = found.flat.rollouts
    assert flat is not None
    assert short(flat) in found.summary()
    factor = flat / (1000 * 256)

    def doubling(at: float) -> float:
        return iso.forecast(runs, to=2 * at).at(2 * at).best - iso.forecast(runs, to=at).at(at).best

    # A place of the grid is 15 % further than the last.
    assert doubling(factor) < 0.011
    assert doubling(factor / 1.25) > 0.0095


def test_the_picture_spans_run_and_forecast_and_other_multiples_are_refused() -> None:
    found = iso.forecast(run_of(noisy(saturating(STEPS)), STEPS))
    assert (found.curve.rollouts.min(), found.curve.rollouts.max()) == pytest.approx((20 * 256, 4 * 1000 * 256))
    with pytest.raises(iso.FitError):
        found.at(3)


def test_rising_runs_go_on_and_reach_what_their_curves_say() -> None:
    steps, held = STEPS[STEPS <= 400], list[bool]()
    runs = run_of(noisy(saturating(steps)), steps).concat(run_of(noisy(saturating(STEPS) - 0.1), STEPS, "other"))
    # As much again is 102,400 rollouts.
    assert "--run live --remaining 100k " in iso.forecast(runs, "live").summary()
    for seed in range(5):
        found = iso.forecast(run_of(noisy(saturating(steps), seed=seed), steps))
        assert found.card.action == "go-on"
        assert found.flat.rollouts is None or found.flat.rollouts > found.rollouts
        for one in found.ahead:
            truth = float(saturating(np.array([one.factor * 400]))[0])
            assert abs(one.reward - truth) < 0.025 * one.factor
            held.append(one.low <= truth <= one.high)
    # Of 80 intervals of this kind 76 held the truth.
    assert sum(held) >= 8


def test_a_run_that_fell_stops_and_keeps_the_last_checkpoint_before_the_fall() -> None:
    fall = np.where(STEPS > 600, (STEPS - 600) / 400 * 0.12, 0.0)
    runs = run_of(noisy(saturating(STEPS, 150.0) - fall, 0.006), STEPS)
    saved = [(step, f"run/checkpoint-{step}") for step in (200, 400, 600, 800, 1000)]
    found = iso.forecast(runs, checkpoints=saved)
    assert found.card.action == "stop-here"
    assert found.falling > 0.8
    assert found.onset is not None
    assert found.onset.step is not None
    assert 480 <= found.onset.step <= 720
    assert f"step {found.onset.step:,.0f} " in found.card.reason
    assert found.card.keep.path in ("run/checkpoint-400", "run/checkpoint-600")
    assert found.at(2).best > found.at(2).reward
    # What is kept stays, however far ahead.
    kept = found.card.keep.reward
    assert kept is not None
    assert all(kept - one.best_low < 0.02 for one in found.ahead)


@pytest.mark.parametrize("begin", [200.0, 400.0, 600.0, 800.0])
def test_a_slow_fall_is_dated_within_the_run_and_not_before_what_is_kept(begin: float) -> None:
    steps = np.linspace(0.0, 1000.0, 25)
    fall = np.maximum(steps - begin, 0.0) / (1000.0 - begin) * 0.08
    found = iso.forecast(run_of(noisy(saturating(steps, 100.0) - fall, 0.004, seed=int(begin)), steps))
    assert found.falling > 0.8
    assert found.onset is not None
    assert 0 < found.card.keep.rollouts <= found.onset.rollouts <= found.rollouts
    assert found.onset.step == pytest.approx(found.onset.rollouts / (8 * 32), abs=1)


def test_a_collapse_of_entropy_asks_for_a_change() -> None:
    reward = noisy(saturating(STEPS))
    entropy = np.where(STEPS < 300, 0.5, 0.5 * np.exp(-(STEPS - 300) / 40) + 0.002)
    table = {"step": STEPS, "avg@4": reward, "entropy": entropy, "train_reward": reward}
    runs = RunSet.from_columns(table, run_id="live", group_size=8, problems_per_batch=32)
    found = iso.forecast(runs)
    codes = {note.code for note in found.notes if note.severity == "warning"}
    assert "entropy-collapse" in codes
    assert found.card.action == "change-something"
    assert found.card.keep.rollouts <= found.rollouts


def test_a_run_that_rose_and_lost_it_all_stops_with_what_was_measured() -> None:
    steps = np.array([0, 20, 37, 79, 146, 315, 583, 1256.0])
    runs = run_of(np.array([0.427, 0.55, 0.6, 0.66, 0.7, 0.4, 0.08, 0.02]), steps)
    found = iso.forecast(runs)
    assert found.card.action == "stop-here"
    assert found.card.keep.step == 146
    assert found.card.keep.reward == pytest.approx(0.7, abs=0.02)
    assert no_rise_note(found.metric, 1).message not in found.summary()
    rest = iso.Planner(iso.fit(runs, draws=30)).replan(runs, "1M")
    assert rest.follow == "stop"
    assert rest.option("stop").reward == pytest.approx(0.02)
    assert rest.option("go-on").reward < 0.1


def test_a_run_that_collapsed_and_came_back_is_not_said_never_to_rise() -> None:
    reward = np.array([0.504, 0.711, 0.747, 0.797, 0.0, 0.0, 0.003, 0.002, 0.002, 0.474, 0.689, 0.741, 0.771])
    found = iso.forecast(run_of(reward, np.arange(13) * 100.0))
    assert "collapsed-run" in {note.code for note in found.notes}
    assert found.rises
    assert found.card.action == "change-something"


def test_a_fit_notes_a_fall_once_by_the_worse_of_its_findings_and_does_not_count_it_as_misfit() -> None:
    steps = np.array([0, 10, 20, 37, 79, 146, 220, 315, 420, 583, 800, 1256.0])
    reward = np.array([0.427, 0.5, 0.55, 0.6, 0.66, 0.7, 0.71, 0.4, 0.2, 0.08, 0.03, 0.02])
    fits = iso.fit(run_of(reward, steps), draws=10)
    found = [note.code for note in fits.notes if "live" in note.data.get("runs", ()) and note.code in FALLS]
    assert found == ["collapsed-run"]
    (curve,) = fits.curves.values()
    assert curve.rms < 0.03


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_run_that_never_moves_stays_within_its_interval(level: float) -> None:
    found = iso.forecast(run_of(np.full(len(STEPS), level), STEPS))
    assert found.reward == pytest.approx(level, abs=0.01)
    assert all(0 <= one.low <= one.reward <= one.high <= 1 for one in found.ahead)
    assert all(one.low <= level + 0.01 for one in found.ahead)
    if level == 1.0:
        assert found.card.action == "stop-here"
        assert found.flat.now > 0.8


@pytest.mark.parametrize("evaluations", [8, 12, 25])
def test_a_fast_riser_that_has_levelled_off_is_not_expected_to_rise_on(evaluations: int) -> None:
    steps = np.linspace(0.0, 1000.0, evaluations + 1)
    reward = 0.15 + 0.33 * (1.0 - np.exp(-steps / 120.0))
    found = iso.forecast(run_of(noisy(reward, 0.012, seed=2), steps))
    assert abs(found.at(2).reward - reward[-1]) < 0.02
    assert found.at(2).low <= reward[-1] <= found.at(2).high


def test_intervals_widen_with_distance_and_level() -> None:
    runs = run_of(noisy(saturating(STEPS)), STEPS)
    found = iso.forecast(runs)
    assert found.at(4).high - found.at(4).low > found.at(2).high - found.at(2).low
    wider = iso.forecast(runs, level=0.95)
    assert wider.at(2).high - wider.at(2).low > found.at(2).high - found.at(2).low


def test_the_same_run_gives_the_same_bits_and_survives_saving(tmp_path: Path) -> None:
    runs = run_of(noisy(saturating(STEPS)), STEPS)
    found = iso.forecast(runs)
    assert found.to_dict() == iso.forecast(runs).to_dict()
    assert Forecast.load(found.save(tmp_path / "forecast.json")).to_dict() == found.to_dict()


def test_training_reward_is_forecast_with_a_warning() -> None:
    found = iso.forecast(run_of(noisy(saturating(STEPS)), STEPS, metric="train_reward", eval_set="train"))
    assert found.metric == "train_reward"
    assert any(note.severity == "warning" for note in found.notes)


def test_what_cannot_be_forecast_is_refused_with_what_was_received() -> None:
    short = run_of(noisy(saturating(STEPS[:4])), STEPS[:4])
    with pytest.raises(iso.FitError, match="3 evaluation"):
        iso.forecast(short)
    # With other runs one evaluation is enough.
    beside = run_of(noisy(saturating(STEPS), seed=1), STEPS, "other")
    one = run_of(noisy(saturating(STEPS[:2])), STEPS[:2])
    found = iso.forecast(one.concat(beside), "live")
    assert found.at(4).low <= saturating(4 * STEPS[1:2])[0] <= found.at(4).high
    assert "forecast-uncertain" in {note.code for note in found.notes}
    runs = run_of(noisy(saturating(STEPS)), STEPS)
    with pytest.raises(iso.FitError, match=r"0\.5"):
        iso.forecast(runs, to=0.5)
    with pytest.raises(iso.RecordError, match="nobody"):
        iso.forecast(runs, "nobody")
    both = runs.concat(run_of(noisy(saturating(STEPS)), STEPS, "other"))
    with pytest.raises(iso.RecordError, match="2 runs"):
        iso.forecast(both)


def test_far_forecasts_and_few_evaluations_are_noted() -> None:
    steps = STEPS[::7]
    found = iso.forecast(run_of(noisy(saturating(steps)), steps), to=8)
    assert "forecast-uncertain" in {note.code for note in found.notes}
    assert [one.factor for one in found.ahead] == [2.0, 4.0, 8.0]


@pytest.mark.slow
def test_a_sweep_helps_a_run_of_which_little_was_seen(repository: Path) -> None:
    """On the recorded hard set one short run cannot show its second rise; runs of other n have shown it."""
    runs = RunSet.read(repository / "isocompute_sdk" / "laws" / "data" / "sweeps" / "mul31-hard.csv")
    name = "hard-600k-n16-s0"
    live = runs.filter((pl.col("run_id") != name) | (pl.col("rollouts") <= 150_000))
    (whole,) = runs.filter(run_id=name).series("avg@4")
    at = np.abs(np.log(np.maximum(whole.rollouts_T, 1.0) / 300_000)) < np.log(1.3)
    truth = float(np.mean(whole.value_T[at]))
    with_sweep = iso.forecast(iso.fit(live, draws=50), name)
    alone = iso.forecast(live.filter(run_id=name))
    assert name not in with_sweep.borrowed
    assert len(with_sweep.borrowed) == 13
    assert alone.borrowed == ()
    assert abs(with_sweep.at(2).reward - truth) < 0.06
    assert abs(with_sweep.at(2).reward - truth) <= abs(alone.at(2).reward - truth) + 0.01


def test_fits_without_a_surface_forecast_the_run_alone(make_runs: Callable[..., RunSet]) -> None:
    def reward(_: int, __: int, compute: float) -> float:
        return 0.4 + 0.2 * (1.0 - float(np.exp(-compute / 1e5)))

    runs = make_runs(reward, compute=np.geomspace(1e4, 3e5, 16))
    found = iso.forecast(iso.fit(runs, method="paper", draws=0), runs.run_ids[0])
    assert found.borrowed == ()
    assert found.low <= found.reward <= found.high


def test_best_of_4_that_still_rises_lifts_the_forecast_of_a_flat_average() -> None:
    average = noisy(saturating(STEPS, 150.0), 0.004)
    doublings = np.log2(np.maximum(STEPS, STEPS[1]) / STEPS[-1])
    found = {}
    for slope in (None, -0.05, 0.0, 0.05):
        runs = run_of(average, STEPS)
        if slope is not None:
            runs = runs.concat(run_of(noisy(0.8 + slope * doublings, 0.004, seed=1), STEPS, metric="best@4"))
        found[slope] = iso.forecast(runs, metric="avg@4")
    assert found[-0.05].at(2).reward < found[0.0].at(2).reward < found[0.05].at(2).reward
    gained = [found[0.05].at(factor).reward - found[-0.05].at(factor).reward for factor in (2, 4)]
    assert 0.0 < gained[0] < gained[1]


def test_a_forecast_is_what_the_surface_that_plans_says_of_that_run(make_runs: Callable[..., RunSet]) -> None:
    def reward(n: int, __: int, compute: float) -> float:
        return 0.4 + 0.2 * (1.0 - float(np.exp(-compute / (2e4 * n))))

    alone = run_of(noisy(saturating(STEPS[:26])), STEPS[:26])
    fits = iso.fit(alone)
    for found in (iso.forecast(alone), iso.forecast(fits, "live")):
        for one in found.ahead:
            planned = float(fits.predict(one.rollouts, 8, 32).mean)
            assert one.best == pytest.approx(planned, abs=0.005)
    sweep = make_runs(reward, compute=np.geomspace(1e4, 3e5, 16))
    fits = iso.fit(sweep)
    for series in sweep.series("avg@4"):
        one = iso.forecast(fits, series.run_id).at(2)
        planned = float(fits.predict(one.rollouts, series.group_size, series.problems_per_batch).mean)
        assert one.best == pytest.approx(planned, abs=0.01)


def test_growing_truncation_is_no_trouble_while_the_reward_rises() -> None:
    # A run of TRL's GRPOTrainer: rewarded answers fill all of their tokens, so nearly every response is cut in the end.
    reward = (
        ".08 .133 .115 .135 .158 .207 .174 .221 .254 .289 .363 .377 .453 .49 .537 .613 .648 .717 .775 .795 .883 .904 "
        ".916 .947 .953 .977 .975 .977 .977 .992 .975 .982 .986 .979 .998 .996 .984 .99 .998 .992 .996"
    )
    cut = (
        ".44 .44 .44 .44 .44 .55 .61 .68 .69 .75 .72 .77 .78 .8 .88 .89 .9 .9 .9 .92 .94 .93 .95 .95 .98 .96 .96 .98 "
        ".99 .98 .99 .99 .99 .98 1 .98 .99 1 1 .99 .99"
    )
    steps = np.arange(0, 801, 20.0)
    rewards, cuts = (np.array([float(word) for word in text.split()]) for text in (reward, cut))
    trained = run_of(cuts, steps, metric="truncated_share", eval_set="train")
    saved = [(step, f"checkpoint-{step}") for step in (200, 400, 800)]
    risen = iso.forecast(run_of(rewards, steps).concat(trained), checkpoints=saved)
    assert risen.card.action != "change-something"
    assert risen.card.keep.path == "checkpoint-800"
    stayed = iso.forecast(run_of(np.minimum(rewards, 0.3), steps).concat(trained), checkpoints=saved)
    assert stayed.card.action == "change-something"
    assert stayed.card.keep.path == "checkpoint-200"


def test_what_is_ahead_starts_from_what_was_measured_where_the_curve_misses_it(repository: Path) -> None:
    """The run rose late and steeply, later than any curve of the surface."""
    runs = RunSet.read(repository / "isocompute_sdk" / "laws" / "data" / "sweeps" / "add32-hard.csv")
    run = "add32-hard-t0-600k-n64-s0"
    runs = runs.filter(run_id=run)
    found, (one,) = iso.forecast(runs), runs.series("avg@4")
    level = float(np.mean(one.value_T[-3:]))
    assert found.missed > 0.01
    assert found.card.action == "go-on"
    assert found.reward == pytest.approx(level)
    # A mean of evaluations is not called measured.
    assert level != pytest.approx(one.value_T[-1], abs=1e-3)
    assert "mean of its last 3 evaluations" in found.summary().splitlines()[0]
    assert found.card.keep.reward == pytest.approx(level)
    assert all(ahead.best >= level for ahead in found.ahead)
    rest = iso.Planner(iso.fit(runs, draws=30)).replan(runs, f"{found.rollouts:.0f}", run_id=run)
    assert rest.follow == "go-on"
    far, (go_on, stop) = rest.forecast.ahead[-1], (rest.option("go-on"), rest.option("stop"))
    assert (go_on.reward, go_on.low, go_on.high) == (far.best, far.best_low, far.best_high)
    assert (stop.reward, stop.low, stop.high) == (rest.forecast.reward, rest.forecast.low, rest.forecast.high)
    assert stop.reward == pytest.approx(level)


def test_one_low_evaluation_near_the_end_is_not_the_best_checkpoint() -> None:
    steps = np.arange(0, 1201, 100.0)

    def curve(sd: float, seed: int) -> np.ndarray:
        return noisy(0.5 + 0.27 * (1 - np.exp(-steps / 100)), sd, seed)

    reward = curve(0.03, 21)
    reward[-2] = 0.17
    runs = run_of(reward, steps)
    for seed in range(1, 9):
        runs = runs.concat(run_of(curve(0.005, seed), steps, f"other-{seed}"))
    found = iso.forecast(runs, "live")
    keep = found.card.keep
    assert keep.reward is not None
    assert keep.reward > 0.7
    assert reward[steps == keep.step] > 0.7


def test_a_peak_without_a_checkpoint_is_not_what_going_on_reaches() -> None:
    fall = np.where(STEPS > 600, (STEPS - 600) / 400 * 0.12, 0.0)
    runs = run_of(noisy(saturating(STEPS, 150.0) - fall, 0.006), STEPS)
    gone, held = iso.forecast(runs), iso.forecast(runs, checkpoints=[(600, "run/checkpoint-600")])
    for without, with_it in zip(gone.ahead, held.ahead, strict=True):
        assert without.best < gone.reward + 0.01 < with_it.best - 0.05


def test_no_probability_of_a_fall_stands_beside_one_that_was_measured() -> None:
    steps = np.arange(0, 501, 50)
    steady = 0.16 + 0.26 * (1 - np.exp(-steps / 60))
    fallen = np.where(steps == 50, 0.46, np.where(steps == 0, 0.156, np.maximum(0.46 - 0.0008 * (steps - 50), 0.35)))
    rewards = {"fell": fallen, "a": steady, "b": steady + 0.01, "c": steady - 0.005}
    rows = [
        (name, 8, 1, int(step), float(value))
        for name, run in rewards.items()
        for step, value in zip(steps, run, strict=True)
    ]
    table = dict(zip(("run", "n", "bp", "step", "avg@4"), map(list, zip(*rows, strict=True)), strict=True))
    found = iso.forecast(RunSet.from_columns(table), "fell")
    assert found.card.action == "stop-here"
    assert "has been falling" in found.summary()
    assert "that a fall has begun" not in found.summary()
    # Nor where the curve of the sweep does not show it.
    live = live_run(run_of(noisy(saturating(STEPS[:21])), STEPS[:21]))
    assert forecast_run(live).falling < 0.1
    seen = forecast_run(replace(live, troubles=(Trouble("decayed-run", "falling", live.one.rollouts_T[15]),)))
    assert seen.falling == seen.falling_ahead == 1
    assert "that a fall has begun" not in seen.summary()


def test_a_dip_that_was_made_good_does_not_hide_that_the_curve_misses_the_end() -> None:
    reward = noisy(saturating(STEPS[:21], 150.0))
    reward[8:14] -= 0.12
    found = iso.forecast(run_of(reward, STEPS[:21]))
    assert found.reward == pytest.approx(float(np.mean(reward[-3:])), abs=0.005)
    assert "forecast-uncertain" in {note.code for note in found.notes}


def test_a_fall_that_one_run_shows_dates_its_best_checkpoint_where_the_noise_of_the_sweep_hides_it() -> None:
    steps = STEPS[:21]
    fall = 0.09 * np.clip(steps / 200.0 - 1.0, 0.0, None)
    falling = noisy(saturating(steps, 80.0), 0.01) - fall
    others = [run_of(noisy(saturating(steps, 80.0), 0.04, seed), steps, f"other{seed}") for seed in (1, 2, 3)]
    runs = run_of(falling, steps).concat(*others)
    fits = iso.fit(runs)
    assert fits.run_surfaces["live"].run.fault is None
    found, highest = iso.forecast(fits, "live"), float(steps[np.argmax(falling)])
    assert found.fell
    assert found.card.keep.step == highest
    assert found.onset is not None
    assert found.onset.step == highest
    assert found.reward == pytest.approx(float(np.mean(falling[-3:])))
