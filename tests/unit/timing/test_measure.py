"""Throughput from noisy logs of a known law: what is recovered, how sure it is, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from isocompute_sdk import FitError, RunSet, Throughput
from isocompute_simulator.observation import Clock, timed_logs

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
        assert found.wall_hours(4096, 400) == pytest.approx(clock.run_hours(4096, 400), rel=0.15)


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
    with pytest.raises(FitError, match="isocompute run --probe"):
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
