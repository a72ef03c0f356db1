"""What a plan costs in seconds, hours, dollars and tokens."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Throughput, dump_spec, parse_spec
from isocompute_sdk.specs.throughput import Measurement


def test_unknown_price_and_length_are_named_when_they_are_needed() -> None:
    bare = Throughput(step_overhead_seconds=0, rollouts_per_second=64)
    with pytest.raises(SpecError, match="usd_per_gpu_hour"):
        bare.usd(256, 10)
    with pytest.raises(SpecError, match="tokens_per_rollout"):
        bare.tokens(256)


models = st.builds(
    Throughput,
    step_overhead_seconds=st.floats(0, 300),
    rollouts_per_second=st.floats(0.5, 5000),
    tokens_per_rollout=st.floats(10, 8000),
    gpus=st.integers(1, 64),
    latency_floor_seconds=st.floats(0, 100),
    length_growth=st.floats(0, 1),
    length_scale_rollouts=st.floats(1e3, 1e7),
    gpu_exponent=st.floats(0, 1.2),
)


@given(models, st.integers(1, 10**5), st.integers(1, 200))
def test_a_run_takes_the_sum_of_its_steps(model: Throughput, batch: int, steps: int) -> None:
    within = (np.arange(64) + 0.5) / 64 * batch
    lengths = [float(np.mean([model.length(step * batch + c) for c in within])) for step in range(steps)]
    summed = sum(model.step_seconds(batch, length) for length in lengths) / 3600
    assert model.wall_hours(batch, steps) == pytest.approx(summed, rel=1e-3)


@given(models, st.integers(1, 10**5), st.integers(1, 10**4))
def test_more_steps_and_longer_responses_never_cost_less(model: Throughput, batch: int, steps: int) -> None:
    assert model.wall_hours(batch, steps + 1) >= model.wall_hours(batch, steps)
    grown = model.replace(length_growth=model.length_growth + 0.1)
    assert grown.wall_hours(batch, steps) >= model.wall_hours(batch, steps)
    assert grown.tokens(batch * steps) >= model.tokens(batch * steps)


def test_tokens_of_a_long_run_follow_the_growth_not_the_first_length() -> None:
    model = Throughput(step_overhead_seconds=1, rollouts_per_second=1, tokens_per_rollout=600, length_growth=0.25)
    rollouts = np.arange(0, 1_000_000, 10) + 5
    summed = float(np.sum(600 * (1 + 0.25 * np.log1p(rollouts / 100_000)) * 10))
    assert model.tokens(1_000_000) == pytest.approx(summed, rel=1e-6)


def test_sequential_steps_take_their_time_whatever_the_number_of_gpus() -> None:
    model = Throughput(
        step_overhead_seconds=20, latency_floor_seconds=60, rollouts_per_second=1000, gpus=8, gpu_exponent=1
    )
    for gpus in (8, 64, 1024):
        assert model.at_gpus(gpus).wall_hours(256, 11_700) >= 260


def test_other_numbers_of_gpus_need_to_know_how_speed_scales() -> None:
    model = Throughput(
        step_overhead_seconds=0, rollouts_per_second=100, gpus=8, gpu_exponent=0.5, evaluation_rollouts_per_second=300
    )
    assert model.at_gpus(32).rollouts_per_second == pytest.approx(200)
    assert model.at_gpus(32).evaluation_rollouts_per_second == pytest.approx(600)
    with pytest.raises(SpecError, match=r"gpu_exponent.*gpus = 8\b.*16"):
        model.replace(gpu_exponent=None).at_gpus(16)


@given(models)
def test_the_system_batch_size_reaches_four_fifths_of_the_largest_speed(model: Throughput) -> None:
    knee = model.system_batch_size
    assert knee is not None
    if knee > 1:
        for batch, share in ((knee, 0.8), (2 * knee, 0.8 * 10 / 9)):
            assert batch / model.rate / model.step_seconds(batch) == pytest.approx(share)


@pytest.mark.parametrize(("batches", "separates"), [((512,), False), ((512, 1024), False), ((256, 1024), True)])
def test_batches_less_than_four_times_apart_are_converted_near_them_only(
    batches: tuple[int, ...], separates: bool
) -> None:
    model = Throughput(
        step_overhead_seconds=1,
        rollouts_per_second=100,
        measured=Measurement(rollouts_per_batch=batches, runs=1, steps=10),
    )
    assert (model.refusal(16 * batches[-1]) is None) == separates
    assert (model.refusal(2) is None) == separates
    # Every batch that was timed is named once.
    assert re.findall(r"\d+", (model.refusal(2) or "").replace(",", "")) == (
        [] if separates else [*map(str, batches), "2"]
    )
    assert all(model.refusal(b) is None for b in batches)
    assert (model.system_batch_size is not None) == separates


@given(models)
def test_a_throughput_survives_its_file(model: Throughput) -> None:
    measured = model.replace(
        measured=Measurement(rollouts_per_batch=(64, 256), runs=3, steps=30, intervals={"rollouts_per_second": (1, 2)})
    )
    assert parse_spec(dump_spec(measured), Throughput) == measured


@pytest.mark.parametrize(
    "wrong",
    [
        {"rollouts_per_batch": (256, 64)},
        {"intervals": {"rollouts_per_second": (2.0, 1.0)}},
        {"intervals": {"step_overhead_seconds": (-1.0, 1.0)}},
    ],
)
def test_a_measurement_out_of_order_is_refused_by_field(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        Measurement.model_validate({"rollouts_per_batch": (64, 256), "runs": 3, "steps": 30, **wrong})
