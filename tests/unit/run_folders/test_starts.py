"""attempts.jsonl: whole lines are read, others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.run_folders.journal_records import START, Start, read_starts

FIRST = START.to_text(Start(attempt=1, started=10.5, identity="a"))


def test_a_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "attempts.jsonl"
    assert read_starts(path) == []
    path.write_text(FIRST + FIRST[:9])
    assert [one.identity for one in read_starts(path)] == ["a"]


@pytest.mark.parametrize("line", ["", "[]", "{}", "no JSON", FIRST.replace("10.5", '"1"').rstrip()])
def test_a_line_that_is_no_start_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "attempts.jsonl"
    path.write_text(f"{FIRST}{line}\n")
    with pytest.raises(RecordError, match=r"attempts\.jsonl:2"):
        read_starts(path)
