"""What training metrics tell, and which alerts are given again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isocompute_sdk as iso
from benchmarks.vitals import FAULTS, healthy_vitals
from isocompute_sdk import Note, RunSet
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.health.alerts import Alert, AlertBook
from isocompute_sdk.health.detectors import detect, falls, findings
from isocompute_sdk.health.findings import FALLS
from isocompute_sdk.health.traces import gather
from tests.parameters import few
from tests.unit.sweeps import recorded

N, BP, UPDATES, EVERY = 16, 32, 300, 10


def reward_curve(updates: int = UPDATES, gain: float = 0.3) -> np.ndarray:
    return 0.4 + gain * (1 - np.exp(-3 * np.arange(1, updates + 1) / updates))


def vitals(seed: int = 0, fault: str | None = None, at: int = 150, updates: int = UPDATES) -> dict[str, np.ndarray]:
    found = healthy_vitals(reward_curve(updates), N, BP, np.random.default_rng(seed))
    return found if fault is None else FAULTS[fault](found, at)


def table(
    logged: Mapping[str, np.ndarray] | None = None,
    validation: np.ndarray | None = None,
    run_id: str = "run",
    every: int = EVERY,
    scale: int = 1,
    probe: np.ndarray | None = None,
    **context: object,
) -> pl.DataFrame:
    """Long table of one run: `logged` at updates 1, 2, ..., `validation` at 0, every, 2 every, ..."""
    parts: list[pl.DataFrame] = []

    def add(metric: str, eval_set: str, step: np.ndarray, value: np.ndarray) -> None:
        part = {"step": step.astype(float), "value": np.asarray(value, dtype=float)}
        parts.append(pl.DataFrame(part).with_columns(metric=pl.lit(metric), eval_set=pl.lit(eval_set)))

    for name, values in (logged or {}).items():
        add(name, "train", np.arange(1, len(values) + 1), values)
    if validation is not None:
        add("avg@4", "validation", np.arange(len(validation)) * every, validation)
    if probe is not None:
        add("avg@4", "train_probe", np.arange(len(probe)) * every, probe)
    settings = {"group_size": N * scale, "problems_per_batch": BP, **context}
    return pl.concat(parts).with_columns(run_id=pl.lit(run_id), **{k: pl.lit(v) for k, v in settings.items()})


def runs(*tables: pl.DataFrame) -> RunSet:
    return RunSet.from_columns(pl.concat(tables))


def evaluations(count: int = 40, noise: float = 0.01, seed: int = 0, gain: float = 0.3) -> np.ndarray:
    """Validation rewards of a healthy run, the base model's first."""
    rng = np.random.default_rng(seed)
    return 0.4 + gain * (1 - np.exp(-4 * np.arange(count) / count)) + rng.normal(0, noise, count)


def warnings(found: RunSet) -> list[str]:
    return [note.code for note in iso.check_health(found).notes if note.severity != "info"]


def only(found: RunSet, code: str) -> Note:
    return next(note for note in iso.check_health(found).notes if note.code == code)


def decayed(count: int = 40, best: int = 20, left: float = 0.3, noise: float = 0.005, seed: int = 0) -> np.ndarray:
    """Rises by .3 until `best`, then falls within six evaluations to a share of that gain."""
    at = np.arange(count)
    rise = 0.3 * np.minimum(at / best, 1.0)
    kept = 1.0 - (1.0 - left) * np.clip((at - best) / 6, 0.0, 1.0)
    return 0.4 + rise * kept + np.random.default_rng(seed).normal(0, noise, count)


@pytest.mark.parametrize("seed", range(8))
def test_a_healthy_run_gives_no_warning(seed: int) -> None:
    assert warnings(runs(table(vitals(seed), evaluations(seed=seed)))) == []


@pytest.mark.parametrize("code", sorted(FAULTS))
@pytest.mark.parametrize("at", few([60, 150], 1))
def test_every_planted_fault_is_named_with_the_step_where_it_began(code: str, at: int) -> None:
    healthy, sick = runs(table(vitals(3))), runs(table(vitals(3, code, at)))
    assert code not in warnings(healthy)
    note = only(sick, code)
    assert note.severity == "warning"
    # Entropy that loses 30 % a step is at a tenth seven steps later; a median lags two steps behind.
    assert at <= note.data["runs"]["run"]["step"] <= at + 15


def test_a_note_says_what_was_seen_where_and_what_to_try_with_its_basis() -> None:
    (note,) = (n for n in iso.check_health(runs(table(vitals(0, "kl-drift", 100)))).by_run["run"])
    assert note.data["run_id"] == "run"
    assert f"step {note.data['step']:,.0f} " in note.data["seen"]
    assert note.data["seen"] in note.message
    assert all(basis in note.message for basis in ("(measured in the paper, section 3)", "(a guess)"))
    assert note.data["rollouts"] == note.data["step"] * N * BP


def test_a_level_that_was_there_from_the_start_is_not_told_as_a_change() -> None:
    far = {**vitals(0), "kl": np.full(len(vitals(0)["kl"]), 2.59)}
    (note,) = (n for n in iso.check_health(runs(table(far))).by_run["run"] if n.code == "kl-drift")
    assert note.data["seen"].count("2.59") == 1


def test_noise_of_a_training_reward_does_not_collapse() -> None:
    rng = np.random.default_rng(0)
    noise = [rng.binomial(16, 0.35, 30) / 16 for _ in range(60)]
    found = findings(runs(*(table({"train_reward": one}, run_id=f"run{i}") for i, one in enumerate(noise))))
    assert not [one for some in found.values() for one in some if one.code == "collapsed-run"]


@pytest.mark.parametrize(("left", "code"), [(0.1, "collapsed-run"), (0.6, "decayed-run")])
def test_a_falling_reward_is_told_from_its_best_on(left: float, code: str) -> None:
    note = only(runs(table(validation=decayed(left=left))), code)
    assert abs(note.data["runs"]["run"]["step"] - 20 * EVERY) <= 3 * EVERY
    assert "decayed-run" not in warnings(runs(table(validation=decayed(left=1.0))))


@pytest.mark.parametrize("low", [[0.02], [0.02, 0.8], [0.02, 0.01]])
def test_two_evaluations_far_below_the_best_are_a_collapse_and_one_at_the_end_may_be(low: list[float]) -> None:
    seen = np.array([0.427, 0.6, 0.66, 0.72, 0.785, 0.82, *low])
    expected = {0.02: ["low-last-evaluation"], 0.8: [], 0.01: ["collapsed-run"]}
    assert warnings(runs(table(validation=seen))) == expected[low[-1]]
    (run,) = gather(runs(table(validation=seen)))
    assert "low-last-evaluation" not in {one.code for one in detect(run, live=True)}


def test_the_means_that_show_a_slow_fall_do_not_hold_the_rise_before_it() -> None:
    slow = np.concatenate([np.linspace(0.3, 0.66, 60), np.linspace(0.66, 0.62, 40)])
    seen = slow + np.random.default_rng(1).normal(0.0, 0.006, 100)
    (found,) = findings(runs(table(validation=seen)))["run"]
    assert found.values["best"] - found.values["level"] > 0.02


def test_two_evaluations_that_lost_most_of_the_gain_at_the_end_are_a_collapse_from_the_best_on() -> None:
    seen = np.array([0.427, 0.586, 0.635, 0.704, 0.762, 0.822, 0.5, 0.5])
    (found,) = findings(runs(table(validation=seen)))["run"]
    assert (found.code, found.step) == ("collapsed-run", 5 * EVERY)


@given(st.integers(3, 24), st.integers(1, 10), st.floats(-0.5, 1.0), st.integers(0, 99))
def test_rewards_in_percent_fall_where_fractions_do(count: int, best: int, left: float, seed: int) -> None:
    fractions = np.clip(decayed(count, best, left, seed=seed), 0, 1)
    one, percent = (findings(runs(table(validation=scale * fractions)))["run"] for scale in (1, 100))
    assert [(found.code, found.step) for found in percent] == [(found.code, found.step) for found in one]


@pytest.mark.parametrize("seed", range(4))
def test_a_fall_is_told_while_it_stands_and_its_peak_is_the_highest_evaluation_before(seed: int) -> None:
    fell = decayed(left=0.6, seed=seed)
    again = np.concatenate([fell, np.linspace(0.6, 0.8, 40)])
    assert warnings(runs(table(validation=fell))) == ["decayed-run"]
    assert warnings(runs(table(validation=again))) == []
    assert only(runs(table(validation=fell)), "decayed-run").data["runs"]["run"]["step"] == EVERY * np.argmax(fell)
    twice = np.concatenate([again, np.full(20, 0.65)])
    assert only(runs(table(validation=twice)), "decayed-run").data["runs"]["run"]["step"] == EVERY * np.argmax(twice)


@pytest.mark.parametrize(
    ("sweep", "fell"),
    few(
        [
            ("llama-3.1-8b-easy", ["n128", "n8"]),
            ("mul31-easy-t1", []),
            ("mul31-easy-t1-d64", ["n128-s0", "n32-s0", "n8-s0"]),
        ],
        2,
    ),
)
def test_a_fall_that_a_fit_leaves_out_is_told_and_raises_no_alarm_before_the_end(sweep: str, fell: list[str]) -> None:
    found = recorded(sweep)
    told = falls(found)
    assert sorted(run.removeprefix(f"{sweep}-160k-") for run in told) == fell
    alarmed = {run.run_id for run in gather(found) if FALLS.keys() & {one.code for one in detect(run, live=True)}}
    assert alarmed <= told.keys()
    assert len(alarmed) == bool(fell)


def test_a_fall_that_training_reward_does_not_share_is_overfitting() -> None:
    validation = decayed(left=0.5)
    rising = np.repeat(0.4 + 0.45 * np.arange(39) / 39, EVERY)
    falling = np.repeat(validation[1:], EVERY)
    assert warnings(runs(table({"train_reward": rising}, validation))) == ["overfitting-run"]
    assert warnings(runs(table({"train_reward": falling}, validation))) == ["decayed-run"]
    # A fixed probe of training problems is the better witness where there is one.
    probe = 0.4 + 0.45 * np.arange(40) / 40
    assert warnings(runs(table({"train_reward": falling}, validation, probe=probe))) == ["overfitting-run"]


@pytest.mark.parametrize("seed", range(4))
def test_a_training_reward_of_a_table_of_evaluations_does_not_lag_behind_them(seed: int) -> None:
    count = 24
    held_out = 0.55 - 0.31 * np.clip((np.arange(count) - 8) / 8, 0, 1)
    held_out[:8] = 0.25 + 0.3 * np.arange(8) / 8
    noise = np.random.default_rng(seed).normal(0, 0.004, (2, count))
    columns = {"n": N, "bp": BP, "step": np.arange(count) * EVERY, "avg@4": held_out + noise[0]}
    frame = pl.DataFrame({**columns, "train_reward": held_out + 0.05 + noise[1]})
    found = iso.check_health(RunSet.from_columns(frame))
    codes = [note.code for note in found.notes]
    assert "overfitting-run" not in codes
    (note,) = (note for note in found.notes if note.severity != "info")
    assert note.code in ("collapsed-run", "decayed-run")
    quoted = findings(RunSet.from_columns(frame))["n16-bp32-seed0"][0].seen
    values = [f"{value:.3f}" for value in columns["avg@4"]]
    assert f"{columns['avg@4'].max():.3f}" in quoted
    first, then = re.findall(r"(\d\.\d{3}) \(step", quoted)[:2]
    assert first in values
    assert then in values


def test_low_entropy_is_no_collapse_where_the_failures_are_gone_too() -> None:
    entropy = 0.5 * np.geomspace(1.0, 0.02, UPDATES)
    solved = {"entropy": entropy, "train_reward": 1 - 0.6 * np.geomspace(1.0, 0.01, UPDATES)}
    assert warnings(runs(table(solved))) == []
    assert warnings(runs(table({"entropy": entropy, "train_reward": np.full(UPDATES, 0.4)}))) == ["entropy-collapse"]
    assert warnings(runs(table({"entropy": entropy}))) == ["entropy-collapse"]


@pytest.mark.parametrize(
    ("code", "metric", "values", "reward", "severity"),
    [
        ("zero-variance-groups", "zero_variance_share", np.linspace(0.2, 0.99, 60), np.full(60, 0.96), "info"),
        ("zero-variance-groups", "zero_variance_share", np.linspace(0.2, 0.99, 60), np.full(60, 0.05), "warning"),
        ("truncated-responses", "truncated_share", np.full(50, 0.2), None, "info"),
        ("truncated-responses", "truncated_share", np.linspace(0.02, 0.4, 50), None, "warning"),
        ("filtered-rollouts", "trained_share", np.full(40, 0.8), None, "info"),
        ("filtered-rollouts", "trained_share", np.full(40, 0.3), None, "warning"),
    ],
)
def test_what_is_trouble_only_beside_a_bad_reward_or_a_rise_is_else_worth_knowing(
    code: str, metric: str, values: np.ndarray, reward: np.ndarray | None, severity: str
) -> None:
    logged = {metric: values} | ({} if reward is None else {"train_reward": reward})
    assert only(runs(table(logged)), code).severity == severity


def test_answers_of_a_fixed_length_are_not_truncated() -> None:
    """Four digits at a limit of four tokens: every response ends there, and right ones are rewarded."""
    every = {"truncated_share": np.ones(50)}
    rewarded = runs(table({**every, "train_reward": np.linspace(0.1, 0.6, 50)}))
    assert "truncated-responses" not in [note.code for note in iso.check_health(rewarded).notes]
    only(runs(table({**every, "train_reward": np.zeros(50)})), "truncated-responses")


def test_one_gradient_spike_is_forgotten_and_three_close_together_are_not() -> None:
    norm = np.random.default_rng(0).lognormal(0, 0.2, 200)
    one, three = norm.copy(), norm.copy()
    one[100] *= 50
    three[[100, 110, 125]] *= 50
    assert warnings(runs(table({"gradient_norm": one}))) == []
    note = only(runs(table({"gradient_norm": three})), "gradient-norm-spikes")
    assert note.data["runs"]["run"]["step"] == 101
    # Most batches without a gradient leave the others as usual as they were.
    norm[::5] *= 0
    norm[1::5] *= 0
    norm[2::5] *= 0
    assert warnings(runs(table({"gradient_norm": norm}))) == []


def test_runs_without_a_known_metric_give_no_note() -> None:
    unknown = RunSet.from_columns(
        {"n": [8, 8], "bp": [16, 16], "step": [0, 10], "metric": ["accuracy", "accuracy"], "value": [0.1, 0.2]}
    )
    found = iso.check_health(unknown)
    assert found.runs == 1
    assert found.notes == ()


def test_many_runs_give_one_note_per_code_and_each_run_its_own() -> None:
    sick = [table(vitals(i, "kl-drift", 50), run_id=f"sick{i}", learning_rate=1e-5) for i in range(9)]
    healthy = [table(vitals(i), run_id=f"fine{i}", learning_rate=1e-6) for i in range(3)]
    health = iso.check_health(runs(*sick, *healthy))
    assert [note.code for note in health.notes] == ["kl-drift"]
    note = health.notes[0]
    assert (len(note.data["runs"]), note.data["of"]) == (9, 12)
    assert set(health.by_run) == {f"sick{i}" for i in range(9)}
    assert not health.healthy


@given(
    st.sampled_from(["entropy", "response_length", "gradient_norm", "train_reward"]),
    st.floats(1e-3, 1e4),
    st.integers(0, 200),
    st.floats(0.0, 1.0),
)
def test_a_run_in_which_nothing_changes_gives_no_note(name: str, level: float, count: int, reward: float) -> None:
    logged = {name: np.full(count + 1, reward if name == "train_reward" else level)}
    assert iso.check_health(runs(table(logged, np.full(count // 4 + 1, reward)))).notes == ()


@given(st.sampled_from([*FAULTS, None]), st.integers(0, 5), st.integers(2, 4096))
def test_the_size_of_a_batch_changes_no_verdict(fault: str | None, seed: int, scale: int) -> None:
    logged, validation = vitals(seed, fault, 80, 160), evaluations(17, seed=seed)
    plain, scaled = (findings(runs(table(logged, validation, scale=k)))["run"] for k in (1, scale))
    assert [(f.code, f.severity, f.step) for f in plain] == [(f.code, f.severity, f.step) for f in scaled]


@given(st.sampled_from(sorted(FAULTS)), st.integers(0, 5), st.integers(20, 160))
def test_what_is_known_at_a_step_does_not_depend_on_what_comes_later(fault: str, seed: int, length: int) -> None:
    # Hence nothing is gained or lost by looking often: the false alarms of many looks are those of one.
    logged, validation = vitals(seed, fault, 60, 160), decayed(17, best=8, left=0.1, seed=seed)
    early = table({k: v[:length] for k, v in logged.items()}, validation[: length // EVERY + 1])
    whole, so_far = (detect(gather(runs(one))[0], live=True) for one in (table(logged, validation), early))
    limit = length * N * BP
    certain = {(f.code, f.step) for f in whole if (f.noticed_rollouts or 0) <= limit and f.severity == "warning"}
    assert certain == {(f.code, f.step) for f in so_far if f.severity == "warning"}


WORSE = {
    "entropy-collapse": ("entropy", 0.5),
    "entropy-explosion": ("entropy", 2.0),
    "kl-drift": ("kl", 3.0),
    "zero-variance-groups": ("zero_variance_share", 1.02),
    "gradient-norm-growth": ("gradient_norm", 2.0),
}


@given(st.sampled_from(sorted(WORSE)), st.integers(0, 5), st.integers(30, 100))
def test_a_worse_run_is_alarmed_no_later(code: str, seed: int, at: int) -> None:
    name, factor = WORSE[code]
    sick = vitals(seed, code, at, 160)
    worse = {**sick, name: np.where(np.arange(160) > at, sick[name] * factor, sick[name])}
    first, second = (
        next(f for f in findings(runs(table(logged)))["run"] if f.code == code) for logged in (sick, worse)
    )
    assert second.severity == "warning"
    assert second.step is not None
    assert first.step is not None
    assert second.step <= first.step


@given(st.floats(0.7, 1.0), st.floats(0.7, 1.0), st.integers(0, 5))
def test_losing_more_of_the_gain_never_takes_an_alarm_back(one: float, other: float, seed: int) -> None:
    worse, better = sorted((one, other))
    mild, bad = (runs(table(validation=decayed(left=left, seed=seed))) for left in (better, worse))
    if warnings(mild):
        assert warnings(bad)


def test_fits_carry_the_health_of_the_runs_they_used_and_plans_carry_it_on() -> None:
    tables = [
        table(vitals(i, "kl-drift" if i == 1 else None, 50), evaluations(31, seed=i), run_id=f"r{i}", scale=2**i)
        for i in range(3)
    ]
    fits = iso.fit(runs(*tables), draws=20)
    note = next(note for note in fits.notes if note.code == "kl-drift")
    assert list(note.data["runs"]) == ["r1"]
    plan = iso.Planner(fits).allocate(fits.largest_compute or 0)
    assert note in plan.notes
    # A run that the fit did not use says nothing about it.
    stranger = table({"kl": np.full(50, 9.0)}, run_id="stranger")
    again = iso.fit(runs(*tables[:1], *tables[2:], stranger), draws=20)
    assert "kl-drift" not in [note.code for note in again.notes]


def test_a_finding_without_its_step_says_the_compute() -> None:
    logged = table({"kl": np.full(50, 9.0)}).drop("problems_per_batch").with_columns(rollouts=pl.col("step") * 512)
    note = only(RunSet.from_columns(logged.drop("step")), "kl-drift")
    assert "C = 2,560" in note.message
    assert dataclasses.is_dataclass(note)


DRIFT = Alert(Note("kl-drift", "warning", "m", {"step": 3.0, "rollouts": 96.0}), "run", "folder")


def test_a_changed_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    AlertBook(path).record(DRIFT, delivered=True)
    assert not AlertBook(path).is_new(DRIFT)
    path.write_text(path.read_text().replace("true", "false"))
    with pytest.raises(IsoComputeError, match="Remove the file"):
        AlertBook(path)
