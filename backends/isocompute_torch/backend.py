"""`TorchBackend`: checks a `RunSpec` and turns it into a bash script that starts the built-in runner. No torch."""

from __future__ import annotations

import os
from typing import Any

from isocompute_sdk.errors import SpecError
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.run_folders.store import RUNNER_SPEC
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.training import ScriptBackend, checks
from isocompute_sdk.training.backend import BackendInfo, Needs, describe_options, invalid_option, read_options
from isocompute_torch.architecture import architecture_in
from isocompute_torch.configuration import OPTIONS_OF_SPEED, TorchOptions
from isocompute_torch.sampler_choice import INSTALL, vllm_is_installed


def examine(run: RunSpec) -> tuple[Note, ...]:
    """All notes on a run, those of its recipe included."""
    options, notes = read_options(run, TorchOptions)
    if options is not None:
        notes = (*_options(run, options), *_sampling(run.recipe, options), *_model(run, options))
    warmup = run.recipe.warmup_steps  # unlike in other frameworks, the first update has a rate above 0
    reached = run.update_steps / warmup if warmup else 1.0
    notes = (*notes, *_device(run), *_recipe(run.recipe), *checks.problems_per_batch(run))
    notes += (
        *checks.warmup_unfinished(run, run.update_steps, reached),
        *checks.data_formats(checks.problem_files(run)),
    )
    return unique((*run.recipe.notes(), *notes, *checks.home_folders(checks.named_paths(run))))


def _options(run: RunSpec, options: TorchOptions) -> list[Note]:
    notes: list[Note] = []
    try:
        options.evaluation_files()
        options.stop_texts()
    except SpecError as error:
        notes.append(invalid_option(error))
    if options.n_train is not None and options.n_train > run.group_size:
        message = f"n_train = {options.n_train} rollouts of a group of {run.group_size}. Use at most group_size."
        notes.append(Note("invalid-option", "refuse", message))
    if options.n_train is not None and run.recipe.algorithm == "ppo":
        message = "n_train with ppo: PPO's baseline is its value model. Remove n_train, or use grpo or cispo."
        notes.append(Note("invalid-option", "refuse", message))
    return notes


def _model(run: RunSpec, options: TorchOptions) -> list[Note]:
    """What the configuration of a model in a local folder says about speed; a model on the hub is not looked up."""
    found = architecture_in(run.model)
    if found is None or found.note is None or not options.merge_duplicates:
        return []
    return [Note("prefixes-not-shared", "info", found.note, {"model_type": found.model_type})]


def _device(run: RunSpec) -> list[Note]:
    gpus = max(run.hardware.gpu_counts)
    if gpus == 1:
        return []
    message = (
        f"hardware.gpus = {gpus}: the built-in runner trains on one device. Set gpus to 1, or use a backend that "
        "shares a run between GPUs (openrlhf)."
    )
    return [Note("one-device-only", "refuse", message, {"gpus": gpus})]


def _recipe(recipe: Recipe) -> list[Note]:
    notes = checks.kl_without_gradient(recipe)
    if recipe.updates_per_batch > 1:
        message = (
            f"updates_per_batch = {recipe.updates_per_batch}: the runner makes one optimiser step per rollout batch. "
            "Set it to 1."
        )
        notes.append(Note("one-update-per-batch", "refuse", message))
    if recipe.algorithm == "ppo" and recipe.zero_variance_filter_policy:
        message = "zero_variance_filter_policy with ppo drops signal: advantages are not 0 in groups of equal rewards."
        notes.append(Note("filter-drops-signal", "warning", message))
    return notes


def _sampling(recipe: Recipe, options: TorchOptions) -> list[Note]:
    notes = checks.importance_weights(recipe)
    if options.sampler == "vllm":
        message = (
            "sampler = vllm needs vLLM in the same interpreter. A resumed run has the same steps and records, but not "
            "the same samples bit for bit."
        )
        notes.append(Note("vllm-in-process", "info", message))
        # The script runs in this interpreter unless PYTHON names another, which cannot be checked from here.
        if not os.environ.get("PYTHON") and not vllm_is_installed():
            message = (
                "sampler = vllm: vLLM is not installed in this interpreter, which would run the training. "
                f"{INSTALL} If another interpreter runs it, set the environment variable PYTHON to its path."
            )
            notes.append(Note("vllm-missing", "refuse", message))
    return notes


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
