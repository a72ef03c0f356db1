"""`TRLBackend`: from a `RunSpec` to one self-contained bash script for TRL 1.16.0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.backend import BackendInfo, Needs
from isocompute_sdk.training.existing import Setting
from isocompute_sdk.training.framework import Flag, FrameworkBackend
from isocompute_sdk.training.payload import program
from isocompute_trl.flags import CHECKS, FLAGS, VERSION, TRLCase, TRLOptions


class TRLBackend(FrameworkBackend[TRLCase]):
    """Writes launch scripts for TRL 1.16.0; imports nothing of it."""

    name: str = "trl"
    packages: tuple[str, ...] = ("trl",)
    INFO = BackendInfo(
        name="trl",
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
        install=(
            "python3 -m venv trl-env && source trl-env/bin/activate",
            f"pip install 'trl[vllm]=={VERSION}' deepspeed",
            "export PYTHON=$PWD/trl-env/bin/python",
        ),
    )
    OPTIONS = TRLOptions
    CASE = TRLCase
    FLAGS = FLAGS
    CHECKS = CHECKS
    SAME = ("options.chat_template", "options.sampler", "processes", "sharding")
    PROGRAMS = ("prepare_rows.py", "train.py")

    def needs(self, run: RunSpec) -> Needs:
        """One GPU for each trainer process; none if the option `device` is cpu."""
        case = self.case(run)
        return Needs(0 if case.cpu else case.processes)

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        case = self.case(run)
        return {
            "processes": case.processes,
            "vllm": case.vllm,
            "deepspeed": case.processes > 1 and case.options.sharding != "ddp",
            "trainer": json.dumps(self.trainer_settings(run), indent=1),
            "sharding": json.dumps(sharding_config(case), indent=1),
        }

    def trainer_settings(self, run: RunSpec) -> dict[str, Any]:
        """Arguments of GRPOConfig by name."""
        return {flag.name: flag.value for section in self.sections(run) for flag in section.flags}

    def words(self, flag: Flag) -> tuple[str, ...]:
        """As TRL's own parser takes it."""
        return (f"--{flag.name}", str(flag.value))

    def settings(self, run: RunSpec) -> tuple[Setting, ...]:
        """The flags of plan and recipe; one batch is one update, which a command may have set by another flag."""
        steps = Flag("steps_per_generation", self.case(run).accumulation, "plan")
        return (*super().settings(run), Setting(steps.name, steps.value, self.words(steps), True))

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """`max_steps`, over the updates of one generation."""
        steps, iterations = keys.get("max_steps"), keys.get("num_iterations") or 1
        return steps / iterations if isinstance(steps, int | float) and steps > 0 else None

    def documents(self, run: RunSpec) -> dict[str, str]:
        """The request, the programs of the script, and the journal they write."""
        return {**super().documents(run), "run_journal.py": program("run_journal.py", "isocompute_sdk.run_folders")}


def sharding_config(case: TRLCase) -> dict[str, Any] | None:
    """The configuration file of `accelerate launch`; None for a single process, which is started without it."""
    if case.processes == 1:
        return None
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "mixed_precision": "bf16",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": case.processes,
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }
    if case.options.sharding != "ddp":
        stage = int(case.options.sharding.removeprefix("zero"))
        config["distributed_type"] = "DEEPSPEED"
        config["deepspeed_config"] = {
            "deepspeed_multinode_launcher": "standard",
            "offload_optimizer_device": "none",
            "offload_param_device": "none",
            "zero3_init_flag": stage == 3,
            "zero3_save_16bit_model": stage == 3,
            "zero_stage": stage,
        }
    return config
