"""Options of a simulated run, and the file from which it starts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from isocompute_sdk.documents import Document
from isocompute_sdk.run_folders.store import METRICS_FILE
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.specs.base import Count, Flag, Number, Quantity, Spec

Seed = Annotated[int, Number(whole=True, ge=0)]


class SimulatorOptions(Spec):
    """Options of one simulated run. Runs that share task, task_seed and scale train on the same simulated task."""

    task: Literal[
        "easy",
        "hard",
        "unsaturated",
        "insensitive",
        "overfitting",
        "rough",
        "skills",
        "memorising",
        "declining",
        "two-stage",
        "dipping",
        "tilted",
    ] = "easy"
    """Family of reward curves."""
    task_seed: Seed = 0
    """Which task of the family."""
    scale: Count = 1_000_000
    """Compute in rollouts that the reward curves are laid out for: a pilot of that size sees a third to all of the
    rise."""
    noise: Quantity | None = None
    """Standard deviation of one evaluation of a reward curve. None: drawn with the task, .005 to .03."""
    faults: Flag = False
    """Whether runs on reward curves may collapse, decay, or miss evaluations."""
    clock: Flag = False
    """Whether made-up seconds of steps and evaluations are logged too, by the law in clock.py."""


RUN_FILE = "simulation.json"
REQUEST = Document("simulation-run", 1, RunSpec, signed=False)
"""Content of simulation.json, as the launch script writes it."""


@dataclass(frozen=True)
class Configuration:
    """One run, its options and its folder."""

    run: RunSpec
    options: SimulatorOptions
    folder: Path

    def evaluated_steps(self) -> list[int]:
        """Update steps after which the run is evaluated: 0, the schedule, and the last one.

        A run that is made longer keeps the evaluations that it has, whatever its schedule is now.
        """
        before = self.measured
        last = max(before, default=0)
        return sorted({0, *before, *(step for step in self.run.evaluation.steps(self.run.update_steps) if step > last)})

    @cached_property
    def measured(self) -> dict[int, dict[str, float]]:
        """Metrics that the run has logged, by update step."""
        journal = self.folder / METRICS_FILE
        if not journal.exists():
            return {}
        records = map(json.loads, journal.read_text(encoding="utf-8").splitlines())
        return {int(one["step"]): one["metrics"] for one in records if one["kind"] == "evaluation"}

    def context(self) -> dict[str, Any]:
        """Context of the run's records; the model is named as a simulation."""
        named, task = self.run.model, f"simulation/{self.options.task}-{self.options.task_seed}"
        return {**self.run.context(), "model": named if named.partition("/")[0] == "simulation" else task}


def load_configuration(folder: str | Path) -> Configuration:
    """Read the file that the launch script wrote.

    Raises:
        IsoComputeError: it is missing or malformed.
    """
    run = REQUEST.load(Path(folder) / RUN_FILE)
    return Configuration(run, SimulatorOptions.model_validate(run.options), Path(folder))
