"""`TRLBackend`: from a `RunSpec` to one self-contained bash script for TRL 1.16.0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend
from isocompute_sdk.training.backend import BackendInfo, Needs, describe_options
from isocompute_sdk.training.existing import Setting
from isocompute_sdk.training.payload import program, programs
from isocompute_trl.flags import OF_PLAN, OF_RECIPE, VERSION, processes, sharding_config, trainer_settings
from isocompute_trl.options import TRLOptions
from isocompute_trl.preflight import examine
from isocompute_trl.request import REQUEST, REQUEST_DOCUMENT, request_of

OWN = ("prepare_rows.py", "validation_samples.py", "step_clock.py", "train.py")
"""Programs that the script writes into the run folder besides those of the SDK."""


class TRLBackend(ScriptBackend):
    """Writes launch scripts for TRL 1.16.0; imports nothing of it."""

    name: str = "trl"
    packages: tuple[str, ...] = ("trl",)
    one_release: bool = True
    reads_inputs: bool = True

    def describe(self) -> BackendInfo:
        """Its description."""
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
            install=(
                "python3 -m venv trl-env && source trl-env/bin/activate",
                f"pip install 'trl[vllm]=={VERSION}' deepspeed",
                "export PYTHON=$PWD/trl-env/bin/python",
            ),
            passes=TRLOptions.PASSES,
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Notes on a run before it starts; see preflight.py."""
        return examine(run)

    def needs(self, run: RunSpec) -> Needs:
        """One GPU for each trainer process; none if the option `device` is cpu."""
        options = TRLOptions.model_validate(run.options)
        return Needs(0 if options.device == "cpu" else processes(run, options))

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        options = TRLOptions.model_validate(run.options)
        return {
            "processes": processes(run, options),
            "vllm": options.sampler == "vllm",
            "deepspeed": processes(run, options) > 1 and options.sharding != "ddp",
            "trainer": json.dumps(trainer_settings(run, options), indent=1),
            "sharding": json.dumps(sharding_config(run, options), indent=1),
        }

    def settings(self, run: RunSpec) -> tuple[Setting, ...]:
        """Arguments of GRPOConfig, as TRL's own parser takes them, but for memory and machines."""
        found = trainer_settings(run, TRLOptions.model_validate(run.options))
        # One batch is one update; a command may have set either of the two otherwise.
        found["steps_per_generation"] = found["gradient_accumulation_steps"]
        return tuple(
            Setting(name, value, (f"--{name}", str(value)), name in OF_PLAN)
            for name, value in found.items()
            if name in OF_PLAN or name in OF_RECIPE
        )

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """`max_steps`, over the updates of one generation."""
        steps, iterations = keys.get("max_steps"), keys.get("num_iterations") or 1
        return steps / iterations if isinstance(steps, int | float) and steps > 0 else None

    def documents(self, run: RunSpec) -> dict[str, str]:
        """The request, and the programs of the script."""
        request = REQUEST_DOCUMENT.to_text(request_of(run, TRLOptions.model_validate(run.options)))
        journal = {"run_journal.py": program("run_journal.py", "isocompute_sdk.run_folders")}
        return {REQUEST: request, **programs("isocompute_trl.payload", OWN), **journal}
