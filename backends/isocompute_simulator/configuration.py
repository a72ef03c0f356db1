"""Configuration of a simulated run, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocompute_sdk.documents import Document
from isocompute_sdk.specs import RunSpec
from isocompute_simulator.options import SimulatorOptions

RUN_FILE = "simulation.json"
METRICS_FILE = "metrics.jsonl"
REQUEST = Document("simulation-run", 1, RunSpec, signed=False)
"""Content of simulation.json, as the launch script writes it."""


@dataclass(frozen=True)
class Configuration:
    """One run, its options and its folder."""

    run: RunSpec
    options: SimulatorOptions
    folder: Path

    def evaluated_steps(self) -> list[int]:
        """Update steps after which the run is evaluated: 0, the schedule, and the last one."""
        return sorted(self.run.evaluation.steps(self.run.update_steps))

    def context(self) -> dict[str, Any]:
        """Context of the run's records; the model is named as a simulation."""
        return {**self.run.context(), "model": f"simulation/{self.options.task}-{self.options.task_seed}"}


def load_configuration(folder: str | Path) -> Configuration:
    """Read the file that the launch script wrote.

    Raises:
        IsoComputeError: it is missing or malformed.
    """
    run = REQUEST.load(Path(folder) / RUN_FILE)
    return Configuration(run, SimulatorOptions.model_validate(run.options), Path(folder))
