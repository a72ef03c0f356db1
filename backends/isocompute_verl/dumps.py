"""Responses that veRL dumps, one JSON object a line in `<step>.jsonl`: exact metrics, and steps that no log kept.

`trainer.validation_data_dir` holds those of evaluations, `trainer.rollout_data_dir` those of updates; both have fields
input, output, gts, score and step, and a later attempt overwrites the files of the steps that it makes again. veRL's
own best@k and worst@k are bootstrapped with replacement; those of the dumps are exact.

A dump of an evaluation belongs to the attempt that logged the same mean at its step. One of a step that nobody logged
was made by an earlier attempt, if it lies before all logs begin or beyond where they end: dumps say nothing of how many
attempts there were, so that as few as possible are counted.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import Attempt, RunLog, attempt_of_steps, joined, with_exact
from isocompute_sdk.ingest.formats.log_format import Added, Measure
from isocompute_sdk.ingest.stores.packed import DAMAGED, as_kept, is_damaged, open_bytes, unpacked
from isocompute_sdk.ingest.tables.jsonl import first_object
from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
from isocompute_sdk.notes import Note

TOLERANCE = 1e-6
"""Largest difference between a mean of dumped rewards and the one that veRL logged of the same rewards."""
_FIELDS = {"input", "output", "score", "step"}
_NOT_WHOLE = (FileNotFoundError, ValueError, KeyError, TypeError, *DAMAGED)
# Never written, cut off in the middle of a line, or a line of another form.
_NAME = re.compile(r"\d+\.jsonl")
_LONGEST_FIRST_LINE = 1 << 22


def is_dump_name(path: Path) -> bool:
    """Whether a file is named as dumps are."""
    return _NAME.fullmatch(unpacked(path).name) is not None


def looks_like_dump(path: Path) -> bool:
    """Whether a file holds responses that veRL dumped."""
    return is_dump_name(path) and first_object(path, _LONGEST_FIRST_LINE).keys() >= _FIELDS


def dump_steps(folder: Path) -> dict[int, Path]:
    """Step -> file of a folder of dumps, by step; what lies beside its packed form was written later."""
    files = [path for path in folder.glob("*.jsonl*") if is_dump_name(path)]
    found = {int(unpacked(path).stem): path for path in sorted(files, reverse=True)}
    return dict(sorted(found.items()))


def dumped_rewards(path: Path, samples: int | None = None) -> NDArray[np.float64] | None:
    """Rewards of one dump of an evaluation, shape (problems, samples).

    None if there is no dump, or a problem lacks a response: the dump was cut off, or a rollout failed.

    Args:
        path: the file.
        samples: responses to each problem; None for as many as the first problem has.
    """
    groups: dict[str, dict[str, tuple[int, float]]] = {}
    try:
        for index, row in enumerate(_rows(path)):
            problem, sample, output = _place(row, index)
            known = groups.setdefault(problem, {})
            known[sample] = max(known.get(sample, (-1, 0.0)), (output, _reward(row)))
    except _NOT_WHOLE:
        return None
    if not groups:
        return None
    wanted = len(next(iter(groups.values()))) if samples is None else samples
    if any(len(group) != wanted for group in groups.values()):
        return None
    return np.array([[reward for _, reward in group.values()] for group in groups.values()])


def dumped_mean(path: Path) -> float | None:
    """Mean score of one dump of an update; None if it was cut off or is empty."""
    try:
        scores = [float(row["score"]) for row in _rows(path)]
    except (FileNotFoundError, ValueError, *DAMAGED):
        return None
    return float(np.mean(scores)) if scores else None


def exact_metrics(rewards_PN: NDArray[np.float64]) -> dict[str, float]:
    """avg@k, best@k and worst@k of rewards, shape (problems, samples), for k = samples and the powers of two from 2."""
    samples = rewards_PN.shape[1]
    return {
        f"{name}@{k}": metric(rewards_PN, k)
        for k in sorted({2**i for i in range(1, 16) if 2**i < samples} | {samples})
        for name, metric in (("avg", avg_at_k), ("best", best_at_k), ("worst", worst_at_k))
    }


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    # Only "\n" ends a line: responses may hold other line separators as they are, and bytes that are no text.
    with io.TextIOWrapper(open_bytes(as_kept(path)), encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            if line.strip():
                yield parse_json(line)


def _place(row: dict[str, Any], index: int) -> tuple[str, str, int]:
    """Problem, sample and output of a row: of several outputs of one sample the last has its reward."""
    if "uid" in row:
        problem, sample, output = str(row["uid"]).rsplit("_", 2)
        return problem, sample, int(output)
    return str(row["input"]), str(index), 0  # before the release that named them


def _reward(row: dict[str, Any]) -> float:
    return float(row["acc"] if row.get("acc") is not None else row["score"])


MEAN = re.compile(r"val-core/(?P<set>.+)/(acc|reward|score)/mean@(?P<k>\d+)")
SCORE = "critic/score/mean"
_NAMES = {"validation": re.compile(r"val|eval|test", re.I), "update": re.compile(r"rollout|train|gen|sample", re.I)}
_SCORE_TOLERANCE = 1e-4  # veRL leaves aborted responses out of its mean
_COMPARED = 3

Values = dict[int, dict[str | Measure, float]]
"""Step -> tag, or measure that was computed exactly -> value."""


def add_dumps(log: RunLog, folders: Sequence[Path]) -> Added:
    """The attempts of a log of veRL with what folders of dumps know about them."""
    measured: dict[int, Values] = {}
    unlogged: dict[Path, Values] = {}
    notes: list[Note] = []
    names = sorted({match["set"] for tag in log.tags if (match := MEAN.fullmatch(tag))})
    for folder in folders:
        files = dump_steps(folder)
        damaged = [path for path in files.values() if is_damaged(path)]
        if damaged:
            why = f"{len(damaged)} of them, such as {damaged[0].name}, cannot be unpacked. Copy them again"
            notes.append(_not_read(log, folder, why))
        files = {step: path for step, path in files.items() if path not in damaged}
        kind = _kind(folder, files, log)
        if kind is None:
            notes.append(_not_read(log, folder, "nothing says whether they are of evaluations or of updates"))
        elif kind == "update":
            unlogged[folder] = _updates(log, files)
        elif len(names) > 1:
            notes.append(_not_read(log, folder, f"nothing says which of them are of {', '.join(names)}"))
        else:
            found, unlogged[folder] = _evaluations(log, files, names[0] if names else "validation")
            for i, values in found.items():
                measured.setdefault(i, {}).update(values)
    known = replace(log, attempts=tuple(_with(a, measured.get(i, {})) for i, a in enumerate(log.attempts)))
    return replace(_placed(known, unlogged), notes=notes)


def _kind(folder: Path, files: Mapping[int, Path], log: RunLog) -> str | None:
    """`validation` or `update`: by the means that were logged at the same steps, else by the names of folders."""
    logged = {tag for tag in log.tags if MEAN.fullmatch(tag) or tag == SCORE}
    shared = [step for step in files if any(_at(one, tag, step) for one in log.attempts for tag in logged)]
    for step in shared[:_COMPARED]:
        rewards = dumped_rewards(files[step])
        if rewards is not None and _owner(log, step, float(rewards.mean())) is not None:
            return "validation"
        mean = dumped_mean(files[step])
        scores = [value for one in log.attempts for value in _at(one, SCORE, step)]
        if mean is not None and any(abs(mean - score) <= _SCORE_TOLERANCE for score in scores):
            return "update"
    for name in (folder.name, folder.parent.name):
        for kind, pattern in _NAMES.items():
            if pattern.search(name):
                return kind
    return None


def _evaluations(log: RunLog, files: Mapping[int, Path], name: str) -> tuple[dict[int, Values], Values]:
    """Exact metrics of evaluations: attempt -> those that it logged; and those that nobody logged."""
    measured: dict[int, Values] = {}
    unlogged: Values = {}
    tags = [tag for tag in log.tags if MEAN.fullmatch(tag)]
    for step, path in files.items():
        rewards = dumped_rewards(path)
        if rewards is None:
            continue
        own = f"avg@{rewards.shape[1]}"
        metrics = exact_metrics(rewards)
        # avg@j of fewer samples is the same number once more, as is everything of a single sample.
        told = {} if rewards.shape[1] == 1 else {k: v for k, v in metrics.items() if not k.startswith("avg@")}
        exact: dict[str | Measure, float] = {Measure(key, name): value for key, value in told.items()}
        owner = _owner(log, step, metrics[own])
        if owner is not None:
            measured.setdefault(owner, {})[step] = exact
        elif not any(_at(one, tag, step) for one in log.attempts for tag in tags):
            known = next((tag for tag in tags if tag.endswith(f"mean@{rewards.shape[1]}")), None)
            unlogged[step] = {known or f"val-core/{name}/acc/mean@{rewards.shape[1]}": metrics[own], **exact}
    return measured, unlogged


def _updates(log: RunLog, files: Mapping[int, Path]) -> Values:
    """Mean scores of updates that nobody logged."""
    known = {step for one in log.attempts if SCORE in one.series for step in one.series[SCORE].step_T.tolist()}
    means = {step: dumped_mean(path) for step, path in files.items() if step not in known}
    return {step: {SCORE: mean} for step, mean in means.items() if mean is not None}


def _placed(log: RunLog, unlogged: Mapping[Path, Values]) -> Added:
    """The attempts with what nobody logged put where it belongs."""
    attempts, extents = list(log.attempts), log.extents
    reached = max(extent.last for extent in extents)
    early: list[tuple[Path, Values]] = []
    late: list[tuple[Path, Values]] = []
    for folder, values in unlogged.items():
        first = {step: tags for step, tags in values.items() if step <= extents[0].start}
        if extents[0].start:
            early.append((folder, first))
        else:  # of the base model, which every attempt began with
            attempts[0] = _with(attempts[0], first)
        beyond = {step: tags for step, tags in values.items() if step > reached + 1}
        own = {step: tags for step, tags in beyond.items() if _is_of_last(as_kept(folder / f"{step}.jsonl"), log)}
        attempts[-1] = _with(attempts[-1], own)
        late.append((folder, {step: tags for step, tags in beyond.items() if step not in own}))
    spans: dict[Path, list[int]] = {}
    for folder, values in (*early, *late):
        if values:
            spans.setdefault(folder, []).extend(values)
    if spans:
        known = len(attempts) > 1 and not any(values for _, values in early)
        if not known:
            attempts.insert(0, Attempt(next(iter(spans)), {}, 0.0, None, ()))
        at = max(range(len(extents) - 1), key=lambda i: (extents[i].last, i)) if known else 0
        for _, values in (*early, *late):
            attempts[at] = _with(attempts[at], values)
    return Added(attempts, {folder: (float(min(steps)), float(max(steps))) for folder, steps in spans.items()}, [])


def _is_of_last(dump: Path, log: RunLog) -> bool:
    """Whether a dump that no log knows was written since the last attempt began, which then lost its last events.

    Only events have a clock; veRL's file log is written line by line, so that none of its steps is missing.
    """
    started = log.attempts[-1].started if log.format == "tensorboard" else 0.0
    return started > 0 and dump.stat().st_mtime >= started


def _with(one: Attempt, values: Values) -> Attempt:
    """An attempt with what was dumped: means as if it had logged them, exact measures beside them."""
    tags = {step: {k: v for k, v in row.items() if isinstance(k, str)} for step, row in values.items()}
    exact = {step: {k: v for k, v in row.items() if not isinstance(k, str)} for step, row in values.items()}
    return with_exact(joined(one, attempt_of_steps(one.path, tags)), exact)


def _owner(log: RunLog, step: int, mean: float) -> int | None:
    """The last attempt that logged an evaluation with this mean at a step."""
    tags = [tag for tag in log.tags if MEAN.fullmatch(tag)]
    for i in reversed(range(len(log.attempts))):
        if any(abs(value - mean) <= TOLERANCE for tag in tags for value in _at(log.attempts[i], tag, step)):
            return i
    return None


def _at(one: Attempt, tag: str, step: int) -> Sequence[float]:
    series = one.series.get(tag)
    return [] if series is None else series.value_T[series.step_T == step].tolist()


def _not_read(log: RunLog, folder: Path, why: str) -> Note:
    message = f"run {log.name!r}: the responses dumped in {folder} were not looked at: {why}."
    return Note("dumps-not-read", "info", message, {"run_id": log.name, "folder": str(folder)})
