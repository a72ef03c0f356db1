"""The page of faults names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs/faults.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_fault_is_shown_by_a_test(path: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
