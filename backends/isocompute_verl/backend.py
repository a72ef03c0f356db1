"""`VeRLBackend`: from a `RunSpec` to one self-contained bash script for veRL 0.9.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend
from isocompute_sdk.training.backend import BackendInfo, Needs, describe_options, ray_needs
from isocompute_sdk.training.existing import Setting
from isocompute_sdk.training.payload import programs
from isocompute_verl.flags import MODULE, OF_MACHINE, OF_PLAN, STEPS, VERSION, Place, nodes, sections
from isocompute_verl.options import VeRLOptions
from isocompute_verl.payload.hydra_words import word
from isocompute_verl.preflight import examine
from isocompute_verl.request import REQUEST, REQUEST_DOCUMENT, request_of

OWN = ("prepare_rows.py", "reward_score.py", "hydra_words.py", "start_training.py", "keep_best.py")
"""Programs that the script writes into the run folder besides those of the SDK."""


class VeRLBackend(ScriptBackend):
    """Writes launch scripts for veRL 0.9.1; imports nothing of it."""

    name: str = "verl"
    packages: tuple[str, ...] = ("verl",)
    one_release: bool = True
    reads_inputs: bool = True
    log_format: str = "verl"

    def describe(self) -> BackendInfo:
        """Its description."""
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
            install=(
                "python3 -m venv verl-env && source verl-env/bin/activate",
                f"pip install 'verl[vllm,fsdp]=={VERSION}' 'TransferQueue>=0.1.10'",
                "export PYTHON=$PWD/verl-env/bin/python",
            ),
            passes=VeRLOptions.PASSES,
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Notes on a run before it starts; see preflight.py."""
        return examine(run)

    def needs(self, run: RunSpec) -> Needs:
        """The GPUs of one node."""
        machines = nodes(run, VeRLOptions.model_validate(run.options))
        return ray_needs(max(run.hardware.gpu_counts) // machines, machines, "hardware.gpus")

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        options = VeRLOptions.model_validate(run.options)
        gpus = max(run.hardware.gpu_counts)
        return {"gpus": gpus, "nodes": nodes(run, options), "sections": sections(run, options), "module": MODULE}

    def documents(self, run: RunSpec) -> dict[str, str]:
        """The request, and the programs of the script."""
        request = REQUEST_DOCUMENT.to_text(request_of(run, VeRLOptions.model_validate(run.options)))
        return {REQUEST: request, **programs("isocompute_verl.payload", OWN)}

    def settings(self, run: RunSpec) -> tuple[Setting, ...]:
        """Its overrides, but for paths, memory and machines."""
        parts = sections(run, VeRLOptions.model_validate(run.options))
        return tuple(
            Setting(key, value, (f"{key}={word(value)}",), key in OF_PLAN)
            for part in parts
            if part.title in ("data and reward", "rollouts", "update", "advantages and loss", "evaluation", STEPS)
            for key, value in part.overrides.items()
            if key in OF_PLAN or (part.title != STEPS and key not in OF_MACHINE and not isinstance(value, Place | list))
        )

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """`trainer.total_training_steps`."""
        steps = keys.get("trainer.total_training_steps")
        return float(steps) if isinstance(steps, int | float) else None
