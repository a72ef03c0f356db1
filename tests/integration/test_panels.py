"""Digitised panels: what ships, and that a decision on all of their data is judged by the curves themselves."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def replay(benchmark_module: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark_module("panels")


def test_peaks_are_those_of_the_readme(replay: ModuleType) -> None:
    found = {panel.name: panel for panel in replay.panels()}
    qwen3, sets = found["Qwen3 Easy"], found["D = 6,000"]
    assert [qwen3.best(n, 400_000) for n in (8, 64, 128)] == pytest.approx([0.5925, 0.622, 0.5945], abs=0.001)
    assert float(qwen3.curves[64][1][-1]) == pytest.approx(0.514, abs=0.001)
    assert [sets.best(n, 4.2e6) for n in (8, 256, 512)] == pytest.approx([0.588, 0.666, 0.685], abs=0.001)


def test_only_the_part_that_is_shown_is_read(replay: ModuleType) -> None:
    panel = replay.panels()[2]
    runs = panel.runs(0.3, np.random.default_rng(0))
    assert max(run.rollouts for run in runs.runs()) <= 0.3 * panel.largest
    assert panel.runs(1.0, np.random.default_rng(0)).filter(group_size=64).runs()[0].rollouts > 0.9 * panel.largest


def test_a_decision_on_everything_chooses_well(replay: ModuleType) -> None:
    rows = [replay.replay(panel, 1.0, 0) for panel in replay.panels()]
    assert all(row.regret <= 0.03 for row in rows)
    assert all(abs(row.error) <= 0.03 for row in rows)
