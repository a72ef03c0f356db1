"""What OpenRLHF would accept and then get wrong, said before anything runs.

Recipe fields are carried out exactly (flags.py), or refused here, or covered here by a note that says why
the difference does not matter. A test changes every field of a recipe and checks that one of the three
happens.
"""

from __future__ import annotations

import math
from pathlib import PurePosixPath

from isocompute_openrlhf.flags import checkpoint_interval
from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_openrlhf.payload.prepare_rows import MISREAD_IN_PATHS
from isocompute_openrlhf.placement import Placement, place
from isocompute_sdk.errors import SpecError
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.specs.problems import close_match

LARGEST_STD_EPSILON = 2e-5
"""Above it an advantage of 0/1 rewards could change by a thousandth within the paper's grid (n <= 2,048)."""
LOWEST_TEMPERATURE = 0.01
"""vLLM samples with at least this temperature (0 apart, which is greedy)."""


def examine(run: RunSpec) -> tuple[tuple[Note, ...], OpenRLHFOptions | None, Placement | None]:
    """All notes on a run, with its options and placement where these could be made out."""
    options, notes = read_options(run)
    placement = None
    if options is not None:
        placement, placed = place(run, options)
        notes += (*placed, *_checkpoints(run, options))
    notes += (*_recipe(run), *_length(run), *_evaluation(run), *_data(run), *_paths(run), *_seed(run, placement))
    return unique((*run.recipe.notes(), *notes, *_order(run), *_multi_node(placement))), options, placement


def run_folder(run: RunSpec) -> str:
    """The run's own folder: `output_dir/run_id`, or `output_dir` where that ends in the run's name already."""
    folder = PurePosixPath(run.output_dir)
    return str(folder if folder.name == run.run_id else folder / run.run_id)


def read_options(run: RunSpec) -> tuple[OpenRLHFOptions | None, tuple[Note, ...]]:
    """The options of a run, or the notes that say what is wrong with them."""
    known = list(OpenRLHFOptions.model_fields)
    notes: list[Note] = []
    for name in run.options:
        if name not in known:
            meant = close_match(name, known)
            suggestion = f" Did you mean {meant}?" if meant else ""
            message = f"unknown option {name!r}; accepted: {', '.join(known)}.{suggestion}"
            notes.append(Note("unknown-option", "refuse", message, {"option": name, "close_match": meant}))
    if notes:
        return None, tuple(notes)
    try:
        return OpenRLHFOptions.model_validate(run.options), ()
    except SpecError as error:
        return None, (Note("invalid-option", "refuse", str(error).replace("\n  ", " ")),)


def _recipe(run: RunSpec) -> list[Note]:
    recipe = run.recipe
    notes = [*_unsupported(recipe), *_standard_deviation(run), *_penalties(recipe), *_unused_fields(recipe)]
    if recipe.temperature < LOWEST_TEMPERATURE:
        message = (
            f"temperature = {recipe.temperature:g}: vLLM samples with {LOWEST_TEMPERATURE:g} at least, while the "
            f"trainer divides logits by {recipe.temperature:g}. Use {LOWEST_TEMPERATURE:g} or more."
        )
        notes.append(Note("temperature-too-low", "refuse", message, {"temperature": recipe.temperature}))
    if recipe.importance_sampling == "tis" and recipe.top_p < 1:
        message = (
            f"top_p = {recipe.top_p:g} with importance_sampling = tis: the sampler's log-probabilities are those of "
            "the truncated distribution, the trainer's are not, so every weight is too small. Use top_p = 1."
        )
        notes.append(Note("importance-weights-biased", "warning", message, {"top_p": recipe.top_p}))
    if run.problems_per_batch < recipe.min_problems_per_batch:
        message = (
            f"{run.problems_per_batch} problems per batch are below the recipe's floor of "
            f"{recipe.min_problems_per_batch}, under which training was found unstable."
        )
        notes.append(Note("below-problems-floor", "warning", message))
    return notes


def _unsupported(recipe: Recipe) -> list[Note]:
    notes: list[Note] = []
    if recipe.algorithm == "cispo":
        message = (
            "OpenRLHF has no CISPO loss. With one update per batch the policy ratio is 1 and the gradient of CISPO "
            "equals that of GRPO's clipped loss: set recipe.algorithm to grpo."
        )
        notes.append(Note("cispo-unsupported", "refuse", message))
    filters = [
        name for name in Recipe.model_fields if name.startswith("zero_variance_filter") and getattr(recipe, name)
    ]
    if filters:
        message = (
            f"{', '.join(filters)}: OpenRLHF cannot leave groups out of a loss term. Its dynamic filtering replaces "
            "them by groups of new problems instead, which uses up problems and changes the number of update steps. "
            "Set them to false: a group of equal rewards has no policy gradient anyway."
        )
        notes.append(Note("zero-variance-filter-unsupported", "refuse", message, {"fields": filters}))
    return notes


def _standard_deviation(run: RunSpec) -> list[Note]:
    """std_epsilon: OpenRLHF divides groups by std + 1e-9 and batches by max(std, 1e-4), whatever is asked for."""
    recipe, epsilon = run.recipe, run.recipe.std_epsilon
    data = {"std_epsilon": epsilon}
    if not recipe.normalize_advantage:
        notes = [Note("std-epsilon-unused", "info", "std_epsilon is not used: nothing is divided.", data)]
        if recipe.algorithm == "ppo":
            message = "normalize_advantage is off: OpenRLHF still subtracts the batch mean from PPO's advantages."
            notes.append(Note("advantages-still-centred", "info", message))
        return notes
    # The smallest non-zero deviation of n rewards of 0 and 1 is that of a lone success: 1 / sqrt(n).
    change = epsilon * math.sqrt(run.group_size)
    if epsilon > LARGEST_STD_EPSILON or change > 1e-3:
        message = (
            f"std_epsilon = {epsilon:g}: OpenRLHF's own value is 1e-9 and cannot be set; with {run.group_size} "
            f"rollouts per problem an advantage would differ by up to {change:.1e} of its size. Accepted: at most "
            f"{LARGEST_STD_EPSILON:g} and at most {1e-3 / math.sqrt(run.group_size):.1e} for this group size."
        )
        return [Note("std-epsilon-fixed", "refuse", message, data)]
    if recipe.algorithm == "ppo":
        message = (
            f"std_epsilon = {epsilon:g}: OpenRLHF divides PPO's advantages by their deviation over the batch, at least "
            "1e-4, without adding anything; the difference is below a thousandth for deviations above "
            f"{1e3 * epsilon:.0e}."
        )
        return [Note("std-epsilon-fixed", "info", message, data)]
    message = (
        f"std_epsilon = {epsilon:g}: OpenRLHF always uses 1e-9, with the unbiased deviation. With rewards of 0 and 1 "
        f"an advantage changes by at most {change:.1e} of its size. With other rewards a group of equal rewards, such "
        "as 0.1, can get advantages up to 1 from rounding alone; use rewards that are multiples of 1/2, 1/4 ..."
    )
    return [Note("std-epsilon-fixed", "info", message, {**data, "largest_relative_change": change})]


def _penalties(recipe: Recipe) -> list[Note]:
    notes: list[Note] = []
    if recipe.kl_coef > 0 and recipe.kl_in == "loss" and recipe.kl_estimator == "k1":
        message = (
            "kl_estimator = k1 in the loss: the gradient of that term has mean zero while every batch gets one "
            "update, so nothing holds the policy near the base model. Use k2 or k3, or kl_in = reward."
        )
        notes.append(Note("kl-estimator-without-gradient", "warning", message))
    if recipe.kl_coef > 0 and recipe.kl_in == "reward" and recipe.algorithm != "ppo":
        message = (
            "kl_in = reward: OpenRLHF subtracts the KL per token after the rewards of a group were normalised, so its "
            "weight is in units of advantages, not of rewards."
        )
        notes.append(Note("kl-after-normalisation", "warning", message))
    if recipe.kl_coef == 0:
        message = "kl_coef = 0: kl_in and kl_estimator have no effect, and no reference model is loaded."
        notes.append(Note("kl-off", "info", message))
    if recipe.loss_aggregation != "token-mean":
        message = (
            f"loss_aggregation = {recipe.loss_aggregation} applies to the policy loss; OpenRLHF averages the KL, "
            "entropy and value terms over tokens in any case."
        )
        severity = "warning" if recipe.kl_coef > 0 or recipe.entropy_coef > 0 or recipe.algorithm == "ppo" else "info"
        notes.append(Note("penalties-stay-token-mean", severity, message))
    return notes


def _unused_fields(recipe: Recipe) -> list[Note]:
    """Fields that this recipe does not use, where they were changed from its preset all the same."""
    preset = Recipe.preset(recipe.based_on)
    idle: list[str] = []
    if recipe.algorithm != "ppo":
        idle += ["value_learning_rate", "gae_lambda", "gae_gamma", "value_clip"]
    if recipe.importance_sampling == "none":
        idle.append("tis_cap")
    changed = [name for name in idle if getattr(recipe, name) != getattr(preset, name)]
    if not changed:
        return []
    message = (
        f"{', '.join(changed)}: without effect with algorithm = {recipe.algorithm} and importance_sampling = "
        f"{recipe.importance_sampling}."
    )
    return [Note("recipe-field-unused", "info", message, {"fields": changed})]


def _length(run: RunSpec) -> list[Note]:
    """The warm-up against the number of updates."""
    updates, warmup = run.update_steps * run.recipe.updates_per_batch, run.recipe.warmup_steps
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


def _evaluation(run: RunSpec) -> list[Note]:
    evaluation, notes = run.evaluation, list[Note]()
    if evaluation.top_p != run.recipe.top_p:
        message = (
            f"evaluation.top_p = {evaluation.top_p:g} and recipe.top_p = {run.recipe.top_p:g}: OpenRLHF evaluates with "
            "the top-p and the response length of training. Make both the same."
        )
        notes.append(Note("evaluation-top-p", "refuse", message))
    if evaluation.every_steps > run.update_steps:
        message = (
            f"evaluation every {evaluation.every_steps} steps in a run of {run.update_steps}: it is never evaluated. "
            f"Set evaluation.every_steps to {max(1, run.update_steps // 10)} or so."
        )
        return [*notes, Note("never-evaluated", "warning", message)]
    message = "OpenRLHF does not evaluate the base model before the first update step."
    rest = run.update_steps % evaluation.every_steps
    if rest:
        message += f" The last {rest} of {run.update_steps} steps end without an evaluation."
    return [*notes, Note("evaluation-gaps", "info", message, {"steps_after_last_evaluation": rest})]


def _checkpoints(run: RunSpec, options: OpenRLHFOptions) -> list[Note]:
    interval = checkpoint_interval(run, options)
    copies = options.keep_checkpoints + options.save_best
    best = " and the best" if options.save_best else ""
    critic = ", and as much again for the value model" if run.recipe.algorithm == "ppo" else ""
    message = (
        f"a checkpoint every {interval} steps, {options.keep_checkpoints} kept{best}: room for {copies + 1} is needed, "
        f"about 14 bytes per parameter each{critic}. A resumed run goes on after the last one; its order of problems "
        "is restored, its random numbers are not."
    )
    return [Note("checkpoints", "info", message, {"every_steps": interval, "kept": options.keep_checkpoints})]


def _data(run: RunSpec) -> list[Note]:
    notes: list[Note] = []
    for field in ("train", "validation"):
        name: str = getattr(run.data, field)
        suffix = PurePosixPath(name).suffix.lower()
        if suffix in {".parquet", ".csv", ".tsv", ".arrow", ".feather"}:
            message = f"data.{field} = {name!r}: accepted: JSON lines, one problem per line. Convert it first."
            notes.append(Note("data-format", "refuse", message, {"field": f"data.{field}"}))
    known = run.data.n_problems
    rows = run.problems_per_batch * run.update_steps
    if known is not None and known < run.problems_per_batch:
        message = (
            f"{known} training problems for {run.problems_per_batch} per batch: every batch repeats problems, which "
            "the laws do not describe. Use fewer problems per batch."
        )
        notes.append(Note("batch-repeats-problems", "warning", message))
    elif known is not None and rows > known:
        message = (
            f"{rows} rows from {known} problems ({rows / known:.1f} epochs): the rows are shuffled across epochs, so "
            "that a batch can hold a problem twice."
        )
        notes.append(Note("epochs-are-mixed", "info", message, {"epochs": rows / known}))
    message = (
        f"prompts longer than {run.recipe.max_prompt_tokens} tokens (recipe.max_prompt_tokens) lose their beginning; "
        "OpenRLHF only logs a warning. Remove such problems first."
    )
    return [*notes, Note("long-prompts-cut", "info", message)]


def _paths(run: RunSpec) -> list[Note]:
    """Values that would be misread on their way; every other character reaches its place as it is."""
    notes: list[Note] = []
    named = {
        "model": run.model,
        "output_dir": run.output_dir,
        "data.train": run.data.train,
        "data.validation": run.data.validation,
        "data.reward": run.data.reward,
    }
    for field, value in named.items():
        if "\0" in value:
            notes.append(Note("nul-character", "refuse", f"{field} = {value!r} holds a NUL character. Remove it."))
        if value == "~" or value.startswith("~/"):
            message = f"{field} = {value!r}: '~' is not expanded here. Write the folder out, or a relative path."
            notes.append(Note("home-not-expanded", "refuse", message))
    bad = [mark for mark in MISREAD_IN_PATHS if mark in run.output_dir]
    if bad:
        message = (
            f"output_dir = {run.output_dir!r} holds {', '.join(map(repr, bad))}: OpenRLHF splits paths at ',' and '@', "
            "and its data loader reads the others as a pattern or an address. Choose another folder."
        )
        notes.append(Note("path-misread", "refuse", message, {"characters": bad}))
    return notes


def _seed(run: RunSpec, placement: Placement | None) -> list[Note]:
    engines = placement.engines if placement is not None else 1
    if run.seed + engines <= 2**32:
        return []
    message = (
        f"seed = {run.seed}: engine i uses seed + i, which has to stay below 2^32 = {2**32} for {engines} engines."
    )
    return [Note("seed-too-large", "refuse", message)]


def _order(run: RunSpec) -> list[Note]:
    message = (
        f"seed = {run.seed} fixes the rows, the workers and the sampling; OpenRLHF shuffles the rows once more without "
        "a seed, so two runs with the same seed see the problems in different orders. The number of rows is exact "
        f"({run.problems_per_batch * run.update_steps}), so there are {run.update_steps} update steps."
    )
    return [Note("problem-order-unseeded", "info", message)]


def _multi_node(placement: Placement | None) -> list[Note]:
    if placement is None or placement.nodes == 1:
        return []
    message = (
        f"{placement.nodes} nodes with {placement.gpus_per_node} GPUs each: start Ray on all of them first, run the "
        "script on one with RAY_ADDRESS set, and keep data and output_dir on a file system that all of them share."
    )
    return [Note("several-nodes", "info", message, {"nodes": placement.nodes})]
