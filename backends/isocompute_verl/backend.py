"""The adapter: a `RunSpec` in, one self-contained bash script for veRL 0.9.1 out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.progress import Progress
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend
from isocompute_sdk.training.backend import BackendInfo, describe_options
from isocompute_sdk.training.payload import programs
from isocompute_verl.flags import MODULE, VERSION, nodes, overrides
from isocompute_verl.options import VeRLOptions
from isocompute_verl.preflight import examine
from isocompute_verl.progress import progress_of
from isocompute_verl.runs import KIND, SCHEMA_VERSION

OWN = ("prepare_rows.py", "reward_score.py", "start_training.py")
"""Programs that the script writes into the run folder, beside those of the SDK."""


class VeRLBackend(ScriptBackend):
    """Writes launch scripts for veRL 0.9.1; imports nothing of it."""

    name: str = "verl"
    log_format: str | None = "verl"

    def describe(self) -> BackendInfo:
        """What it drives and needs."""
        return BackendInfo(
            name=self.name,
            framework="veRL",
            version=VERSION,
            summary="GRPO, PPO and CISPO on Ray, FSDP and vLLM; trainer and engines share all GPUs and take turns.",
            needs=(
                f"verl[vllm,fsdp]=={VERSION} and TransferQueue in the interpreter named by PYTHON (default: python3)",
                "NVIDIA GPUs, as many as hardware.gpus says, and a model with a chat template",
                "training and validation problems as JSON lines, and a Python file with the reward function",
                "for several nodes: a running Ray cluster and a shared file system",
            ),
            algorithms=("grpo", "ppo", "cispo"),
            options=describe_options(VeRLOptions),
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """What is refused and what is worth knowing about `run`; see preflight.py."""
        return examine(run)

    def values(self, run: RunSpec) -> dict[str, Any]:
        """What the template needs."""
        options = VeRLOptions.model_validate(run.options)
        documents = {"request.json": json.dumps(request(run, options), indent=1)}
        documents |= programs("isocompute_verl.payload", OWN)
        return {"gpus": max(run.hardware.gpu_counts), "nodes": nodes(run, options), "documents": documents}

    def progress(self, folder: str | Path) -> Progress | None:
        """How far the run in one folder is, from the last lines of veRL's file log."""
        return progress_of(Path(folder))


def request(run: RunSpec, options: VeRLOptions) -> dict[str, Any]:
    """What the programs read; a later start in the same folder has to have the same `identity`.

    Options that only concern speed and memory are not part of it, so that a run can be resumed with others; the GPUs
    are, because a sharded checkpoint can only be loaded with the same.
    """
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "framework": "verl",
        "version": VERSION,
        "module": MODULE,
        "run": run.model_dump(mode="json"),
        "identity": {
            **run.model_dump(mode="json", exclude={"options", "output_dir", "hardware"}),
            "version": VERSION,
            "nodes": nodes(run, options),
            "gpus": max(run.hardware.gpu_counts),
        },
        "overrides": overrides(run, options),
    }
