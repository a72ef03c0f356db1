"""Seconds, GPU-hours, tokens and money follow from one overhead and one rate."""

import pytest

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Throughput

SPEED = Throughput(
    step_overhead_seconds=20, rollouts_per_second=64, tokens_per_rollout=1500, gpus=8, usd_per_gpu_hour=2.5
)


def test_costs_of_a_worked_example() -> None:
    assert SPEED.step_seconds(4096) == 84.0
    assert SPEED.wall_hours(4096, 150) == 3.5
    assert SPEED.gpu_hours(4096, 150) == 28.0
    assert SPEED.usd(4096, 150) == 70.0
    assert SPEED.tokens(1000) == 1.5e6


def test_unknown_price_and_length_are_named_when_they_are_needed() -> None:
    bare = Throughput(step_overhead_seconds=0, rollouts_per_second=64)
    with pytest.raises(SpecError, match="usd_per_gpu_hour"):
        bare.usd(256, 10)
    with pytest.raises(SpecError, match="tokens_per_rollout"):
        bare.tokens(256)
