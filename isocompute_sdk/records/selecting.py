"""Choosing rows of a table by what its columns hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records.columns import canonical, check_fields, did_you_mean

if TYPE_CHECKING:
    import polars as pl


def select(frame: pl.DataFrame, predicates: Sequence[pl.Expr], conditions: Mapping[str, object]) -> pl.DataFrame:
    """The rows that meet every predicate and condition; see `RunSet.filter`.

    Raises:
        RecordError: no such column, or no row is left.
    """
    for predicate in predicates:
        if not hasattr(predicate, "meta"):
            raise RecordError(
                f"filter: received {predicate!r:.60}; accepted: polars expressions and column=value",
                "For example filter(group_size=8) or filter(pl.col('rollouts') < 1e6).",
            )
    kept = frame.filter(*predicates) if predicates else frame
    for written, wanted in conditions.items():
        name = canonical(written) or written
        check_fields([name], frame.columns, "column to filter by")
        kept = kept.filter(_meets(kept[name], wanted))
        if kept.is_empty():
            values = [str(value) for value in frame[name].unique().sort()]
            shown = ", ".join(values[:20]) + (", ..." if len(values) > 20 else "")
            raise RecordError(
                f"no rows left with {written} = {wanted!r}; {name} holds: {shown}",
                f"{did_you_mean(str(wanted), values)}Filter by a value that is there.",
            )
    if kept.is_empty():
        raise RecordError("no row meets the predicates", "Loosen them.")
    return kept


def _meets(series: pl.Series, wanted: object) -> pl.Series:
    """Which cells are `wanted`: a value, a collection of values, None, or a test of one value."""
    if callable(wanted):
        return _where(series, cast(Callable[[Any], object], wanted))
    if wanted is None:
        return series.is_null()
    if isinstance(wanted, Iterable) and not isinstance(wanted, str):
        accepted = set(cast(Iterable[Any], wanted))
        found = _where(series, accepted.__contains__)
        return found | series.is_null() if None in accepted else found
    return _where(series, lambda value: value == wanted)


def _where(series: pl.Series, test: Callable[[Any], object]) -> pl.Series:
    """Which cells pass; each distinct value is tested once, empty cells never pass."""
    import polars as pl

    passed = [value for value in series.unique().drop_nulls().to_list() if test(value)]
    return series.is_in(pl.Series(passed, dtype=series.dtype).implode()).fill_null(False)
