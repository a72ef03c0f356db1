"""What folders of dumped responses add to a log of veRL: exact metrics, and steps of attempts that no log kept.

A dump of an evaluation belongs to the attempt that logged the same mean at its step. One of a step that nobody logged
was made by an earlier attempt, if it lies before all logs begin or beyond where they end: dumps say nothing of how many
attempts there were, so that as few as possible are counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from isocompute_sdk.ingest.attempts import Attempt, RunLog, one_per_step, scalar_series
from isocompute_sdk.ingest.stores.packed import as_kept, is_damaged
from isocompute_sdk.ingest.verl_dumps import TOLERANCE, dump_steps, dumped_mean, dumped_rewards, exact_metrics
from isocompute_sdk.notes import Note

MEAN = re.compile(r"val-core/(?P<set>.+)/(acc|reward|score)/mean@(?P<k>\d+)")
SCORE = "critic/score/mean"
_NAMES = {"validation": re.compile(r"val|eval|test", re.I), "update": re.compile(r"rollout|train|gen|sample", re.I)}
_SCORE_TOLERANCE = 1e-4  # veRL leaves aborted responses out of its mean
_COMPARED = 3

Values = dict[int, dict[str, float]]
"""Step -> tag -> value."""


@dataclass
class Added:
    """A log together with folders of dumps."""

    attempts: list[Attempt]
    recovered: dict[Path, tuple[float, float]] = field(default_factory=dict[Path, tuple[float, float]])
    """Folder -> first and last step of what it tells of attempts, or of their ends, that the log does not have."""
    notes: list[Note] = field(default_factory=list[Note])


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
    added = _placed(
        replace(log, attempts=tuple(_with(a, measured.get(i, {})) for i, a in enumerate(log.attempts))), unlogged
    )
    return replace(added, notes=notes)


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
        exact = {f"val-dump/{name}/{key}": value for key, value in told.items()}
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
    return Added(attempts, {folder: (float(min(steps)), float(max(steps))) for folder, steps in spans.items()})


def _is_of_last(dump: Path, log: RunLog) -> bool:
    """Whether a dump that no log knows was written since the last attempt began, which then lost its last events.

    Only events have a clock; veRL's file log is written line by line, so that none of its steps is missing.
    """
    started = log.attempts[-1].started if log.format == "tensorboard" else 0.0
    return started > 0 and dump.stat().st_mtime >= started


def _with(one: Attempt, values: Values) -> Attempt:
    series = dict(one.series)
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for step, tags in sorted(values.items()):
        for tag, value in tags.items():
            at, numbers = columns.setdefault(tag, ([], []))
            at.append(step)
            numbers.append(value)
    for tag, column in columns.items():
        more = scalar_series(*column)
        series[tag] = one_per_step([series[tag], more]) if tag in series else more
    return replace(one, series=series)


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
