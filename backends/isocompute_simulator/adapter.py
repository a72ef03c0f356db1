"""The adapter: a `RunSpec` in, a script that simulates it out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from isocompute_sdk.backend import (
    BackendInfo,
    Launch,
    describe_options,
    raise_if_refused,
    read_options,
    resume_launch,
    run_folder,
    this_interpreter,
    write_launch,
)
from isocompute_sdk.launch import render_resource
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.store import read_journals
from isocompute_simulator.configuration import KIND, RUN_FILE, SCHEMA_VERSION
from isocompute_simulator.options import SimulatorOptions

VERSION = ".".join(np.__version__.split(".")[:2])
MODULE = "isocompute_simulator.train"


class SimulatorBackend:
    """Writes scripts that simulate a run in seconds and log it as the built-in runner would."""

    name: str = "simulator"

    def describe(self) -> BackendInfo:
        """What it simulates."""
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
        """That it is a simulation, and what is refused."""
        _, notes = read_options(run, SimulatorOptions)
        return unique((_label(), *run.recipe.notes(), *notes, *_batch(run)))

    def script(self, run: RunSpec) -> str:
        """The launch script.

        Raises:
            BackendError: preflight refuses the run.
        """
        notes = self.preflight(run)
        raise_if_refused(notes, self.name, run.run_id)
        return render_resource(
            "isocompute_simulator",
            "templates/launch.sh.j2",
            {
                "run": run,
                "task": SimulatorOptions.model_validate(run.options).task,
                "folder": run_folder(run),
                "version": VERSION,
                "module": MODULE,
                "file": RUN_FILE,
                "notes": notes,
                "request": json.dumps(run_document(run), indent=1),
            },
        )

    def prepare(self, run: RunSpec, folder: str | Path) -> Launch:
        """Write `launch.sh` into `folder` and return the command that starts it with this interpreter.

        Raises:
            BackendError: preflight refuses the run; nothing is written then.
        """
        return write_launch(folder, self.script(run), this_interpreter())

    def resume(self, run: RunSpec, folder: str | Path) -> Launch:
        """Say how to go on: the script does so by itself.

        Raises:
            BackendError: nothing was prepared there, or another run; preflight refuses the run.
        """
        return resume_launch(self, run, folder)

    def read_records(self, folder: str | Path) -> RunSet:
        """Every metrics.jsonl in or below the folder.

        Raises:
            RecordError: nothing was measured yet, or a file cannot be read.
        """
        return read_journals(folder)


def run_document(run: RunSpec) -> dict[str, Any]:
    """The content of the file that the simulation reads back as the `RunSpec`."""
    return {"kind": KIND, "schema_version": SCHEMA_VERSION, **run.model_dump(mode="json")}


def _label() -> Note:
    message = (
        "backend simulator: no model is trained; rewards are drawn from a simulated task and say nothing about one."
    )
    return Note("simulation", "warning", message)


def _batch(run: RunSpec) -> list[Note]:
    gpus = max(run.hardware.gpu_counts)
    if run.rollouts_per_batch % gpus == 0:
        return []
    message = (
        f"n * B_p = {run.group_size} * {run.problems_per_batch} = {run.rollouts_per_batch} rollouts cannot be shared "
        f"by {gpus} GPUs. Choose sizes whose product is a multiple of {gpus}."
    )
    return [Note("simulated-batch-not-shared", "refuse", message, {"gpus": gpus})]
