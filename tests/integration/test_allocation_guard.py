"""A guard on 112 simulated sweeps of every family: the surface chooses well, its intervals hold, nothing absurd.

The reported numbers come from `benchmarks/decisions/allocation.py` on more scenarios; the bands here are wide enough
for chance.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

SCENARIOS = 112
SEED = 30_001
"""Neither the tuning nor the test seed of the benchmark."""


@pytest.fixture(scope="module")
def records(benchmark_module: Callable[[str], ModuleType]) -> dict[tuple[str, str, float], dict[str, Any]]:
    """Summary by method, family and ratio."""
    module = benchmark_module("allocation")
    rows = [
        row
        for found in module.run(SCENARIOS, SEED, ("surface", "best-pilot-run"), module.FAMILY_SETS["all"])
        for row in found
    ]
    return {(r["method"], r["family"], r["ratio"]): r for r in module.summarise(rows)}


@pytest.mark.parametrize(("ratio", "most"), [(1.0, 0.04), (3.0, 0.07), (10.0, 0.10)])
def test_little_reward_is_lost(records: dict[Any, Any], ratio: float, most: float) -> None:
    assert records["surface", "all", ratio]["mean"] <= most
    assert records["surface", "all", ratio]["mean"] <= records["best-pilot-run", "all", ratio]["mean"]


@pytest.mark.parametrize("ratio", [1.0, 3.0, 10.0])
def test_intervals_hold_as_often_as_they_say(records: dict[Any, Any], ratio: float) -> None:
    assert 0.75 <= records["surface", "all", ratio]["coverage_80%"] <= 0.93
    assert 0.85 <= records["surface", "all", ratio]["coverage_90%"] <= 0.99
    assert 0.68 <= records["surface", "all", ratio]["set_coverage"] <= 0.95


def test_nothing_fails_and_nothing_is_absurd(records: dict[Any, Any]) -> None:
    assert records["surface", "all", 1.0]["failed"] == 0
    assert sum(records["surface", "all", ratio]["absurd"] for ratio in (1.0, 3.0, 10.0)) == 0
