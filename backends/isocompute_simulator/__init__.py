"""Simulated training with a known truth: scenarios, and a backend that trains in seconds.

Everything that comes out of this package is a simulation and says so: the runs' context `model` begins with
`simulation/`, and the backend notes it.
"""

from isocompute_simulator.backend import SimulatorBackend

__all__ = ["SimulatorBackend"]
