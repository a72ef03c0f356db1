"""`OpenRLHFBackend`: from a `RunSpec` to one self-contained bash script for OpenRLHF 0.11.2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isocompute_openrlhf.flags import (
    CHECKS,
    FLAGS,
    MAX_ROWS,
    MISREAD_IN_PATHS,
    VERSION,
    OpenRLHFCase,
    OpenRLHFOptions,
    length_flags,
)
from isocompute_sdk.ingest.stores.saved_config import scalar
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.backend import BackendInfo
from isocompute_sdk.training.existing import Setting
from isocompute_sdk.training.framework import Flag, FrameworkBackend, Place, Section
from isocompute_sdk.training.rendering import sh

MODULE = "openrlhf.cli.train_ppo_ray"
"""Program that takes the flags."""


class OpenRLHFBackend(FrameworkBackend[OpenRLHFCase]):
    """Writes launch scripts for OpenRLHF 0.11.2; imports nothing of it."""

    name: str = "openrlhf"
    packages: tuple[str, ...] = ("openrlhf",)
    log_format: str = "openrlhf"
    INFO = BackendInfo(
        name="openrlhf",
        framework="OpenRLHF",
        version=VERSION,
        summary="GRPO and PPO on Ray, vLLM and DeepSpeed; trainer and engines share all GPUs and take turns.",
        needs=(
            f"openrlhf[vllm]=={VERSION} in the interpreter named by PYTHON (default: python3)",
            "NVIDIA GPUs with flash-attn support, as many as hardware.gpus says",
            "training and validation problems as JSON lines, and a Python file with the reward function",
            "for several nodes: a running Ray cluster and a shared file system",
        ),
        algorithms=("grpo", "ppo"),
        install=(
            "python3.11 -m venv openrlhf-env && source openrlhf-env/bin/activate",
            f"pip install 'openrlhf[vllm]=={VERSION}' --no-deps && pip install vllm==0.29.0",
            "pip install flash-attn==2.8.3 --no-build-isolation",
            f"pip install 'openrlhf[vllm]=={VERSION}'",
            "export PYTHON=$PWD/openrlhf-env/bin/python",
        ),
    )
    OPTIONS = OpenRLHFOptions
    CASE = OpenRLHFCase
    FLAGS = FLAGS
    CHECKS = CHECKS
    # A checkpoint loads only with the same.
    SAME = ("options.zero_stage", "options.chat_template", "nodes", "gpus")
    MISREAD_IN_PATHS = MISREAD_IN_PATHS
    PROGRAMS = ("prepare_rows.py", "reward_wrapper.py", "supervise.py")

    def sections(self, run: RunSpec) -> tuple[Section, ...]:
        """All flags of an accepted run; a switch that is off is left out."""
        return tuple(
            replace(part, flags=tuple(flag for flag in part.flags if flag.value is not False))
            for part in super().sections(run)
        )

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        case = self.case(run)
        return {
            "module": MODULE,
            "case": case,
            "sections": [(part.title, [written(flag) for flag in part.flags]) for part in self.sections(run)],
            "engines": ["_actor", "_critic"] if case.ppo else ["_actor"],
            "supervision": [f"--keep={case.options.keep_checkpoints}", f"--samples={case.evaluation.samples}"],
        }

    def words(self, flag: Flag) -> tuple[str, ...]:
        """The arguments that OpenRLHF receives."""
        return arguments(flag, "", "")

    def settings(self, run: RunSpec) -> tuple[Setting, ...]:
        """The flags of plan and recipe. M is that of a command without our rows."""
        length = length_flags(self.case(run))
        flags = [flag for part in self.sections(run) for flag in part.flags if flag.part]
        return tuple(
            Setting(flag.name, _read(flag.value), self.words(flag), flag.part == "plan") for flag in (*flags, *length)
        )

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """Batches of `data.max_samples` rows in `train.num_episodes` episodes; flat flags are of earlier releases."""
        rows, batch = (
            keys.get(dotted, keys.get(flat))
            for dotted, flat in (("data.max_samples", "max_samples"), ("rollout.batch_size", "rollout_batch_size"))
        )
        if rows == MAX_ROWS:
            # A script of ours takes all the rows that it writes.
            return None
        episodes = keys.get("train.num_episodes", keys.get("num_episodes")) or 1
        return float(rows // batch * episodes) if isinstance(rows, int) and isinstance(batch, int) else None


def arguments(flag: Flag, run_folder: str, model: str) -> tuple[str, ...]:
    """The arguments that OpenRLHF receives for one flag: true is a switch, and a tuple has several values."""
    name = f"--{flag.name}"
    if isinstance(flag.value, Place):
        return (name, f"{run_folder}/{flag.value.path}") if flag.value.path else (f"{name}={model}",)
    if flag.value is True:
        return (name,)
    values = flag.value if isinstance(flag.value, tuple) else (flag.value,)
    texts = [value if isinstance(value, str) else repr(value) for value in values]
    # A value with a leading dash would be read as a flag.
    return (f"{name}={texts[0]}",) if len(texts) == 1 and texts[0].startswith("-") else (name, *texts)


def written(flag: Flag) -> str:
    """One flag in the script, quoted for bash."""
    if isinstance(flag.value, Place):
        path = sh(flag.value.path)
        # The model may begin with a dash.
        return f'--{flag.name} "$run"/{path}' if flag.value.path else f'--{flag.name}="$model"'
    name, *values = arguments(flag, "", "")
    name, joined, value = name.partition("=")
    return " ".join([f"{name}={sh(value)}" if joined else name, *map(sh, values)])


def _read(value: Any) -> str | int | float | bool | None:
    """The value of a flag as a script's configuration has it; several values are one text."""
    if isinstance(value, tuple):
        return " ".join(map(repr, value))
    return value if isinstance(value, bool) else scalar(value if isinstance(value, str) else repr(value))
