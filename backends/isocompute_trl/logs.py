"""What the logs of TRL and Unsloth mean: trainer_state.json, event files and saved arguments of GRPOTrainer.

A logged step is an optimiser update, and every batch counts samples. A resume shows as steps that go back in the state,
which the next checkpoint keeps, and as an event file of its own. Runs that the script of this package starts log into
a journal instead, in the names of payload/train.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from isocompute_sdk.ingest.formats.log_format import LogFormat, Tag, validation
from isocompute_sdk.ingest.stores import trainer_state
from isocompute_sdk.ingest.stores.saved_config import Configuration, Keys, Said

BATCH_KEYS = (
    "num_generations",
    "generation_batch_size",
    "per_device_train_batch_size",
    "steps_per_generation",
    "gradient_accumulation_steps",
)


def _updates_per_generation(keys: Keys) -> tuple[float, float]:
    """Steps of gradient accumulation in one generation, and optimiser updates made with it."""
    accumulation = keys.number("gradient_accumulation_steps", 1) or 1
    steps = keys.number("steps_per_generation") or accumulation
    return steps, max(1.0, steps / accumulation) * (keys.number("num_iterations", 1) or 1)


def _generated(keys: Keys) -> float | None:
    """Samples in one generation over all devices; None if nothing says how many devices there were."""
    per_device, world = (
        keys.number("per_device_train_batch_size"),
        keys.number("num_processes") or keys.number("world_size"),
    )
    told = keys.number("generation_batch_size")
    return told or (per_device * world * _updates_per_generation(keys)[0] if per_device and world else None)


def _fields(keys: Keys) -> Mapping[str, Said | None]:
    """Batches count samples; the number of devices is in no argument of the trainer."""
    get, n, generated = keys.get, keys.number("num_generations", 8), _generated(keys)
    updates = ("steps_per_generation", "gradient_accumulation_steps", "num_iterations")
    return {
        "group_size": get("num_generations"),
        "problems_per_batch": keys.derived(generated / n if generated and n else None, *BATCH_KEYS, "num_processes"),
        "seed": get("seed"),
        "model": get("model_name_or_path", "model_name", "model"),
        "train_data": get("dataset_name", "train_data"),
        "algorithm": keys.algorithm("loss_type"),
        "learning_rate": get("learning_rate"),
        "kl_coef": get("beta"),
        "entropy_coef": get("entropy_coef"),
        "updates_per_batch": keys.derived(_updates_per_generation(keys)[1], *updates),
        "max_tokens": get("max_completion_length"),
        "max_prompt_tokens": get("max_prompt_length"),
        "temperature": get("temperature"),
        "top_p": get("top_p"),
        # TRL evaluates with the temperature of training.
        "eval_temperature": get("temperature"),
        "eval_samples": get("num_generations_eval", "num_generations"),
    }


def _batch(keys: Keys) -> Said | None:
    """Samples in one generation on each device, if nothing says how many devices there were."""
    per_device = keys.number("per_device_train_batch_size")
    if per_device is None or _generated(keys) is not None:
        return None
    return keys.derived(per_device * _updates_per_generation(keys)[0], *BATCH_KEYS[2:])


FORMAT = LogFormat(
    name="trl",
    framework="TRL",
    signature=r"(train/|eval[_/])?(frac_reward_zero_std|completions/mean_length|rewards/.+/mean)",
    tags=(
        validation(r"eval[_/]reward", "avg@{k}"),
        validation(r"eval[_/]best_at_(?P<k>\d+)", "best@{k}"),
        validation(r"eval[_/]worst_at_(?P<k>\d+)", "worst@{k}"),
        validation(r"eval[_/]completions/mean_length", "response_length"),
        validation(r"eval[_/]completions/clipped_ratio", "truncated_share"),
        validation(r"eval[_/]runtime", "evaluation_seconds"),
        Tag(r"(?:train/)?reward", "train_reward"),
        Tag(r"(?:train/)?loss", "loss"),
        Tag(r"(?:train/)?entropy", "entropy"),
        Tag(r"(?:train/)?kl", "kl"),
        Tag(r"(?:train/)?completions/mean_length", "response_length"),
        Tag(r"(?:train/)?completions/clipped_ratio", "truncated_share"),
        Tag(r"(?:train/)?frac_reward_zero_std", "zero_variance_share"),
        Tag(r"(?:train/)?reward_std", "group_reward_std"),
        Tag(r"(?:train/)?grad_norm", "gradient_norm"),
        Tag(r"(?:train/)?learning_rate", "learning_rate"),
        Tag(r"(?:train/)?clip_ratio/region_mean", "clipped_share"),
        Tag(r"(?:train/)?sampling/importance_sampling_ratio/mean", "importance_weight_mean"),
        Tag(r"(?:train/)?reward_error", "reward_error_share"),
        Tag(r"(?:train/)?step_time", "step_seconds"),
    ),
    step="optimizer_updates",
    # One reward function of several each; their names often say accuracy or correctness.
    components=r"(train/|eval[_/])?rewards/.+",
    update_steps=r".*global_step.*",
    configurations=(Configuration("trl", "num_generations", _fields, _batch),),
    store=trainer_state.STORE,
)
