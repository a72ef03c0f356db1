"""What the logs of SkyRL mean: W&B, MLflow and event files, one row for every batch, counted from 1.

The base model's evaluation stands at step 0. A batch has `trainer.train_batch_size` prompts with
`generator.n_samples_per_prompt` samples each, which also name the tag of the best of n. Event files hold no
configuration, but the number of sequences of every batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from isocompute_sdk.ingest.formats.configuration import Configuration, Keys, Said
from isocompute_sdk.ingest.formats.log_format import Console, LogFormat, Printed, Tag, printed_dict, validation

_SAMPLES = r"eval/{set}/pass_at_(?P<k>\d+)"
_BEGINS = re.compile(r" - (Step) (\d+): *$", re.MULTILINE)


def _parse(lines: str) -> Printed | None:
    """`Step N:` and a dict over several lines, its fractions as texts of four decimals."""
    found = printed_dict(lines, _BEGINS, {"Step": ""})
    return None if found is None else replace(found, update="reward/avg_raw_reward" in found.values)


def _fields(keys: Keys) -> Mapping[str, Said | None]:
    """`policy_mini_batch_size` counts prompts too."""
    get = keys.get
    batch, mini, epochs = (
        "trainer.train_batch_size",
        "trainer.policy_mini_batch_size",
        "trainer.update_epochs_per_batch",
    )
    algorithm, sampling = "trainer.algorithm", "generator.sampling_params"
    kl = get(f"{algorithm}.kl_loss_coef") if keys.flat.get(f"{algorithm}.use_kl_loss") else None
    if kl is None and keys.flat.get(f"{algorithm}.use_kl_loss") is False:
        kl = Said(0.0, f"{keys.path}: {algorithm}.use_kl_loss = False")
    filtered = get(f"{algorithm}.dynamic_sampling.type")
    return {
        "group_size": get("generator.n_samples_per_prompt"),
        "problems_per_batch": get(batch),
        "seed": get("trainer.seed"),
        "model": get("trainer.policy.model.path"),
        "algorithm": keys.algorithm(f"{algorithm}.advantage_estimator"),
        "learning_rate": get("trainer.policy.optimizer_config.lr"),
        "kl_coef": kl,
        "updates_per_batch": keys.updates(batch, mini, epochs),
        "max_tokens": get(f"{sampling}.max_generate_length"),
        "max_prompt_tokens": get("trainer.max_prompt_length"),
        "temperature": get(f"{sampling}.temperature"),
        "top_p": get(f"{sampling}.top_p"),
        "filter": None if filtered is None else Said("dynamic", filtered.evidence),
        "eval_temperature": get("generator.eval_sampling_params.temperature"),
        "eval_samples": get("generator.eval_n_samples_per_prompt"),
    }


FORMAT = LogFormat(
    name="skyrl",
    framework="SkyRL",
    signature=r"reward/avg_pass_at_\d+|reward/avg_raw_reward",
    tags=(
        # All evaluation sets together, which may be one.
        validation(r"eval/all/avg_score", "avg@{k}", samples_from=r"eval/all/pass_at_(?P<k>\d+)"),
        validation(r"eval/(?P<set>[^/]+)/avg_score", "avg@{k}", samples_from=_SAMPLES),
        validation(r"timing/eval", "evaluation_seconds"),
        Tag("reward/avg_raw_reward", "train_reward"),
        Tag("policy/policy_loss", "loss"),
        Tag("critic/critic_loss", "value_loss"),
        Tag("policy/policy_entropy", "entropy"),
        Tag("policy/policy_kl", "kl"),
        Tag("policy/raw_grad_norm", "gradient_norm"),
        Tag("policy/policy_lr", "learning_rate"),
        Tag("policy/ppo_clip_ratio", "clipped_share"),
        Tag("generate/avg_num_tokens", "response_length"),
        Tag("timing/step", "step_seconds"),
        Tag("timing/generate", "sampling_seconds"),
    ),
    step="rollout_batches",
    components=r"(reward|eval/[^/]+)/(mean_positive_reward|(avg_)?pass_at_\d+)|loss/.+|reward_dropped/.+",
    # Sequences of a batch; with several for each trajectory their number varies.
    batch_tag="generate/batch_num_seq",
    group_size_tag=r"reward/avg_pass_at_(?P<n>\d+)",
    configurations=(
        Configuration("skyrl", "generator.n_samples_per_prompt", _fields),
        Configuration("skyrl", "trainer.train_batch_size", _fields),
    ),
    console=Console((b" - Step ",), _parse, until=b"}"),
)
