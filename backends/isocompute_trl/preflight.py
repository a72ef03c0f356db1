"""What TRL cannot do, or would do otherwise than the recipe says, said before anything runs.

Every field of a recipe is carried out exactly (flags.py), or refused here, or covered by a note that says what the
difference is. A test changes each field and checks that one of the three happens.
"""

from __future__ import annotations

import math
from pathlib import PurePosixPath

from isocompute_sdk.backend import read_options
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_trl.flags import LOSS_TYPES, STD_EPSILON, processes, samples_per_pass
from isocompute_trl.options import TRLOptions

OTHER_FORMATS = {".parquet", ".csv", ".tsv", ".arrow", ".feather"}
LARGEST_CHANGE = 1e-3
"""Relative change of an advantage that is worth no more than a mention."""


def examine(run: RunSpec) -> tuple[tuple[Note, ...], TRLOptions | None]:
    """All notes on a run, with its options where these could be made out."""
    options, notes = read_options(run, TRLOptions)
    if options is not None:
        notes += (*_placement(run, options), *_sampler(run.recipe, options), *_entropy(run, options))
    notes += (*_algorithm(run.recipe), *_kl(run.recipe), *_normalisation(run), *_other_fields(run))
    notes += (*_evaluation(run), *_length(run), *_data(run), *_paths(run))
    return unique((*run.recipe.notes(), *notes)), options


def _placement(run: RunSpec, options: TRLOptions) -> list[Note]:
    counts, notes = run.hardware.gpu_counts, list[Note]()
    if len(counts) != 1:
        message = (
            f"hardware.gpus lists {', '.join(map(str, counts))}; a script is for one of them. Name one number of GPUs."
        )
        return [Note("several-gpu-counts", "refuse", message, {"hardware": list(counts)})]
    if options.device == "cpu" and (counts[0] > 1 or options.sampler == "vllm"):
        message = (
            f"option device = cpu with sampler = {options.sampler} and hardware.gpus = {counts[0]}; accepted: sampler "
            "= transformers and one process (hardware.gpus = 1)."
        )
        notes.append(Note("invalid-option", "refuse", message))
    count = processes(run, options)
    if run.rollouts_per_batch % count:
        rest = run.rollouts_per_batch % count
        message = (
            f"{run.rollouts_per_batch} rollouts per batch ({run.group_size} per problem x {run.problems_per_batch} "
            f"problems) are not a multiple of {count} GPUs (rest {rest}). Nearest multiples: "
            f"{max(run.rollouts_per_batch - rest, count)} and {run.rollouts_per_batch - rest + count}."
        )
        notes.append(Note("batch-not-divisible", "refuse", message, {"divisor": count, "rest": rest}))
    if options.sampler == "vllm" and count % options.tensor_parallel:
        message = f"option tensor_parallel = {options.tensor_parallel} does not divide the {count} GPUs. Use a divisor."
        notes.append(Note("tensor-parallel-does-not-fit", "refuse", message))
    return notes


def _sampler(recipe: Recipe, options: TRLOptions) -> list[Note]:
    notes: list[Note] = []
    if options.sampler == "transformers" and recipe.importance_sampling == "tis":
        message = (
            "importance_sampling = tis with sampler = transformers: the trained model samples itself, so there is no "
            "difference to correct and no weight is applied."
        )
        notes.append(Note("importance-sampling-not-needed", "info", message))
    if options.sampler == "vllm" and recipe.importance_sampling == "tis" and recipe.top_p < 1:
        message = (
            f"top_p = {recipe.top_p:g} with importance_sampling = tis: the sampler's log-probabilities are those of "
            "the truncated distribution, the trainer's are not, so every weight is too small. Use top_p = 1."
        )
        notes.append(Note("importance-weights-biased", "warning", message, {"top_p": recipe.top_p}))
    return notes


def _algorithm(recipe: Recipe) -> list[Note]:
    notes: list[Note] = []
    if recipe.algorithm == "ppo":
        message = (
            "TRL 1.16 has no PPO trainer. Use the backend openrlhf, verl or torch, or set recipe.algorithm to grpo."
        )
        notes.append(Note("ppo-unsupported", "refuse", message))
    elif (recipe.algorithm, recipe.loss_aggregation) not in LOSS_TYPES:
        message = (
            f"loss_aggregation = {recipe.loss_aggregation} with algorithm = {recipe.algorithm}: TRL averages this loss "
            "over all tokens of the batch. Set loss_aggregation to token-mean."
        )
        notes.append(Note("loss-aggregation-unsupported", "refuse", message))
    filters = [
        name for name in Recipe.model_fields if name.startswith("zero_variance_filter") and getattr(recipe, name)
    ]
    if filters:
        message = (
            f"{', '.join(filters)}: TRL cannot leave groups out of a loss term. Set them to false (a group of equal "
            "rewards has no policy gradient anyway), or use the backend torch."
        )
        notes.append(Note("zero-variance-filter-unsupported", "refuse", message, {"fields": filters}))
    if recipe.updates_per_batch > 1:
        message = (
            f"updates_per_batch = {recipe.updates_per_batch}: TRL's max_steps and warm-up count optimiser steps, and "
            "this backend makes one per rollout batch. Set it to 1."
        )
        notes.append(Note("one-update-per-batch", "refuse", message))
    return notes


def _kl(recipe: Recipe) -> list[Note]:
    if recipe.kl_coef == 0:
        message = "kl_coef = 0: kl_in and kl_estimator have no effect, and no reference model is loaded."
        return [Note("kl-off", "info", message)]
    notes: list[Note] = []
    if recipe.kl_in != "loss" or recipe.kl_estimator != "k3":
        message = (
            f"kl_in = {recipe.kl_in} with kl_estimator = {recipe.kl_estimator}: TRL has the estimator k3 as a term of "
            "the loss only. Set kl_in to loss and kl_estimator to k3, or use the backend openrlhf, verl or torch."
        )
        notes.append(Note("kl-form-unsupported", "refuse", message))
    return notes


def _normalisation(run: RunSpec) -> list[Note]:
    """std_epsilon: TRL adds 1e-4, whatever is asked for."""
    epsilon = run.recipe.std_epsilon
    if not run.recipe.normalize_advantage:
        message = "std_epsilon is not used: nothing is divided."
        return [Note("std-epsilon-unused", "info", message, {"std_epsilon": epsilon})]
    if epsilon == STD_EPSILON:
        return []
    # The smallest non-zero deviation of n rewards of 0 and 1 is that of a lone success: 1 / sqrt(n).
    change = abs(epsilon - STD_EPSILON) * math.sqrt(run.group_size)
    message = (
        f"std_epsilon = {epsilon:g}: TRL always adds {STD_EPSILON:g}. With rewards of 0 and 1 and {run.group_size} "
        f"rollouts per problem an advantage changes by at most {change:.1e} of its size."
    )
    if change <= LARGEST_CHANGE:
        return [Note("std-epsilon-fixed", "info", message, {"largest_relative_change": change})]
    severity = "warning" if change <= 10 * LARGEST_CHANGE else "refuse"
    message += f" Set recipe.std_epsilon to {STD_EPSILON:g} to state what happens, or use the backend verl."
    return [Note("std-epsilon-fixed", severity, message, {"largest_relative_change": change})]


def _entropy(run: RunSpec, options: TRLOptions) -> list[Note]:
    share = run.rollouts_per_batch // processes(run, options)
    if run.recipe.entropy_coef == 0 or samples_per_pass(run, options) == share:
        return []
    message = (
        f"entropy_coef = {run.recipe.entropy_coef:g}: TRL averages the entropy over the tokens of each pass of "
        f"{samples_per_pass(run, options)} rollouts and then over passes, so that long responses count a little less "
        "than in a mean over all tokens."
    )
    return [Note("entropy-mean-per-pass", "info", message)]


def _other_fields(run: RunSpec) -> list[Note]:
    recipe, preset = run.recipe, Recipe.preset(run.recipe.based_on)
    notes: list[Note] = []
    idle = ["value_learning_rate", "gae_lambda", "gae_gamma", "value_clip"]
    if recipe.importance_sampling == "none":
        idle.append("tis_cap")
    changed = [name for name in idle if getattr(recipe, name) != getattr(preset, name)]
    if changed and recipe.algorithm != "ppo":
        message = (
            f"{', '.join(changed)}: without effect with algorithm = {recipe.algorithm} and importance_sampling = "
            f"{recipe.importance_sampling}."
        )
        notes.append(Note("recipe-field-unused", "info", message, {"fields": changed}))
    if run.problems_per_batch < recipe.min_problems_per_batch:
        message = (
            f"{run.problems_per_batch} problems per batch are below the recipe's floor of "
            f"{recipe.min_problems_per_batch}, under which training was found unstable."
        )
        notes.append(Note("below-problems-floor", "warning", message))
    return notes


def _evaluation(run: RunSpec) -> list[Note]:
    evaluation, recipe, notes = run.evaluation, run.recipe, list[Note]()
    if evaluation.temperature != recipe.temperature:
        message = (
            f"evaluation.temperature = {evaluation.temperature:g} and recipe.temperature = {recipe.temperature:g}: TRL "
            "evaluates with the temperature of training. Make both the same, or use another backend."
        )
        notes.append(Note("evaluation-temperature", "refuse", message))
    if evaluation.top_p != recipe.top_p:
        message = (
            f"evaluation.top_p = {evaluation.top_p:g} and recipe.top_p = {recipe.top_p:g}: TRL evaluates with the "
            "top-p and the response length of training. Make both the same."
        )
        notes.append(Note("evaluation-top-p", "refuse", message))
    gpus, problems = max(run.hardware.gpu_counts), evaluation.n_problems
    if problems is not None and problems % gpus:
        message = (
            f"{problems} validation problems on {gpus} GPUs: TRL repeats some to fill its last batch. avg@k, best@k "
            "and worst@k are taken from each problem's own samples and stay exact; trl_eval_reward counts them twice."
        )
        notes.append(Note("evaluation-padded", "info", message, {"n_problems": problems, "gpus": gpus}))
    return notes


def _length(run: RunSpec) -> list[Note]:
    updates, warmup = run.update_steps, run.recipe.warmup_steps
    if warmup == 0:
        return []
    reached = min(1.0, (updates - 1) / warmup)
    data = {"updates": updates, "warmup_steps": warmup, "share_of_learning_rate_reached": reached}
    if updates == 1:
        message = (
            "a run of one update with a warm-up: the first update has a learning rate of 0, so nothing would be "
            "learned. Use more update_steps, or recipe.warmup_steps = 0."
        )
        return [Note("no-learning", "refuse", message, data)]
    if reached < 1:
        message = (
            f"the warm-up of {warmup} steps is not over when the run of {updates} updates ends: the learning rate "
            f"reaches {reached:.0%} of {run.learning_rate:.3g}. Use more update_steps or a shorter warm-up."
        )
        return [Note("warmup-longer-than-run", "warning", message, data)]
    message = (
        f"warm-up of {warmup} steps: update u has the learning rate times min(1, (u - 1) / {warmup}), so the first "
        "one changes nothing."
    )
    return [Note("warmup-starts-at-zero", "info", message, data)]


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
