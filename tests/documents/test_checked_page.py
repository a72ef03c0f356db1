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
    text = (REPOSITORY / "docs" / "allocation.md").read_text(encoding="utf-8")
    lines = [program.cells(line) for line in text.splitlines()]
    table = [cells for cells in lines if len(cells) == 8 and cells[0] == "planner"]
    assert len(table) >= 15
    rows = program.forecasts()
    for _, group, _, distance, *_ in table:
        cells = [c for c in table if (c[1], c[3]) == (group, distance)]
        mine = [r for r in rows if r["group"] == group and f"{1 / r['cut']:.2g}x" == distance]
        said = [[int(number) for number in c[6].split(" of ")] for c in cells]
        assert [sum(r["held"] for r in mine), len(mine)] == [sum(column) for column in zip(*said, strict=True)]
