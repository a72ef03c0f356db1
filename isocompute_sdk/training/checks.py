"""Checks before a run that several backends share: each takes a `Case` and gives notes.

A backend lists those that apply; checks of one framework stay in its backend. `docs/notes.md` lists the codes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.training.framework import USUAL_NODE, Case, Rule

MAX_CHANGE = 1e-3
"""Relative change of an advantage up to which a note is an info."""
MIN_TEMPERATURE = 0.01
"""vLLM samples with at least this temperature; 0 is greedy."""
PLACEHOLDER = "NAME_OR_FOLDER"
"""What printed commands name where no model is known."""
HUB_NAME = re.compile(r"[\w.-]*\w/[\w.-]+|\w+://.+")
"""What a framework finds without a folder: names of the hub, and addresses."""
_OTHER_FORMATS = {".parquet", ".csv", ".tsv", ".arrow", ".feather"}
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")


def is_model(name: str) -> bool:
    """Whether a framework finds a model of this name: on the hub, at an address, or in a folder here."""
    return HUB_NAME.fullmatch(name) is not None or Path(name).exists()


def model_option(name: str | None) -> str:
    """What a launch command says of the model of a plan: nothing of one that is found, else a word to fill in."""
    return "" if name is not None and is_model(name) else f" --model {PLACEHOLDER}"


def model_billions(name: str) -> float | None:
    """Billions of parameters that a model's name states, such as Qwen2.5-7B; None if it states none."""
    stated = _SIZE.search(name)
    return None if stated is None else float(stated[1])


def unsupported(field: str, message: str, **data: Any) -> Note:
    """`unsupported`: the refusing note on a field with a value that a backend cannot run."""
    return Note("unsupported", "refuse", message, {"field": field, **data})


def is_other_format(file: str) -> bool:
    """Whether the suffix of a problem file is that of another format than JSON lines."""
    return PurePosixPath(file).suffix.lower() in _OTHER_FORMATS


def in_home(path: str) -> bool:
    """Whether a path begins with `~`, which is not expanded in quotes."""
    return path == "~" or path.startswith("~/")


def data_formats(case: Case[Any]) -> Iterator[Note]:
    """Refusals of problem files whose suffix is not that of JSON lines."""
    for field, name in case.problem_files.items():
        if is_other_format(name):
            yield unsupported(
                field, f"{field} = {name!r}: accepted: JSON lines, one problem per line. Convert it first."
            )


def home_folders(case: Case[Any]) -> Iterator[Note]:
    """Refusals of a `~`."""
    for field, value in case.paths.items():
        if in_home(value):
            message = f"{field} = {value!r}: '~' is not expanded here. Write out the folder, or use a relative path."
            yield unsupported(field, message)


below_floor = Rule[Case[Any]](
    "problems_per_batch",
    lambda c: c.run.problems_per_batch < c.recipe.min_problems_per_batch,
    "{run.problems_per_batch} problems per batch are below the recipe's minimum of {recipe.min_problems_per_batch}; "
    "training was unstable below it. Use more problems per batch.",
    "below-problems-floor",
    "warning",
)
repeats_problems = Rule[Case[Any]](
    "problems_per_batch",
    lambda c: (c.run.data.n_problems or math.inf) < c.run.problems_per_batch,
    "{run.data.n_problems} training problems for batches of {run.problems_per_batch}: every batch repeats problems, "
    "which the laws do not cover. Use fewer problems per batch.",
    "small-problem-set",
    "warning",
)
kl_without_gradient = Rule[Case[Any]](
    "recipe.kl_estimator",
    lambda c: c.recipe.kl_coef > 0 and c.recipe.kl_in == "loss" and c.recipe.kl_estimator == "k1",
    "kl_estimator = k1 in the loss: with one update per batch the gradient of this term has mean zero, so it does not "
    "keep the policy near the base model. Use k2 or k3, or kl_in = reward.",
    "recipe-conflict",
    "warning",
)
biased_weights = Rule[Case[Any]](
    "recipe.top_p",
    lambda c: c.tis and c.recipe.top_p < 1,
    "top_p = {recipe.top_p:g} with importance_sampling = tis: the sampler's log-probabilities belong to the truncated "
    "distribution, the trainer's do not, so every weight is too small. Use top_p = 1.",
    "recipe-conflict",
    "warning",
    ("recipe.top_p",),
)
low_temperature = Rule[Case[Any]](
    "recipe.temperature",
    lambda c: c.recipe.temperature < MIN_TEMPERATURE,
    f"temperature = {{recipe.temperature:g}}: vLLM samples with at least {MIN_TEMPERATURE:g}, while the trainer "
    f"divides logits by {{recipe.temperature:g}}. Use {MIN_TEMPERATURE:g} or more.",
)
evaluation_top_p = Rule[Case[Any]](
    "evaluation.top_p",
    lambda c: c.run.evaluation_top_p != c.recipe.top_p,
    "evaluation.top_p = {evaluation.top_p:g} and recipe.top_p = {recipe.top_p:g}: {c.framework} evaluates with the "
    "top-p of training. Leave evaluation.top_p out.",
)
tensor_parallel = Rule[Case[Any]](
    "options.tensor_parallel",
    lambda c: bool(c.gpus_per_node % c.options.tensor_parallel),
    "option tensor_parallel is {options.tensor_parallel}, which does not divide the {c.gpus_per_node} GPUs of a node: "
    "engines would not use every GPU, or would span two nodes. Use a divisor.",
)
several_nodes = Rule[Case[Any]](
    "options.nodes",
    lambda c: c.nodes > 1,
    "{c.nodes} nodes with {c.gpus_per_node} GPUs each: start Ray on all of them first, run the script on one with "
    "RAY_ADDRESS set, and keep data and output_dir on a file system that all of them share.",
    "before-start",
    "info",
)
PROBLEMS = (below_floor, repeats_problems, data_formats, home_folders)
"""Checks of problems and paths, for every backend that trains on them."""


def warmup_from_zero(run: RunSpec, updates: int, unit: str = "update") -> list[Note]:
    """Notes on a warm-up that starts at a learning rate of 0.

    Args:
        run: the run.
        updates: number of steps of the learning-rate schedule.
        unit: what the framework counts: "update" (optimiser step), or "update step" if a batch can have several.

    Returns:
        A refusal or `few-update-steps`; empty without a warm-up.
    """
    warmup = run.recipe.warmup_steps
    if warmup == 0:
        return []
    reached = min(1.0, (updates - 1) / warmup)
    data = {"updates": updates, "warmup_steps": warmup, "share_of_learning_rate_reached": reached}
    if updates == 1:
        message = (
            f"the first {unit} of a warm-up has a learning rate of 0, and this run has only one: nothing would be "
            "learned. Use more update_steps, or recipe.warmup_steps = 0."
        )
        return [unsupported("update_steps", message, **data)]
    return warmup_unfinished(run, updates, reached, unit)


def warmup_unfinished(run: RunSpec, updates: int, reached: float, unit: str = "update") -> list[Note]:
    """`few-update-steps` if the share `reached` of the learning rate is below 1."""
    warmup = run.recipe.warmup_steps
    if reached >= 1:
        return []
    message = (
        f"the warm-up of {warmup} steps is longer than the run of {updates} {unit}s: the learning rate only reaches "
        f"{reached:.0%} of {run.learning_rate:.3g}. Use more update_steps or a shorter warm-up."
    )
    data = {"updates": updates, "warmup_steps": warmup, "share_of_learning_rate_reached": reached}
    return [Note("few-update-steps", "warning", message, data)]


def unused_fields(case: Case[Any]) -> Iterator[Note]:
    """`recipe-conflict`: fields changed from the preset that have no effect beside the recipe's other values."""
    recipe = case.recipe
    preset = Recipe.preset(recipe.based_on)
    of_value_model = ("value_learning_rate", "gae_lambda", "gae_gamma", "value_clip")
    idle = {
        f"algorithm = {recipe.algorithm}": of_value_model * (not case.ppo),
        f"importance_sampling = {recipe.importance_sampling}": ("tis_cap",) * (recipe.importance_sampling == "none"),
        "kl_coef = 0": ("kl_in", "kl_estimator") * (recipe.kl_coef == 0),
        "normalize_advantage = false": ("std_epsilon",) * (not recipe.normalize_advantage),
    }
    for reason, names in idle.items():
        changed = [name for name in names if getattr(recipe, name) != getattr(preset, name)]
        if changed:
            message = f"{', '.join(changed)}: no effect, since {reason}. Better left out."
            yield Note("recipe-conflict", "info", message, {"fields": changed})


def zero_variance_filters(reason: str) -> Callable[[Case[Any]], Iterator[Note]]:
    """A check that refuses zero-variance filters, with the framework's reason."""

    def check(case: Case[Any]) -> Iterator[Note]:
        names = [name for name in Recipe.model_fields if name.startswith("zero_variance_filter")]
        on = [name for name in names if getattr(case.recipe, name)]
        if on:
            yield unsupported(f"recipe.{on[0]}", f"{', '.join(on)}: {reason}", fields=on)

    return check


def std_epsilon(
    framework: str, added: float, *, with_ppo: str = "", remark: str = ""
) -> Callable[[Case[Any]], Iterator[Note]]:
    """A check for a framework that adds a fixed number to a group's deviation instead of std_epsilon."""

    def check(case: Case[Any]) -> Iterator[Note]:
        epsilon, n = case.recipe.std_epsilon, case.run.group_size
        if not case.recipe.normalize_advantage:
            return
        if case.ppo and with_ppo:
            message = f"std_epsilon = {epsilon:g}: {framework} {with_ppo}"
            yield Note("framework-differs", "info", message, {"std_epsilon": epsilon})
            return
        # The smallest non-zero deviation of n rewards of 0 and 1 is that of a lone success: 1 / sqrt(n).
        change = abs(epsilon - added) * math.sqrt(n)
        message = (
            f"std_epsilon = {epsilon:g}: {framework} always adds {added:g}. With rewards of 0 and 1 and {n} rollouts "
            f"per problem an advantage changes by at most {change:.1e} of its size.{remark}"
        )
        data = {"std_epsilon": epsilon, "largest_relative_change": change}
        if change > 10 * MAX_CHANGE:
            message += f" Set recipe.std_epsilon to {added:g} to state what happens."
            yield unsupported("recipe.std_epsilon", message, **data)
        elif change:
            yield Note("framework-differs", "info" if change <= MAX_CHANGE else "warning", message, data)

    return check


def gpus_fill_nodes(case: Case[Any]) -> Iterator[Note]:
    """A refusal of GPUs that do not fill equal machines."""
    stated, gpus = case.options.nodes, case.gpus
    if gpus % (stated or min(gpus, USUAL_NODE)):
        into = f"nodes of {USUAL_NODE}" if stated is None else f"{stated} equal nodes"
        message = f"{counted(gpus, 'GPU')} cannot fill {into}. Set the option nodes to a divisor of {gpus}."
        yield unsupported("options.nodes", message, gpus=gpus, nodes=stated)


def several_gpu_counts(case: Case[Any]) -> Iterator[Note]:
    """A refusal of several numbers of GPUs: a script is for one."""
    counts = case.run.hardware.gpu_counts
    if len(counts) > 1:
        message = f"hardware.gpus lists {', '.join(map(str, counts))}; a script is for one number. Name one."
        yield unsupported("hardware.gpus", message, hardware=list(counts))


def batch_not_divisible(run: RunSpec, divisor: int) -> list[Note]:
    """A refusal of a batch whose rollouts cannot be shared equally."""
    updates = run.recipe.updates_per_batch
    rollouts = run.rollouts_per_batch // updates
    rest = rollouts % divisor
    if rest == 0:
        return []
    share = f" / {updates} updates" if updates > 1 else ""
    message = (
        f"{rollouts} rollouts per update ({run.group_size} per problem x {run.problems_per_batch} problems{share}) are "
        f"not a multiple of {divisor} GPUs, which would get unequal work and wait for each other. Nearest "
        f"multiples: {max(rollouts - rest, divisor)} and {rollouts - rest + divisor}."
    )
    return [unsupported("problems_per_batch", message, divisor=divisor, rest=rest)]
