"""The benchmark of pilots: every design pays the same, and its stored table says what the benchmark says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SEED = 11
"""Neither a tuning nor a test seed of the benchmark."""


@pytest.fixture(scope="module")
def pilot(benchmark_module: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark_module("pilot")


@pytest.mark.parametrize("index", range(12))
def test_fixed_designs_spend_the_pilot_and_no_more(pilot: ModuleType, index: int) -> None:
    world = pilot.World.draw(index, SEED)
    for make in pilot.FIXED.values():
        made = make(world)
        assert 0.75 * world.pilot <= made.cost <= world.pilot
        assert min(made.steps.values()) >= 1


@pytest.mark.parametrize("index", [0, 4, 7])
def test_the_designed_pilot_spends_as_much_in_long_enough_runs(pilot: ModuleType, index: int) -> None:
    world = pilot.World.draw(index, SEED)
    made = pilot.designed(world, 3.0)
    assert 0.75 * world.pilot <= made.cost <= world.pilot
    assert min(made.steps.values()) >= 30
    assert len({n for n, _, _ in made.steps}) >= 3


@pytest.mark.slow
def test_the_table_gives_the_same_summary_as_the_rows(pilot: ModuleType, tmp_path: Path) -> None:
    rows = pilot.examine(0, SEED) + pilot.examine(1, SEED)
    path = tmp_path / "rows.parquet"
    pilot.write_table(rows, path)
    found = pilot.read(path)
    assert len(found) == len(rows)
    for before, after in zip(rows, found, strict=True):
        assert (before["scenario"], before["design"], before["ratio"]) == (
            after["scenario"],
            after["design"],
            after["ratio"],
        )
        assert after["regret"] == pytest.approx(before["regret"], abs=1e-5)
