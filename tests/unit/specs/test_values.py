"""Counts, budgets, machines, sweeps and speeds as people write them."""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Budget, Hardware, Sweep, Throughput, parse_count, parse_spec
from isocompute_sdk.specs.budget import hours_until

COUNTS = {
    "3M": 3_000_000,
    "3 M": 3_000_000,
    " 12k ": 12_000,
    "2.5e6": 2_500_000,
    "1E+6": 1_000_000,
    "65_536": 65_536,
    "65,536": 65_536,
    "3,000,000": 3_000_000,
    "1,500.5k": 1_500_500,
    "0.3M": 300_000,
    "1.5B": 1_500_000_000,
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
        ("1__0.5", ("10.5", "105")),
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


SHORT_FORMS = {
    "3M": ("rollouts", 3e6),
    "3M rollouts": ("rollouts", 3e6),
    "2.5e6": ("rollouts", 2.5e6),
    "65_536": ("rollouts", 65536),
    "200 gpu_hours": ("gpu_hours", 200),
    "200 GPU-hours": ("gpu_hours", 200),
    "1 gpu hour": ("gpu_hours", 1),
    "1.5B tokens": ("tokens", 1.5e9),
    "$500": ("usd", 500),
    "$ 1.5k": ("usd", 1500),
    "12.50 dollars": ("usd", 12.5),
}


@pytest.mark.parametrize(("text", "expected"), SHORT_FORMS.items())
def test_short_forms_are_read(text: str, expected: tuple[str, float]) -> None:
    budget = Budget.parse(text)
    assert (budget.unit, budget.amount) == expected


@pytest.mark.parametrize(("hours", "told"), [(0.02, "0.02"), (36.06, "36.1"), (1200.0, "1,200")])
def test_a_budget_says_its_deadline_however_short_it_is(hours: float, told: str) -> None:
    assert f"within {told} hours" in str(Budget(rollouts=3, deadline_hours=hours))


@pytest.mark.parametrize("value", [3_000_000, 3e6, "3M", Budget(rollouts=3_000_000)])
def test_a_number_a_text_and_a_budget_mean_the_same(value: float | str | Budget) -> None:
    assert Budget.parse(value) == Budget(rollouts=3_000_000)


@pytest.mark.parametrize(
    "text", ["", "lots", "3 apples", "$5 tokens", "-3", "0M", "3,00", "nan", "1e400", "3 3M", "3M on 2 nodes"]
)
def test_texts_without_an_amount_above_zero_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        Budget.parse(text)


def test_a_misspelt_unit_is_named_and_a_right_one_after_dollars_is_not() -> None:
    hints: list[str | None] = []
    for text in ("3 tokns", "$5 tokens", "lots"):
        with pytest.raises(SpecError) as refused:
            Budget.parse(text)
        hints.append(refused.value.hint)
    assert hints[0] != hints[1] == hints[2]


@pytest.mark.parametrize("value", [0, -1, True, float("nan"), float("inf"), None, [3]])
def test_values_that_are_no_amount_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match="Budget"):
        Budget.parse(value)  # pyright: ignore[reportArgumentType]


def test_two_units_or_none_are_refused() -> None:
    with pytest.raises(SpecError, match=r"rollouts=3.*usd=4.*tokens"):
        Budget(rollouts=3, usd=4)
    with pytest.raises(SpecError):
        Budget(deadline_hours=5)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("3 million", {"rollouts": 3_000_000}),
        ("$2000", {"usd": 2000}),
        ("2B tokens", {"tokens": 2_000_000_000}),
        ("1.5 billion tokens", {"tokens": 1_500_000_000}),
        ("500 GPU-hours on 8xH100", {"gpu_hours": 500, "gpus": 8}),
        ("500 gpu hours on 16 GPUs", {"gpu_hours": 500, "gpus": 16}),
        ("500GPUh", {"gpu_hours": 500}),
    ],
)
def test_budgets_are_read_as_people_write_them(text: str, fields: dict[str, float]) -> None:
    assert Budget.parse(text) == Budget(**fields)


@pytest.mark.parametrize(
    ("text", "told"),
    [("62.5 hours on 8xH100", "500 GPU-hours on 8xH100"), ("3 days on 8xH100", "576 GPU-hours on 8xH100")],
)
def test_hours_on_gpus_are_refused_with_the_budget_that_they_would_be(text: str, told: str) -> None:
    with pytest.raises(SpecError, match=f"'{told}'"):
        Budget.parse(text)


NOON = datetime(2026, 11, 24, 12).astimezone()
"""A Tuesday."""


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("36h", 36),
        ("3 days", 72),
        ("Friday", 78),
        ("Friday 09:00", 69),
        ("tue", 6),
        ("tomorrow", 30),
        ("2026-12-01", 174),
        ("01.12.2026", 174),
    ],
)
def test_a_deadline_is_a_span_a_weekday_or_a_date_at_its_18_hours(text: str, hours: float) -> None:
    assert hours_until(text, NOON) == hours


def test_a_date_with_dots_is_no_number_of_hours() -> None:
    assert Budget(rollouts=1, deadline_hours="01.12.2099") == Budget(rollouts=1, deadline_hours="2099-12-01")


def test_a_weekday_whose_evening_is_over_is_next_weeks() -> None:
    assert hours_until("Tuesday", NOON.replace(hour=19)) == 7 * 24 - 1


@pytest.mark.parametrize("text", ["2020-01-01", "someday", "8x", "2026-13-01"])
def test_a_deadline_that_is_past_or_no_time_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="deadline_hours"):
        Budget(rollouts=1e6, deadline_hours=text)


@pytest.mark.parametrize(
    ("text", "accepted"), [("36h", True), ("3 days", True), ("Friday", False), ("2099-01-01", False)]
)
def test_a_file_takes_no_deadline_that_moves_with_the_clock(text: str, accepted: bool) -> None:
    written = f"rollouts: 1M\ndeadline_hours: {text}\n"
    if accepted:
        assert parse_spec(written, Budget).deadline_hours == Budget(rollouts=1, deadline_hours=text).deadline_hours
    else:
        with pytest.raises(SpecError, match=":2: deadline_hours"):
            parse_spec(written, Budget)


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


def levels(low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(low, high), min_size=1, max_size=5, unique=True).map(tuple)


@settings(deadline=None)
@given(levels(2, 64), levels(1, 64), st.integers(1, 4096), st.integers(4096, 10**6), levels(0, 99))
def test_expansion_is_every_allowed_pair_once_per_seed_within_the_length(
    group_size: tuple[int, ...], problems: tuple[int, ...], limit: int, rollouts: int, seeds: tuple[int, ...]
) -> None:
    kept = {(n, bp, s) for n in group_size for bp in problems for s in seeds if n * bp <= limit}
    form = {
        "group_size": group_size,
        "problems_per_batch": problems,
        "rollouts": rollouts,
        "max_rollouts_per_batch": limit,
        "seeds": seeds,
    }
    if not kept:
        with pytest.raises(SpecError):
            Sweep.model_validate(form)
        return
    runs = Sweep.model_validate(form).expand()
    assert len(runs) == len(kept)
    assert {(run.group_size, run.problems_per_batch, run.seed) for run in runs} == kept
    assert all(0 <= rollouts - run.rollouts < run.rollouts_per_batch for run in runs)


def test_a_fixed_batch_keeps_only_pairs_with_that_product() -> None:
    sweep = Sweep(group_size=(8, 16, 32), problems_per_batch=(8, 16, 32), rollouts_per_batch=(256,), update_steps=1)
    assert sweep.pairs == ((32, 8), (16, 16), (8, 32))


def test_runs_keep_the_order_of_the_levels() -> None:
    sweep = Sweep(group_size=(16, 8), problems_per_batch=(64, 32), update_steps=1, seeds=(3, 1))
    cells = [(run.problems_per_batch, run.group_size, run.seed) for run in sweep.expand()]
    assert cells[:3] == [(64, 16, 3), (64, 16, 1), (64, 8, 3)]


@pytest.mark.parametrize(
    ("length", "received"),
    [
        ({}, "neither rollouts nor update_steps"),
        ({"rollouts": 10**6, "update_steps": 5}, "both rollouts and update_steps"),
    ],
)
def test_the_length_is_given_in_exactly_one_way(length: dict[str, int], received: str) -> None:
    with pytest.raises(SpecError, match=f"Sweep: received {received};"):
        Sweep.model_validate({"group_size": 8, "problems_per_batch": 32, **length})


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True])
def test_seeds_fit_the_generators_of_the_frameworks(seed: object) -> None:
    with pytest.raises(SpecError, match=r"seeds\[0\]"):
        Sweep.model_validate({"group_size": 8, "problems_per_batch": 32, "update_steps": 5, "seeds": [seed]})


@pytest.mark.parametrize("value", [2, "2", 0])
def test_a_bare_number_of_seeds_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match=r"seeds: .*a list"):
        Sweep.model_validate({"group_size": 8, "problems_per_batch": 32, "update_steps": 5, "seeds": value})


def test_a_budget_takes_the_texts_that_a_command_line_takes() -> None:
    for text in ("500 GPU-hours on 8xH100", "$2000", "2B tokens", "3 million", 3e6):
        assert Budget(text) == Budget.parse(text)
    assert Budget("3M", deadline_hours=36) == Budget(rollouts=3e6, deadline_hours=36)
    with pytest.raises(SpecError, match="gpus twice"):
        Budget("500 GPU-hours on 8xH100", gpus=4)
    with pytest.raises(SpecError, match="'much'"):
        Budget("much")


def test_a_changed_spec_keeps_what_nobody_gave_as_a_default() -> None:
    changed = Hardware(max_rollouts_per_batch=4).replace(max_rollouts_per_batch=None)
    assert changed == Hardware()
    # One GPU is then nobody's choice, and plans take those of the runs.
    assert "gpus" not in changed.model_fields_set
