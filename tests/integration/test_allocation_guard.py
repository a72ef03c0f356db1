"""A guard on simulated sweeps of every family: the surface chooses well, its intervals hold, nothing absurd.

The reported numbers come from `benchmarks/decisions/allocation.py` on more scenarios; the bands here are wide enough
for chance, and wider for the few sweeps of the default suite.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

FEW, MANY = 14, 112
SEED = 30_001
"""Neither the tuning nor the test seed of the benchmark."""


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def records(
    request: pytest.FixtureRequest, benchmark_module: Callable[[str], ModuleType]
) -> dict[tuple[str, str, float], dict[str, Any]]:
    """Summary by method, family and ratio."""
    module = benchmark_module("allocation")
    methods = ("surface", "best-pilot-run")
    rows = [row for found in module.run(request.param, SEED, methods, module.FAMILY_SETS["all"]) for row in found]
    return {(r["method"], r["family"], r["ratio"]): {**r, "few": request.param == FEW} for r in module.summarise(rows)}


@pytest.mark.parametrize(("ratio", "most"), [(1.0, 0.04), (3.0, 0.07), (10.0, 0.10)])
def test_little_reward_is_lost(records: dict[Any, Any], ratio: float, most: float) -> None:
    found = records["surface", "all", ratio]
    assert found["mean"] <= most * (1.5 if found["few"] else 1)
    assert found["few"] or found["mean"] <= records["best-pilot-run", "all", ratio]["mean"]


@pytest.mark.parametrize("ratio", [1.0, 3.0, 10.0])
def test_intervals_hold_as_often_as_they_say(records: dict[Any, Any], ratio: float) -> None:
    found = records["surface", "all", ratio]
    spare = 0.25 * found["few"]
    assert 0.75 - spare <= found["coverage_80%"] <= 0.93 + spare
    assert 0.85 - spare <= found["coverage_90%"] <= 0.99 + spare
    assert 0.68 - spare <= found["set_coverage"] <= 0.95 + spare


def test_nothing_fails_and_nothing_is_absurd(records: dict[Any, Any]) -> None:
    assert records["surface", "all", 1.0]["failed"] == 0
    assert sum(records["surface", "all", ratio]["absurd"] for ratio in (1.0, 3.0, 10.0)) == 0
