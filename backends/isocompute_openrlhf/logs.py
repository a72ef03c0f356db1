"""What the logs of OpenRLHF mean: event files, consoles, saved flags, and the folder that our launch script fills.

A logged step is one rollout batch of B_p prompts and n samples each, however many optimiser updates it is split into.
A resume begins a new event file in the same folder, whose steps go on after the checkpoint; in our own run folders
resumed.jsonl names that step, and every console has the number of its attempt; see launched_runs.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from isocompute_openrlhf.launched_runs import REQUEST_DOCUMENT, RUN_FILES, progress_of, read_run
from isocompute_sdk.ingest.formats.log_format import NUMBER, Console, LogFormat, Printed, RunFolder, Tag, validation
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


_KEYS = {
    "group_size": ("rollout.n_samples_per_prompt", "n_samples_per_prompt"),
    "problems_per_batch": ("rollout.batch_size", "rollout_batch_size"),
    "samples": ("train.batch_size", "train_batch_size"),
    "epochs": ("train.max_epochs", "max_epochs"),
    "seed": ("train.seed", "seed"),
    "model": ("actor.model_name_or_path", "pretrain"),
    "train_data": ("data.prompt_dataset", "prompt_data"),
    "algorithm": ("algo.advantage.estimator", "advantage_estimator"),
    "learning_rate": ("actor.adam.lr", "actor_learning_rate"),
    "kl_coef": ("algo.kl.init_coef", "init_kl_coef"),
    "entropy_coef": ("actor.entropy_coef", "entropy_loss_coef"),
    "max_tokens": ("rollout.max_new_tokens", "generate_max_len"),
    "max_prompt_tokens": ("data.prompt_max_len", "prompt_max_len"),
    "length": ("data.max_len", "max_len"),
    "temperature": ("rollout.temperature", "temperature"),
    "top_p": ("rollout.top_p", "top_p"),
    "filter": ("algo.dynamic_filtering_enable", "dynamic_filtering"),
    "off_policy": ("train.async_enable", "async_train"),
    "eval_temperature": ("eval.temperature", "eval_temperature"),
    "eval_samples": ("eval.n_samples_per_prompt", "eval_n_samples_per_prompt"),
}
"""Context field, or what one is computed from -> its key since 0.10.2, and before."""


def _configuration(dialect: str, column: int) -> Configuration:
    """Flags of one range of releases: the rollout batch counts prompts, the training batch samples."""
    names = {name: keys[column] for name, keys in _KEYS.items()}

    def fields(keys: Keys) -> Mapping[str, Said | None]:
        size, prompts, samples, epochs, length, response = (
            keys.number(names[name])
            for name in ("group_size", "problems_per_batch", "samples", "epochs", "length", "max_tokens")
        )
        size = 1.0 if size is None else size
        updates = max(1, size * prompts // samples) * (epochs or 1) if size and prompts and samples else None
        batch = ("group_size", "problems_per_batch", "samples", "epochs")
        found = {name: keys.get(key) for name, key in names.items() if name not in ("samples", "epochs", "length")}
        if found["max_prompt_tokens"] is None and length and response:
            found["max_prompt_tokens"] = keys.derived(length - response, names["length"], names["max_tokens"])
        return found | {
            "algorithm": keys.algorithm(names["algorithm"]),
            "updates_per_batch": keys.derived(updates, *(names[name] for name in batch)),
            "filter": keys.switch(names["filter"], "dynamic", "none"),
            "off_policy": keys.switch(names["off_policy"], "async", "none"),
        }

    return Configuration(dialect, names["group_size"], fields)


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
    configurations=(_configuration("openrlhf", 0), _configuration("openrlhf before 0.10.2", 1)),
    console=Console((b"Global step ", b"Evaluation completed in "), _parse),
    run_folder=RunFolder(REQUEST_DOCUMENT.kind, RUN_FILES, read_run, progress_of),
)
