"""Putting tables of evaluations below each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records.cells import Source
from isocompute_sdk.records.identity import fill_runs
from isocompute_sdk.records.naming import OnDuplicate
from isocompute_sdk.records.repeats import KEY, ROW, check_on_duplicate, settle

if TYPE_CHECKING:
    import polars as pl


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
    )
