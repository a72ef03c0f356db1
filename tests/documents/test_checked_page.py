"""Pictures of measured numbers are drawn from committed numbers, and those agree with the pages they come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.documents.document import REPOSITORY


@pytest.fixture
def program(benchmark_module: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark_module("draw_checked")


@pytest.mark.slow
def test_pictures_are_those_of_the_committed_numbers(program: ModuleType, tmp_path: Path) -> None:
    assert program.main(["--folder", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    pages = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").glob("*.md"))
    for name in names:
        assert f"(images/{name})" in pages
        committed = (REPOSITORY / "docs" / "images" / name).read_text(encoding="utf-8")
        assert committed.count("<use ") == (tmp_path / name).read_text(encoding="utf-8").count("<use ")


def test_committed_predictions_are_those_of_the_page_on_the_backtest(program: ModuleType) -> None:
    lines = program.table("allocation.md", "sweeps")
    assert len(lines) > 4
    rows = program.forecasts()
    for group in {name for name, *_ in lines}:
        for place, cut in ((2, 8), (3, 3), (4, 2)):
            mine = [r["held"] for r in rows if r["group"] == group and round(1 / r["cut"]) == cut]
            said = [cells[place].split(",")[0].split(" of ") for cells in lines if cells[0] == group]
            assert [sum(mine), len(mine)] == [sum(map(int, column)) for column in zip(*said, strict=True)]
