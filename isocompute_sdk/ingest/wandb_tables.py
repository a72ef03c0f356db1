"""Tables in the words of a framework or of W&B: a history in long form; tables that do not say n and B_p as logs.

A W&B chart has the step first, then for every run a column `run name - metric` and two more, `__MIN` and `__MAX`, that
only repeat it. Where the trainer's own steps stand beside W&B's, which counts calls of `log`, they are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.ingest.attempts import Rows, attempts_from_columns, counted_from_one, scalar_series
from isocompute_sdk.ingest.find import refuse_supervised
from isocompute_sdk.ingest.formats.log_format import RunLog, ScalarSeries, one_per_step
from isocompute_sdk.ingest.formats.registry import format_of, recognised
from isocompute_sdk.ingest.stores.saved_config import scalar, translate
from isocompute_sdk.ingest.tables import RawTable, damaged
from isocompute_sdk.notes import Note
from isocompute_sdk.records.clock import seconds_in
from isocompute_sdk.records.columns import (
    BATCH,
    BY_NAME,
    CLOCKS,
    N_AND_BP,
    PER_RUN,
    WANDB_STEPS,
    Source,
    bare,
    blank_to_null,
    canonical,
    fields,
    given_twice,
    numbers_in,
    refuse_clock,
    spelled,
    to_series,
    typed,
)
from isocompute_sdk.records.reward_metrics import is_text, left_out, rank, refuse_slip
from isocompute_sdk.records.suggested import changes_within
from isocompute_sdk.records.table import goes_back_at, going_back_note

if TYPE_CHECKING:
    import polars as pl

SEPARATOR = " - "
STEP_NAME = re.compile(r"(?!timing)(.*/)?_?(global_|update_|training_)?step", re.IGNORECASE)
"""Names of columns that count steps; veRL logs the seconds of one as `timing_s/step`."""
BOUNDS = ("__MIN", "__MAX")
CONFIGURED = re.compile(r"(?:config|cfg)[./](.+)")
"""Columns of a history that hold the configuration of the run."""
OWN = "_wandb"
INTERNAL = (*CLOCKS, OWN)
"""Columns of a history that are clocks or W&B's own, and no metric."""


def is_chart(names: Sequence[str]) -> bool:
    """Whether a CSV header is that of a chart export, a column per run."""
    rest = [name for name in names[1:] if SEPARATOR in name]
    return any(name.endswith(BOUNDS) for name in rest) or (len(rest) == len(names) - 1 > 0)


def is_log(names: Sequence[str], ignore: Sequence[str], rename: Mapping[str, str]) -> bool:
    """Whether a table is a chart, or the log of a known framework or one with its configuration, with a column that
    counts steps."""
    if is_chart(names):
        return True
    meant = fields(rename.get(name, name) for name in names if name not in ignore)
    if {"metric", "value"} <= {*meant.values()} or {"eval_set", *SPENT} & {*meant.values()}:
        # Only tables say so row by row.
        return False
    steps = [name for name, column in meant.items() if column == "step" or STEP_NAME.fullmatch(name)]
    # A column `reward` is a tag like others: the framework says what it holds.
    tags = [name for name, column in meant.items() if column in (None, "value")]
    return bool(steps) and (format_of(tags) is not None or _says_sizes(names))


def _says_sizes(names: Iterable[str]) -> bool:
    """Whether a history holds the configuration of a framework, by the names of its columns, with n and a batch."""
    # Any numbers do: names decide which framework it is and what it says.
    config = translate(Path(), {match[1]: 8 for name in names if (match := CONFIGURED.fullmatch(name))})
    sizes = set[str]() if config is None else {*config.fields} | ({"batch"} if config.batch is not None else set())
    return "group_size" in sizes and bool({"problems_per_batch", "batch"} & sizes)


SPENT = ("tokens", "gpu_seconds", "rollouts_spent")
_NO_METRICS = ("run_id", "metric", "value", "eval_set", "rollouts", "rollouts_spent")
"""Columns of a table, beside those of its runs, that hold no measurement of their own."""


def logs_of_table(
    path: Path,
    table: RawTable,
    rename: Mapping[str, str] | None = None,
    ignore: Sequence[str] = (),
    runs: Sequence[str] = (),
) -> list[RunLog]:
    """The runs in a table.

    Raises:
        RecordError: it has no column that could be a step, or is of another kind of training.
    """
    renamed = rename or {}
    written = {spelled(renamed.get(name, name)): name for name in table.columns if name not in ignore}
    columns = {name: table.columns[theirs] for name, theirs in written.items()}
    table = replace(table, columns=columns)
    table = replace(table, notes=(*table.notes, *_no_numbers(path, table)))
    if is_chart(list(columns)):
        return _of_chart(path, table, runs, renamed)
    logs = _of_rows(path, table, written)
    for log in logs:
        refuse_supervised(log, columns)
    return logs


def _no_numbers(path: Path, table: RawTable) -> tuple[Note, ...]:
    """A note on text in columns of numbers, and on rows of a chart without a step, which are left out."""
    needed = list(table.columns)[:1] if is_chart(list(table.columns)) else []
    places: list[tuple[str, str]] = []
    for name in (name for name, meant in fields(table.columns).items() if meant in (None, "step", "value")):
        column = to_series(name, table.columns[name])
        numbers, said = numbers_in(column), blank_to_null(column)
        others = (numbers.is_null() & (said.is_not_null() | (name in needed))).arg_true().to_list()
        if name in needed or len(others) < len(numbers) - numbers.null_count():
            where = ((table.locate(row).removeprefix(f"{path}:"), column[row]) for row in others)
            places += [(place, f"{name} is {cell!r:.60}, not a number, and is left out") for place, cell in where]
    return damaged(path, places)


def _of_chart(path: Path, table: RawTable, runs: Sequence[str], rename: Mapping[str, str]) -> list[RunLog]:
    """A run per name before the last ` - ` of a column; metrics hardly ever have one in theirs, runs do."""
    step, *rest = table.columns
    if not STEP_NAME.fullmatch(step):
        raise RecordError(
            f"{path}: the x axis of the chart is {step!r}; accepted: a step, such as 'Step' or 'global_step'",
            "Export the chart with its x axis set to Step; if this column counts updates, pass "
            f"rename={{{step!r}: 'step'}}.",
        ).in_shell(f"Export the chart with its x axis set to Step, or add --rename '{step}=step'.")
    at = _floats(table.columns[step])
    # A chart has one row for each step, in their order.
    order = np.argsort(at, kind="stable")
    notes, unowned = table.notes, [column for column in rest if SEPARATOR not in column]
    if unowned:
        message = f"{path}: columns without{SEPARATOR}between a run and a metric were left out: {', '.join(unowned)}."
        notes = (*notes, Note("columns-left-out", "warning", message, {"columns": unowned}))
    series: dict[str, dict[str, tuple[Rows, ScalarSeries]]] = {}
    owned = [column for column in rest if SEPARATOR in column and not column.endswith(BOUNDS)]
    cells_of = {_owner(path, column, runs): table.columns[column] for column in owned}
    counters = {tag for _, tag in cells_of if STEP_NAME.fullmatch(tag)}
    # The trainer's own say more than the number of calls that W&B counts.
    own = {run: tag for run, tag in cells_of if step in WANDB_STEPS and tag in counters - {*WANDB_STEPS, *rename}}
    internal = ({*INTERNAL, *WANDB_STEPS} | counters) - rename.keys()
    measures = any(tag not in internal for _, tag in cells_of)
    for (run, tag), cells in cells_of.items():
        if tag in internal and (tag not in CLOCKS or measures):
            continue
        values = _times(cells) if tag in internal else _floats(cells)
        # An empty cell was not measured; a cell that says NaN was, and means that something failed.
        measured = ~np.isnan(values) if tag in internal else numbers_in(to_series(tag, cells)).is_not_null().to_numpy()
        at_run = _floats(cells_of[run, own[run]]) if run in own else at
        there = order[(measured & ~np.isnan(at_run))[order]]
        one = scalar_series(at_run[there], values[there])
        clock = next((c for c in CLOCKS if (run, c) in cells_of), None)
        one = one if clock is None else replace(one, wall_time_T=_times(cells_of[run, clock])[there])
        series.setdefault(run, {})[spelled(rename.get(tag, tag))] = np.arange(len(there)), one
    found = [
        recognised(RunLog(run, path, "wandb", attempts, notes, step_name=own.get(run, step)))
        for run, tags in series.items()
        if (attempts := attempts_from_columns(path, tags))
    ]
    if not found:
        raise RecordError(f"{path} holds no measured value of any run", "Export the chart again.")
    # A known framework says what its `Step` counts, or leaves it a question.
    return [
        replace(log, notes=(_calls_told(step), *log.notes))
        if log.framework is None and log.step_name in WANDB_STEPS
        else log
        for log in found
    ]


def _calls_told(step: str) -> Note:
    """A warning where the x axis of a chart may count calls of W&B's `log`, and nothing says what it counts."""
    message = (
        f"x axis {step} is read as the update step, but it counts W&B's log calls, and an update may make "
        "several. If so, C is wrong: export the chart again with global_step on the x axis. If it counts updates, "
        f"--rename {step}=step confirms it."
    )
    return Note("column-assumed", "warning", message, {"column": step, "as": "step"})


def _owner(path: Path, column: str, runs: Sequence[str]) -> tuple[str, str]:
    """Run and metric of a column: by the names that somebody said, else by its last separator."""
    if not runs:
        run, _, tag = column.rpartition(SEPARATOR)
        return run, tag
    owners = [run for run in runs if column.startswith(run + SEPARATOR)]
    if len(owners) != 1:
        received = ", ".join(map(repr, owners or runs))
        raise RecordError(
            f"{path}: column {column!r} {'fits several runs' if owners else 'belongs to no run of runs='}: {received}",
            f"{did_you_mean(column.rpartition(SEPARATOR)[0], runs)}Describe every run of the chart once, or pass "
            f"ignore=[{column!r}].",
        )
    return owners[0], column[len(owners[0]) + len(SEPARATOR) :]


def refuse_several(log: RunLog) -> None:
    """Raise on a table whose steps begin anew, or that has two rewards at one step: it may hold two runs."""
    if log.format != "table":
        return
    first, *later = (min(float(one.step_T.min()) for one in attempt.series.values()) for attempt in log.attempts)
    twice = repeated_reward(log)
    if twice is not None or any(begun <= first for begun in later):
        what = f"restart at {min(later):g}" if twice is None else f"have several values of {twice}"
        raise RecordError(
            f"{log.source}: the steps of run {log.name!r} (column {log.step_name!r}) {what}; accepted: the rows of one "
            "run, or a run id in each",
            "Give every row its run_id. If another column counts the updates: "
            "<--rename THAT=step | rename={'THAT': 'step'}>.",
        )


def repeated_reward(log: RunLog) -> str | None:
    """A tag of a reward with two values at one step of an attempt; None without any."""
    rewards = [tag for tag, one in log.meanings().items() if rank(one.metric, one.eval_set) is not None]
    for tag, one in ((tag, one.series[tag]) for tag in rewards for one in log.attempts if tag in one.series):
        if len(np.unique(np.column_stack((one.step_T, one.value_T)), axis=0)) > len(np.unique(one.step_T)):
            return tag
    return None


def refuse_slips(log: RunLog) -> None:
    """Raise on a column of a table of nobody's format that looks like that of a known one."""
    for tag in log.tags if log.framework is None else ():
        refuse_slip(tag, Source(written={tag: log.written.get(tag, tag)}))


def refuse_twice(log: RunLog, given: Mapping[str, Any]) -> None:
    """Raise on a value for all runs where a column of the table says another one."""
    for name, value in given.items():
        if value is not None and (said := log.said.get(canonical(name) or name, value)) != value:
            raise given_twice(name, value, f"{said!r} for run {log.name!r}", log.written[canonical(name) or name])


def beyond_asking(log: RunLog) -> bool:
    """Whether asking for n and B_p would mend nothing, as of a table that says them, or has two rewards at one step."""
    steps = {step for tag in log.tags for step in log.series(tag).step_T.tolist()}
    counted = log.rollouts is not None and steps <= set(log.rollouts.step_T.tolist())
    sized = "group_size" in log.said and (counted or bool({"problems_per_batch", BATCH.name} & log.said.keys()))
    return sized or repeated_reward(log) is not None


def join_charts(one: RunLog, other: RunLog) -> RunLog | None:
    """One run in two charts of W&B, which exports a metric a file; None unless that is certain."""
    charts = one.format == other.format == "wandb" and one.step_name == other.step_name
    if not charts or len(one.attempts) != 1 or len(other.attempts) != 1 or {*one.tags} & {*other.tags}:
        return None
    series = {**one.attempts[0].series, **other.attempts[0].series}
    attempts = (replace(one.attempts[0], series=series),)
    return recognised(replace(one, attempts=attempts, notes=(*one.notes, *other.notes), framework=None))


def is_clock(log: RunLog) -> bool:
    """Whether a chart shows only when the steps of a run were logged."""
    return {*log.tags} <= {*CLOCKS}


def with_clock(log: RunLog, clock: RunLog) -> RunLog | None:
    """A run of charts that show no time, with the clock that a chart of its own shows; None if that is not certain."""
    joined = join_charts(log, clock)
    if joined is None:
        return None
    (of_clock,) = clock.attempts
    times = next(of_clock.series[name] for name in CLOCKS if name in of_clock.series)
    return replace(joined, attempts=log.timed(times.step_T, times.value_T).attempts)


def _of_rows(path: Path, table: RawTable, written: Mapping[str, str]) -> list[RunLog]:
    """A run per run_id, or one that is named after the file."""
    import polars as pl

    names: dict[str, str] = {}
    meant = fields(table.columns)
    for name, column in meant.items():
        names.setdefault(column or name, name)
    steps = [name for name, column in meant.items() if column == "step" or STEP_NAME.fullmatch(name)]
    # The trainer's own say more than the number of calls that W&B counts.
    steps = [name for name in steps if name not in WANDB_STEPS] or steps[:1]
    if not steps:
        raise RecordError(
            f"{path} has no column that counts steps; it has: {', '.join(table.columns)}",
            "Rename one to step, or give the rollouts as C.",
        )
    frame = pl.DataFrame([to_series(name, values) for name, values in table.columns.items()])
    run = names.get("run_id")
    parts = [(path.stem, frame)]

    def several(column: str) -> bool:
        return frame[column].drop_nulls().n_unique() > 1

    if run is not None:
        # Names of runs may be numbers.
        frame = frame.with_columns(pl.col(run).cast(pl.String))
        parts = [(str(key[0]), part) for key, part in frame.group_by(run, maintain_order=True)]
    elif apart := [names[one] for one in PER_RUN if one in names and one != "learning_rate" and several(names[one])]:
        groups = frame.group_by(apart, maintain_order=True)
        parts = [(f"{path.stem}/{'-'.join(map(str, key))}", part) for key, part in groups]
    theirs = {column: written[name] for column, name in names.items()}
    logs = [replace(_of_run(path, table, name, part, steps, names), written=theirs) for name, part in parts]
    said = {name: blank_to_null(frame[name]).drop_nulls() for name, column in meant.items() if column is None}
    texts = {name: cells for name, cells in said.items() if len(cells) and is_text(cells)}
    # A framework logs text of its own.
    own = any(log.framework is not None for log in logs)
    unread = [name for name in texts if (np.isnan(_times(texts[name])).all() if name in CLOCKS else not own)]
    notes = left_out({name: texts[name] for name in unread}, Source(written=written))
    return [replace(log, notes=(*log.notes, *notes)) for log in logs]


def _of_run(
    path: Path, table: RawTable, name: str, frame: pl.DataFrame, steps: Sequence[str], names: Mapping[str, str]
) -> RunLog:
    at = _floats(frame[steps[0]])
    for other in steps[1:]:
        at = np.where(np.isnan(at), _floats(frame[other]), at)
    refuse_clock(np.nanmax(at, initial=0.0), steps[0])
    said = _said(path, name, frame, names)
    # A lone `reward` is a measurement; beside `metric` it holds the values of all of them.
    others = [column for column in (*PER_RUN, BATCH.name, *_NO_METRICS) if column != "value" or "metric" in names]
    apart = {*steps, *INTERNAL, *WANDB_STEPS, *(names[column] for column in others if column in names)}
    series: dict[str, tuple[Rows, ScalarSeries]] = {}
    if "metric" in names and "value" in names:
        metric, values = frame[names["metric"]], _floats(frame[names["value"]])
        for tag in metric.drop_nulls().unique(maintain_order=True):
            here = (metric == tag).fill_null(False).to_numpy() & ~np.isnan(at)
            series[str(tag)] = np.flatnonzero(here), scalar_series(at[here], values[here])
    clock = next((_times(frame[name]) for name in CLOCKS if name in frame.columns), None)
    for column in frame.columns:
        if column in apart or CONFIGURED.fullmatch(column):
            continue
        values = _floats(frame[column])
        there = ~np.isnan(values) & ~np.isnan(at)
        if there.any():
            one = scalar_series(at[there], values[there])
            series[column] = np.flatnonzero(there), one if clock is None else replace(one, wall_time_T=clock[there])
    if not series:
        raise RecordError(f"{path}: run {name!r} has no column of numbers beside its step", "Check the file.")
    attempts = attempts_from_columns(path, series)
    counted = None
    if "rollouts" in names:
        totals = _floats(frame[names["rollouts"]])
        there = ~np.isnan(totals) & ~np.isnan(at)
        counted = one_per_step([scalar_series(at[there], totals[there])]) if there.any() else None
    settings, notes = ((path, _settings(frame)),), table.notes
    going_back = ((one.step_T, at) for _, one in series.values() if (at := goes_back_at(one.step_T)) is not None)
    if len(attempts) == 1 and (first := next(going_back, None)) is not None:
        step_T, at = first
        notes = (*notes, going_back_note(name, step_T[at - 1], step_T[at], path))
    log = recognised(RunLog(name, path, "table", attempts, notes, said, steps[0], counted, settings=settings))
    # A framework that logs the rollouts of each update says whether step 0 is one.
    by_update = counted is None and log.framework is not None and log.framework.rollouts_tag in log.tags
    return counted_from_one(log) if by_update else log


def _said(path: Path, name: str, frame: pl.DataFrame, names: Mapping[str, str]) -> dict[str, Any]:
    """What columns say of the run, one value each; those that change, such as a learning rate, are skipped."""
    said: dict[str, Any] = {}
    for column in (*PER_RUN, BATCH.name):
        if column in names:
            cells = blank_to_null(frame[names[column]]).drop_nulls()
            if cells.n_unique() == 1:
                said[column] = typed(cells[:1], BY_NAME[column], Source(lambda _: f"{path}: run {name!r}", names))[0]
            elif len(cells) and column in N_AND_BP:
                raise changes_within(
                    f"{path}: run {name!r} changes its {column}; accepted: one value per run",
                    "Give the parts different run_ids, and rollouts (C), which keep counting, instead of steps.",
                    {one: frame[one] for one in frame.columns if canonical(one) is None},
                    frame[names[column]],
                    names.get("run_id"),
                )
    return said


def _settings(frame: pl.DataFrame) -> dict[str, Any]:
    """Columns that never change, by their bare names: a framework's configuration may be among them."""
    cells = {bare(name): blank_to_null(frame[name]).drop_nulls() for name in frame.columns}
    return {name: scalar(str(one[0])) for name, one in cells.items() if one.n_unique() == 1}


def _floats(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers of a column; what is none, such as an empty cell, is NaN."""
    return numbers_in(to_series("column", values)).fill_null(float("nan")).to_numpy()


def _times(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds of a column of clock times; NaN where a cell holds none."""
    return seconds_in(to_series("column", values)).fill_null(float("nan")).to_numpy()
