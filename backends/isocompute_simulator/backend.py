"""`SimulatorBackend`: from a `RunSpec` to a script that simulates the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend
from isocompute_sdk.training.backend import BackendInfo, Needs, describe_options, read_options
from isocompute_sdk.training.checks import batch_not_divisible
from isocompute_simulator.configuration import REQUEST, RUN_FILE, SimulatorOptions

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
