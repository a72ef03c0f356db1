"""What the logs of OpenRLHF mean: event files, consoles, saved flags, and the folder that our launch script fills.

A logged step is one rollout batch of B_p prompts and n samples each, however many optimiser updates it is split into.
A resume begins a new event file in the same folder, whose steps go on after the checkpoint; in our own run folders
resumed.jsonl names that step, and every console has the number of its attempt. See runs.py for such folders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from isocompute_openrlhf.request import KIND
from isocompute_openrlhf.runs import RUN_FILES, read_run
from isocompute_sdk.ingest.formats.log_format import Console, LogFormat, Printed, RunFolder, Tag, validation
from isocompute_sdk.ingest.stores.console import NUMBER
from isocompute_sdk.ingest.stores.saved_config import Configuration, Keys, Said

_UPDATE = re.compile(r"Global step (\d+): \{(.*)\}\s*$")
_EVALUATION = re.compile(r"Evaluation completed in .*, global_step (\d+), eval_metrics: \{(.*)\}\s*$")
_VALUE = re.compile(rf"'([^']+)': {NUMBER}")
_SAMPLES = r"eval/eval_{set}_pass(?P<k>\d+)"
"""OpenRLHF logs pass1 and pass<k> of the same k samples."""


def _parse(line: str) -> Printed | None:
    """Python dicts that may hold nan: `Global step N: {...}`, `Evaluation completed in ..., eval_metrics: {...}`."""
    for pattern, kind in ((_UPDATE, "train"), (_EVALUATION, "eval")):
        found = pattern.search(line)
        if found is not None:
            values = {f"{kind}/{name}": float(value) for name, value in _VALUE.findall(found[2])}
            return Printed(int(found[1]), values, kind == "train")
    return None


DOTTED = {
    "n": "rollout.n_samples_per_prompt",
    "prompts": "rollout.batch_size",
    "samples": "train.batch_size",
    "epochs": "train.max_epochs",
    "seed": "train.seed",
    "model": "actor.model_name_or_path",
    "train_data": "data.prompt_dataset",
    "estimator": "algo.advantage.estimator",
    "learning_rate": "actor.adam.lr",
    "kl_coef": "algo.kl.init_coef",
    "entropy_coef": "actor.entropy_coef",
    "response": "rollout.max_new_tokens",
    "prompt": "data.prompt_max_len",
    "length": "data.max_len",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "filter": "algo.dynamic_filtering_enable",
    "async": "train.async_enable",
    "eval_temperature": "eval.temperature",
    "eval_samples": "eval.n_samples_per_prompt",
}
"""Keys since 0.10.2."""
FLAT = {
    "n": "n_samples_per_prompt",
    "prompts": "rollout_batch_size",
    "samples": "train_batch_size",
    "epochs": "max_epochs",
    "seed": "seed",
    "model": "pretrain",
    "train_data": "prompt_data",
    "estimator": "advantage_estimator",
    "learning_rate": "actor_learning_rate",
    "kl_coef": "init_kl_coef",
    "entropy_coef": "entropy_loss_coef",
    "response": "generate_max_len",
    "prompt": "prompt_max_len",
    "length": "max_len",
    "temperature": "temperature",
    "top_p": "top_p",
    "filter": "dynamic_filtering",
    "async": "async_train",
    "eval_temperature": "eval_temperature",
    "eval_samples": "eval_n_samples_per_prompt",
}
"""Keys before 0.10.2."""


def _configuration(dialect: str, names: Mapping[str, str]) -> Configuration:
    """Flags of one range of releases: the rollout batch counts prompts, the training batch samples."""

    def fields(keys: Keys) -> Mapping[str, Said | None]:
        def get(name: str) -> Said | None:
            return keys.get(names[name])

        def number(name: str, default: float | None = None) -> float | None:
            return keys.number(names[name], default)

        size, prompts, samples = number("n", 1), number("prompts"), number("samples")
        updates = (
            max(1, size * prompts // samples) * (number("epochs", 1) or 1) if size and prompts and samples else None
        )
        length, response = number("length"), number("response")
        longest = get("prompt")
        if longest is None and length and response:
            longest = keys.derived(length - response, names["length"], names["response"])
        return {
            "group_size": get("n"),
            "problems_per_batch": get("prompts"),
            "seed": get("seed"),
            "model": get("model"),
            "train_data": get("train_data"),
            "algorithm": keys.algorithm(names["estimator"]),
            "learning_rate": get("learning_rate"),
            "kl_coef": get("kl_coef"),
            "entropy_coef": get("entropy_coef"),
            "updates_per_batch": keys.derived(updates, *(names[key] for key in ("n", "prompts", "samples", "epochs"))),
            "max_tokens": get("response"),
            "max_prompt_tokens": longest,
            "temperature": get("temperature"),
            "top_p": get("top_p"),
            "filter": keys.switch(names["filter"], "dynamic", "none"),
            "off_policy": keys.switch(names["async"], "async", "none"),
            "eval_temperature": get("eval_temperature"),
            "eval_samples": get("eval_samples"),
        }

    return Configuration(dialect, names["n"], fields)


FORMAT = LogFormat(
    name="openrlhf",
    framework="OpenRLHF",
    signature=r"train/(actor_lr|policy_loss|actor_grad_norm|vllm_kl)|eval/eval_.+_pass\d+",
    tags=(
        validation(r"eval/eval_(?P<set>(?!unknown_).+)_pass1", "avg@{k}", samples_from=_SAMPLES),
        validation(r"eval/eval_(?P<set>(?!unknown_).+)_pass(?P<k>\d+)", "best@{k}"),
        validation(r"eval/eval_(?P<set>(?!unknown_).+)_response_length_mean", "response_length"),
        validation(r"eval/eval_(?P<set>(?!unknown_).+)_truncated_rate", "truncated_share"),
        Tag("train/rollout/reward_mean", "train_reward"),
        Tag("train/reward", "train_reward"),
        Tag("train/policy_loss", "loss"),
        Tag("train/critic_loss", "value_loss"),
        # The mean entropy with a plus sign, despite its name.
        Tag("train/entropy_loss", "entropy"),
        Tag("train/kl", "kl"),
        Tag("train/rollout/response_length_mean", "response_length"),
        Tag("train/response_length", "response_length"),
        Tag("train/rollout/truncated_rate", "truncated_share"),
        Tag("train/truncated", "truncated_share"),
        Tag("train/actor_grad_norm", "gradient_norm"),
        Tag("train/actor_lr", "learning_rate"),
        Tag("train/vllm_kl", "sampler_kl"),
        Tag("train/is_filter_ratio", "importance_capped_share"),
        Tag("train/ppo_clip_ratio", "clipped_share"),
        Tag("train/group_reward_std", "group_reward_std"),
        Tag("train/reward_error", "reward_error_share"),
        Tag("train/timing/step_total", "step_seconds"),
        Tag("train/timing/generation", "sampling_seconds"),
    ),
    step="rollout_batches",
    components=r"train/(score|return|values|rollout/reward_std)|eval/eval_(unknown_.+|num_samples)",
    # W&B's log is called twice for every update, once with a sample and once with its metrics, and once more for every
    # evaluation (utils/logging_utils.py of 0.11.2).
    update_steps=r"(?!_step$|Step$).*",
    batch_tag=r"(?:.+/)?rollout/num_samples",
    kept_percent_tag="train/dynamic_filtering_pass_rate",
    configurations=(_configuration("openrlhf", DOTTED), _configuration("openrlhf before 0.10.2", FLAT)),
    console=Console((b"Global step ", b"Evaluation completed in "), _parse),
    run_folder=RunFolder(KIND, RUN_FILES, read_run),
)
