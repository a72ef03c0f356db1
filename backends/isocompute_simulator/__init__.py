"""Simulated training with a known truth: scenarios, and a backend that trains in seconds.

Everything that comes out of this package is a simulation and says so: the runs' context `model` begins with
`simulation/`, and the backend notes it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocompute_simulator.backend import SimulatorBackend
    from isocompute_simulator.families import FAMILIES
    from isocompute_simulator.scenario import REAL_FAMILIES, Scenario, draw_scenario
    from isocompute_simulator.truth import TabulatedTruth, Truth

__all__ = ["FAMILIES", "REAL_FAMILIES", "Scenario", "SimulatorBackend", "TabulatedTruth", "Truth", "draw_scenario"]

_HOME_OF = {
    "FAMILIES": "families",
    "REAL_FAMILIES": "scenario",
    "Scenario": "scenario",
    "SimulatorBackend": "backend",
    "TabulatedTruth": "truth",
    "Truth": "truth",
    "draw_scenario": "scenario",
}


def __getattr__(name: str) -> Any:
    """Public names on first use: a simulated run needs no backend, and a backend no truths."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
