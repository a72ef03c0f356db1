"""A budget is one amount in one unit."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import UNITS, Budget, parse_spec
from isocompute_sdk.specs.budget import hours_until

SHORT_FORMS = {
    "3M": ("rollouts", 3e6),
    "3M rollouts": ("rollouts", 3e6),
    "3 M rollouts": ("rollouts", 3e6),
    "2.5e6": ("rollouts", 2.5e6),
    "65_536": ("rollouts", 65536),
    "200 gpu_hours": ("gpu_hours", 200),
    "200 GPU-hours": ("gpu_hours", 200),
    "1 gpu hour": ("gpu_hours", 1),
    "200gpu_hours": ("gpu_hours", 200),
    "1.5B tokens": ("tokens", 1.5e9),
    "5 tokens": ("tokens", 5),
    "$500": ("usd", 500),
    "$ 1.5k": ("usd", 1500),
    "500 usd": ("usd", 500),
    "12.50 dollars": ("usd", 12.5),
}


@pytest.mark.parametrize(("text", "expected"), SHORT_FORMS.items())
def test_short_forms_are_read(text: str, expected: tuple[str, float]) -> None:
    budget = Budget.parse(text)
    assert (budget.unit, budget.amount) == expected


@pytest.mark.parametrize("value", [3_000_000, 3e6, "3M", Budget(rollouts=3_000_000)])
def test_a_number_a_text_and_a_budget_mean_the_same(value: float | str | Budget) -> None:
    assert Budget.parse(value) == Budget(rollouts=3_000_000)


@pytest.mark.parametrize("text", ["", "lots", "3 apples", "$5 tokens", "-3", "0M", "3,00", "nan", "1e400", "3 3M"])
def test_texts_without_an_amount_above_zero_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        Budget.parse(text)


@pytest.mark.parametrize("value", [0, -1, True, float("nan"), float("inf"), None, [3]])
def test_values_that_are_no_amount_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match="Budget"):
        Budget.parse(value)  # pyright: ignore[reportArgumentType]


def test_a_misspelt_unit_gets_a_close_match() -> None:
    with pytest.raises(SpecError, match="rollouts"):
        Budget.parse("3M rolouts")


def test_two_units_or_none_are_refused() -> None:
    with pytest.raises(SpecError, match=r"rollouts=3.*usd=4.*tokens"):
        Budget(rollouts=3, usd=4)
    with pytest.raises(SpecError):
        Budget(deadline_hours=5)


@given(st.sampled_from(UNITS), st.floats(min_value=1e-6, max_value=1e15))
def test_unit_and_amount_are_those_given(unit: str, amount: float) -> None:
    budget = Budget.model_validate({unit: amount})
    assert (budget.unit, budget.amount) == (unit, amount)
    assert isinstance(budget.amount, float)


def test_a_budget_prints_with_its_unit() -> None:
    assert str(Budget(gpu_hours=1200.5, deadline_hours=24)) == "1,200.5 GPU-hours within 24 hours"
    assert str(Budget(usd=2000)) == "$2,000"
    assert str(Budget.parse("3M")) == "3,000,000 rollouts"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("3 million", {"rollouts": 3_000_000}),
        ("$2000", {"usd": 2000}),
        ("2B tokens", {"tokens": 2_000_000_000}),
        ("1.5 billion tokens", {"tokens": 1_500_000_000}),
        ("500 GPU-hours on 8xH100", {"gpu_hours": 500, "gpus": 8}),
        ("500 gpu hours on 16 GPUs", {"gpu_hours": 500, "gpus": 16}),
    ],
)
def test_budgets_are_read_as_people_write_them(text: str, fields: dict[str, float]) -> None:
    assert Budget.parse(text) == Budget(**fields)


NOON = datetime(2026, 11, 24, 12).astimezone()
"""A Tuesday."""


@pytest.mark.parametrize(
    ("text", "hours"),
    [("36h", 36), ("3 days", 72), ("Friday", 78), ("tue", 6), ("tomorrow", 30), ("2026-12-01", 174)],
)
def test_a_deadline_is_a_span_a_weekday_or_a_date_at_its_18_hours(text: str, hours: float) -> None:
    assert hours_until(text, NOON) == hours


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
