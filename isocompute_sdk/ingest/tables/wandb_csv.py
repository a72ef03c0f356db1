"""CSV exports of Weights & Biases: of a chart (a column per run) or of one run's history.

A chart export has the step first, then for every run a column `run name - metric` and two more, `__MIN` and
`__MAX`, that only repeat it and are dropped. The names of the runs say nothing certain about their group
size, so the caller does, in `runs`. W&B's step counts calls of `log`: it is taken for the update step, as
trainers that log once per update have it, with a note where the tags are those of a framework that calls more
often. A history has the trainer's own steps beside W&B's, and they are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.ingest.formats.log_format import LogFormat, Meaning
from isocompute_sdk.ingest.formats.registry import format_of
from isocompute_sdk.ingest.tables.raw import RawTable
from isocompute_sdk.notes import Note
from isocompute_sdk.records.cells import to_series
from isocompute_sdk.records.columns import WANDB_STEPS
from isocompute_sdk.records.columns import fields as meanings

SEPARATOR = " - "
STEP_NAME = re.compile(r"(.*/)?_?(global_|update_|training_)?step", re.IGNORECASE)
BOUNDS = ("__MIN", "__MAX")
INTERNAL = ("_runtime", "_timestamp", "_wandb")
"""Columns of a history that are W&B's own and no metric."""
NAMED = re.compile(r"(avg|best|worst|pass|mean)@\d+|train_reward")
"""Columns that say themselves what they hold."""


def looks_like_wandb(names: Sequence[str]) -> bool:
    """Whether a CSV header is that of a chart export or of a history with W&B's own columns."""
    return is_chart(names) or ("_step" in names and any(name in names for name in INTERNAL))


def is_chart(names: Sequence[str]) -> bool:
    """Whether a CSV header is that of a chart export, a column per run."""
    rest = [name for name in names[1:] if SEPARATOR in name]
    return any(name.endswith(BOUNDS) for name in rest) or (len(rest) == len(names) - 1 > 0)


def melt_chart(
    path: Path, table: RawTable, runs: Iterable[str], ignore: Sequence[str], rename: Mapping[str, str]
) -> RawTable:
    """A chart export in long form: columns run_id, step, metric, eval_set, value; tags of known frameworks are renamed.

    Args:
        path: for errors.
        table: the CSV file as read.
        runs: names of the runs in the chart.
        ignore: columns of the export to leave out.
        rename: metric in the export -> name to use; also names the step where W&B called it otherwise.

    Raises:
        RecordError: the x axis is not a step, or a column belongs to no run or to several.
    """
    columns = {name: values for name, values in table.columns.items() if name not in ignore}
    step, *rest = columns
    if not (STEP_NAME.fullmatch(step) or rename.get(step) == "step"):
        raise RecordError(
            f"{path}: the x axis of the chart is {step!r}; accepted: a step, such as 'Step' or 'global_step'",
            f"Export the chart with its x axis set to Step; if this column counts updates, pass "
            f"rename={{{step!r}: 'step'}}.",
        ).in_shell(
            f"Export the chart with its x axis set to Step; if this column counts updates, add --rename '{step}=step'."
        )
    measured = [name for name in rest if not name.endswith(BOUNDS)]
    owners = _owners(path, measured, list(runs))
    tags = sorted({metric for _, metric in owners.values()})
    form = format_of(tags)
    known = {} if form is None else form.meanings(tags)
    long: dict[str, list[Any]] = {"run_id": [], "step": [], "metric": [], "eval_set": [], "value": []}
    origin: list[int] = []
    for name in measured:
        run, tag = owners[name]
        metric, eval_set = _named(tag, known, rename)
        for index, (at, value) in enumerate(zip(columns[step], columns[name], strict=True)):
            if _said(value):
                for key, cell in zip(long, (run, at, metric, eval_set, value), strict=True):
                    long[key].append(cell)
                origin.append(index)
    notes = (*table.notes, *_calls(path, form, step))
    return RawTable(long, lambda index: table.locate(origin[index]), notes)


def melt_history(
    path: Path, table: RawTable, ignore: Sequence[str], rename: Mapping[str, str], *, exported: bool = True
) -> RawTable | None:
    """A history whose tags are those of a known framework in long form, as `melt_chart`; None for any other.

    As in every log of a framework, tags that mean nothing here and are not renamed are left out. Rows count by the
    trainer's own step where they have one: OpenRLHF logs updates and evaluations apart, each with a step of its own.

    Args:
        path: for errors.
        table: the file as read.
        ignore: columns to leave out.
        rename: name in the file -> name to use.
        exported: whether W&B wrote it. In a table of somebody's own, columns of numbers that the framework does not
            write are measurements too.
    """
    names = [name for name in table.columns if name not in ignore]
    meant = meanings(rename.get(name, name) for name in names)
    fields = {name: meant[rename.get(name, name)] for name in names}
    steps = step_columns([name for name in names if fields[name] == "step" or STEP_NAME.fullmatch(name)])
    apart = {*steps, *WANDB_STEPS, *INTERNAL}
    if {"metric", "value"} <= {*fields.values()}:
        return None
    # A column `reward` is a tag like others: the framework says what it holds.
    tags = [name for name in names if name not in apart and fields[name] in (None, "value")]
    form = format_of(tags) if steps else None
    if form is None:
        return None
    known = form.meanings(tags)
    named = {tag for tag in tags if NAMED.fullmatch(tag) or (not exported and _is_own(tag, table, form))}
    constant = {name: field for name, field in fields.items() if field not in (None, "value") and name not in apart}
    long: dict[str, list[Any]] = {name: [] for name in (*constant.values(), "step", "metric", "eval_set", "value")}
    origin: list[int] = []
    counted = [table.columns[name] for name in steps]
    at = [next((cell for cell in cells if _said(cell)), None) for cells in zip(*counted, strict=True)]
    read = [tag for tag in tags if tag in known or tag in rename or tag in named]
    meant = [_named(tag, known, rename) for tag in read]
    # Row by row, so that steps go back only where a run begins anew.
    for index, cells in enumerate(zip(*(table.columns[tag] for tag in read), strict=True)):
        for (metric, eval_set), value in zip(meant, cells, strict=True):
            if _said(value) and at[index] is not None:
                for name, field in constant.items():
                    long[field].append(table.columns[name][index])
                for key, cell in (("step", at[index]), ("metric", metric), ("eval_set", eval_set), ("value", value)):
                    long[key].append(cell)
                origin.append(index)
    notes = (*table.notes, *_calls(path, form, steps[0]))
    return RawTable(long, lambda index: table.locate(origin[index]), notes)


def _is_own(tag: str, table: RawTable, form: LogFormat) -> bool:
    """Whether a column holds a measurement that somebody added to those of a framework."""
    import polars as pl

    if re.fullmatch(form.components, tag):
        return False
    cells = to_series(tag, table.columns[tag]).drop_nulls()
    if cells.dtype == pl.String:
        text = cells.str.strip_chars()
        cells = text.filter(text != "").cast(pl.Float64, strict=False)
    return cells.dtype.is_numeric() and not cells.null_count() and cells.n_unique() > 1


def step_columns(names: Sequence[str]) -> list[str]:
    """Of columns that count steps the trainer's own, which say more than the number of calls that W&B counts."""
    return [name for name in names if name not in WANDB_STEPS] or list(names[:1])


def _said(cell: Any) -> bool:
    return cell is not None and bool(str(cell).strip())


def _named(tag: str, known: Mapping[str, Meaning], rename: Mapping[str, str]) -> tuple[str, str | None]:
    """Metric and evaluation set of a tag."""
    # Where nothing says how many samples a mean is over, the tag says more than the name.
    meaning = known.get(tag) if tag not in rename else None
    metric = rename.get(tag, tag) if meaning is None or meaning.needs_k else meaning.metric
    return metric, None if meaning is None else meaning.eval_set


def _calls(path: Path, form: LogFormat | None, step: str) -> tuple[Note, ...]:
    """That the step may not count updates."""
    if step not in WANDB_STEPS or form is None or not form.counts_calls(step):
        return ()
    message = (
        f"{path}: {step!r} is taken for the update step, but is W&B's own, which counts calls of its log: "
        f"{form.framework} makes several for each update, so that rollouts would be counted too high. Export the "
        "trainer's global_step with it, or as the x axis of the chart."
    )
    return (Note("step-counts-calls", "warning", message, {"file": str(path), "step": step}),)


def _owners(path: Path, columns: Sequence[str], runs: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Run and metric of every column, by the names of the runs; never by a guess where to split."""
    owners: dict[str, tuple[str, str]] = {}
    for column in columns:
        found = [run for run in runs if column.startswith(run + SEPARATOR)]
        if len(found) > 1:
            raise RecordError(
                f"{path}: column {column!r} fits several runs: {', '.join(map(repr, found))}",
                "Rename one of the runs in W&B and export again, or pass one file per run.",
            )
        if not found:
            guess = column.rsplit(SEPARATOR, 1)[0]
            raise RecordError(
                f"{path}: column {column!r} belongs to no run that is known; "
                f"received runs: {', '.join(map(repr, runs)) or 'none'}",
                f"{did_you_mean(guess, runs)}Say what each run is, e.g. runs={{{guess!r}: "
                f"{{'group_size': 8, 'problems_per_batch': 32}}}}, or pass ignore=[{column!r}]; or "
                "let `isocompute ingest PATH --propose map.yaml` collect what names and files say.",
            ).in_shell(
                "A chart does not hold n and B_p. Collect what names say, and answer the rest: isocompute ingest "
                f"{quote(str(path))} --propose map.yaml"
            )
        owners[column] = (found[0], column[len(found[0]) + len(SEPARATOR) :])
    return owners
