"""All notes on a veRL run before it starts.

Every field of a recipe is applied exactly (flags.py), refused here, or covered by a note on the difference. A test
changes each field and checks that one of the three happens.
"""

from __future__ import annotations

from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.training import checks
from isocompute_sdk.training.backend import read_options
from isocompute_sdk.training.checks import LARGEST_CHANGE, model_billions
from isocompute_verl.flags import STD_EPSILON
from isocompute_verl.options import VeRLOptions

BYTES_PER_PARAMETER = 12
"""Of a checkpoint: a weight and two moments of four bytes."""


def examine(run: RunSpec) -> tuple[Note, ...]:
    """All notes on a run, including those of its recipe."""
    options, notes = read_options(run, VeRLOptions)
    if options is not None:
        notes += (*_placement(run, options), *_disk(run, options))
    recipe = run.recipe
    notes += (*_loss(recipe), *_normalisation(run), *checks.kl_off(recipe), *checks.kl_without_gradient(recipe))
    notes += (
        *checks.sampled_temperature(recipe),
        *checks.importance_weights(recipe),
        *checks.unused_fields(recipe),
        *checks.problems_per_batch(run),
        *checks.best_reward(run),
    )
    # veRL's schedule counts batches, however many updates each has.
    notes += (*checks.warmup_from_zero(run, run.update_steps, "update step"), *_prompts(recipe), *_paths(run))
    return unique((*recipe.notes(), *notes, *checks.data_formats(checks.problem_files(run))))


def _placement(run: RunSpec, options: VeRLOptions) -> list[Note]:
    several = checks.several_gpu_counts(run)
    if several:
        return several
    counts, notes = run.hardware.gpu_counts, list[Note]()
    gpus, nodes = counts[0], checks.nodes_for(counts[0], options.nodes)
    if isinstance(nodes, Note):
        notes.append(nodes)
    else:
        notes += checks.tensor_parallel_does_not_fit(options.tensor_parallel, gpus // nodes)
        notes += checks.several_nodes(nodes, gpus // nodes)
    updates = run.recipe.updates_per_batch
    if run.problems_per_batch % updates:
        message = (
            f"updates_per_batch = {updates} with {run.problems_per_batch} problems per batch: veRL splits a batch by "
            f"problems, not by rollouts. Make problems_per_batch a multiple of {updates}."
        )
        notes.append(Note("updates-cut-groups", "refuse", message))
    else:
        notes += checks.batch_not_divisible(run, gpus)
    return notes


def _disk(run: RunSpec, options: VeRLOptions) -> list[Note]:
    """`checkpoint-disk`: what checkpoints take, if the model's name says its size."""
    size = model_billions(run.model)
    if size is None:
        return []
    models = 2 if run.recipe.algorithm == "ppo" else 1
    one, kept = size * BYTES_PER_PARAMETER * models, options.keep_checkpoints + 2
    message = (
        f"a checkpoint of {size:g} billion parameters takes about {one:.0f} GB (weights and two moments in 32 bits); "
        f"the newest {options.keep_checkpoints}, the best one and the one being written take {one * kept:.0f} GB. "
        "save_every_steps writes fewer."
    )
    return [Note("checkpoint-disk", "info", message, {"gigabytes": one * kept})]


def _loss(recipe: Recipe) -> list[Note]:
    filters = checks.zero_variance_filters(recipe)
    if not filters:
        return []
    message = (
        f"{', '.join(filters)}: veRL cannot leave groups out of a loss term. Its filter_groups samples new problems in "
        "their place, which uses more rollouts and problems than planned. Set them to false (groups of equal rewards "
        "have no policy gradient anyway), or use the backend torch."
    )
    return [Note("zero-variance-filter-unsupported", "refuse", message, {"fields": filters})]


def _normalisation(run: RunSpec) -> list[Note]:
    """Notes on std_epsilon and normalize_advantage: veRL adds 1e-6 to a group's deviation, and whitens PPO's batch."""
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
        return checks.std_epsilon_unused(recipe)
    if epsilon == STD_EPSILON:
        return []
    change, message = checks.change_of_advantages(run, "veRL", STD_EPSILON)
    if change <= LARGEST_CHANGE:
        return [Note("std-epsilon-fixed", "info", message, data)]
    return [Note("std-epsilon-fixed", "refuse", f"{message} Set recipe.std_epsilon to {STD_EPSILON:g}.", data)]


def _prompts(recipe: Recipe) -> list[Note]:
    message = (
        f"prompts longer than {recipe.max_prompt_tokens} tokens (recipe.max_prompt_tokens) are left out, in training "
        "and in validation."
    )
    return [Note("long-prompts-left-out", "info", message)]


def _paths(run: RunSpec) -> list[Note]:
    named = checks.named_paths(run)
    notes = checks.home_folders(named)
    for field in ("model", "output_dir"):
        if "${" in named[field]:
            message = (
                f"{field} = {named[field]!r} contains '${{', which veRL's configuration reads as a reference. Choose "
                "another name."
            )
            notes.append(Note("path-misread", "refuse", message, {"characters": ["${"]}))
    return notes
