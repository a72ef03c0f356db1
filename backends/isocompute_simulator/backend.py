"""`SimulatorBackend`: from a `RunSpec` to a script that simulates the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from isocompute_sdk.documents import Document
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.specs.base import Count, Flag, Number, Quantity, Spec
from isocompute_sdk.training import ScriptBackend
from isocompute_sdk.training.backend import BackendInfo, Needs, describe_options, read_options
from isocompute_sdk.training.checks import batch_not_divisible

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
        named, task = self.run.model, f"simulation/{self.options.task}-{self.options.task_seed}"
        return {**self.run.context(), "model": named if named.partition("/")[0] == "simulation" else task}


def load_configuration(folder: str | Path) -> Configuration:
    """Read the file that the launch script wrote.

    Raises:
        IsoComputeError: it is missing or malformed.
    """
    run = REQUEST.load(Path(folder) / RUN_FILE)
    return Configuration(run, SimulatorOptions.model_validate(run.options), Path(folder))


VERSION = ".".join(np.__version__.split(".")[:2])
MODULE = "isocompute_simulator.train"


class SimulatorBackend(ScriptBackend):
    """Writes scripts that simulate a run in seconds and log it as the built-in runner would."""

    name: str = "simulator"
    beside_sdk: bool = True
    packages: tuple[str, ...] = ("isocompute_simulator",)
    extends: bool = True
    speed_options: frozenset[str] | None = frozenset()

    def describe(self) -> BackendInfo:
        """Its description."""
        return BackendInfo(
            name=self.name,
            framework="NumPy",
            version=VERSION,
            summary="A simulation with known truth: no model is trained, every number it logs is made up.",
            needs=("isocompute in the interpreter named by PYTHON (default: python3); no model, no data, no GPU",),
            algorithms=("grpo", "ppo", "cispo"),
            options=describe_options(SimulatorOptions),
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Notes on a run: that it is a simulation, and refusals."""
        _, notes = read_options(run, SimulatorOptions)
        what = "no model is trained; rewards are drawn from a simulated task and say nothing about one."
        simulated = Note("simulation", "warning", f"backend simulator: {what}")
        return unique((simulated, *run.recipe.notes(), *notes, *batch_not_divisible(run, max(run.hardware.gpu_counts))))

    def needs(self, run: RunSpec) -> Needs:
        """No GPU, whatever number of GPUs is simulated."""
        del run
        return Needs()

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        return {
            "task": SimulatorOptions.model_validate(run.options).task,
            "module": MODULE,
            "file": RUN_FILE,
            "request": REQUEST.to_text(run),
        }
