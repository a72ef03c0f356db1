"""What the runner cannot do, and what would surprise, said before anything runs."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from isocompute_sdk.backend import read_options
from isocompute_sdk.errors import SpecError
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_torch.options import TorchOptions
from isocompute_torch.vllm_install import INSTALL, vllm_is_installed

OTHER_FORMATS = {".parquet", ".csv", ".tsv", ".arrow", ".feather"}


def examine(run: RunSpec) -> tuple[Note, ...]:
    """All notes on a run, those of its recipe included."""
    options, notes = read_options(run, TorchOptions)
    if options is not None:
        notes = (*_options(run, options), *_sampling(run.recipe, options))
    return unique((*run.recipe.notes(), *notes, *_device(run), *_recipe(run), *_length(run), *_data(run), *_paths(run)))


def _options(run: RunSpec, options: TorchOptions) -> list[Note]:
    notes: list[Note] = []
    try:
        options.evaluation_files()
    except SpecError as error:
        notes.append(Note("invalid-option", "refuse", str(error).replace("\n  ", " ")))
    if options.n_train is not None and options.n_train > run.group_size:
        message = f"n_train = {options.n_train} rollouts of a group of {run.group_size}. Use at most group_size."
        notes.append(Note("invalid-option", "refuse", message))
    if options.n_train is not None and run.recipe.algorithm == "ppo":
        message = "n_train: PPO's baseline is its value model, not the group. Remove n_train, or use grpo or cispo."
        notes.append(Note("invalid-option", "refuse", message))
    return notes


def _device(run: RunSpec) -> list[Note]:
    gpus = max(run.hardware.gpu_counts)
    if gpus == 1:
        return []
    message = (
        f"hardware.gpus = {gpus}: the built-in runner trains on one device. Set gpus to 1, or use a backend that "
        "shares a run between GPUs (openrlhf)."
    )
    return [Note("one-device-only", "refuse", message, {"gpus": gpus})]


def _recipe(run: RunSpec) -> list[Note]:
    recipe, notes = run.recipe, list[Note]()
    if recipe.updates_per_batch > 1:
        message = (
            f"updates_per_batch = {recipe.updates_per_batch}: the runner makes one optimiser step per rollout batch. "
            "Set it to 1."
        )
        notes.append(Note("one-update-per-batch", "refuse", message))
    if recipe.kl_coef > 0 and recipe.kl_in == "loss" and recipe.kl_estimator == "k1":
        message = (
            "kl_estimator = k1 in the loss: with one update per batch the gradient of that term has mean zero, so "
            "nothing holds the policy near the base model. Use k2 or k3, or kl_in = reward."
        )
        notes.append(Note("kl-estimator-without-gradient", "warning", message))
    if recipe.algorithm == "ppo" and recipe.zero_variance_filter_policy:
        message = "zero_variance_filter_policy with ppo: its advantages do not vanish in groups of equal rewards."
        notes.append(Note("filter-drops-signal", "warning", message))
    if run.problems_per_batch < recipe.min_problems_per_batch:
        message = (
            f"{run.problems_per_batch} problems per batch are below the recipe's floor of "
            f"{recipe.min_problems_per_batch}, under which training was found unstable."
        )
        notes.append(Note("below-problems-floor", "warning", message))
    return notes


def _sampling(recipe: Recipe, options: TorchOptions) -> list[Note]:
    notes: list[Note] = []
    if recipe.importance_sampling == "tis" and recipe.top_p < 1:
        message = (
            f"top_p = {recipe.top_p:g} with importance_sampling = tis: the sampler's log-probabilities are those of "
            "the truncated distribution, the trainer's are not, so every weight is too small. Use top_p = 1."
        )
        notes.append(Note("importance-weights-biased", "warning", message, {"top_p": recipe.top_p}))
    if options.sampler == "vllm":
        message = (
            "sampler = vllm: needs vLLM in the same interpreter. A resumed run makes the same steps and records, but "
            "not the same samples bit for bit."
        )
        notes.append(Note("vllm-in-process", "info", message))
        # The script runs in this interpreter unless PYTHON names another, which cannot be looked into from here.
        if not os.environ.get("PYTHON") and not vllm_is_installed():
            message = (
                "sampler = vllm: vLLM is not installed in this interpreter, in which the run would start. "
                f"{INSTALL} If the run starts elsewhere, name its interpreter with the environment variable PYTHON."
            )
            notes.append(Note("vllm-missing", "refuse", message))
    return notes


def _length(run: RunSpec) -> list[Note]:
    warmup = run.recipe.warmup_steps
    if run.update_steps >= warmup:
        return []
    message = (
        f"the warm-up of {warmup} steps is not over when the run of {run.update_steps} updates ends: the learning rate "
        f"reaches {run.update_steps / warmup:.0%} of {run.learning_rate:.3g}."
    )
    return [Note("warmup-longer-than-run", "warning", message)]


def _data(run: RunSpec) -> list[Note]:
    notes: list[Note] = []
    for field in ("train", "validation"):
        name: str = getattr(run.data, field)
        if PurePosixPath(name).suffix.lower() in OTHER_FORMATS:
            message = f"data.{field} = {name!r}: accepted: JSON lines, one problem per line. Convert it first."
            notes.append(Note("data-format", "refuse", message, {"field": f"data.{field}"}))
    known = run.data.n_problems
    if known is not None and known < run.problems_per_batch:
        message = (
            f"{known} training problems for {run.problems_per_batch} per batch: every batch repeats problems, which "
            "the laws do not describe. Use fewer problems per batch."
        )
        notes.append(Note("batch-repeats-problems", "warning", message))
    return notes


def _paths(run: RunSpec) -> list[Note]:
    named = {
        "model": run.model,
        "output_dir": run.output_dir,
        "data.train": run.data.train,
        "data.validation": run.data.validation,
        "data.reward": run.data.reward,
    }
    notes: list[Note] = []
    for field, value in named.items():
        if value == "~" or value.startswith("~/"):
            message = f"{field} = {value!r}: '~' is not expanded here. Write the folder out, or a relative path."
            notes.append(Note("home-not-expanded", "refuse", message))
    return notes
