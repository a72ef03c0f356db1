"""What the logs of OpenRLHF mean: event files, consoles, saved flags, and the folder that our launch script fills.

A logged step is one rollout batch of B_p prompts and n samples each, however many optimiser updates it is split into.
A resume begins a new event file in the same folder, whose steps go on after the checkpoint; in our own run folders
resumed.jsonl names that step, and every console has the number of its attempt.

OpenRLHF logs the mean and the mean of the largest reward, never the smallest, and only for prompts that it can match
to their data set. A record holds problem, split, score and attempt, not the update step: all evaluations of an attempt
sample every problem k times, so that the j-th k records of a problem belong to its j-th evaluation.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute_openrlhf.flags import VERSION
from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import (
    Attempt,
    ExactMetrics,
    Extent,
    RunLog,
    attempt_of_steps,
    joined,
    limits,
    with_exact,
)
from isocompute_sdk.ingest.formats.log_format import (
    NUMBER,
    TRAIN_SET,
    ZERO_VARIANCE_SHARE,
    Console,
    LogFormat,
    Measure,
    Printed,
    RunFolder,
    Tag,
    validation,
)
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.stores.console import read_console
from isocompute_sdk.ingest.stores.saved_config import Configuration, Keys, Said
from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.journal_records import ATTEMPTS_FILE
from isocompute_sdk.run_folders.progress import Progress, last_lines, latest
from isocompute_sdk.run_folders.store import LOG_FILE
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.framework import REQUEST, request_document
from isocompute_sdk.training.payload.run_files import ROW_FILES, STARTED

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

REQUEST_DOCUMENT = request_document("openrlhf")


@dataclass(frozen=True)
class RunInputs:
    """The run of a folder and its problems."""

    run: RunSpec
    gpus: int
    problems: dict[str, list[str]]
    """Evaluation set -> ids of its problems; empty before the rows are written."""
    n_problems: int | None
    """Distinct training problems, D; None before they are counted."""


def read_inputs(folder: Path) -> RunInputs:
    """The run and the problems of a folder that the launch script wrote."""
    path = folder / REQUEST
    try:
        request = REQUEST_DOCUMENT.load(path)
        record = folder / STARTED
        counted = parse_json(record.read_text(encoding="utf-8")).get("problems") if record.exists() else None
        n_problems = request.run.data.n_problems if counted is None else int(counted["train"])
        evaluated = _evaluated(folder)
    except (IsoComputeError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path} or the rows beside it are not what a launch script wrote: {error}", REQUEST_DOCUMENT.remedy
        ) from error
    if request.version != VERSION:
        raise RecordError(
            f"{path}: the run is of OpenRLHF {request.version}; this release reads {VERSION}",
            "Read its TensorBoard folder instead: `isocompute doctor`.",
        )
    return RunInputs(request.run, request.gpus, evaluated, n_problems)


def _evaluated(folder: Path) -> dict[str, list[str]]:
    """Evaluation set -> ids of its problems, from OpenRLHF's evaluation rows."""
    path = folder / ROW_FILES["evaluation"]
    found: dict[str, list[str]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            label = parse_json(parse_json(line)["label"])
            found.setdefault(label["split"], []).append(label["id"])
    return found


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


PATTERN = "samples.*.jsonl"


@dataclass(frozen=True)
class Samples:
    """All records of one run, in the order in which they were written."""

    frame: pl.DataFrame
    """Columns id, split, score, failed (whether the reward function failed), attempt."""
    unreadable: int
    """Lines that could not be read, as when a process was killed or the disk was full."""

    def count(self, split: str, attempt: int) -> int:
        """Samples of one split in one attempt."""
        return len(self._part(split, attempt))

    def evaluations(self, split: str, attempt: int, ids: Sequence[str], k: int) -> list[NDArray[np.float64]]:
        """Scores of each complete evaluation of an attempt, shape (problems, k), problems in the order of `ids`."""
        import polars as pl

        part = self._part(split, attempt)
        counts = dict(part.group_by("id").len().iter_rows())
        complete = min((counts.get(name, 0) for name in ids), default=0) // k
        if not complete:
            return []
        position = {name: index for index, name in enumerate(ids)}
        ordered = (
            part.filter(pl.col("id").is_in(list(ids)))
            .with_columns(
                (pl.int_range(pl.len()).over("id") // k).alias("evaluation"),
                pl.col("id").replace_strict(position, return_dtype=pl.Int64).alias("problem"),
            )
            .filter(pl.col("evaluation") < complete)
            .sort("evaluation", "problem", maintain_order=True)
        )
        return list(ordered["score"].to_numpy().reshape(complete, len(ids), k))

    def zero_variance_shares(self, attempt: int, rollouts_per_batch: int) -> list[float]:
        """Of each whole rollout batch of an attempt, the share of problems whose samples all scored the same."""
        import polars as pl

        part = self._part("train", attempt)
        whole = len(part) // rollouts_per_batch
        groups = (
            part.head(whole * rollouts_per_batch)
            .with_columns((pl.int_range(pl.len()) // rollouts_per_batch).alias("batch"))
            .group_by("batch", "id")
            .agg((pl.col("score").min() == pl.col("score").max()).alias("equal"))
        )
        return groups.group_by("batch").agg(pl.col("equal").mean()).sort("batch")["equal"].to_list()

    def _part(self, split: str, attempt: int) -> pl.DataFrame:
        import polars as pl

        return self.frame.filter((pl.col("split") == split) & (pl.col("attempt") == attempt))


def read_samples(folder: Path) -> Samples:
    """Every record in a run folder."""
    import polars as pl

    parts: list[pl.DataFrame] = []
    unreadable = 0
    for path in sorted(folder.glob(PATTERN)):
        content = path.read_bytes()
        try:
            parts.append(_parsed(content))
        except pl.exceptions.ComputeError:
            lines = content.splitlines()
            whole = [line for line in lines if _is_json(line)]
            unreadable += sum(bool(line.strip()) for line in lines) - len(whole)
            parts.append(_parsed(b"\n".join(whole)))
    frame = pl.concat([_parsed(b""), *parts]).sort("time", maintain_order=True)
    return Samples(
        frame.select("id", "split", "score", pl.col("error").is_not_null().alias("failed"), "attempt"), unreadable
    )


def _parsed(content: bytes) -> pl.DataFrame:
    import polars as pl

    schema = {
        "id": pl.String(),
        "split": pl.String(),
        "score": pl.Float64(),
        "error": pl.String(),
        "attempt": pl.Int64(),
        "time": pl.Float64(),
    }
    return pl.read_ndjson(io.BytesIO(content), schema=schema) if content.strip() else pl.DataFrame(schema=schema)


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return False


LOGGED_SET = re.compile(r"eval/eval_(?!unknown_)(.+)_pass1")


def add_samples(log: RunLog, samples: Samples, request: RunInputs) -> RunLog:
    """The log of a run with what its samples say: exact metrics, groups of equal rewards, failed rewards."""
    exact = ExactMetrics()
    attempts: list[Attempt] = []
    for attempt, extent, last in zip(log.attempts, log.extents, limits(log.extents), strict=True):
        found = _evaluations(attempt, extent, last, samples, request, exact)
        shares = samples.zero_variance_shares(attempt.number, request.run.rollouts_per_batch)
        for index, share in enumerate(shares, start=1):
            step = extent.start + index
            if step <= extent.last:
                found.setdefault(int(step), {})[Measure(ZERO_VARIANCE_SHARE, TRAIN_SET)] = share
        attempts.append(with_exact(attempt, found))
    notes = (*exact.notes(log.name), *_sample_notes(log.name, samples))
    return replace(log, attempts=tuple(attempts), notes=(*log.notes, *notes))


def _evaluations(
    attempt: Attempt, extent: Extent, last: float, samples: Samples, request: RunInputs, exact: ExactMetrics
) -> dict[int, dict[Measure, float]]:
    """Exact values of every evaluation of an attempt up to step `last`: step -> measure -> value."""
    plan, found = request.run.evaluation, dict[int, dict[Measure, float]]()
    recorded: dict[tuple[float, str], NDArray[np.float64]] = {}
    first = (extent.start // plan.every_steps + 1) * plan.every_steps
    for name, ids in request.problems.items():
        blocks = samples.evaluations(name, attempt.number, ids, plan.samples)
        recorded |= {(first + index * plan.every_steps, name): block for index, block in enumerate(blocks)}
    logged = {
        (float(step), match[1])
        for tag, series in attempt.series.items()
        if (match := LOGGED_SET.fullmatch(tag))
        for step in series.step_T.tolist()
    }
    for step, name in sorted({*recorded, *logged}):
        if step > last:
            continue
        values = exact.of(int(step), name, recorded.get((step, name)), _logged(attempt, step, name, plan.samples))
        if values:
            found.setdefault(int(step), {}).update(values)
    return found


def _logged(attempt: Attempt, step: float, name: str, k: int) -> dict[str, float]:
    """avg@k and best@k as they were logged at one step."""
    found: dict[str, float] = {}
    for metric, passes in ((f"avg@{k}", 1), *([(f"best@{k}", k)] if k > 1 else [])):
        series = attempt.series.get(f"eval/eval_{name}_pass{passes}")
        values = [] if series is None else series.value_T[series.step_T == step].tolist()
        if values:
            found[metric] = values[-1]
    return found


def _sample_notes(run_id: str, samples: Samples) -> list[Note]:
    """Failures of the reward function, and lines that were lost."""
    notes: list[Note] = []
    failed, total = int(samples.frame["failed"].sum()), len(samples.frame)
    if failed:
        message = (
            f"run {run_id!r}: the reward function failed for {failed} of {total} samples, which scored 0.0. The field "
            f"error of {PATTERN} says why."
        )
        notes.append(Note("reward-errors", "warning", message, {"run_id": run_id, "failed": failed, "samples": total}))
    if samples.unreadable:
        message = f"run {run_id!r}: {samples.unreadable} lines of {PATTERN} cannot be read, as after a kill."
        notes.append(Note("log-damaged", "warning", message, {"run_id": run_id, "lines": samples.unreadable}))
    return notes


RESUMES = "resumed.jsonl"
RUN_FILES = ("tensorboard/**/*tfevents*", "console.*.log", LOG_FILE, ATTEMPTS_FILE, RESUMES, PATTERN)


def read_run(folder: Path) -> RunLog:
    """Everything that the run in a folder has logged; see `ingest.formats.log_format.RunFolder`."""
    request = read_inputs(folder)
    run, form = request.run, load("openrlhf")
    assert form.console is not None
    printed = {number: read_console(path, form.console) for number, path in consoles(folder).items()}
    if not any(printed.values()) and (folder / LOG_FILE).is_file():
        # An executor's log holds all attempts.
        printed = {i: [steps] for i, steps in enumerate(read_console(folder / LOG_FILE, form.console), start=1)}
    samples = read_samples(folder)
    resumed = {int(line["attempt"]): float(line["step"]) for line in _json_lines(folder / RESUMES)}
    attempts: list[Attempt] = []
    for number in range(1, max((number for number, parts in printed.items() if parts), default=0) + 1):
        one = attempt_of_steps(folder, {})
        for steps in printed.get(number, ()):
            one = joined(one, attempt_of_steps(folder, steps))
        sampled = float(samples.count("train", number))
        started = {"started": float(number), "number": number, "from_step": resumed.get(number), "sampled": sampled}
        attempts.append(replace(one, **started))
    said: dict[str, Any] = {**run.context(), "n_problems": request.n_problems}
    log = RunLog(run.run_id, folder, "console", tuple(attempts), (), said, known_format=form, gpus=request.gpus)
    return add_samples(log, samples, request)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Objects of a file that the launch script appends to; a last line that is still being written is left out."""
    if not path.is_file():
        return []
    found: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        try:
            found.append(parse_json(line))
        except ValueError as error:
            raise RecordError(f"{path}:{number}: not JSON ({error})", "Remove the line.") from error
    return found


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
