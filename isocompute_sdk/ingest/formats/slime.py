"""What the logs of slime mean: W&B, event files and consoles of rollouts, training steps and evaluations.

Every rollout has a number, counted from 0; the training steps made with it are counted separately, unless
`wandb_always_use_train_step` puts everything on their axis. A rollout's row is logged before its update and its
evaluation after, but for a first evaluation at rollout 0. Three processes write, offline each into a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from isocompute_sdk.ingest.formats.configuration import Configuration, Keys, Said
from isocompute_sdk.ingest.formats.log_format import (
    Attempt,
    Console,
    LogFormat,
    Printed,
    ScalarSeries,
    Tag,
    one_per_step,
    printed_dict,
    validation,
)

_BEGINS = re.compile(r"(?:^|[\s\]-])(rollout|eval) (\d+): \{")
_TRAINING, _ROLLOUTS = re.compile(r"train/.+"), re.compile(r"rollout/.+")


def _parse(line: str) -> Printed | None:
    """`rollout N: {...}` and `eval N: {...}`, Python dicts after the words of a logger."""
    return printed_dict(line, _BEGINS, {"rollout": "", "eval": ""})


def _in_rollouts(one: Attempt) -> Attempt:
    """All steps as numbers of rollouts: of training steps the last one of each rollout."""
    of_rollouts, of_training = (_together(one, tags) for tags in (_ROLLOUTS, _TRAINING))
    if of_rollouts is None or of_training is None:
        return one
    rollouts, training = np.unique(of_rollouts.step_T), np.unique(of_training.step_T)
    spacing = int(np.diff(rollouts).min()) if len(rollouts) > 1 else 1
    # Both on the axis of training steps, or each counted by itself.
    shared = spacing > 1 and training[-1] < rollouts[-1] + spacing
    updates = spacing if shared else _updates(of_rollouts, of_training)
    series: dict[str, ScalarSeries] = {}
    for tag, values in one.series.items():
        if updates is None and _TRAINING.fullmatch(tag):
            continue
        if updates is not None and updates > 1 and _TRAINING.fullmatch(tag):
            last = values.where(values.step_T % updates == updates - 1)
            series[tag] = replace(last, step_T=last.step_T // updates)
        elif shared:
            series[tag] = replace(values, step_T=values.step_T // spacing)
        else:
            series[tag] = values
    return replace(one, series={tag: values for tag, values in series.items() if len(values.step_T)})


def _together(one: Attempt, tags: re.Pattern[str]) -> ScalarSeries | None:
    """The values of several tags by step, of each step the last one; None without any."""
    found = [values for tag, values in one.series.items() if tags.fullmatch(tag)]
    return one_per_step(found) if found else None


def _updates(rollouts: ScalarSeries, training: ScalarSeries) -> int | None:
    """Training steps of a rollout: as many as were logged from one rollout to the next, by their clock.

    Without a clock it is the only number that fits both a last rollout that was trained on and one that was not, as in
    the log of a run that goes on; None if several do.
    """
    order = np.argsort(training.wall_time_T, kind="stable")
    done = np.maximum.accumulate(np.append(-1, training.step_T[order]))
    last = done[np.searchsorted(training.wall_time_T[order], rollouts.wall_time_T)]
    known = (last >= 0) | (rollouts.step_T == 0)
    each = np.diff(last[known]) / np.diff(rollouts.step_T[known])
    if (each > 0).any():
        return max(1, round(float(np.median(each[each > 0]))))
    updates, batches = int(training.step_T[-1]) + 1, int(rollouts.step_T[-1]) + 1
    fewest = -(-updates // batches)
    return None if batches > 1 and updates // (batches - 1) > fewest else fewest


def _fields(keys: Keys) -> Mapping[str, Said | None]:
    """`rollout_batch_size` counts prompts, `global_batch_size` the samples of one training step."""
    get, number = keys.get, keys.number
    sizes = ("rollout_batch_size", "n_samples_per_prompt", "global_batch_size", "num_steps_per_rollout")
    prompts, size, batch, steps = (number(name) for name in sizes)
    if steps is None and prompts and size and batch:
        steps = prompts * size / batch
    filtered = get("dynamic_sampling_filter_path")
    return {
        "group_size": get("n_samples_per_prompt"),
        "problems_per_batch": get("rollout_batch_size"),
        "seed": get("rollout_seed", "seed"),
        "model": get("hf_checkpoint"),
        "train_data": get("prompt_data"),
        "algorithm": keys.algorithm("advantage_estimator"),
        "learning_rate": get("lr"),
        "kl_coef": get("kl_loss_coef") if keys.flat.get("use_kl_loss") else get("kl_coef"),
        "entropy_coef": get("entropy_coef"),
        "updates_per_batch": keys.derived(steps, *sizes),
        "max_tokens": get("rollout_max_response_len"),
        "max_prompt_tokens": get("rollout_max_prompt_len"),
        "temperature": get("rollout_temperature"),
        "top_p": get("rollout_top_p"),
        "filter": None if filtered is None else Said("dynamic", filtered.evidence),
        "eval_temperature": get("eval_temperature"),
        "eval_samples": get("n_samples_per_eval_prompt"),
    }


_DIAGNOSES = r"error_cat|repetition_frac|truncated|response_len|zero_std|pass@|step$|num_turns|length"

FORMAT = LogFormat(
    name="slime",
    framework="slime",
    signature=r"rollout/(raw_reward|response_lengths|response_len/mean|zero_std/.+|truncated_ratio|total_lengths)",
    tags=(
        validation(r"eval/(?P<set>[^/]+?)-pass@(?P<k>\d+)", "best@{k}"),
        validation(r"eval/(?P<set>[^/]+?)[-/]truncated(?:_ratio)?", "truncated_share"),
        validation(r"eval/(?P<set>[^/]+?)/response_len/mean", "response_length"),
        validation(rf"eval/(?P<set>(?:(?!{_DIAGNOSES})[^/])+)", "avg@{k}"),
        Tag("rollout/raw_reward", "train_reward"),
        Tag("train/pg_loss", "loss"),
        Tag("train/value_loss", "value_loss"),
        Tag("train/entropy_loss", "entropy"),
        Tag("train/kl_loss", "kl"),
        Tag("train/grad_norm", "gradient_norm"),
        Tag("train/lr-pg_0", "learning_rate"),
        Tag("train/pg_clipfrac", "clipped_share"),
        Tag("rollout/response_len/mean", "response_length"),
        Tag("rollout/response_lengths", "response_length"),
        Tag("rollout/truncated_ratio", "truncated_share"),
        Tag("rollout/truncated", "truncated_share"),
        Tag("perf/step_time", "step_seconds"),
        Tag("perf/rollout_time", "sampling_seconds"),
    ),
    step="rollout_batches",
    components=r"rollout/(rewards|advantages|returns|.*log_probs|zero_std/.+|dynamic_filter/.+)|passrate/.+",
    update_steps=r"(rollout|eval|train)/step",
    step_key=r"(rollout|eval|train)/step",
    one_unit=lambda log: replace(log, attempts=tuple(map(_in_rollouts, log.attempts))),
    from_zero="all rows",
    # Whole groups that were generated and not trained on.
    filtered_groups=r"rollout/dynamic_filter/drop_.+",
    configurations=(
        Configuration("slime", "n_samples_per_prompt", _fields),
        Configuration("slime", "rollout_batch_size", _fields),
    ),
    console=Console((b"rollout ", b"eval "), _parse),
)
