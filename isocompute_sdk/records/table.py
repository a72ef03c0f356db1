"""From columns as they come (long or wide, aliases, gaps) to the one table behind a `RunSet`; joining such tables.

The stages: name the columns, type them, give every row its run, complete steps and rollouts, turn the metrics into
rows, refuse repeats. All work on whole columns; single rows are looked at only to name an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isocompute_sdk.errors import RecordError
from isocompute_sdk.metrics import UNKNOWN_AVERAGE, average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.cells import Source
from isocompute_sdk.records.input_table import (
    OnDuplicate,
    Options,
    measured_rows,
    name_columns,
    sizes_unknown,
    to_rows,
    typed_frame,
)
from isocompute_sdk.records.rewards import headline
from isocompute_sdk.records.run_ids import fill_runs, name_runs

if TYPE_CHECKING:
    import polars as pl

    from isocompute_sdk.records.runset import RunSet

ROW = "_row"
"""Working column: number of the row that an evaluation came from."""
KEY = ("run_id", "metric", "eval_set")
_PLACE = "_place"
STEP_TOLERANCE = 1e-3
"""Relative difference allowed between rollouts and step * n * B_p: logs round one or the other."""


def build(table: object, options: Options, source: Source | None = None) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """The canonical frame, one row per evaluation in columns of `columns.COLUMNS`, and notes on its runs.

    Rows are ordered by first appearance of their run, then rollouts, step, metric and evaluation set.

    Raises:
        RecordError: for anything in `table` that is missing, malformed or contradictory.
    """
    check_on_duplicate(options.on_duplicate)
    named = name_columns(table, options, source or Source())
    told_apart = options.on_duplicate == "error"
    measured = measured_rows(named) if told_apart and "run_id" not in named.known else ()
    frame, notes = name_runs(typed_frame(named, options), named.source, options.run_prefix, measured)
    if options.without_sizes and (unknown := sizes_unknown({*named.known, *options.columns_set})):
        notes += (sizes_note(frame["run_id"].unique(maintain_order=True).to_list(), unknown),)
    rows, left_out = to_rows(_with_rollouts(frame, named.source).with_row_index(ROW), named, options)
    rows = _with_samples(rows, options.metric)
    again: tuple[Note, ...] = ()
    if options.lenient and told_apart:
        rows, again = _without_repeats(rows, options.metric, named.source)
    return settle(rows, options.on_duplicate, named.source), (*named.notes, *notes, *left_out, *again)


def _with_samples(rows: pl.DataFrame, asked: str | None) -> pl.DataFrame:
    """An average over an unknown number of samples by its name, where a column or the metric asked about says k."""
    import polars as pl

    if not (rows["metric"] == UNKNOWN_AVERAGE).any():
        return rows
    k = pl.coalesce("eval_samples", pl.lit(None if asked is None else average_of(asked), dtype=pl.Int64))
    named = pl.when((pl.col("metric") == UNKNOWN_AVERAGE) & k.is_not_null()).then(pl.format("avg@{}", k))
    return rows.with_columns(named.otherwise("metric").alias("metric"))


def _without_repeats(rows: pl.DataFrame, asked: str | None, source: Source) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """Rows without those that repeat an evaluation with its value, or one of a metric that nobody asked about."""
    import polars as pl

    place = [*KEY, _place()]
    if not rows.select(place).is_duplicated().any():
        return rows, ()
    likely = headline(zip(rows["metric"].to_list(), rows["eval_set"].to_list(), strict=True))
    decides = asked or (likely[0] if likely is not None else None)
    kept = rows.with_columns(_place()).unique([*KEY, _PLACE, "value"], keep="first", maintain_order=True)
    kept = pl.concat(
        [
            kept.filter(pl.col("metric") == decides),
            kept.filter(pl.col("metric") != decides).unique([*KEY, _PLACE], keep="last", maintain_order=True),
        ]
    ).drop(_PLACE)
    dropped = rows.join(kept.select(ROW, "metric", "eval_set"), on=[ROW, "metric", "eval_set"], how="anti")
    if dropped.is_empty():
        return rows, ()
    names = ", ".join(dropped["metric"].unique().sort())
    message = (
        f"{source.locate(dropped[ROW][0])}: the run has {names} twice at this step ({dropped.height} such values); the "
        "last one counts."
    )
    return kept, (Note("rows-repeated", "info", message, {"values": dropped.height}),)


def sizes_note(runs: Sequence[str], unknown: Sequence[str]) -> Note:
    """That runs were read without n or B_p."""
    message = (
        f"{', '.join(runs[:5])}{', ...' if len(runs) > 5 else ''}: nothing says {' and '.join(unknown)}; 1 "
        "stands in its place, and rollouts are not known. A fit needs it."
    )
    return Note("sizes-unknown", "warning", message, {"runs": list(runs), "columns": list(unknown)})


def runs_without_sizes(runs: RunSet) -> list[str]:
    """Runs that were read without n or B_p."""
    return [run for note in runs.notes if note.code == "sizes-unknown" for run in note.data["runs"]]


def _with_rollouts(frame: pl.DataFrame, source: Source) -> pl.DataFrame:
    """Complete rollouts from step * n * B_p and step from rollouts; refuse rows where they disagree.

    Rows with `rollouts_spent` were counted by a reader of logs or through a change of n or B_p, filtered rollouts
    included: there the product says less than the count.
    """
    import polars as pl

    batch = pl.col("group_size").cast(pl.Float64) * pl.col("problems_per_batch").cast(pl.Float64)
    expected = pl.col("step") * batch
    slack = pl.max_horizontal(pl.col("rollouts") * STEP_TOLERANCE, pl.lit(1.0))
    wrong = frame.select(_contradicts(expected, slack)).to_series()
    index = wrong.arg_max() if wrong.any() else None
    if index is not None:
        row = frame.row(index, named=True)
        n, bp = row["group_size"], row["problems_per_batch"]
        raise RecordError(
            f"{source.locate(index)}: rollouts {row['rollouts']:.10g} contradict step {row['step']:.10g} * "
            f"group_size {n} * problems_per_batch {bp} = {row['step'] * n * bp:.10g} "
            f"({int(wrong.sum())} such rows); accepted: a difference of at most 0.1 %",
            "Check that steps count updates and compute counts rollouts, or give only one of the two.",
        )
    frame = frame.with_columns(
        rollouts=pl.col("rollouts").fill_null(expected),
        step=pl.col("step").fill_null(pl.col("rollouts") / batch),
    )
    index = frame["rollouts"].is_null().arg_max() if frame["rollouts"].null_count() else None
    if index is not None:
        empty = [name for name in ("step", "problems_per_batch") if frame[name][index] is None]
        batch = schema.batch_asked(frame["group_size"].unique().to_list())
        raise RecordError(
            f"{source.locate(index)}: rollouts are neither given nor known from step * group_size * "
            f"problems_per_batch, for want of {' and '.join(empty)}",
            f"Give rollouts, or step and {batch} ({batch}=256 sets it for all rows).",
        ).in_shell(
            f"Give rollouts, or step and {batch} (--set {batch}=256 sets it for all rows).",
            (f"--set {batch}={schema.PLACEHOLDERS[batch]}",) if empty == ["problems_per_batch"] else (),
        )
    return frame


def _contradicts(expected: pl.Expr, slack: pl.Expr) -> pl.Expr:
    import polars as pl

    counted = pl.col("rollouts_spent").is_not_null()
    return ((pl.col("rollouts") - expected).abs() > slack).fill_null(False) & ~counted


def join(frames: Sequence[pl.DataFrame], labels: Sequence[str], on_duplicate: OnDuplicate) -> pl.DataFrame:
    """Canonical frames as one; `labels` name them in errors.

    Raises:
        RecordError: a run is in two frames with another configuration, or its evaluations of one metric
            interleave (repeats included) while `on_duplicate` is "error".
    """
    import polars as pl

    check_on_duplicate(on_duplicate)
    if len(frames) == 1:
        return frames[0]
    table = pl.concat([frame.with_columns(_part=pl.lit(i)) for i, frame in enumerate(frames)]).with_row_index(ROW)
    parts: list[int] = table["_part"].to_list()
    source = Source(lambda index: labels[parts[index]])
    table = fill_runs(table, source)
    if on_duplicate == "error":
        _refuse_interleaved(table, labels)
    return settle(table, on_duplicate, source)


def _refuse_interleaved(table: pl.DataFrame, labels: Sequence[str]) -> None:
    """One run in two tables is a continuation only where the second starts after the first ends."""
    import polars as pl

    low, high = pl.col("rollouts").min().alias("low"), pl.col("rollouts").max().alias("high")
    spans = table.group_by(*KEY, "_part").agg(low, high, pl.col(ROW).min()).sort(*KEY, "low", "high", ROW)
    before = pl.all().shift(1).over(KEY)
    pairs = spans.with_columns(before.name.suffix("_before")).filter(pl.col("low") <= pl.col("high_before"))
    if pairs.is_empty():
        return
    pair = pairs.sort(ROW).row(0, named=True)
    spans_told = sorted(
        f"{labels[pair['_part' + which]]} (rollouts {pair['low' + which]:.10g} to {pair['high' + which]:.10g})"
        for which in ("", "_before")
    )
    raise RecordError(
        f"run {pair['run_id']!r} is in {' and in '.join(spans_told)} with overlapping evaluations of "
        f"{pair['metric']!r} on {pair['eval_set']!r}; accepted: a run that goes on where it stopped",
        "For different runs, give each its own run_id or a context field such as train_data=...; for the "
        'same run read again, pass on_duplicate="last".',
    ).in_shell(
        "For different runs, give each its own run_id or a context field; of the same run read again, give one of the "
        "files."
    )


def check_on_duplicate(value: str) -> None:
    """Raise on a value that is not an `OnDuplicate`.

    Raises:
        RecordError: naming the two that are.
    """
    if value not in ("error", "last"):
        raise RecordError(
            f"on_duplicate: received {value!r}; accepted: 'error', 'last'",
            "'error' refuses repeated evaluations, 'last' keeps the one that comes last.",
        )


def settle(frame: pl.DataFrame, on_duplicate: OnDuplicate, source: Source) -> pl.DataFrame:
    """Reject or resolve repeats, then order rows and columns; `frame` has a column `ROW`.

    Raises:
        RecordError: naming two rows that hold the same evaluation.
    """
    import polars as pl

    # Texts are compared by number: the same answer in a third of the time.
    keys = (pl.col(key).cast(pl.Categorical).to_physical() for key in KEY)
    repeated = frame.select(*keys, _place()).is_duplicated()
    if repeated.any():
        if on_duplicate == "error":
            _refuse_duplicate(frame, repeated, source)
        frame = frame.sort(ROW).with_columns(_place()).unique([*KEY, _PLACE], keep="last", maintain_order=True)
    order = pl.col(ROW).min().over("run_id").alias("_order")
    keys = ["_order", "rollouts", "step", "metric", "eval_set"]
    return frame.with_columns(order).sort(keys).select(column.name for column in schema.COLUMNS)


def _place() -> pl.Expr:
    """The step, or the rollouts if it is unknown."""
    import polars as pl

    return pl.coalesce("step", "rollouts").alias(_PLACE)


def _refuse_duplicate(frame: pl.DataFrame, repeated: pl.Series, source: Source) -> None:
    rows = frame.filter(repeated).with_columns(_place()).sort(ROW)
    first = rows.row(0, named=True)
    twin = next(
        row for row in rows.slice(1).iter_rows(named=True) if all(row[key] == first[key] for key in (*KEY, _PLACE))
    )
    at = f"rollouts {first['rollouts']:.10g}" if first["step"] is None else f"step {first['step']:.10g}"
    raise RecordError(
        f"{source.locate(twin[ROW])} repeats {source.locate(first[ROW])}: run {first['run_id']!r}, {at}, "
        f"metric {first['metric']!r}, eval_set {first['eval_set']!r} (values {first['value']:.6g} and "
        f"{twin['value']:.6g}; {rows.height} such rows); accepted: one value each",
        "Give different runs their own run_id or seed; if the later row replaces the earlier one, pass "
        'on_duplicate="last".',
    ).in_shell(
        "Give different runs their own run_id or seed; if the later row replaces the earlier one, remove the earlier."
    )
