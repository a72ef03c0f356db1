"""Pictures of docs/checked.md are drawn from committed numbers, and those agree with the pages they come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.documents.document import REPOSITORY


@pytest.fixture
def program(benchmark_module: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark_module("draw_checked")


def test_pictures_are_those_of_the_committed_numbers(program: ModuleType, tmp_path: Path) -> None:
    assert program.main(["--folder", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"checked_forecasts.svg", "checked_regret.svg", "checked_intervals.svg"}
    page = (REPOSITORY / "docs" / "checked.md").read_text(encoding="utf-8")
    for name in names:
        assert f"(images/{name})" in page
        committed = (REPOSITORY / "docs" / "images" / name).read_text(encoding="utf-8")
        assert committed.count("<use ") == (tmp_path / name).read_text(encoding="utf-8").count("<use ")


def test_committed_forecasts_are_those_of_the_page_on_recorded_runs(
    program: ModuleType,
) -> None:
    text = (REPOSITORY / "docs" / "recorded_runs.md").read_text(encoding="utf-8")
    rows = program.forecasts()
    compared = 0
    for line in text.splitlines():
        found = program.cells(line)
        if found and found[0] in ("Easy", "Hard") and found[1] in ("2x", "3x", "8x"):
            mine = [r for r in rows if r["set"] == found[0].lower() and r["factor"] == float(found[1][:-1])]
            bias, held = (float(part) for part in found[-2].split("/"))
            compared += 1
            assert len(mine) == int(found[-1])
            assert np.mean([r["error"] for r in mine]) == pytest.approx(bias, abs=0.005)
            assert np.mean([r["held"] for r in mine]) == pytest.approx(held, abs=0.05)
    assert compared == 6


def test_tables_are_read_as_written(program: ModuleType) -> None:
    assert program.regret()["surface"] == [0.031, 0.043, 0.057]
    assert program.coverage()["all"] == [0.87, 0.87, 0.87, 0.87]
    assert len(program.coverage()) == 15
