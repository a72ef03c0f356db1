"""Numbers in every form people write them, read exactly or refused."""

import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Budget, Sweep, Throughput, parse_count

COUNTS = {
    "3M": 3_000_000,
    "3m": 3_000_000,
    "3 M": 3_000_000,
    " 12k ": 12_000,
    "2.5e6": 2_500_000,
    "1e6": 1_000_000,
    "1E+6": 1_000_000,
    "65_536": 65_536,
    "65536": 65_536,
    "65,536": 65_536,
    "3,000,000": 3_000_000,
    "3_000_000": 3_000_000,
    "1,500.5k": 1_500_500,
    "0.3M": 300_000,
    "1.5B": 1_500_000_000,
    "2G": 2_000_000_000,
    "1T": 10**12,
    "7.": 7,
    "0": 0,
}


@pytest.mark.parametrize(("text", "value"), COUNTS.items())
def test_count_is_read_exactly(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize("value", [65536, 65536.0, np.int64(65536), np.float32(65536), np.uint32(65536)])
def test_whole_numbers_of_any_type_are_counts(value: float) -> None:
    assert parse_count(value) == 65536
    assert type(parse_count(value)) is int


@pytest.mark.parametrize(
    "value",
    ["", "M", "3MM", "3 rollouts", "1__0", "_1", "1_", "3,00", "3,5", ",300", "3,0000", "0,300", "3_000,000", "1e",
     "0x10", "٣", "nan", "inf", "-1", "1.5", "2.5e-1", "1e19", "9" * 10_000, "1e9999", 0.5, -1, float("nan"),
     float("inf"), True, False, np.bool_(True), 10**19],
)  # fmt: skip
def test_anything_else_is_refused_with_what_is_accepted(value: str | float) -> None:
    with pytest.raises(SpecError):
        parse_count(value)


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("3,5", ("3.5", "35")),
        ("3,5M", ("3.5M", "35M")),
        ("0,125", ("0.125", "125")),
        ("1.234,5", ("1234.5", "12345")),
        ("3.000.000", ("3000000",)),
    ],
)
def test_separators_in_odd_places_are_refused_with_every_reading(text: str, readings: tuple[str, ...]) -> None:
    for value in (text, f"{text} rollouts"):
        with pytest.raises(SpecError) as refused:
            Budget.parse(value)
        assert refused.value.hint is not None
        named = re.findall(r"[0-9.]*[0-9]M?", refused.value.hint)
        assert tuple(named) == readings


@given(st.integers(0, 10**18), st.sampled_from([(1, ""), (10**3, "k"), (10**6, "M"), (10**9, "B")]))
def test_suffix_and_plain_digits_agree(count: int, unit: tuple[int, str]) -> None:
    scale, suffix = unit
    in_units = format(Decimal(count) / scale, "f")
    assert parse_count(f"{in_units}{suffix}") == count
    assert parse_count(f"{count:_}") == count


@given(st.floats(min_value=1e-300, max_value=1e18))
def test_a_quantity_written_with_repr_keeps_every_bit(value: float) -> None:
    speed = Throughput.model_validate({"step_overhead_seconds": repr(value), "rollouts_per_second": value})
    assert speed.step_overhead_seconds == value == speed.rollouts_per_second


@pytest.mark.parametrize("value", [True, "fast", float("nan"), float("inf"), 0, -1, "1e-400", [1], {}])
def test_a_quantity_is_a_finite_number_above_zero(value: object) -> None:
    with pytest.raises(SpecError, match=r"Throughput\.rollouts_per_second.*> 0"):
        Throughput.model_validate({"step_overhead_seconds": 1, "rollouts_per_second": value})


@pytest.mark.parametrize("levels", [[8, 16], (8, 16), range(8, 24, 8), np.array([8, 16]), ["8", "16"], iter([8, 16])])
def test_levels_come_from_any_sequence(levels: object) -> None:
    sweep = Sweep.model_validate({"group_size": levels, "problems_per_batch": 32, "update_steps": 1})
    assert sweep.group_size == (8, 16)
    assert sweep.problems_per_batch == (32,)


@pytest.mark.parametrize(
    ("levels", "complaint"),
    [
        ([], r"group_size.*\[\]"),
        ([8, 8], r"group_size.*\[8, 8\]"),
        ([8, "8.0"], "8"),
        ([8, 3.5], r"group_size\[1\]: received 3.5;.*>= 2"),
        (3.5, "group_size: received 3.5;.*>= 2"),
        (1, "group_size: received 1; accepted: whole numbers >= 2"),
        ([True], r"group_size\[0\]: received True; accepted: whole numbers >= 2"),
        ({"a": 1}, "group_size: received {'a': 1}; accepted: whole numbers >= 2"),
        (None, "group_size: received None"),
    ],
)
def test_wrong_levels_are_named(levels: object, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        Sweep.model_validate({"group_size": levels, "problems_per_batch": 32, "update_steps": 1})
