"""attempts.jsonl, by whichever release and program it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.run_folders.starts import START, read_starts

RUNNER = '{"attempt": 1, "started": 10.5, "identity": "a", "train": "b", "validation": null, "reward": "c"}'
SCRIPT = '{"attempt": 1, "time": 10.5}'


@pytest.mark.parametrize("line", [RUNNER, SCRIPT], ids=["built-in runner", "launch script"])
def test_lines_of_release_0_1_are_read(tmp_path: Path, line: str) -> None:
    path = tmp_path / "attempts.jsonl"
    path.write_text(f"{line}\n")
    (start,) = read_starts(path)
    assert (start.attempt, start.started) == (1, 10.5)
    path.write_text(START.to_text(start))
    assert read_starts(path) == [start]


def test_a_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "attempts.jsonl"
    assert read_starts(path) == []
    path.write_text(f"{RUNNER}\n{SCRIPT[:9]}")
    assert [one.identity for one in read_starts(path)] == ["a"]


@pytest.mark.parametrize("line", ["", "[]", "{}", "no JSON", json.dumps({"attempt": "1", "started": 1.0})])
def test_a_line_that_is_no_start_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "attempts.jsonl"
    path.write_text(f"{SCRIPT}\n{line}\n")
    with pytest.raises(RecordError, match=r"attempts\.jsonl:2"):
        read_starts(path)
