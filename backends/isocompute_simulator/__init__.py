"""Simulated training with a known truth: scenarios, softmax bandits, and a backend that trains in seconds.

Everything that comes out of this package is a simulation and says so: the runs' context `model` begins with
`simulation/`, and the backend notes it.
"""

from isocompute_simulator.backend import SimulatorBackend
from isocompute_simulator.scenario import REAL_FAMILIES, Scenario, draw_scenario
from isocompute_simulator.truths.scenario_families import FAMILIES
from isocompute_simulator.truths.tabulated import TabulatedTruth
from isocompute_simulator.truths.truth import Truth

__all__ = ["FAMILIES", "REAL_FAMILIES", "Scenario", "SimulatorBackend", "TabulatedTruth", "Truth", "draw_scenario"]
