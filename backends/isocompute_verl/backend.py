"""`VeRLBackend`: from a `RunSpec` to one self-contained bash script for veRL 0.9.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.backend import BackendInfo, Needs, ray_needs
from isocompute_sdk.training.framework import Flag, FrameworkBackend, Place
from isocompute_verl.flags import CHECKS, FLAGS, VERSION, VeRLCase, VeRLOptions
from isocompute_verl.payload.hydra_words import word

MODULE = "verl.trainer.main_ppo"
"""Program that takes the keys."""


class VeRLBackend(FrameworkBackend[VeRLCase]):
    """Writes launch scripts for veRL 0.9.1; imports nothing of it."""

    name: str = "verl"
    packages: tuple[str, ...] = ("verl",)
    log_format: str = "verl"
    INFO = BackendInfo(
        name="verl",
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
        install=(
            "python3 -m venv verl-env && source verl-env/bin/activate",
            f"pip install 'verl[vllm,fsdp]=={VERSION}' 'TransferQueue>=0.1.10'",
            "export PYTHON=$PWD/verl-env/bin/python",
        ),
    )
    OPTIONS = VeRLOptions
    CASE = VeRLCase
    FLAGS = FLAGS
    CHECKS = CHECKS
    # A sharded checkpoint loads only with the same number.
    SAME = ("nodes", "gpus")
    PROGRAMS = ("prepare_rows.py", "reward_score.py", "hydra_words.py", "start_training.py", "keep_best.py")

    def needs(self, run: RunSpec) -> Needs:
        """The GPUs of one node."""
        case = self.case(run)
        return ray_needs(case.gpus_per_node, case.nodes, "hardware.gpus")

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        case = self.case(run)
        overrides = [(part.title, [override(flag) for flag in part.flags]) for part in self.sections(run)]
        return {"gpus": case.gpus, "nodes": case.nodes, "sections": overrides, "module": MODULE}

    def words(self, flag: Flag) -> tuple[str, ...]:
        """A Hydra override."""
        return (override(flag),)

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """`trainer.total_training_steps`."""
        steps = keys.get("trainer.total_training_steps")
        return float(steps) if isinstance(steps, int | float) else None


def override(flag: Flag) -> str:
    """`key=value` in Hydra's quoting; a `Place` becomes a mark that start_training.py fills in."""
    if isinstance(flag.value, Place):
        return f"{flag.name}={f'@run/{flag.value.path}' if flag.value.path else '@model'}"
    return f"{flag.name}={word(flag.value)}"
