"""The adapter: a `RunSpec` in, one self-contained bash script for TRL 1.16.0 out."""

from __future__ import annotations

import json
from typing import Any

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend
from isocompute_sdk.training.backend import BackendInfo, describe_options
from isocompute_sdk.training.payload import programs
from isocompute_trl.flags import VERSION, processes, sharding_config, trainer_settings
from isocompute_trl.options import TRLOptions
from isocompute_trl.preflight import examine

OWN = ("prepare_rows.py", "run_journal.py", "validation_samples.py", "step_clock.py", "train.py")
"""Programs that the script writes into the run folder, beside those of the SDK."""
KIND = "trl-run"
SCHEMA_VERSION = 1


class TRLBackend(ScriptBackend):
    """Writes launch scripts for TRL 1.16.0; imports nothing of it."""

    name: str = "trl"

    def describe(self) -> BackendInfo:
        """What it drives and needs."""
        return BackendInfo(
            name=self.name,
            framework="TRL",
            version=VERSION,
            summary="GRPO and CISPO with Hugging Face's trainer and vLLM on one machine, or on a CPU.",
            needs=(
                f"trl[vllm]=={VERSION} in the interpreter named by PYTHON (default: python3)",
                "NVIDIA GPUs in one machine, as many as hardware.gpus says, and deepspeed for more than one; or "
                "options device = cpu and sampler = transformers",
                "training and validation problems as JSON lines, and a Python file with the reward function",
            ),
            algorithms=("grpo", "cispo"),
            options=describe_options(TRLOptions),
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """What is refused and what is worth knowing about `run`; see preflight.py."""
        return examine(run)

    def values(self, run: RunSpec) -> dict[str, Any]:
        """What the template needs."""
        options = TRLOptions.model_validate(run.options)
        return {
            "processes": processes(run, options),
            "vllm": options.sampler == "vllm",
            "deepspeed": processes(run, options) > 1 and options.sharding != "ddp",
            "documents": _documents(run, options),
        }


def _documents(run: RunSpec, options: TRLOptions) -> dict[str, str]:
    """Files that the script writes into the run folder."""
    documents = {"request.json": json.dumps(_request(run, options), indent=1)}
    sharding = sharding_config(run, options)
    if sharding is not None:
        documents["accelerate.json"] = json.dumps(sharding, indent=1)
    return documents | programs("isocompute_trl.payload", OWN)


def _request(run: RunSpec, options: TRLOptions) -> dict[str, Any]:
    """What the programs read; a later start in the same folder has to have the same `identity`.

    Options that only concern speed and memory are not part of it, so that a run can be resumed with others.
    """
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "framework": "trl",
        "version": VERSION,
        "run": run.model_dump(mode="json"),
        "identity": {
            **run.model_dump(mode="json", exclude={"options", "output_dir", "hardware"}),
            "version": VERSION,
            "chat_template": options.chat_template,
            "sampler": options.sampler,
            "sharding": options.sharding if processes(run, options) > 1 else None,
            "processes": processes(run, options),
        },
        "chat_template": options.chat_template,
        "eval_samples_per_pass": options.eval_samples_per_pass,
        "trainer": trainer_settings(run, options),
        "context": run.context(),
    }
