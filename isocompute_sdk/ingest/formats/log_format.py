"""What frameworks call their measurements, and what they are called here: one table per framework.

A name is given only where the framework's number is that quantity. veRL draws best@k and worst@k by a bootstrap with
replacement, which is not the maximum or minimum of k samples: such a number keeps its estimator in its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

Framework = Literal["openrlhf", "verl", "trl"]
StepUnit = Literal["rollout_batches", "optimizer_updates", "rollouts", "epochs"]
STEP_UNITS: tuple[str, ...] = ("rollout_batches", "optimizer_updates", "rollouts", "epochs")
"""What a logged step may count. Only the first is M; `rollouts` are single samples, "episodes" of some programs."""
TRAIN_SET = "train"
"""Name of the evaluation set that measurements of update steps get."""
UNKNOWN_K = "?"
"""Stands for a number of samples that a tag does not say."""


@dataclass(frozen=True)
class Tag:
    """One row of a table of tags."""

    pattern: str
    """Regular expression over the whole tag; its group `set` names the evaluation set, `k` the samples."""
    metric: str
    """Name here; `{k}` stands for the number of samples."""
    eval_set: str = TRAIN_SET
    """Evaluation set where the tag names none."""


def _validation(pattern: str, metric: str) -> Tag:
    return Tag(pattern, metric, "validation")


TABLES: dict[Framework, tuple[Tag, ...]] = {
    "openrlhf": (
        _validation(r"eval/eval_(?P<set>.+)_pass1", "avg@{k}"),
        _validation(r"eval/eval_(?P<set>.+)_pass(?P<k>\d+)", "best@{k}"),
        _validation(r"eval/eval_(?P<set>.+)_response_length_mean", "response_length"),
        _validation(r"eval/eval_(?P<set>.+)_truncated_rate", "truncated_share"),
        Tag("train/reward", "train_reward"),
        Tag("train/entropy_loss", "entropy"),
        Tag("train/kl", "kl"),
        Tag("train/response_length", "response_length"),
        Tag("train/truncated", "truncated_share"),
        Tag("train/actor_grad_norm", "gradient_norm"),
        Tag("train/actor_lr", "learning_rate"),
        Tag("train/vllm_kl", "sampler_kl"),
        Tag("train/ppo_clip_ratio", "clipped_share"),
        Tag("train/group_reward_std", "group_reward_std"),
    ),
    "verl": (
        _validation(r"val-core/(?P<set>.+)/(?:acc|reward|score)/mean@(?P<k>\d+)", "avg@{k}"),
        # The reader's own tags, for what it computes from dumped responses.
        _validation(r"val-dump/(?P<set>.+)/best@(?P<k>\d+)", "best@{k}"),
        _validation(r"val-dump/(?P<set>.+)/worst@(?P<k>\d+)", "worst@{k}"),
        _validation(r"val-(?:core|aux)/(?P<set>.+)/(?:acc|reward|score)/best@(?P<k>\d+)/mean", "best@{k}:bootstrap"),
        _validation(r"val-(?:core|aux)/(?P<set>.+)/(?:acc|reward|score)/worst@(?P<k>\d+)/mean", "worst@{k}:bootstrap"),
        _validation(r"val-(?:core|aux)/(?P<set>.+)/(?:acc|reward|score)/maj@(?P<k>\d+)/mean", "maj@{k}:bootstrap"),
        Tag("critic/score/mean", "train_reward"),
        Tag("actor/entropy", "entropy"),
        Tag("actor/kl_loss", "kl"),
        Tag("response_length/mean", "response_length"),
        Tag("response_length/clip_ratio", "truncated_share"),
        Tag("actor/grad_norm", "gradient_norm"),
        Tag("actor/lr", "learning_rate"),
        Tag("actor/pg_clipfrac", "clipped_share"),
        Tag("rollout_corr/kl", "sampler_kl"),
        Tag("rollout_corr/rollout_is_mean", "importance_weight_mean"),
    ),
    "trl": (
        _validation(r"eval[_/]reward", "avg@{k}"),
        _validation(r"eval[_/]best_at_(?P<k>\d+)", "best@{k}"),
        _validation(r"eval[_/]worst_at_(?P<k>\d+)", "worst@{k}"),
        _validation(r"eval[_/]completions/mean_length", "response_length"),
        _validation(r"eval[_/]completions/clipped_ratio", "truncated_share"),
        Tag(r"(?:train/)?reward", "train_reward"),
        Tag(r"(?:train/)?entropy", "entropy"),
        Tag(r"(?:train/)?kl", "kl"),
        Tag(r"(?:train/)?completions/mean_length", "response_length"),
        Tag(r"(?:train/)?completions/clipped_ratio", "truncated_share"),
        Tag(r"(?:train/)?frac_reward_zero_std", "zero_variance_share"),
        Tag(r"(?:train/)?grad_norm", "gradient_norm"),
        Tag(r"(?:train/)?learning_rate", "learning_rate"),
        Tag(r"(?:train/)?clip_ratio/region_mean", "clipped_share"),
        Tag(r"(?:train/)?sampling/importance_sampling_ratio/mean", "importance_weight_mean"),
    ),
}
"""Framework -> its tags; the first that matches counts."""
SIGNATURES: dict[Framework, str] = {
    "openrlhf": r"train/(actor_lr|policy_loss|actor_grad_norm|vllm_kl)|eval/eval_.+_pass\d+",
    "verl": r"critic/(score|rewards)/mean|training/global_step|actor/(pg_loss|kl_coef)|val-(core|aux)/.+",
    "trl": r"(train/|eval[_/])?(frac_reward_zero_std|completions/mean_length|rewards/.+/mean)",
}
"""Tags that no other framework writes."""
STEP_UNIT_OF: dict[Framework, StepUnit] = {
    "openrlhf": "rollout_batches",
    "verl": "rollout_batches",
    "trl": "optimizer_updates",
}
"""What the step of each framework's logs counts."""
WANDB_STEPS = ("_step", "Step")
"""W&B's own step, in a history and in a chart."""
FILTERED_GROUPS = r"(?:.+/)?filter_groups/(?:evicted|discarded_surplus)_samples"
"""veRL: groups, whole ones despite the name, that were generated and not trained on: without a difference in reward, or
more than were needed (trainer/ppo/v1/replay_buffer.py). Logged only with updates where there were some."""
KEPT_PERCENT_PER_SAMPLE = "train/dynamic_filtering_pass_rate"
"""OpenRLHF: 100 n times the share of groups that the filter kept."""
TRAINED_SHARE = "trained_share"
"""Of the rollouts generated for an update, the share that it trained on; only where a log tells what was filtered."""
LOOKS_LIKE_EVALUATION = re.compile(r"(.*[/_-])?(eval|val|valid|validation|test|pass|acc|accuracy)([/_@0-9-].*)?", re.I)
"""Tags of no known framework that may hold an evaluation."""


@dataclass(frozen=True)
class Meaning:
    """What a tag holds."""

    metric: str
    eval_set: str
    needs_k: bool = False
    """True where the number of samples is not known: the metric's name holds `UNKNOWN_K`."""


def framework_of(tags: Iterable[str]) -> Framework | None:
    """The framework that writes such tags; None where none or several do."""
    every = list(tags)
    found = [name for name, pattern in SIGNATURES.items() if any(re.fullmatch(pattern, tag) for tag in every)]
    return cast(Framework, found[0]) if len(found) == 1 else None


def unit_of(framework: Framework | None, format: str, step_name: str) -> StepUnit | None:
    """What the steps of a log count, where that is known."""
    if framework is None or (format in ("wandb", "table") and counts_calls(framework, step_name)):
        return None
    return STEP_UNIT_OF[framework]


def counts_calls(framework: Framework | None, step_name: str) -> bool:
    """Whether a step of W&B or of a table may count calls of W&B's `log` instead of updates.

    veRL gives W&B the step. OpenRLHF calls `log` twice for every update, once with a sample and once with its metrics,
    and once more for every evaluation (utils/logging_utils.py of 0.11.2); TRL at every logging and evaluation.
    """
    if framework == "trl":
        return "global_step" not in step_name
    return framework == "openrlhf" and step_name in WANDB_STEPS


def meanings(tags: Sequence[str], framework: Framework | None, samples: int | None = None) -> dict[str, Meaning]:
    """What is known about each tag, in the order of the framework's table; tags without a meaning are left out.

    Args:
        tags: all tags of one run.
        framework: whose they are; None knows nothing.
        samples: samples per problem in the evaluation, where something else says so.
    """
    if framework is None:
        return {}
    found: dict[str, Meaning] = {}
    taken: set[tuple[str, str]] = set()
    for tag in sorted(tags, key=lambda name: _row(framework, name)[0]):
        index, match = _row(framework, tag)
        if match is None:
            continue
        row = TABLES[framework][index]
        groups = match.groupdict()
        k = groups.get("k") or (None if "{k}" not in row.metric else _samples(tag, tags, framework, samples))
        needs_k = "{k}" in row.metric and k is None
        metric = row.metric.format(k=k or UNKNOWN_K)
        eval_set = groups.get("set") or row.eval_set
        # A framework may log one measurement under two tags, such as acc and reward: the first is its main one.
        if (metric, eval_set) not in taken:
            found[tag] = Meaning(metric, eval_set, needs_k)
            taken.add((metric, eval_set))
    return found


@lru_cache(maxsize=4096)
def _row(framework: Framework, tag: str) -> tuple[int, re.Match[str] | None]:
    for index, row in enumerate(TABLES[framework]):
        match = re.fullmatch(row.pattern, tag)
        if match is not None:
            return index, match
    return len(TABLES[framework]), None


def _samples(tag: str, tags: Sequence[str], framework: Framework, told: int | None) -> str | None:
    """Samples behind a mean that does not say so itself; OpenRLHF logs pass1 and pass<k> of the same k samples."""
    if framework == "openrlhf":
        beside = re.escape(tag.removesuffix("1"))
        counts = [int(m[1]) for other in tags if (m := re.fullmatch(rf"{beside}(\d+)", other))]
        if max(counts) > 1:
            return str(max(counts))
    return None if told is None else str(told)
