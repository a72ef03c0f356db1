"""What veRL cannot do, would get wrong later, or would do otherwise than the recipe says, said before anything runs.

Every field of a recipe is carried out exactly (flags.py), or refused here, or covered by a note that says what the
difference is. A test changes each field and checks that one of the three happens.
"""

from __future__ import annotations

import math
from pathlib import PurePosixPath

from isocompute_sdk.backend import read_options
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_verl.flags import STD_EPSILON
from isocompute_verl.options import VeRLOptions

OTHER_FORMATS = {".parquet", ".csv", ".tsv", ".arrow", ".feather"}
LARGEST_CHANGE = 1e-3
"""Relative change of an advantage that is worth no more than a mention."""


def examine(run: RunSpec) -> tuple[tuple[Note, ...], VeRLOptions | None]:
    """All notes on a run, with its options where these could be made out."""
    options, notes = read_options(run, VeRLOptions)
    if options is not None:
        notes += tuple(_placement(run, options))
    notes += (*_loss(run.recipe), *_normalisation(run), *_penalties(run.recipe), *_sampling(run.recipe))
    notes += (*_idle_fields(run), *_length(run), *_data(run), *_paths(run))
    return unique((*run.recipe.notes(), *notes)), options


def _placement(run: RunSpec, options: VeRLOptions) -> list[Note]:
    counts, notes = run.hardware.gpu_counts, list[Note]()
    if len(counts) != 1:
        message = f"hardware.gpus lists {', '.join(map(str, counts))}; a script is for one of them. Name one number."
        return [Note("several-gpu-counts", "refuse", message, {"hardware": list(counts)})]
    gpus, nodes = counts[0], options.nodes
    if gpus % nodes:
        message = f"{gpus} GPUs do not fill {nodes} equal nodes. Set the option nodes to a divisor of {gpus}."
        notes.append(Note("gpus-do-not-fill-nodes", "refuse", message))
    elif (gpus // nodes) % options.tensor_parallel:
        message = (
            f"option tensor_parallel = {options.tensor_parallel} does not divide the {gpus // nodes} GPUs of a node. "
            "Use a divisor."
        )
        notes.append(Note("tensor-parallel-does-not-fit", "refuse", message))
    batch, updates = run.rollouts_per_batch, run.recipe.updates_per_batch
    if run.problems_per_batch % updates:
        message = (
            f"updates_per_batch = {updates} with {run.problems_per_batch} problems per batch: veRL cuts a batch "
            f"between problems, not between rollouts. Make problems_per_batch a multiple of {updates}."
        )
        notes.append(Note("updates-cut-groups", "refuse", message))
    elif (batch // updates) % gpus:
        rest = (batch // updates) % gpus
        message = (
            f"{batch // updates} rollouts per update are not a multiple of {gpus} GPUs (rest {rest}): the GPUs would "
            f"get unequal work. Nearest multiples: {max(batch // updates - rest, gpus)} and "
            f"{batch // updates - rest + gpus}."
        )
        notes.append(Note("batch-not-divisible", "refuse", message, {"divisor": gpus, "rest": rest}))
    if nodes > 1:
        message = (
            f"{nodes} nodes with {gpus // nodes} GPUs each: start Ray on all of them first, run the script on one with "
            "RAY_ADDRESS set, and keep data and output_dir on a file system that all of them share."
        )
        notes.append(Note("several-nodes", "info", message, {"nodes": nodes}))
    return notes


def _loss(recipe: Recipe) -> list[Note]:
    filters = [
        name for name in Recipe.model_fields if name.startswith("zero_variance_filter") and getattr(recipe, name)
    ]
    if not filters:
        return []
    message = (
        f"{', '.join(filters)}: veRL cannot leave groups out of a loss term. Its filter_groups samples new problems in "
        "their place, which uses more rollouts and problems than planned. Set them to false (a group of equal rewards "
        "has no policy gradient anyway), or use the backend torch."
    )
    return [Note("zero-variance-filter-unsupported", "refuse", message, {"fields": filters})]


def _normalisation(run: RunSpec) -> list[Note]:
    """std_epsilon and normalize_advantage: veRL adds 1e-6 to a group's deviation and always whitens PPO's batch."""
    recipe, epsilon = run.recipe, run.recipe.std_epsilon
    data = {"std_epsilon": epsilon}
    if recipe.algorithm == "ppo":
        if not recipe.normalize_advantage:
            message = (
                "normalize_advantage is off: veRL always divides PPO's advantages by their deviation over the batch. "
                "Set it to true, or use the backend torch."
            )
            return [Note("advantages-always-normalised", "refuse", message)]
        message = (
            f"std_epsilon = {epsilon:g}: veRL adds 1e-8 to the variance of PPO's advantages over the batch instead; "
            f"the difference is below a thousandth for deviations above {1e3 * max(epsilon, 1e-6):.0e}."
        )
        return [Note("std-epsilon-fixed", "info", message, data)]
    if not recipe.normalize_advantage:
        return [Note("std-epsilon-unused", "info", "std_epsilon is not used: nothing is divided.", data)]
    if epsilon == STD_EPSILON:
        return []
    # The smallest non-zero deviation of n rewards of 0 and 1 is that of a lone success: 1 / sqrt(n).
    change = abs(epsilon - STD_EPSILON) * math.sqrt(run.group_size)
    message = (
        f"std_epsilon = {epsilon:g}: veRL always adds {STD_EPSILON:g}. With rewards of 0 and 1 and {run.group_size} "
        f"rollouts per problem an advantage changes by at most {change:.1e} of its size."
    )
    if change <= LARGEST_CHANGE:
        return [Note("std-epsilon-fixed", "info", message, data)]
    return [Note("std-epsilon-fixed", "refuse", f"{message} Set recipe.std_epsilon to {STD_EPSILON:g}.", data)]


def _penalties(recipe: Recipe) -> list[Note]:
    if recipe.kl_coef == 0:
        message = "kl_coef = 0: kl_in and kl_estimator have no effect, and no reference model is loaded."
        return [Note("kl-off", "info", message)]
    if recipe.kl_in == "loss" and recipe.kl_estimator == "k1":
        message = (
            "kl_estimator = k1 in the loss: the gradient of that term has mean zero while every batch gets one "
            "update, so nothing holds the policy near the base model. Use k2 or k3, or kl_in = reward."
        )
        return [Note("kl-estimator-without-gradient", "warning", message)]
    return []


def _sampling(recipe: Recipe) -> list[Note]:
    if recipe.importance_sampling != "tis" or recipe.top_p == 1:
        return []
    message = (
        f"top_p = {recipe.top_p:g} with importance_sampling = tis: the sampler's log-probabilities are those of "
        "the truncated distribution, the trainer's are not, so every weight is too small. Use top_p = 1."
    )
    return [Note("importance-weights-biased", "warning", message, {"top_p": recipe.top_p})]


def _idle_fields(run: RunSpec) -> list[Note]:
    recipe, preset = run.recipe, Recipe.preset(run.recipe.based_on)
    notes: list[Note] = []
    idle: list[str] = []
    if recipe.algorithm != "ppo":
        idle += ["value_learning_rate", "gae_lambda", "gae_gamma", "value_clip"]
    if recipe.importance_sampling == "none":
        idle.append("tis_cap")
    changed = [name for name in idle if getattr(recipe, name) != getattr(preset, name)]
    if changed:
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


def _length(run: RunSpec) -> list[Note]:
    steps, warmup = run.update_steps, run.recipe.warmup_steps
    if warmup == 0:
        return []
    reached = min(1.0, (steps - 1) / warmup)
    data = {"update_steps": steps, "warmup_steps": warmup, "share_of_learning_rate_reached": reached}
    if steps == 1:
        message = (
            "a run of one update step with a warm-up: the first one has a learning rate of 0, so nothing would be "
            "learned. Use more update_steps, or recipe.warmup_steps = 0."
        )
        return [Note("no-learning", "refuse", message, data)]
    if reached < 1:
        message = (
            f"the warm-up of {warmup} steps is not over when the run of {steps} update steps ends: the learning rate "
            f"reaches {reached:.0%} of {run.learning_rate:.3g}. Use more update_steps or a shorter warm-up."
        )
        return [Note("warmup-longer-than-run", "warning", message, data)]
    message = (
        f"warm-up of {warmup} steps: update step u has the learning rate times min(1, (u - 1) / {warmup}), so the "
        "first one changes nothing."
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
    message = (
        f"prompts longer than {run.recipe.max_prompt_tokens} tokens (recipe.max_prompt_tokens) are left out, in "
        "training and in validation."
    )
    return [*notes, Note("long-prompts-left-out", "info", message)]


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
    for field in ("model", "output_dir"):
        if "${" in named[field]:
            message = (
                f"{field} = {named[field]!r} holds '${{', which veRL's configuration takes for a reference. Choose "
                "another name."
            )
            notes.append(Note("path-misread", "refuse", message, {"characters": ["${"]}))
    return notes
