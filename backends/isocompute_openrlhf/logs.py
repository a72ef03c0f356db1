"""What the logs of OpenRLHF mean: event files, consoles, saved flags, and the folder that our launch script fills.

A logged step is one rollout batch of B_p prompts and n samples each, however many optimiser updates it is split into.
A resume begins a new event file in the same folder, whose steps go on after the checkpoint; in our own run folders
resumed.jsonl names that step, and every console has the number of its attempt.

OpenRLHF logs the mean and the mean of the largest reward, never the smallest, and only for prompts that it can match
to their data set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import attempt_of_steps
from isocompute_sdk.ingest.formats.configuration import Configuration, Keys, Said
from isocompute_sdk.ingest.formats.log_format import (
    Attempt,
    Console,
    LogFormat,
    Printed,
    RunFolder,
    RunLog,
    Tag,
    printed_dict,
    validation,
)
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.stores.console import read_console
from isocompute_sdk.ingest.tables import read_objects
from isocompute_sdk.records.columns import PER_RUN
from isocompute_sdk.run_folders.journal_records import ATTEMPTS_FILE
from isocompute_sdk.run_folders.progress import Progress, last_lines, latest
from isocompute_sdk.run_folders.store import LOG_FILE, REQUEST_FILE
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.framework import request_document
from isocompute_sdk.training.payload.run_files import STARTED

REQUEST_DOCUMENT = request_document("openrlhf")


def read_inputs(folder: Path) -> tuple[RunSpec, int | None]:
    """The run of a folder that the launch script wrote, and its problems, None before they are counted."""
    path = folder / REQUEST_FILE
    try:
        request = REQUEST_DOCUMENT.load(path)
        record = folder / STARTED
        counted = parse_json(record.read_text(encoding="utf-8")).get("problems") if record.exists() else None
        n_problems = request.run.data.n_problems if counted is None else int(counted["train"])
    except (IsoComputeError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path} or the rows beside it are not what a launch script wrote: {error}", REQUEST_DOCUMENT.remedy
        ) from error
    return request.run, n_problems


CONSOLE = re.compile(r"console\.(\d+)\.log")
"""Files that supervise.py writes, one per attempt."""


def consoles(folder: Path) -> dict[int, Path]:
    """Attempt -> what it printed."""
    return {int(match[1]): path for path in folder.glob("console.*.log") if (match := CONSOLE.fullmatch(path.name))}


def progress_of(folder: Path) -> Progress | None:
    """How far a run is, from the last lines of its consoles; events can only be read from their beginning."""
    form = load("openrlhf")
    assert form.console is not None
    lines = (line for _, path in sorted(consoles(folder).items(), reverse=True) for line in last_lines(path))
    printed = (form.console.parse(line.decode(errors="replace")) for line in lines if b"lobal" in line)
    return latest(form.progress(one.step, one.values) for one in printed if one is not None)


RESUMES = "resumed.jsonl"
RUN_FILES = ("tensorboard/**/*tfevents*", "console.*.log", LOG_FILE, ATTEMPTS_FILE, RESUMES)


def read_run(folder: Path) -> RunLog:
    """Everything that the run in a folder has logged; see `ingest.formats.log_format.RunFolder`."""
    (run, n_problems), form = read_inputs(folder), load("openrlhf")
    assert form.console is not None
    read = {number: read_console(path, form.console) for number, path in consoles(folder).items()}
    printed = {number: attempts for number, (attempts, _) in read.items()}
    if not any(printed.values()) and (folder / LOG_FILE).is_file():
        # An executor's log holds all attempts.
        read = {0: read_console(folder / LOG_FILE, form.console)}
        printed = {i: [steps] for i, steps in enumerate(read[0][0], start=1)}
    notes = tuple(note for _, found in read.values() for note in found)
    starts, _, damage = read_objects(folder / RESUMES) if (folder / RESUMES).is_file() else ([], [], ())
    resumed = {int(line["attempt"]): float(line["step"]) for line in starts}
    attempts: list[Attempt] = []
    for number in range(1, max((number for number, parts in printed.items() if parts), default=0) + 1):
        one = attempt_of_steps(folder, chain(*printed.get(number, ())))
        attempts.append(replace(one, started=float(number), from_step=resumed.get(number)))
    said: dict[str, Any] = {**run.context(), "n_problems": n_problems}
    return RunLog(run.run_id, folder, "console", tuple(attempts), (*notes, *damage), said, framework=form)


_BEGINS = re.compile(r"(Global step|global_step) (\d+)(?:: |, eval_metrics: )\{")
_SAMPLES = r"eval/eval_{set}_pass(?P<k>\d+)"
"""OpenRLHF logs pass1 and pass<k> of the same k samples."""


def _parse(line: str) -> Printed | None:
    """Python dicts that may hold nan: `Global step N: {...}`, `Evaluation completed in ..., eval_metrics: {...}`."""
    return printed_dict(line, _BEGINS, {"Global step": "train/", "global_step": "eval/"})


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
    "nodes": ("actor.num_nodes", "actor_num_nodes"),
    "gpus_per_node": ("actor.num_gpus_per_node", "actor_num_gpus_per_node"),
    "engines": ("vllm.num_engines", "vllm_num_engines"),
    "tensor_parallel": ("vllm.tensor_parallel_size", "vllm_tensor_parallel_size"),
    "colocated": ("train.colocate_all", "colocate_all_models"),
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
        found = {name: keys.get(key) for name, key in names.items() if name in PER_RUN}
        if found["max_prompt_tokens"] is None and length and response:
            found["max_prompt_tokens"] = keys.derived(length - response, names["length"], names["max_tokens"])
        # What the framework trains with where its command does not say.
        usual = Said(1.0, f"{keys.path}: no {names['temperature']}", default=True)
        return found | {
            "temperature": found["temperature"] or usual,
            "algorithm": keys.algorithm(names["algorithm"]),
            "updates_per_batch": keys.derived(updates, *(names[name] for name in batch)),
            "gpus": _gpus(keys, names),
            "filter": keys.switch(names["filter"], "dynamic", "none"),
            "off_policy": keys.switch(names["off_policy"], "async", "none"),
        }

    return Configuration(dialect, names["group_size"], fields)


def _gpus(keys: Keys, names: Mapping[str, str]) -> Said | None:
    """The GPUs of the trainer where everything shares them; None where vLLM or another model may have its own."""
    nodes, tensor_parallel = (
        keys.number(names[one]) if names[one] in keys.flat else 1.0 for one in ("nodes", "tensor_parallel")
    )
    per_node, engines = keys.number(names["gpus_per_node"]), keys.number(names["engines"])
    shared = keys.flat.get(names["colocated"]) is True and not keys.flat.get(names["off_policy"])
    if not shared or not (nodes and per_node and engines and tensor_parallel):
        return None
    gpus = nodes * per_node
    used = (names[one] for one in ("nodes", "gpus_per_node", "colocated"))
    return keys.derived(gpus, *used) if engines * tensor_parallel == gpus else None


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
    console=Console((b"Global step ", b"global_step "), _parse),
    run_folder=RunFolder(REQUEST_DOCUMENT.kind, RUN_FILES, read_run, progress_of),
)
