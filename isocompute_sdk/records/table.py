"""From columns as they come (long or wide, aliases, gaps) to the one table behind a `RunSet`.

The stages: name the columns, type them, give every row its run, complete steps and rollouts, turn the
metrics into rows, refuse repeats. All work on whole columns; a row is looked at on its own only to say
what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.errors import RecordError
from isocompute_sdk.notes import Note
from isocompute_sdk.records.cells import Source
from isocompute_sdk.records.identity import name_runs
from isocompute_sdk.records.measures import to_rows
from isocompute_sdk.records.naming import Options, name_columns, typed_frame
from isocompute_sdk.records.repeats import ROW, check_on_duplicate, settle

if TYPE_CHECKING:
    import polars as pl

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
    frame, notes = name_runs(typed_frame(named, options), named.source, options.run_prefix)
    frame = _with_rollouts(frame, named.source).with_row_index(ROW)
    return settle(to_rows(frame, named, options), options.on_duplicate, named.source), notes


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
        raise RecordError(
            f"{source.locate(index)}: rollouts are neither given nor known from step * group_size * "
            f"problems_per_batch, for want of {' and '.join(empty)}",
            "Give rollouts, or step and problems_per_batch (problems_per_batch=32 sets it for all rows).",
        )
    return frame


def _contradicts(expected: pl.Expr, slack: pl.Expr) -> pl.Expr:
    import polars as pl

    counted = pl.col("rollouts_spent").is_not_null()
    return ((pl.col("rollouts") - expected).abs() > slack).fill_null(False) & ~counted
