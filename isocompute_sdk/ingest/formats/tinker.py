"""What the logs of tinker-cookbook mean: `metrics.jsonl` and `config.json` in the folder of a run.

Row i holds what the update with number i measured, counted from 0, and the evaluations made before it. Each batch says
how many episodes it sampled. A resume cuts the rows after its checkpoint and keeps the old file as
`metrics.jsonl.pre_resume_NNNNNN`. Supervised training and distillation write files of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from isocompute_sdk.ingest.attempts import attempts_from_rows, numbers_of
from isocompute_sdk.ingest.formats.configuration import Configuration, Keys, Said
from isocompute_sdk.ingest.formats.log_format import Attempt, LogFormat, LogStore, RunLog, Tag, validation
from isocompute_sdk.ingest.tables import first_objects, read_objects

FILE = "metrics.jsonl"
_PRE_RESUME = re.compile(r"metrics\.jsonl\.pre_resume_(\d+)")
_BUILDER = "dataset_builder"


def _is_metrics(path: Path) -> bool:
    if path.name != FILE and not _PRE_RESUME.fullmatch(path.name):
        return False
    marks = ("env/", "progress/", "test/env/")
    return any("step" in row and any(key.startswith(marks) for key in row) for row in first_objects(path))


def _read(paths: Sequence[Path], name: str) -> RunLog:
    """The file of a run, and those that its resumes kept."""
    kept = {int(found[1]): path for path in paths if (found := _PRE_RESUME.fullmatch(path.name))}
    files = [*(kept[step] for step in sorted(kept)), *(path for path in paths if path not in kept.values())]
    starts = [0, *sorted(kept)]
    attempts: list[Attempt] = []
    for path, start in zip(files, starts, strict=False):
        rows, lines, notes = read_objects(path)
        values, damaged = numbers_of(path, rows, lines, ("step",))
        own = [row for row in values if row.get("step", -1) >= start]
        found = attempts_from_rows(path, [row.pop("step") for row in own], own, (*notes, *damaged))
        attempts += [replace(one, from_step=float(start)) if i == 0 else one for i, one in enumerate(found)]
    return RunLog(name, files[-1], "tinker", tuple(attempts), tuple(note for one in attempts for note in one.notes))


def _fields(keys: Keys) -> Mapping[str, Said | None]:
    """Every recipe has a data set builder of its own; those for groups name these two alike."""
    get = keys.get
    return {
        "group_size": get(f"{_BUILDER}.group_size"),
        "problems_per_batch": get(f"{_BUILDER}.batch_size", f"{_BUILDER}.groups_per_batch"),
        "seed": get(f"{_BUILDER}.seed"),
        "model": get("model_name", f"{_BUILDER}.model_name_for_tokenizer"),
        "algorithm": keys.algorithm("loss_fn"),
        "learning_rate": get("learning_rate"),
        "kl_coef": get("kl_penalty_coef"),
        "updates_per_batch": get("num_substeps"),
        "max_tokens": get("max_tokens"),
        "temperature": get("temperature"),
    }


FORMAT = LogFormat(
    name="tinker",
    framework="tinker-cookbook",
    signature=r"(test/)?env/all/(reward/total|total_episodes|by_group/.+)",
    tags=(
        validation(r"test/env/all/reward/total", "avg@{k}"),
        validation(r"test/env/all/ac_tokens_per_turn", "response_length"),
        Tag("env/all/reward/total", "train_reward"),
        Tag("optim/entropy", "entropy"),
        Tag("optim/kl_sample_train_v2", "sampler_kl"),
        Tag("optim/lr", "learning_rate"),
        Tag("env/all/ac_tokens_per_turn", "response_length"),
        Tag("time/total", "step_seconds"),
        Tag("time/sampling", "sampling_seconds"),
    ),
    step="rollout_batches",
    components=r"(test/)?env/all/(?!reward/total|ac_tokens|total_episodes).+",
    from_zero="training",
    rollouts_tag="env/all/total_episodes",
    batch_tag="env/all/total_episodes",
    configurations=(Configuration("tinker", f"{_BUILDER}.group_size", _fields),),
    store=LogStore("tinker", _is_metrics, lambda path: path.parent, _read),
)
