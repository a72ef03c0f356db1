"""Repeated evaluations, and the order of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.cells import Source
from isocompute_sdk.records.naming import OnDuplicate

if TYPE_CHECKING:
    import polars as pl

ROW = "_row"
"""Working column: number of the row that an evaluation came from."""
KEY = ("run_id", "metric", "eval_set")
_PLACE = "_place"


def check_on_duplicate(value: str) -> None:
    """Refuse a value that is not an `OnDuplicate`.

    Raises:
        RecordError: naming the two that are.
    """
    if value not in ("error", "last"):
        raise RecordError(
            f"on_duplicate: received {value!r}; accepted: 'error', 'last'",
            "'error' refuses repeated evaluations, 'last' keeps the one that comes last.",
        )


def settle(frame: pl.DataFrame, on_duplicate: OnDuplicate, source: Source) -> pl.DataFrame:
    """Refuse or resolve repeats, then order rows and columns; `frame` has a column `ROW`.

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
    """The step; where there is none, the rollouts."""
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
    )
