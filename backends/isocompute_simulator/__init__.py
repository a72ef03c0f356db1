"""Simulated training with a known truth: scenarios, and a backend that trains in seconds.

Everything that comes out of this package is a simulation and says so: the runs' context `model` begins with
`simulation/`, and the backend notes it.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    # A run needs nothing of what writes its script, which takes as long to import as the run itself.
    if name != "SimulatorBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from isocompute_simulator.backend import SimulatorBackend

    return SimulatorBackend
