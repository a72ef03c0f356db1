"""Runs that our launch script started: events, consoles, starts, resumes, and records of single samples.

attempts.jsonl, which the script appends to at every start, says of which attempt an event file is, and the name of a
console of which that is; resumed.jsonl says which checkpoint an attempt went on from. What the events lack, the console
fills.

OpenRLHF logs the mean and the mean of the largest reward, never the smallest, and only for prompts that it can match
to their data set. A record holds problem, split, score and attempt, not the update step: all evaluations of an attempt
sample every problem k times, so that the j-th k records of a problem belong to its j-th evaluation.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute_openrlhf.request import RunInputs, read_inputs
from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import Attempt, Extent, RunLog, attempt_of_steps, filled, joined, limits, with_exact
from isocompute_sdk.ingest.formats.log_format import TRAIN_SET, ZERO_VARIANCE_SHARE, Measure
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.stores.console import read_console
from isocompute_sdk.ingest.stores.event_files import event_files, read_tensorboard
from isocompute_sdk.metrics import k_metrics
from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.journal_records import ATTEMPTS_FILE, Start, read_starts
from isocompute_sdk.run_folders.progress import Progress, last_lines, latest
from isocompute_sdk.run_folders.store import LOG_FILE

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


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
TOLERANCE = 1e-4
"""Largest difference between a logged and an exact value, relative to the larger of it and 1: the log keeps 32 bits."""


@dataclass(frozen=True)
class Difference:
    """A logged value that the records contradict."""

    step: int
    eval_set: str
    metric: str
    exact: float
    logged: float


@dataclass
class Agreement:
    """How the records of one run compare with its log."""

    different: list[Difference] = field(default_factory=list[Difference])
    """Every logged value that disagrees."""
    without_records: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Step and set of evaluations whose records are incomplete."""
    compared: int = 0

    def holds(self, step: int, eval_set: str, exact: Mapping[str, float], logged: Mapping[str, float]) -> bool:
        """Whether the log agrees with exact metrics; collects the differences."""
        self.compared += len(logged)
        different = [
            Difference(step, eval_set, metric, exact[metric], value)
            for metric, value in logged.items()
            if not abs(exact[metric] - value) <= TOLERANCE * max(1.0, abs(value))
        ]
        self.different += different
        return not different

    def notes(self, run_id: str) -> tuple[Note, ...]:
        """Coded notes on both."""
        notes: list[Note] = []
        if self.different:
            one = self.different[0]
            message = (
                f"run {run_id!r}: {len(self.different)} of {self.compared} logged values differ from the records of "
                f"single samples, first at update step {one.step}: {one.metric} on {one.eval_set} is {one.logged:.6g} "
                f"in the log and {one.exact:.6g} by the records. The logged ones are used, and worst@k is left out "
                "there. Prompts that were cut on the left are missing from OpenRLHF's means (eval_unknown in its log); "
                "lost records do the same to ours."
            )
            data = {"run_id": run_id, "values": len(self.different), "compared": self.compared, **asdict(one)}
            notes.append(Note("records-disagree-with-log", "warning", message, data))
        if self.without_records:
            step, name = self.without_records[0]
            message = (
                f"run {run_id!r}: {len(self.without_records)} evaluations have no complete records of single samples "
                f"(first {name} at update step {step}): their avg@k and best@k are the logged ones, and worst@k is "
                "unknown."
            )
            data = {"run_id": run_id, "evaluations": len(self.without_records)}
            notes.append(Note("records-incomplete", "info", message, data))
        return tuple(notes)


def add_samples(log: RunLog, samples: Samples, request: RunInputs) -> RunLog:
    """The log of a run with what its samples say: exact metrics, groups of equal rewards, failed rewards."""
    run, agreement = request.run, Agreement()
    ends = limits(log.extents)
    attempts: list[Attempt] = []
    for attempt, extent, last in zip(log.attempts, log.extents, ends, strict=True):
        found = _evaluations(attempt, extent, last, samples, request, agreement)
        shares = samples.zero_variance_shares(attempt.number, run.rollouts_per_batch)
        for index, share in enumerate(shares, start=1):
            step = extent.start + index
            if step <= extent.last:
                found.setdefault(int(step), {})[Measure(ZERO_VARIANCE_SHARE, TRAIN_SET)] = share
        attempts.append(with_exact(attempt, found))
    notes = (*agreement.notes(log.name), *_sample_notes(log.name, samples))
    return replace(log, attempts=tuple(attempts), notes=(*log.notes, *notes))


def _evaluations(
    attempt: Attempt, extent: Extent, last: float, samples: Samples, request: RunInputs, agreement: Agreement
) -> dict[int, dict[Measure, float]]:
    """Exact values of every evaluation of an attempt up to step `last`: step -> measure -> value."""
    plan, found = request.run.evaluation, dict[int, dict[Measure, float]]()
    exact: dict[tuple[float, str], NDArray[np.float64]] = {}
    first = (extent.start // plan.every_steps + 1) * plan.every_steps
    for name, ids in request.problems.items():
        blocks = samples.evaluations(name, attempt.number, ids, plan.samples)
        exact |= {(first + index * plan.every_steps, name): block for index, block in enumerate(blocks)}
    logged = {
        (float(step), match[1]): i
        for tag, series in attempt.series.items()
        if (match := LOGGED_SET.fullmatch(tag))
        for i, step in enumerate(series.step_T.tolist())
    }
    for step, name in sorted({*exact, *logged}):
        if step > last:
            continue
        if (step, name) not in exact:
            agreement.without_records.append((int(step), name))
            continue
        metrics = k_metrics(exact[step, name])
        if agreement.holds(int(step), name, metrics, _logged(attempt, step, name, plan.samples)):
            found.setdefault(int(step), {}).update({Measure(k, name): v for k, v in metrics.items()})
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
    starts = read_starts(folder / ATTEMPTS_FILE)
    events, notes = _from_events(folder / "tensorboard" / run.run_id, starts)
    printed = {number: read_console(path, form.console) for number, path in consoles(folder).items()}
    if not events and not any(printed.values()) and (folder / LOG_FILE).is_file():
        # An executor's log holds all attempts; only without events need it not be matched to them.
        printed = {i: [steps] for i, steps in enumerate(read_console(folder / LOG_FILE, form.console), start=1)}
    if not events and any(printed.values()):
        message = f"run {run.run_id!r}: no TensorBoard events in {folder}; values are those that the console showed."
        notes = (*notes, Note("log-from-console", "info", message, {"run_id": run.run_id, "folder": str(folder)}))
    samples = read_samples(folder)
    resumed = {int(line["attempt"]): float(line["step"]) for line in _json_lines(folder / RESUMES)}
    last = max((number for number, parts in {**printed, **events}.items() if parts), default=0)
    attempts: list[Attempt] = []
    for number in range(1, last + 1):
        one = events.get(number, Attempt(folder, {}, float(number), None, ()))
        for steps in printed.get(number, ()):
            one = filled(one, attempt_of_steps(folder, steps))[0]
        sampled = float(samples.count("train", number))
        attempts.append(replace(one, number=number, from_step=resumed.get(number), sampled=sampled))
    said: dict[str, Any] = {**run.context(), "n_problems": request.n_problems}
    log = RunLog(run.run_id, folder, "tensorboard", tuple(attempts), notes, said, known_format=form, gpus=request.gpus)
    return add_samples(log, samples, request)


def _from_events(folder: Path, starts: Sequence[Start]) -> tuple[dict[int, Attempt], tuple[Note, ...]]:
    """What each attempt wrote into the event folder."""
    if not event_files(folder):
        return {}, ()
    run = read_tensorboard(folder)
    found: dict[int, Attempt] = {}
    for position, file in enumerate((one for one in run.attempts if one.series), start=1):
        number = _number(file.started, starts, position)
        found[number] = joined(found[number], file) if number in found else file
    return found, run.notes


def _number(started: float, starts: Sequence[Start], position: int) -> int:
    """The attempt that was under way when an event file was begun; without a record of starts, its position."""
    begun = [one.attempt for one in starts if one.started <= started]
    return max(begun, default=1) if starts else position


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
