"""`TorchBackend`: turns a `RunSpec` into a bash script that starts the built-in runner. Imports no torch."""

from __future__ import annotations

from typing import Any

from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.store import RUNNER_SPEC
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend
from isocompute_sdk.training.backend import BackendInfo, Needs, describe_options
from isocompute_torch.options import TorchOptions
from isocompute_torch.preflight import examine
from isocompute_torch.runner.configuration import OPTIONS_OF_SPEED

VERSION = "2.13.0"
"""PyTorch release that the runner is tested with."""
MODULE = "isocompute_torch.train"


class TorchBackend(ScriptBackend):
    """Writes launch scripts for the built-in runner."""

    name: str = "torch"
    beside_sdk: bool = True
    packages: tuple[str, ...] = ("torch", "transformers")
    reads_inputs: bool = True
    extends: bool = True
    speed_options: frozenset[str] | None = OPTIONS_OF_SPEED

    def describe(self) -> BackendInfo:
        """Framework, requirements and options of this backend."""
        return BackendInfo(
            name=self.name,
            framework="PyTorch",
            version=VERSION,
            summary="The built-in runner: GRPO, PPO and CISPO in one process, on a CPU or one GPU.",
            needs=(
                "isocompute with its extra torch in the interpreter named by PYTHON (default: python3)",
                "any Hugging Face causal language model that fits on one device",
                "training and validation problems as JSON lines, and a Python file with the reward function",
                "on a GPU best with vLLM in the same interpreter, which samples several times as fast",
            ),
            install=("pip install 'isocompute[torch]'", "pip install 'isocompute[vllm]' # on a GPU"),
            algorithms=("grpo", "ppo", "cispo"),
            options=describe_options(TorchOptions),
        )

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Notes on `run`, errors included; see preflight.py."""
        return examine(run)

    def needs(self, run: RunSpec) -> Needs:
        """One GPU, unless the option `device` is cpu."""
        device = TorchOptions.model_validate(run.options).device
        return Needs(int(device != "cpu"), or_cpu=device == "auto", source="options.device")

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Values for the template of the script."""
        return {"framework": "PyTorch", "module": MODULE, "request": RUNNER_SPEC.to_text(run)}
