"""Speeds measured from logs with a known answer, from clocks, and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isocompute_sdk as iso
from benchmarks.timed_logs import run_hours, timed_logs
from isocompute_sdk import FitError, RunSet, Throughput
from isocompute_sdk.errors import SpecError
from isocompute_sdk.records.clock import by_clock
from isocompute_sdk.specs import Budget, Data, Recipe, RunSpec, Study, Sweep
from isocompute_sdk.timing.measuring import complete, gpus_of, probe_pairs, probe_runs
from isocompute_sdk.training import registry
from isocompute_simulator.observation import Clock

PROBE = [(8, 32), (8, 128), (8, 512)]


def draw(seed: int) -> tuple[Clock, np.random.Generator]:
    rng = np.random.default_rng(seed)
    clock = Clock(overhead=rng.uniform(5, 40), floor=rng.uniform(0, 20), rate=rng.uniform(20, 100), step_noise=0.1)
    return clock, rng


def fixed(throughput: Throughput) -> float:
    """Everything in a step that does not depend on the batch, at the start."""
    return throughput.step_overhead_seconds + throughput.latency_floor_seconds


def test_overhead_and_rate_are_recovered_within_ten_per_cent_and_intervals_hold_as_often_as_they_say() -> None:
    errors: list[tuple[float, float]] = []
    held: list[tuple[bool, bool]] = []
    for seed in range(50):
        clock, rng = draw(seed)
        found = Throughput.measure(timed_logs(clock, PROBE, 40, rng))
        assert found.measured is not None
        errors.append((fixed(found) / (clock.overhead + clock.floor) - 1, found.rollouts_per_second / clock.rate - 1))
        low, high = found.measured.intervals["rollouts_per_second"]
        over = found.measured.intervals["step_overhead_seconds"]
        held.append((over[0] <= clock.overhead <= over[1], low <= clock.rate <= high))
    assert np.all(np.quantile(np.abs(errors), 0.98, axis=0) < 0.10)
    assert np.all(np.abs(np.mean(errors, axis=0)) < 0.02)
    # 80 % intervals: 40 of 50, give or take three standard errors.
    assert np.all(np.mean(held, axis=0) > 0.63)
    assert np.any(np.mean(held, axis=0) < 0.97)


def test_runs_of_many_machines_are_one_observation_each() -> None:
    batches = [(8, 32), (32, 32), (128, 32), (512, 32), (8, 64), (64, 64), (16, 16), (256, 16)]
    held: list[bool] = []
    for seed in range(30):
        clock, rng = draw(seed)
        slow = replace(clock, run_noise=0.05)
        found = Throughput.measure(timed_logs(slow, batches, range(1, 100, 5), rng))
        assert found.measured is not None
        low, high = found.measured.intervals["rollouts_per_second"]
        held.append(low <= clock.rate <= high)
        assert fixed(found) == pytest.approx(clock.overhead + clock.floor, rel=0.25)
    assert np.mean(held) > 0.6


def test_growth_of_responses_is_found_and_floor_and_overhead_are_told_apart() -> None:
    clock, rng = Clock(overhead=20, floor=10, growth=0.3, scale=5e4, step_noise=0.05), np.random.default_rng(1)
    for with_sampling in (True, False):
        logs = timed_logs(clock, PROBE, range(1, 400, 3), rng, with_sampling=with_sampling)
        found = Throughput.measure(logs, gpus=8)
        assert found.length(1e6) == pytest.approx(clock.length(1e6), rel=0.03)
        assert found.tokens_per_rollout == pytest.approx(600, rel=0.03)
        assert found.latency_floor_seconds == pytest.approx(10, rel=0.2)
        assert found.step_overhead_seconds == pytest.approx(20, rel=0.15)
        assert found.wall_hours(4096, 400) == pytest.approx(run_hours(clock, 4096, 400), rel=0.15)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_hours_do_not_grow_with_responses_where_the_seconds_of_the_runs_did_not(noise: float) -> None:
    clock, rng = Clock(overhead=20, floor=0, growth=0, step_noise=noise), np.random.default_rng(1)
    logs = timed_logs(clock, PROBE, range(1, 400, 3), rng).to_polars()
    longer = pl.col("value") * (1 + 0.3 * (1 + pl.col("rollouts") / 5e4).log())
    found = Throughput.measure(
        iso.read(logs.with_columns(value=pl.when(metric="response_length").then(longer).otherwise("value"))), gpus=8
    )
    assert found.length(1e6) == pytest.approx(1 + 0.3 * np.log(21), rel=0.05)
    assert found.wall_hours(4096, 4000) == pytest.approx(run_hours(clock, 4096, 4000), rel=0.05)
    assert found.evaluation_seconds(1200, 2.0) == found.evaluation_seconds(1200)


def test_evaluations_and_the_start_are_kept_apart() -> None:
    clock = Clock(step_noise=0.02, evaluation_rate=150, startup=90)
    found = Throughput.measure(timed_logs(clock, PROBE, 20, np.random.default_rng(0)), gpus=8)
    assert found.evaluation_rollouts_per_second == pytest.approx(150, rel=0.15)
    assert found.evaluation_seconds(1200) == pytest.approx(clock.evaluation_seconds(1200), rel=0.1)
    assert found.startup_seconds == pytest.approx(90, rel=0.01)


def test_scaling_over_gpus_is_found_from_two_numbers_of_them() -> None:
    clock, rng = Clock(exponent=0.7, step_noise=0.05), np.random.default_rng(2)
    few = timed_logs(clock, PROBE, 20, rng)
    many = timed_logs(clock, PROBE, 20, rng, gpus=32, prefix="many")
    runs = few.concat(many)
    found = Throughput.measure(runs, gpus={r: 32 if r.startswith("many") else 8 for r in runs.run_ids})
    assert found.gpu_exponent == pytest.approx(0.7, abs=0.1)
    assert found.gpus == 8
    assert found.at_gpus(16).step_seconds(4096) == pytest.approx(clock.step_seconds(4096, gpus=16), rel=0.1)
    with pytest.raises(FitError, match="gpus"):
        Throughput.measure(runs, gpus={"other": 8})


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_scaling_over_gpus_is_unknown_where_each_number_had_a_batch_of_its_own(noise: float) -> None:
    clock, rng = Clock(exponent=0.7, step_noise=noise, growth=0), np.random.default_rng(2)
    few = timed_logs(clock, PROBE[:1], 20, rng)
    many = timed_logs(clock, PROBE[2:], 30, rng, gpus=32, prefix="many")
    runs = few.concat(many)
    gpus = {r: 32 if r.startswith("many") else 8 for r in runs.run_ids}
    with pytest.raises(FitError, match="on 8 and 32 GPUs") as caught:
        Throughput.measure(runs, gpus=gpus)
    assert caught.value.options == ("--gpu-exponent NUMBER",)
    found = Throughput.measure(runs, gpus=gpus, gpu_exponent=0.7)
    assert (found.gpus, found.gpu_exponent) == (8, 0.7)
    assert found.at_gpus(32).step_seconds(4096) == pytest.approx(clock.step_seconds(4096, gpus=32), rel=0.05)
    assert found.step_seconds(256) == pytest.approx(clock.step_seconds(256), rel=0.05)
    said = iso.read(runs.to_polars().with_columns(gpus=pl.col("run_id").replace_strict(gpus)))
    with pytest.raises(FitError, match="GPUs"):
        complete(None, said, Budget(rollouts=1e6, deadline_hours=1e6), 8)
    # Lengths say nothing of GPUs.
    untimed = complete(None, said, Budget.parse("1M"), 8)
    assert untimed is not None
    assert (untimed.rollouts_per_second, untimed.tokens_per_rollout) == (None, pytest.approx(600, rel=0.05))
    with pytest.raises(FitError, match="not on 16"):
        Throughput.measure(said, gpus=16)
    known = runs.concat(timed_logs(clock, PROBE[:1], 20, rng, gpus=32, prefix="many-more"))
    found = Throughput.measure(known, gpus={r: 32 if r.startswith("many") else 8 for r in known.run_ids})
    assert found.gpu_exponent == pytest.approx(0.7, abs=0.2)


def test_a_speed_that_was_logged_on_known_gpus_is_not_taken_for_that_of_others() -> None:
    logged = timed_logs(Clock(step_noise=0.02), PROBE, 20, np.random.default_rng(0))
    runs = iso.read(logged.to_polars().with_columns(gpus=16))
    assert Throughput.measure(runs).gpus == 16
    found = complete(None, runs, Budget.parse("100 GPU-hours"), None)
    assert found is not None
    assert found.gpus == 16
    # Nothing says that those of the budget are as fast.
    named = complete(None, runs, Budget.parse("100 GPU-hours on 16xH100"), 16)
    assert named is not None
    assert named.measured is not None
    assert named.measured.kind_assumed
    assert named.replace(measured=found.measured) == found
    with pytest.raises(SpecError, match="only for gpus = 16, not for 8") as caught:
        complete(None, runs, Budget.parse("100 GPU-hours on 8xH100"), 8)
    assert caught.value.options == ("--gpu-exponent NUMBER",)
    with pytest.raises(SpecError, match="only for gpus = 16, not for 8"):
        complete(Throughput(gpus=8, usd_per_gpu_hour=2), runs, Budget.parse("$100"), None)
    scaled = complete(Throughput(gpu_exponent=0.5), runs, Budget.parse("100 GPU-hours on 64xH100"), 64)
    assert scaled is not None
    assert scaled.rollouts_per_second == pytest.approx(2 * (found.rollouts_per_second or 0.0))
    other = complete(None, runs, Budget.parse("1M"), 8)
    assert other is not None
    assert (other.rollouts_per_second, other.tokens_per_rollout) == (None, found.tokens_per_rollout)


def test_a_speed_that_was_logged_on_unknown_gpus_is_taken_for_that_of_those_stated_and_says_so() -> None:
    logged = timed_logs(Clock(step_noise=0.02), PROBE, 20, np.random.default_rng(0))
    unknown = complete(None, logged, Budget.parse("100 GPU-hours"), None)
    assert unknown == Throughput.measure(logged)
    assert unknown.gpus is None
    assert complete(None, logged, Budget.parse("1M"), None) == unknown
    stated = complete(Throughput(gpus=8), logged, Budget.parse("100 GPU-hours"), None)
    assert stated is not None
    assert stated.measured is not None
    assert (stated.gpus, stated.measured.gpus_assumed) == (8, True)
    assert stated.at_gpus(16).rollouts_per_second == stated.rollouts_per_second
    known = Throughput.measure(logged, gpus=8)
    assert known.measured is not None
    assert not known.measured.gpus_assumed
    with pytest.raises(SpecError, match="gpu_exponent"):
        known.at_gpus(16)


def test_a_run_that_went_on_with_other_gpus_says_no_number_of_them() -> None:
    columns = {"run": [*"aabb"], "n": [8, 8, 16, 16], "step": [0, 10] * 2, "avg@4": [0.1, 0.2] * 2}
    runs = RunSet.from_columns({**columns, "gpus": [8, 16, 8, None]}, problems_per_batch=32)
    assert [run.gpus for run in runs.runs()] == [None, 8]


@pytest.mark.parametrize(("written", "gpus"), [("8xH100", 8), (" 16 x H100 80GB", 16), ("4 GPUs", 4), ("2e0", 2)])
def test_gpus_in_a_table_are_written_as_in_a_budget(written: str, gpus: int) -> None:
    columns = {"n": [8, 8], "step": [0, 10], "avg@4": [0.1, 0.2], "gpus": [written, None]}
    assert RunSet.from_columns(columns, problems_per_batch=32).runs()[0].gpus == gpus


def test_gpus_that_only_some_runs_say_are_asked_for() -> None:
    logged = timed_logs(Clock(step_noise=0.02), PROBE, 20, np.random.default_rng(0))
    first = logged.run_ids[0]
    some = pl.when(pl.col("run_id") == first).then(None).otherwise(16)
    runs = iso.read(logged.to_polars().with_columns(gpus=some))
    with pytest.raises(FitError, match=f"no entry for run '{first}'"):
        Throughput.measure(runs)
    # A run without times needs none.
    timed = (pl.col("run_id") != first) | (pl.col("metric") == "response_length")
    assert Throughput.measure(runs.filter(timed)).gpus == 16
    assert gpus_of(runs) == {}
    assert gpus_of(runs.filter(timed)) == dict.fromkeys(logged.run_ids[1:], 16)


@pytest.mark.parametrize("pairs", [[(8, 64)], [(8, 64), (8, 128)]])
def test_one_batch_or_near_ones_give_no_knee(pairs: Sequence[tuple[int, int]]) -> None:
    clock = Clock(step_noise=0.02, growth=0)
    found = Throughput.measure(timed_logs(clock, pairs, 20, np.random.default_rng(0)))
    assert found.system_batch_size is None
    batch = pairs[0][0] * pairs[0][1]
    assert found.step_seconds(batch) == pytest.approx(clock.step_seconds(batch), rel=0.05)
    assert found.refusal(8 * batch) is not None


def test_logs_without_times_and_times_that_make_no_sense_are_refused() -> None:
    plain = {"n": [8, 8], "bp": [32, 32], "step": [1, 2], "avg@4": [0.1, 0.2]}
    with pytest.raises(FitError, match="isocompute run STUDY --probe"):
        Throughput.measure(RunSet.from_columns(plain))
    with pytest.raises(FitError, match=r"'pace'.*avg@4"):
        Throughput.measure(RunSet.from_columns(plain), seconds="pace")
    stopped = {**plain, "step_seconds": [1.0, 0.0]}
    with pytest.raises(FitError, match="step 2: 0 "):
        Throughput.measure(RunSet.from_columns(stopped))
    shrinking = {
        "n": [8] * 6,
        "bp": [32] * 3 + [512] * 3,
        "step": [1, 2, 3] * 2,
        "step_seconds": [9.0] * 3 + [1.0] * 3,
    }
    with pytest.raises(FitError, match="256, 4096"):
        Throughput.measure(RunSet.from_columns(shrinking))


@pytest.mark.parametrize("name", ["timestamp", "wall_seconds", "wall_time"])
def test_a_column_with_the_time_of_its_row_gives_seconds_and_one_with_seconds_of_updates_does_not(name: str) -> None:
    rows = [(n, step) for n in (8, 16, 32) for step in range(0, 101, 10)]
    table = {"n": [n for n, _ in rows], "step": [step for _, step in rows], "reward": [step / 200 for _, step in rows]}
    each = [5.0 + 32 * n / 50 for n, _ in rows]
    clock = [step * one for (_, step), one in zip(rows, each, strict=True)]
    runs = RunSet.from_columns({**table, name: clock}, metric="avg@4", problems_per_batch=32)
    assert Throughput.measure(runs, gpus=8).rollouts_per_second == pytest.approx(50.0)
    noisy = list(each + np.random.default_rng(0).normal(0.0, 0.5, len(each)))
    untimed = RunSet.from_columns({**table, name: noisy}, metric="avg@4", problems_per_batch=32)
    with pytest.raises(FitError, match="step_seconds"):
        Throughput.measure(untimed)


def test_seconds_of_runs_on_unknown_gpus_price_no_choice_of_gpus() -> None:
    rows = [(n, step) for n in (8, 32) for step in range(0, 201, 10)]
    table = {"n": [n for n, _ in rows], "step": [step for _, step in rows]}
    table |= {"avg@4": [0.3 + 0.4 * s / (s + 50 + n) for n, s in rows], "wall_seconds": [(5 + n) * s for n, s in rows]}
    fits = iso.fit(RunSet.from_columns(table, problems_per_batch=32), draws=40)
    with pytest.raises(iso.PlanError) as raised:
        iso.Planner(fits, iso.Hardware(gpus=(8, 16))).allocate("200 GPU-hours")
    assert raised.value.options == ("--set gpus=NUMBER",)


def test_a_rate_that_the_batches_do_not_tell_is_a_limit_and_prices_no_larger_batch() -> None:
    noise = np.random.default_rng(0).normal(0, 1, 60)
    rows = [(bp, step) for bp in (64, 128, 256) for step in range(1, 21)]
    columns = {"n": [8] * 60, "bp": [bp for bp, _ in rows], "step": [step for _, step in rows]}
    found = Throughput.measure(RunSet.from_columns({**columns, "step_seconds": list(60 + noise)}), gpus=8)
    assert found.system_batch_size is None
    assert found.refusal(2048) is None
    assert found.refusal(2049) is not None
    assert "at least" in found.summary()
    with pytest.raises(FitError, match="do not grow"):
        Throughput.measure(RunSet.from_columns({**columns, "step_seconds": [60.0] * 60}))


T_90_OF_3 = 1.637744
"""Quantile .9 of Student's t with 3 degrees of freedom."""


def test_an_exact_law_is_recovered_and_the_first_step_of_a_run_is_left_out() -> None:
    overhead, floor, rate = 12.0, 5.0, 40.0
    rows = [(bp, step) for bp in (16, 64, 256) for step in range(1, 9)]
    sampling = [floor + 0.6 * 8 * bp / rate for bp, _ in rows]
    rest = [overhead + 0.4 * 8 * bp / rate + (1000.0 if step == 1 else 0.0) for bp, step in rows]
    columns = {
        "n": [8] * len(rows),
        "bp": [bp for bp, _ in rows],
        "step": [step for _, step in rows],
        "step_seconds": [a + b for a, b in zip(sampling, rest, strict=True)],
        "sampling_seconds": sampling,
    }
    found = Throughput.measure(RunSet.from_columns(columns), gpus=4)
    assert found.step_overhead_seconds == pytest.approx(overhead)
    assert found.latency_floor_seconds == pytest.approx(floor)
    assert found.rollouts_per_second == pytest.approx(rate)
    assert found.measured is not None
    assert (found.measured.runs, found.measured.steps) == (3, 21)
    assert found.measured.rollouts_per_batch == (128, 512, 2048)
    assert found.measured.relative_error == pytest.approx(0.0, abs=1e-6)
    assert (found.gpus, found.gpu_exponent, found.startup_seconds) == (4, None, 0.0)


def test_the_interval_of_one_batch_is_that_of_the_means_of_its_runs() -> None:
    runs = {"a": [9.0, 10.0], "b": [10.0, 11.0], "c": [12.0, 11.0], "d": [10.0, 9.5]}
    rows = [(name, step, s) for name, seconds in runs.items() for step, s in enumerate([50.0, *seconds], start=1)]
    columns = {"run_id": [r[0] for r in rows], "step": [r[1] for r in rows], "step_seconds": [r[2] for r in rows]}
    found = Throughput.measure(RunSet.from_columns({**columns, "n": [8] * 12, "bp": [32] * 12}))
    means = [mean(seconds) for seconds in runs.values()]
    error = stdev(means) / 2
    assert found.rollouts_per_second == pytest.approx(256 / mean(means))
    assert found.step_overhead_seconds == 0.0
    assert found.measured is not None
    low, high = found.measured.intervals["rollouts_per_second"]
    assert low == pytest.approx(256 / (mean(means) + T_90_OF_3 * error), rel=1e-5)
    assert high == pytest.approx(256 / (mean(means) - T_90_OF_3 * error), rel=1e-5)
    assert found.measured.relative_error == pytest.approx(error / mean(means), rel=1e-5)


def test_stretches_between_gpu_seconds_lie_in_their_middle() -> None:
    rows = [(bp, step) for bp in (16, 64, 256) for step in range(0, 101, 20)]
    columns = {
        "n": [8] * len(rows),
        "bp": [bp for bp, _ in rows],
        "step": [step for _, step in rows],
        "gpu_seconds": [4 * step * (30 + 8 * bp / 64) for bp, step in rows],
        "tokens": [600.0 * 8 * bp * step for bp, step in rows],
        "avg@4": [0.5] * len(rows),
    }
    found = Throughput.measure(RunSet.from_columns(columns), gpus=4)
    assert (found.step_overhead_seconds, found.rollouts_per_second) == (pytest.approx(30), pytest.approx(64))
    assert found.tokens_per_rollout == pytest.approx(600)
    assert found.evaluation_rollouts_per_second is None
    assert found.measured is not None
    assert found.measured.steps == 3 * 100
    assert found.measured.rollouts == 8 * 256 * 90
    with pytest.raises(FitError, match="number of GPUs"):
        complete(None, RunSet.from_columns(columns), Budget(rollouts=1e6, deadline_hours=9), None)


def study(*, n: list[int], bp: list[int], limit: int | None = None) -> Study:
    return Study(
        name="s",
        model="m",
        data=Data(train="t.jsonl", validation="v.jsonl", reward="r.py"),
        recipe=Recipe.preset("easy", min_problems_per_batch=32),
        sweep=Sweep(
            problems_per_batch=tuple(bp),
            group_size=tuple(n),
            rollouts=1_000_000,
            max_rollouts_per_batch=limit,
        ),
        output_dir="runs/",
    )


@pytest.mark.parametrize(
    ("sizes", "pairs"),
    [
        # 16 x between the smallest and the largest batch: the ends, and the batch nearest to their middle.
        ({"n": [8, 16, 64, 128], "bp": [32]}, ((8, 32), (16, 32), (128, 32))),
        ({"n": [8, 64], "bp": [32, 64]}, ((8, 32), (8, 64), (64, 64))),
        # Less: the middle n at 1, 4 and 16 times the floor.
        ({"n": [8, 16, 64], "bp": [32]}, ((16, 32), (16, 128), (16, 512))),
    ],
)
def test_a_probe_times_three_batches_far_apart(sizes: dict[str, list[int]], pairs: tuple[tuple[int, int], ...]) -> None:
    assert probe_pairs(study(n=sizes["n"], bp=sizes["bp"])) == pairs


powers = st.lists(st.sampled_from([2**i for i in range(3, 10)]), min_size=1, max_size=4, unique=True)


@given(powers, powers, st.integers(0, 3))
def test_batches_of_a_probe_grow_fourfold_or_are_the_ends_of_the_sweep(
    sizes: list[int], problems: list[int], left_out: int
) -> None:
    products = sorted({n * bp for n in sizes for bp in problems})
    kept = products[: max(1, len(products) - left_out)]
    batches = [n * bp for n, bp in probe_pairs(study(n=sorted(sizes), bp=sorted(problems), limit=kept[-1]))]
    assert batches == sorted(batches)
    if kept[-1] >= 16 * kept[0]:
        assert (batches[0], batches[2]) == (kept[0], kept[-1])
        assert batches[1] in kept
        middle = (kept[0] * kept[-1]) ** 0.5
        inner = sorted(n * bp for n in sizes for bp in problems if n * bp <= kept[-1])[1:-1]
        assert all(abs(batches[1] - middle) <= abs(batch - middle) for batch in inner)
    else:
        assert [batch // batches[0] for batch in batches] == [1, 4, 16]


def test_runs_of_a_probe_are_short_and_evaluated_at_both_ends() -> None:
    backend, asked = registry.load("torch").describe(), study(n=[8], bp=[32])
    assert probe_pairs(asked) == ((8, 32), (8, 128), (8, 512))
    runs = probe_runs(asked, backend, [(8, 32), (16, 64)], 3)
    assert all(isinstance(run, RunSpec) and run.update_steps == 3 for run in runs)
    assert [run.evaluation.every_steps for run in runs] == [3, 3]
    assert [(run.group_size, run.problems_per_batch) for run in runs] == [(8, 32), (16, 64)]
    assert runs[1].output_dir == "runs/s-probe/probe-n16-bp64"
    assert all(run.options["save_every_steps"] == 3 for run in runs)
    with pytest.raises(SpecError, match="3 or more"):
        probe_runs(asked, backend, [(8, 32)], 2)


def history(path: Path, group_size: int, seconds: float, evaluation: float) -> None:
    """A W&B history of TRL: an update a row, and an evaluation after every fortieth that takes its own time."""
    clock, rows = 0.0, ["_step,_runtime,train/global_step,train/reward,train/completions/mean_length,eval/reward"]
    for step in range(200):
        clock += seconds + (evaluation if step % 40 == 0 else 0.0)
        reward = 0.2 + 0.002 * step
        rows.append(f"{step},{clock},{step},{reward},512,{reward if step % 40 == 0 else ''}")
    (path / f"n{group_size}.csv").write_text("\n".join(rows) + "\n")


def test_a_history_with_a_clock_says_how_long_an_update_takes_without_its_evaluations(tmp_path: Path) -> None:
    for group_size in (8, 64):
        history(tmp_path, group_size, seconds=6 + group_size * 16 / 40, evaluation=600)
    runs = [iso.read(tmp_path / f"n{n}.csv", set={"group_size": n, "problems_per_batch": 16}) for n in (8, 64)]
    speed = iso.Throughput.measure(runs[0].concat(runs[1]), gpus=4)
    assert speed.step_overhead_seconds == pytest.approx(6, rel=0.01)
    assert speed.rollouts_per_second == pytest.approx(40, rel=0.01)
    assert speed.tokens_per_rollout == pytest.approx(512)


def test_stretches_that_are_long_backwards_or_few_say_nothing() -> None:
    each = by_clock([0, 1, 2, 2, 3, 4, 5], [0.0, 2.0, 4.0, 5.0, 3.0, 5.0, 95.0])
    assert each[np.isfinite(each)].tolist() == [2.0, 2.0, 2.0]
    assert np.isnan(by_clock([0, 1, 2], [0.0, 2.0, 4.0])).all()
