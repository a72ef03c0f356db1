"""What the logs of TRL and Unsloth mean: trainer_state.json, event files and saved arguments of GRPOTrainer.

A logged step is an optimiser update, and every batch counts samples. A resume shows as steps that go back in the state,
which the next checkpoint keeps, and as an event file of its own. Runs that the script of this package starts log into
a journal instead, in the names of payload/train.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from isocompute_sdk.ingest.formats.configuration import STEPS_PER_BATCH, Configuration, Keys, Said
from isocompute_sdk.ingest.formats.log_format import LogFormat, RunLog, Tag, validation
from isocompute_sdk.ingest.stores import trainer_state
from isocompute_sdk.ingest.stores.saved_config import flat

BATCH_KEYS = (
    "num_generations",
    "generation_batch_size",
    "per_device_train_batch_size",
    "_n_gpu",
    "steps_per_generation",
    "gradient_accumulation_steps",
    "num_iterations",
    "num_processes",
    "total_train_batch_size",
)
_EVERY_ARGUMENT = ("adam_beta1", "max_grad_norm")
"""Keys that a file has if it holds all arguments of a trainer, so that a missing one tells of the release."""


class _Batches(NamedTuple):
    """The batches of a run, in completions unless `prompts` is set."""

    on_device: float
    """Completions of one generation on one process."""
    processes: float | None
    """Processes; None if nothing says how many."""
    updates: float
    """Optimiser updates made with one generation; may be no whole number, as with 12 steps over 8."""
    prompts: bool
    """Whether a batch counts prompts, as in TRL 0.14."""

    def problems(self, n: float) -> float | None:
        """Problems in one generation, or in one update if that takes several generations."""
        if self.processes is None:
            return None
        batch = self.on_device * self.processes / (1.0 if self.prompts else n)
        return batch / min(1.0, self.updates)


def _batches(keys: Keys) -> _Batches | None:
    """Which release wrote the arguments is seen from those that it has: TRL changed what a batch counts."""
    number, has = keys.number, keys.flat.__contains__
    per_device = number("per_device_train_batch_size")
    accumulation = number("gradient_accumulation_steps", 1) or 1
    told, iterations = number("generation_batch_size"), number("num_iterations", 1) or 1
    steps = number("steps_per_generation") or accumulation
    processes = number("num_processes") or number("world_size")
    if not per_device:
        return None if told is None else _Batches(told, 1.0, max(1.0, steps / accumulation) * iterations, False)
    if told is not None:
        # Both are saved as they were resolved, so that they tell the number of processes.
        processes = told / (per_device * steps)
    # One process that drives several GPUs has a batch for each of them.
    own = per_device * max(1.0, number("_n_gpu", 1) or 1)
    total = number("total_train_batch_size")
    if processes is None and total and total % (own * accumulation) == 0:
        processes = total / (own * accumulation)
    on_device = own * steps
    later = any(map(has, ("reward_weights", "num_iterations")))
    prompts = all(map(has, _EVERY_ARGUMENT)) and not later and told is None
    return _Batches(on_device, processes, steps * iterations / accumulation, prompts)


def _fields(keys: Keys) -> Mapping[str, Said | None]:
    """What the arguments say; the number of processes is in none of them before TRL 0.18."""
    get, n = keys.get, keys.number("num_generations", 8) or 8
    found = _batches(keys)
    problems = None if found is None else found.problems(n)
    updates = None if found is None else max(1.0, found.updates)
    whole = updates is None or updates.is_integer()
    shown = ", ".join(f"{name} = {keys.flat[name]}" for name in BATCH_KEYS if name in keys.flat)
    return {
        "group_size": get("num_generations"),
        "problems_per_batch": keys.derived(problems, *BATCH_KEYS),
        "seed": get("seed"),
        "model": get("model_name_or_path", "model_name", "model"),
        "train_data": get("dataset_name", "train_data"),
        "algorithm": keys.algorithm("loss_type"),
        "learning_rate": get("learning_rate"),
        "kl_coef": get("beta"),
        "entropy_coef": get("entropy_coef"),
        "updates_per_batch": keys.derived(updates, *BATCH_KEYS[4:7]) if whole else None,
        STEPS_PER_BATCH: None if whole else Said(updates, f"{keys.path}: {shown}"),
        "max_tokens": get("max_completion_length"),
        "max_prompt_tokens": get("max_prompt_length"),
        "temperature": get("temperature"),
        "top_p": get("top_p"),
        # TRL evaluates with the temperature of training.
        "eval_temperature": get("temperature"),
        "eval_samples": get("num_generations_eval", "num_generations"),
    }


def _batch(keys: Keys) -> Said | None:
    """Completions, or prompts in TRL 0.14, in one generation of each process, if nothing says how many there were."""
    found = _batches(keys)
    if found is None or found.processes is not None:
        return None
    return keys.derived(found.on_device, *BATCH_KEYS[2:-1])


def _rollouts(keys: Keys) -> Said | None:
    """Completions of one update, from a banner, which does not say n."""
    return None if keys.number("num_generations") else keys.derived(keys.number(_TOTAL), _TOTAL)


_TOTAL = "total_train_batch_size"


def _by_generations(log: RunLog) -> RunLog:
    """A W&B run that ended before its trainer logged a row, with steps instead of the 0 that all its rows have.

    TRL times every generation there, and what its reward functions log comes before that.
    """
    rows = {tag: one for attempt in log.attempts for tag, one in attempt.series.items()}
    timed = next((rows[tag].wall_time_T for tag in rows if _TIMED.fullmatch(tag)), None)
    sizes = next((_batches(Keys(log.source, dict(flat(raw)))) for _, raw in reversed(log.settings)), None)
    if timed is None or sizes is None or len(log.attempts) != 1 or any(one.step_T.any() for one in rows.values()):
        return log
    series = {
        tag: replace(one, step_T=(np.searchsorted(timed, one.wall_time_T) + 1) * sizes.updates)
        for tag, one in rows.items()
    }
    return replace(log, attempts=(replace(log.attempts[0], series=series),))


_PROFILED = r"profiling/Time taken: \w*(GRPO|RLOO)Trainer\."
_TIMED = re.compile(_PROFILED + "_calculate_rewards")

FORMAT = LogFormat(
    name="trl",
    framework="TRL",
    signature=r"(train/|eval[_/])?(frac_reward_zero_std|completions/mean_length|completion_length|rewards/.+/mean)"
    rf"|{_PROFILED}.+",
    tags=(
        validation(r"eval[_/]reward", "avg@{k}"),
        validation(r"eval[_/]best_at_(?P<k>\d+)", "best@{k}"),
        validation(r"eval[_/]worst_at_(?P<k>\d+)", "worst@{k}"),
        validation(r"eval[_/]completions/mean_length", "response_length"),
        validation(r"eval[_/]completion_length", "response_length"),
        validation(r"eval[_/]completions/clipped_ratio", "truncated_share"),
        validation(r"eval[_/]runtime", "evaluation_seconds"),
        Tag(r"(?:train/)?reward", "train_reward"),
        Tag(r"(?:train/)?loss", "loss"),
        Tag(r"(?:train/)?entropy", "entropy"),
        Tag(r"(?:train/)?kl", "kl"),
        Tag(r"(?:train/)?completions/mean_length", "response_length"),
        Tag(r"(?:train/)?completion_length", "response_length"),
        Tag(r"(?:train/)?completions/clipped_ratio", "truncated_share"),
        Tag(r"(?:train/)?frac_reward_zero_std", "zero_variance_share"),
        Tag(r"(?:train/)?reward_std", "group_reward_std"),
        Tag(r"(?:train/)?grad_norm", "gradient_norm"),
        Tag(r"(?:train/)?learning_rate", "learning_rate"),
        Tag(r"(?:train/)?clip_ratio/region_mean", "clipped_share"),
        Tag(r"(?:train/)?clip_ratio", "clipped_share"),
        Tag(r"(?:train/)?sampling/importance_sampling_ratio/mean", "importance_weight_mean"),
        Tag(r"(?:train/)?reward_error", "reward_error_share"),
        Tag(r"(?:train/)?step_time", "step_seconds"),
    ),
    step="optimizer_updates",
    one_unit=_by_generations,
    # One reward function of several each; their names often say accuracy or correctness.
    components=r"(train/|eval[_/])?rewards/.+",
    update_steps=r".*global_step.*",
    tokens_tag=r"(train/)?num_tokens",
    configurations=(
        Configuration("trl", "num_generations", _fields, _batch),
        # A banner says neither n nor B_p, but their product.
        Configuration("trl", _TOTAL, lambda _: dict.fromkeys(("group_size", "problems_per_batch")), rollouts=_rollouts),
    ),
    store=trainer_state.STORE,
)
