"""Checks before a run that several backends share: each returns notes, and a backend uses those that apply.

Checks of one framework stay in its backend. `docs/notes.md` lists the codes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Recipe, RunSpec

LARGEST_CHANGE = 1e-3
"""Relative change of an advantage up to which a note is an info."""
LOWEST_TEMPERATURE = 0.01
"""vLLM samples with at least this temperature; 0 is greedy."""
USUAL_PROBLEMS = 300
"""Validation problems, for a rough number, if `evaluation.n_problems` is not set."""
USUAL_NODE = 8
"""GPUs of a machine if `nodes` is not set."""
_OTHER_FORMATS = {".parquet", ".csv", ".tsv", ".arrow", ".feather"}


_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")


def model_billions(name: str) -> float | None:
    """Billions of parameters that a model's name states, such as Qwen2.5-7B; None if it states none."""
    found = _SIZE.search(name)
    return None if found is None else float(found[1])


def problem_files(run: RunSpec) -> dict[str, str]:
    """Files of problems, by field of the spec."""
    return {"data.train": run.data.train, "data.validation": run.data.validation}


def named_paths(run: RunSpec, files: Mapping[str, str] | None = None) -> dict[str, str]:
    """All fields of a run that may be paths, by name; `files` replaces its problem files."""
    problems = problem_files(run) if files is None else files
    return {"model": run.model, "output_dir": run.output_dir, **problems, "data.reward": run.data.reward}


def data_formats(files: Mapping[str, str]) -> list[Note]:
    """`data-format` for problem files whose suffix is not that of JSON lines."""
    return [
        Note(
            "data-format",
            "refuse",
            f"{field} = {name!r}: accepted: JSON lines, one problem per line. Convert it first.",
            {"field": field},
        )
        for field, name in files.items()
        if PurePosixPath(name).suffix.lower() in _OTHER_FORMATS
    ]


def home_folders(paths: Mapping[str, str]) -> list[Note]:
    """`home-not-expanded`: a quoted `~` is not expanded."""
    return [
        Note(
            "home-not-expanded",
            "refuse",
            f"{field} = {value!r}: '~' is not expanded here. Write out the folder, or use a relative path.",
        )
        for field, value in paths.items()
        if value == "~" or value.startswith("~/")
    ]


def problems_per_batch(run: RunSpec) -> list[Note]:
    """B_p against the recipe's minimum and the number of problems: `below-problems-floor`, `batch-repeats-problems`."""
    notes: list[Note] = []
    floor, known = run.recipe.min_problems_per_batch, run.data.n_problems
    if run.problems_per_batch < floor:
        message = (
            f"{run.problems_per_batch} problems per batch are below the recipe's minimum of {floor}; training "
            "was unstable below it. Use more problems per batch."
        )
        notes.append(Note("below-problems-floor", "warning", message))
    if known is not None and known < run.problems_per_batch:
        message = (
            f"{known} training problems for batches of {run.problems_per_batch}: every batch repeats problems, which "
            "the laws do not cover. Use fewer problems per batch."
        )
        notes.append(Note("batch-repeats-problems", "warning", message))
    return notes


def warmup_from_zero(run: RunSpec, updates: int, unit: str = "update") -> list[Note]:
    """Notes on a warm-up that starts at a learning rate of 0.

    Args:
        run: the run.
        updates: number of steps of the learning-rate schedule.
        unit: what the framework counts: "update" (optimiser step), or "update step" if a batch can have several.

    Returns:
        `no-learning`, `warmup-longer-than-run` or `warmup-starts-at-zero`; empty without a warm-up.
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
        return [Note("no-learning", "refuse", message, data)]
    if reached < 1:
        return warmup_unfinished(run, updates, reached, unit)
    message = (
        f"warm-up of {warmup} steps: {unit} u has the learning rate times min(1, (u - 1) / {warmup}), so the first "
        "one does not change the policy."
    )
    return [Note("warmup-starts-at-zero", "info", message, data)]


def warmup_unfinished(run: RunSpec, updates: int, reached: float, unit: str = "update") -> list[Note]:
    """`warmup-longer-than-run` if the share `reached` of the learning rate is below 1."""
    warmup = run.recipe.warmup_steps
    if reached >= 1:
        return []
    message = (
        f"the warm-up of {warmup} steps is longer than the run of {updates} {unit}s: the learning rate only reaches "
        f"{reached:.0%} of {run.learning_rate:.3g}. Use more update_steps or a shorter warm-up."
    )
    data = {"updates": updates, "warmup_steps": warmup, "share_of_learning_rate_reached": reached}
    return [Note("warmup-longer-than-run", "warning", message, data)]


def kl_off(recipe: Recipe) -> list[Note]:
    """`kl-off`: there is no KL penalty."""
    if recipe.kl_coef > 0:
        return []
    message = "kl_coef = 0: kl_in and kl_estimator have no effect, and no reference model is loaded."
    return [Note("kl-off", "info", message)]


def kl_without_gradient(recipe: Recipe) -> list[Note]:
    """`kl-estimator-without-gradient`: a KL term whose gradient has mean zero."""
    if recipe.kl_coef == 0 or recipe.kl_in != "loss" or recipe.kl_estimator != "k1":
        return []
    message = (
        "kl_estimator = k1 in the loss: with one update per batch the gradient of this term has mean zero, so it does "
        "not keep the policy near the base model. Use k2 or k3, or kl_in = reward."
    )
    return [Note("kl-estimator-without-gradient", "warning", message)]


def importance_weights(recipe: Recipe) -> list[Note]:
    """`importance-weights-biased`: top-p sampling with importance weights."""
    if recipe.importance_sampling != "tis" or recipe.top_p == 1:
        return []
    message = (
        f"top_p = {recipe.top_p:g} with importance_sampling = tis: the sampler's log-probabilities belong to the "
        "truncated distribution, the trainer's do not, so every weight is too small. Use top_p = 1."
    )
    return [Note("importance-weights-biased", "warning", message, {"top_p": recipe.top_p})]


def sampled_temperature(recipe: Recipe) -> list[Note]:
    """`temperature-too-low`: a temperature that vLLM cannot sample with."""
    if recipe.temperature >= LOWEST_TEMPERATURE:
        return []
    message = (
        f"temperature = {recipe.temperature:g}: vLLM samples with at least {LOWEST_TEMPERATURE:g}, while the "
        f"trainer divides logits by {recipe.temperature:g}. Use {LOWEST_TEMPERATURE:g} or more."
    )
    return [Note("temperature-too-low", "refuse", message, {"temperature": recipe.temperature})]


def unused_fields(recipe: Recipe) -> list[Note]:
    """`recipe-field-unused`: fields changed from the preset that this recipe does not use."""
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


def zero_variance_filters(recipe: Recipe) -> list[str]:
    """Names of the zero-variance filters that a recipe turns on."""
    return [name for name in Recipe.model_fields if name.startswith("zero_variance_filter") and getattr(recipe, name)]


def std_epsilon_unused(recipe: Recipe) -> list[Note]:
    """`std-epsilon-unused`: advantages are not divided by a deviation."""
    if recipe.normalize_advantage:
        return []
    message = "std_epsilon is not used: advantages are not normalised."
    return [Note("std-epsilon-unused", "info", message, {"std_epsilon": recipe.std_epsilon})]


def change_of_advantages(run: RunSpec, framework: str, added: float) -> tuple[float, str]:
    """Effect of a framework that adds `added` to a group's deviation instead of std_epsilon.

    Returns:
        The largest relative change of an advantage with rewards of 0 and 1 (see `LARGEST_CHANGE`), and a message.
    """
    epsilon = run.recipe.std_epsilon
    # The smallest non-zero deviation of n rewards of 0 and 1 is that of a lone success: 1 / sqrt(n).
    change = abs(epsilon - added) * math.sqrt(run.group_size)
    message = (
        f"std_epsilon = {epsilon:g}: {framework} always adds {added:g}. With rewards of 0 and 1 and {run.group_size} "
        f"rollouts per problem an advantage changes by at most {change:.1e} of its size."
    )
    return change, message


def evaluation_top_p(run: RunSpec, framework: str) -> list[Note]:
    """`evaluation-top-p`, for frameworks that evaluate with the top-p of training."""
    if run.evaluation.top_p == run.recipe.top_p:
        return []
    message = (
        f"evaluation.top_p = {run.evaluation.top_p:g} and recipe.top_p = {run.recipe.top_p:g}: {framework} evaluates "
        "with the top-p of training. Make both the same."
    )
    return [Note("evaluation-top-p", "refuse", message)]


def best_reward(run: RunSpec) -> list[Note]:
    """`best-reward-too-high`: one sample per problem leaves none to measure the chosen checkpoint on."""
    plan = run.evaluation
    if plan.samples > 1 or plan.temperature == 0:
        return []
    evaluations, problems = max(1, run.update_steps // plan.every_steps), plan.n_problems or USUAL_PROBLEMS
    # The largest of E normal values lies sqrt(2 ln E) deviations above their mean; a reward of 0 or 1 deviates by 1/2.
    excess = math.sqrt(2 * math.log(evaluations)) * 0.5 / math.sqrt(problems)
    message = (
        f"evaluation.samples = 1: no samples are left to measure the best checkpoint on, so best.json reports only the "
        f"reward that chose it, the largest of {evaluations} noisy ones. With {problems} problems it is up to "
        f"{excess:.3f} too high. Use 2 samples or more."
    )
    return [Note("best-reward-too-high", "warning", message, {"evaluations": evaluations, "excess": excess})]


def nodes_for(gpus: int, stated: int | None) -> int | Note:
    """Number of equal machines for `gpus` GPUs, or the note `gpus-do-not-fill-nodes`.

    Args:
        gpus: GPUs in total.
        stated: the option `nodes`. None: one machine up to 8 GPUs, else 8 GPUs each.
    """
    whole = gpus if gpus < USUAL_NODE else USUAL_NODE
    if stated is None and gpus % whole == 0:
        return gpus // whole
    if stated is not None and gpus % stated == 0:
        return stated
    into = f"nodes of {USUAL_NODE}" if stated is None else f"{stated} equal nodes"
    message = f"{gpus} GPUs do not fill {into}. Set the option nodes to a divisor of {gpus}."
    return Note("gpus-do-not-fill-nodes", "refuse", message, {"gpus": gpus, "nodes": stated})


def several_gpu_counts(run: RunSpec, advice: str = "Name one number of GPUs.") -> list[Note]:
    """`several-gpu-counts`: a script is for one number of GPUs, and `hardware.gpus` lists several."""
    counts = run.hardware.gpu_counts
    if len(counts) == 1:
        return []
    message = f"hardware.gpus lists {', '.join(map(str, counts))}; a script is for one number. {advice}"
    return [Note("several-gpu-counts", "refuse", message, {"hardware": list(counts)})]


def batch_not_divisible(run: RunSpec, divisor: int, what: str = "GPUs") -> list[Note]:
    """`batch-not-divisible`: the rollouts of an update cannot be shared equally.

    Args:
        run: the run; a batch is split into `updates_per_batch` updates.
        divisor: number of equal shares.
        what: what the divisor is, such as "GPUs x micro_train_batch".
    """
    updates = run.recipe.updates_per_batch
    rollouts = run.rollouts_per_batch // updates
    rest = rollouts % divisor
    if rest == 0:
        return []
    share = f" / {updates} updates" if updates > 1 else ""
    message = (
        f"{rollouts} rollouts per update ({run.group_size} per problem x {run.problems_per_batch} problems{share}) are "
        f"not a multiple of {divisor} ({what}): the GPUs would get unequal work and wait for each other. Nearest "
        f"multiples: {max(rollouts - rest, divisor)} and {rollouts - rest + divisor}."
    )
    return [Note("batch-not-divisible", "refuse", message, {"divisor": divisor, "rest": rest})]


def tensor_parallel_does_not_fit(tensor_parallel: int, gpus_per_node: int) -> list[Note]:
    """`tensor-parallel-does-not-fit`: engines of `tensor_parallel` GPUs do not fill a machine."""
    if gpus_per_node % tensor_parallel == 0:
        return []
    message = (
        f"option tensor_parallel is {tensor_parallel}, which does not divide the {gpus_per_node} GPUs of a node: "
        "engines would not use every GPU, or would span two nodes. Use a divisor."
    )
    return [Note("tensor-parallel-does-not-fit", "refuse", message)]


def several_nodes(nodes: int, gpus_per_node: int) -> list[Note]:
    """`several-nodes`: what a Ray cluster needs; empty for one machine."""
    if nodes == 1:
        return []
    message = (
        f"{nodes} nodes with {gpus_per_node} GPUs each: start Ray on all of them first, run the script on one with "
        "RAY_ADDRESS set, and keep data and output_dir on a file system that all of them share."
    )
    return [Note("several-nodes", "info", message, {"nodes": nodes})]
