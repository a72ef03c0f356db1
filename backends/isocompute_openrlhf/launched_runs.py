"""Runs that our launch script started: consoles, resumes, and records of single samples.

OpenRLHF prints what it logs; the name of a console says of which attempt it is, and resumed.jsonl which checkpoint an
attempt went on from.

OpenRLHF logs the mean and the mean of the largest reward, never the smallest, and only for prompts that it can match
to their data set. A record holds problem, split, score and attempt, not the update step: all evaluations of an attempt
sample every problem k times, so that the j-th k records of a problem belong to its j-th evaluation.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
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
from isocompute_sdk.ingest.formats.log_format import TRAIN_SET, ZERO_VARIANCE_SHARE, Measure
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.stores.console import read_console
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
    """The run and the problems of a folder that the launch script wrote.

    Raises:
        RecordError: a file is damaged, or the run is of another OpenRLHF release.
    """
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
