"""`TorchBackend`: checks a `RunSpec` and turns it into a bash script that starts the built-in runner. No torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.store import RUNNER_SPEC
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend, checks
from isocompute_sdk.training.backend import BackendInfo, Needs, describe_options
from isocompute_sdk.training.checks import unsupported
from isocompute_sdk.training.framework import Case, Check, Rule, checked
from isocompute_torch.configuration import INSTALL, OPTIONS_OF_SPEED, TorchOptions, vllm_is_installed

VERSION = "2.13.0"
"""PyTorch release that the runner is tested with."""
MODULE = "isocompute_torch.train"
TorchCase = Case[TorchOptions]


def _warmup(case: TorchCase) -> list[Note]:
    """Unlike in other frameworks, the first update has a rate above 0."""
    steps, warmup = case.run.update_steps, case.recipe.warmup_steps
    return checks.warmup_unfinished(case.run, steps, steps / warmup if warmup else 1.0)


def _vllm(case: TorchCase) -> Iterator[Note]:
    if case.options.sampler != "vllm":
        return
    # The script runs in this interpreter unless PYTHON names another, which cannot be checked from here.
    if not os.environ.get("PYTHON") and not vllm_is_installed():
        message = (
            "sampler = vllm: vLLM is not installed in this interpreter, which would run the training. "
            f"{INSTALL} If another interpreter runs it, set the environment variable PYTHON to its path."
        )
        yield unsupported("options.sampler", message)


CHECKS: tuple[Check[TorchCase], ...] = (
    _vllm,
    Rule[TorchCase](
        "hardware.gpus",
        lambda c: c.gpus > 1,
        "hardware.gpus = {c.gpus}: the built-in runner trains on one device. Set gpus to 1, or use a backend that "
        "shares a run between GPUs (openrlhf).",
    ),
    checks.kl_without_gradient,
    Rule[TorchCase](
        "recipe.updates_per_batch",
        lambda c: c.recipe.updates_per_batch > 1,
        "updates_per_batch = {recipe.updates_per_batch}: the runner makes one optimiser step per rollout batch. Set it "
        "to 1.",
    ),
    Rule[TorchCase](
        "recipe.zero_variance_filter_policy",
        lambda c: c.ppo and c.recipe.zero_variance_filter_policy,
        "zero_variance_filter_policy with ppo drops signal: advantages are not 0 in groups of equal rewards.",
        "recipe-conflict",
        "warning",
    ),
    checks.biased_weights,
    _warmup,
    *checks.PROBLEMS,
)


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
        """Notes on a run before it starts."""
        return checked(run, TorchOptions, TorchCase, CHECKS)

    def needs(self, run: RunSpec) -> Needs:
        """One GPU, unless the option `device` is cpu."""
        device = TorchOptions.model_validate(run.options).device
        return Needs(int(device != "cpu"), or_cpu=device == "auto", source="options.device")

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Values for the template of the script."""
        return {"framework": "PyTorch", "module": MODULE, "request": RUNNER_SPEC.to_text(run)}
