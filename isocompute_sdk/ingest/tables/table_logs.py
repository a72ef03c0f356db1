"""Tables that do not say n and B_p themselves, as logs: W&B charts with a column per run, W&B histories, JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import (
    RunLog,
    ScalarSeries,
    attempts_from_columns,
    one_per_step,
    scalar_series,
)
from isocompute_sdk.ingest.finding.log_sources import refuse_supervised
from isocompute_sdk.ingest.finding.paths import format_of
from isocompute_sdk.ingest.stores.packed import unpacked
from isocompute_sdk.ingest.tables.csv import read_csv
from isocompute_sdk.ingest.tables.jsonl import read_jsonl
from isocompute_sdk.ingest.tables.parquet import read_parquet
from isocompute_sdk.ingest.tables.raw import RawTable
from isocompute_sdk.ingest.tables.wandb_csv import (
    BOUNDS,
    INTERNAL,
    SEPARATOR,
    STEP_NAME,
    is_chart,
    step_columns,
)
from isocompute_sdk.records.cells import Source, refuse_clock, to_series
from isocompute_sdk.records.columns import PER_RUN, WANDB_STEPS, fields
from isocompute_sdk.records.run_ids import Rows
from isocompute_sdk.records.size_changes import SIZES, parts_of

if TYPE_CHECKING:
    import polars as pl

_NO_METRICS = ("run_id", "metric", "value", "eval_set", "rollouts", "rollouts_spent")
"""Columns of a table, beside those of its runs, that hold no measurement of their own."""


def logs_of_file(path: Path, rename: Mapping[str, str] | None = None, ignore: Sequence[str] = ()) -> list[RunLog]:
    """The runs in a table.

    Args:
        path: the table.
        rename: name in the file -> name to use.
        ignore: columns to leave out.

    Raises:
        RecordError: it cannot be read, has no column that could be a step, or is of another kind of training.
    """
    kind = format_of(path)
    if kind == "parquet":
        table = read_parquet(path)
    else:
        table = read_csv(path, "drop") if kind == "csv" else read_jsonl(path, "drop")
    if kind == "csv" and is_chart(list(table.columns)):
        return _of_chart(path, table)
    renamed = rename or {}
    columns = {renamed.get(name, name): values for name, values in table.columns.items() if name not in ignore}
    logs = _of_rows(path, replace(table, columns=columns))
    for log in logs:
        refuse_supervised(log, columns)
    return logs


def _of_chart(path: Path, table: RawTable) -> list[RunLog]:
    """A run per name before the last ` - ` of a column; metrics hardly ever have one in theirs, runs do."""
    step, *rest = table.columns
    if not STEP_NAME.fullmatch(step):
        raise RecordError(
            f"{path}: the x axis of the chart is {step!r}; accepted: a step, such as 'Step' or 'global_step'",
            "Export the chart with its x axis set to Step.",
        )
    at = _floats(table.columns[step])
    series: dict[str, dict[str, tuple[Rows, ScalarSeries]]] = {}
    for column in rest:
        if SEPARATOR in column and not column.endswith(BOUNDS):
            run, tag = column.rsplit(SEPARATOR, 1)
            values = _floats(table.columns[column])
            # An empty cell was not measured; a cell that says NaN was, and means that something failed.
            there = _is_number(table.columns[column]) & ~np.isnan(at)
            series.setdefault(run, {})[tag] = np.flatnonzero(there), scalar_series(at[there], values[there])
    found = [
        RunLog(run, path, "wandb", attempts, table.notes, step_name=step)
        for run, tags in series.items()
        if (attempts := attempts_from_columns(path, tags))
    ]
    if not found:
        raise RecordError(f"{path} holds no measured value of any run", "Export the chart again.")
    return found


def join_charts(one: RunLog, other: RunLog) -> RunLog | None:
    """One run in two charts of W&B, which exports a metric a file; None unless that is certain."""
    charts = one.format == other.format == "wandb" and one.step_name == other.step_name
    if not charts or len(one.attempts) != 1 or len(other.attempts) != 1 or {*one.tags} & {*other.tags}:
        return None
    series = {**one.attempts[0].series, **other.attempts[0].series}
    return replace(one, attempts=(replace(one.attempts[0], series=series),), notes=(*one.notes, *other.notes))


def _of_rows(path: Path, table: RawTable) -> list[RunLog]:
    """A run per run_id, or one that is named after the file."""
    import polars as pl

    names: dict[str, str] = {}
    meant = fields(table.columns)
    for name, column in meant.items():
        names.setdefault(column or name, name)
    steps = step_columns([name for name, column in meant.items() if column == "step" or STEP_NAME.fullmatch(name)])
    if not steps:
        raise RecordError(
            f"{path} has no column that counts steps; it has: {', '.join(table.columns)}",
            "Rename one to step, or give the rollouts as C.",
        )
    frame = pl.DataFrame([to_series(name, values) for name, values in table.columns.items()])
    run = names.get("run_id")
    parts = [(unpacked(path).stem, frame)]
    if run is not None:
        # Names of runs may be numbers.
        frame = frame.with_columns(pl.col(run).cast(pl.String))
        parts = [(str(key[0]), part) for key, part in frame.group_by(run, maintain_order=True)]
    return [_of_run(path, table, name, part, steps, names) for name, part in parts]


def _of_run(
    path: Path, table: RawTable, name: str, frame: pl.DataFrame, steps: Sequence[str], names: Mapping[str, str]
) -> RunLog:
    at = _floats(frame[steps[0]])
    for other in steps[1:]:
        at = np.where(np.isnan(at), _floats(frame[other]), at)
    refuse_clock(np.nanmax(at, initial=0.0), steps[0])
    said = _said(path, name, frame, at, names)
    # A lone `reward` is a measurement; beside `metric` it holds the values of all of them.
    others = [column for column in (*PER_RUN, *_NO_METRICS) if column != "value" or "metric" in names]
    apart = {*steps, *INTERNAL, *WANDB_STEPS, *(names[column] for column in others if column in names)}
    series: dict[str, tuple[Rows, ScalarSeries]] = {}
    if "metric" in names and "value" in names:
        metric, values = frame[names["metric"]], _floats(frame[names["value"]])
        for tag in metric.drop_nulls().unique(maintain_order=True):
            here = (metric == tag).fill_null(False).to_numpy() & ~np.isnan(at)
            series[str(tag)] = np.flatnonzero(here), scalar_series(at[here], values[here])
    for column in frame.columns:
        if column in apart:
            continue
        values = _floats(frame[column])
        there = ~np.isnan(values) & ~np.isnan(at)
        if there.any():
            series[column] = np.flatnonzero(there), scalar_series(at[there], values[there])
    if not series:
        raise RecordError(f"{path}: run {name!r} has no column of numbers beside its step", "Check the file.")
    attempts = attempts_from_columns(path, series)
    counted = None
    if "rollouts" in names:
        totals = _floats(frame[names["rollouts"]])
        there = ~np.isnan(totals) & ~np.isnan(at)
        counted = one_per_step([scalar_series(at[there], totals[there])]) if there.any() else None
    return RunLog(name, path, "table", attempts, table.notes, said, steps[0], counted)


def _said(
    path: Path, name: str, frame: pl.DataFrame, at: np.ndarray[Any, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """What columns say of the run: one value each, or step -> value where n or B_p changed after it.

    Other columns whose value changes, such as a learning rate that follows a schedule, are skipped.

    Raises:
        RecordError: nothing says where n or B_p changed.
    """
    import polars as pl

    said: dict[str, Any] = {}
    changing: list[str] = []
    for column in PER_RUN:
        if column in names:
            cells = frame[names[column]].drop_nulls()
            texts = cells.cast(pl.String).str.strip_chars()
            cells, texts = cells.filter(texts != ""), texts.filter(texts != "")
            if texts.n_unique() == 1:
                said[column] = cells[0]
            elif len(texts):
                changing.append(column)
    return said | (_changes(path, name, frame, at, names) if set(changing) & set(SIZES) else {})


def _changes(
    path: Path, name: str, frame: pl.DataFrame, at: np.ndarray[Any, Any], names: Mapping[str, str]
) -> dict[str, dict[int, int]]:
    """Step -> n, and step -> B_p."""
    import polars as pl

    sizes = {size: _floats(frame[names[size]]) if size in names else np.full(len(at), np.nan) for size in SIZES}
    rows = pl.DataFrame({"run_id": [name] * len(at), "step": at, "rollouts": np.full(len(at), np.nan), **sizes})
    rows = rows.with_columns(pl.col("rollouts", *SIZES).fill_nan(None)).with_columns(
        pl.col(SIZES).cast(pl.Int64, strict=False)
    )
    parts = parts_of(rows.filter(~np.isnan(at)), Source(lambda index: f"{path}: row {index + 1}"))
    broken = [part.start for part in parts if part.start != int(part.start)]
    if broken:
        raise RecordError(
            f"{path}: run {name!r} changes its n or B_p after step {broken[0]}; accepted: whole steps in a mapping",
            "Give the table run ids, n and B_p in every row, so that it needs none.",
        )
    found = {size: {int(part.start): getattr(part, size) for part in parts} for size in SIZES}
    return {size: values for size, values in found.items() if None not in values.values()}


def _is_number(values: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where a column of text holds a number, NaN included."""
    import polars as pl

    text = to_series("column", values).cast(pl.String).str.strip_chars()
    return text.cast(pl.Float64, strict=False).is_not_null().to_numpy()


def _floats(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers of a column; what is none, such as an empty cell, is NaN."""
    import polars as pl

    series = to_series("column", values)
    if series.dtype == pl.String:
        series = series.str.strip_chars()
    elif not series.dtype.is_numeric():
        return np.full(len(series), np.nan)
    return series.cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy().astype(np.float64)
