"""Which rollout batches fit the machines."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Hardware


def test_an_explicit_divisor_wins() -> None:
    assert Hardware(gpus=8, divisible_by=2).divisor == 2


@given(st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True), st.integers(1, 10**5))
def test_a_batch_is_refused_exactly_when_some_machine_cannot_share_it_out(gpus: list[int], batch: int) -> None:
    hardware = Hardware(gpus=tuple(gpus))
    assert (hardware.refusal(batch) is None) == all(batch % count == 0 for count in gpus)
    assert hardware.divisor == math.lcm(*gpus)


@pytest.mark.parametrize("gpus", [0, -1, 2.5, [], [8, 8], [8, 0], "many", True])
def test_gpus_are_whole_numbers_without_repeats(gpus: object) -> None:
    with pytest.raises(SpecError, match=r"Hardware\.gpus"):
        Hardware.model_validate({"gpus": gpus})
