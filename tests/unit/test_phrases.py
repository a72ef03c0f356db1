"""Numbers and lists in messages: short, and true about what they leave out."""

from __future__ import annotations

import pytest

from isocompute_sdk.phrases import listed, short


@pytest.mark.parametrize(
    ("value", "text"), [(999.4, "999"), (999.6, "1k"), (999_600, "1M"), (1.5e6, "1.5M"), (2e12, "2T"), (0.25, "0.25")]
)
def test_numbers_have_three_digits_and_the_next_unit_from_a_thousand(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize("count", range(7))
def test_a_list_shows_its_first_parts_and_counts_the_others(count: int) -> None:
    parts = [f"run{i}" for i in range(count)]
    text = listed(parts, 4, ";")
    assert [part for part in parts if part in text] == parts[:4]
    assert (f"{count - 4} more" in text) == (count > 4)
