"""The adapter: a `RunSpec` in, one bash script that starts the built-in runner out. Imports no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isocompute_sdk.backend import (
    BackendInfo,
    Launch,
    describe_options,
    raise_if_refused,
    resume_launch,
    run_folder,
    this_interpreter,
    write_launch,
)
from isocompute_sdk.launch import render_resource
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.store import read_journals
from isocompute_torch.configuration import KIND, SCHEMA_VERSION
from isocompute_torch.options import TorchOptions
from isocompute_torch.preflight import examine

VERSION = "2.13.0"
"""PyTorch release that the runner was checked with."""
MODULE = "isocompute_torch.train"


class TorchBackend:
    """Writes launch scripts for the built-in runner."""

    name: str = "torch"

    def describe(self) -> BackendInfo:
        """What it drives and needs."""
        return BackendInfo(
            name=self.name,
            framework="PyTorch",
            version=VERSION,
            summary="The built-in runner: GRPO, PPO and CISPO in one process, on a CPU or one GPU.",
            needs=(
                "isocompute with its extra torch in the interpreter named by PYTHON (default: python3)",
                "any Hugging Face causal language model that fits on one device",
                "training and validation problems as JSON lines, and a Python file with the reward function",
                "for sampler = vllm: vLLM in the same interpreter",
            ),
            algorithms=("grpo", "ppo", "cispo"),
            options=describe_options(TorchOptions),
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """What is refused and what is worth knowing about `run`; see preflight.py."""
        return examine(run)

    def script(self, run: RunSpec) -> str:
        """The launch script. Run it with bash in the folder that the data paths are relative to.

        Raises:
            BackendError: preflight refuses the run.
        """
        notes = self.preflight(run)
        raise_if_refused(notes, self.name, run.run_id)
        return render_resource(
            "isocompute_torch",
            "templates/launch.sh.j2",
            {
                "run": run,
                "folder": run_folder(run),
                "framework": "PyTorch",
                "version": VERSION,
                "module": MODULE,
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
    """The content of run.json, which the runner reads back as the `RunSpec`."""
    return {"kind": KIND, "schema_version": SCHEMA_VERSION, **run.model_dump(mode="json")}
