"""All notes on a TRL run before it starts.

Every field of a recipe is applied exactly (flags.py), refused here, or covered by a note on the difference. A test
changes each field and checks that one of the three happens.
"""

from __future__ import annotations

from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.training import checks
from isocompute_sdk.training.backend import read_options
from isocompute_sdk.training.checks import LARGEST_CHANGE
from isocompute_trl.flags import LOSS_TYPES, STD_EPSILON, processes, samples_per_pass
from isocompute_trl.options import TRLOptions


def examine(run: RunSpec) -> tuple[Note, ...]:
    """All notes on a run, including those of its recipe."""
    options, notes = read_options(run, TRLOptions)
    if options is not None:
        notes += (*_placement(run, options), *_sampler(run.recipe, options), *_entropy(run, options))
        notes += tuple(_padding(run, options))
    notes += (*_algorithm(run.recipe), *_kl(run.recipe), *_normalisation(run), *checks.unused_fields(run.recipe))
    notes += (*checks.problems_per_batch(run), *_evaluation(run), *checks.warmup_from_zero(run, run.update_steps))
    notes += (*checks.data_formats(checks.problem_files(run)), *checks.home_folders(checks.named_paths(run)))
    return unique((*run.recipe.notes(), *notes))


def _placement(run: RunSpec, options: TRLOptions) -> list[Note]:
    several = checks.several_gpu_counts(run)
    if several:
        return several
    counts, notes = run.hardware.gpu_counts, list[Note]()
    if options.device == "cpu" and (counts[0] > 1 or options.sampler == "vllm"):
        message = (
            f"option device = cpu with sampler = {options.sampler} and hardware.gpus = {counts[0]}; accepted: sampler "
            "= transformers and one process (hardware.gpus = 1)."
        )
        notes.append(Note("invalid-option", "refuse", message))
    count = processes(run, options)
    if count > checks.USUAL_NODE:
        message = (
            f"{count} GPUs: this backend runs on one machine of up to {checks.USUAL_NODE}. For several machines use "
            "the backend openrlhf or verl."
        )
        notes.append(Note("one-machine-only", "refuse", message, {"gpus": count}))
    notes += checks.batch_not_divisible(run, count)
    if options.sampler == "vllm":
        notes += checks.tensor_parallel_does_not_fit(options.tensor_parallel, count)
    return notes


def _sampler(recipe: Recipe, options: TRLOptions) -> list[Note]:
    vllm = options.sampler == "vllm"
    notes = [*checks.sampled_temperature(recipe), *checks.importance_weights(recipe)] if vllm else []
    if options.sampler == "transformers" and recipe.importance_sampling == "tis":
        message = (
            "importance_sampling = tis with sampler = transformers: the trained model samples itself, so there is no "
            "difference to correct, and no weights are applied."
        )
        notes.append(Note("importance-sampling-not-needed", "info", message))
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
    filters = checks.zero_variance_filters(recipe)
    if filters:
        message = (
            f"{', '.join(filters)}: TRL cannot leave groups out of a loss term. Set them to false (groups of equal "
            "rewards have no policy gradient anyway), or use the backend torch."
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
        return checks.kl_off(recipe)
    notes: list[Note] = []
    if recipe.kl_in != "loss" or recipe.kl_estimator != "k3":
        message = (
            f"kl_in = {recipe.kl_in} with kl_estimator = {recipe.kl_estimator}: TRL has the estimator k3 as a term of "
            "the loss only. Set kl_in to loss and kl_estimator to k3, or use the backend openrlhf, verl or torch."
        )
        notes.append(Note("kl-form-unsupported", "refuse", message))
    return notes


def _normalisation(run: RunSpec) -> list[Note]:
    """Notes on std_epsilon: TRL always adds 1e-4."""
    if not run.recipe.normalize_advantage:
        return checks.std_epsilon_unused(run.recipe)
    if run.recipe.std_epsilon == STD_EPSILON:
        return []
    change, message = checks.change_of_advantages(run, "TRL", STD_EPSILON)
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
        f"{samples_per_pass(run, options)} rollouts and then over passes, so long responses count slightly less than "
        "in a mean over all tokens."
    )
    return [Note("entropy-mean-per-pass", "info", message)]


def _padding(run: RunSpec, options: TRLOptions) -> list[Note]:
    """Note on padding: a pass takes as many tokens as its longest response times its rollouts."""
    rollouts = samples_per_pass(run, options)
    if rollouts == 1:
        return []
    message = (
        f"TRL pads the {rollouts} rollouts of a pass to the longest of them: where responses differ in length, an "
        f"update costs up to {rollouts} times the tokens that were sampled. The backends openrlhf and verl pack "
        "responses instead; samples_per_pass = 1 pads nothing, at the price of more and smaller passes."
    )
    return [Note("padded-to-longest", "info", message, {"samples_per_pass": rollouts})]


def _evaluation(run: RunSpec) -> list[Note]:
    evaluation, recipe, notes = run.evaluation, run.recipe, list[Note]()
    if evaluation.temperature != recipe.temperature:
        message = (
            f"evaluation.temperature = {evaluation.temperature:g} and recipe.temperature = {recipe.temperature:g}: TRL "
            "evaluates with the temperature of training. Make both the same, or use another backend."
        )
        notes.append(Note("evaluation-temperature", "refuse", message))
    notes += [*checks.evaluation_top_p(run, "TRL"), *checks.best_reward(run)]
    gpus, problems = max(run.hardware.gpu_counts), evaluation.n_problems
    if problems is not None and problems % gpus:
        message = (
            f"{problems} validation problems on {gpus} GPUs: TRL repeats some to fill its last batch. avg@k, best@k "
            "and worst@k use each problem's own samples and are exact; trl_eval_reward counts the repeats twice."
        )
        notes.append(Note("evaluation-padded", "info", message, {"n_problems": problems, "gpus": gpus}))
    return notes
