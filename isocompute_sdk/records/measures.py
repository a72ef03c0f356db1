"""The measured columns of a table, wide or long, as one row per evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.cells import Source, blank_to_null, require, typed
from isocompute_sdk.records.naming import Named, Options

if TYPE_CHECKING:
    import polars as pl


def to_rows(frame: pl.DataFrame, named: Named, options: Options) -> pl.DataFrame:
    """`frame` with one row per measured value, in columns metric and value.

    Long form has columns `metric` and `value`. Wide form has one column per metric; an empty cell means
    not measured there. A lone `reward` or `value` column is wide form under the name `options.metric`.

    Raises:
        RecordError: no metric, a metric without a name, a column that is neither known nor numeric, a
            value that is NaN or infinite.
    """
    others = {name: _without_blanks(series) for name, series in named.others.items()}
    extra = {name: series for name, series in others.items() if series.null_count() < len(series)}
    if "metric" in named.known:
        return _long(frame, named, extra, options)
    return _melt(frame, _metric_columns(named, extra, options), named.source)


def _without_blanks(series: pl.Series) -> pl.Series:
    import polars as pl

    return blank_to_null(series) if series.dtype == pl.String else series


def _long(frame: pl.DataFrame, named: Named, extra: Mapping[str, pl.Series], options: Options) -> pl.DataFrame:
    if "value" not in named.known:
        raise RecordError(
            "column 'metric' needs a column 'value' beside it",
            f"The table has: {named.columns}. Rename the measured column to 'value'.",
        )
    if extra:
        name = named.source.written[next(iter(extra))]
        raise RecordError(
            f"unknown column {name!r} in a table with one row per metric; known: {schema.known_names()}",
            f"Pass ignore=[{name!r}], or rename it to a known column.",
            column=name,
        )
    metric = typed(named.known["metric"], schema.BY_NAME["metric"], named.source)
    value = typed(named.known["value"], schema.BY_NAME["value"], named.source)
    require(metric, named.source, "Give every row the name of its metric.")
    require(value, named.source, "Drop the rows of evaluations that were not measured.")
    _check_named_metric(options, metric.unique(maintain_order=True).to_list())
    return frame.with_columns(metric, value)


def _metric_columns(named: Named, extra: Mapping[str, pl.Series], options: Options) -> dict[str, pl.Series]:
    """Wide form: the measured columns by metric name."""
    source = named.source
    wide = {name: _numeric_metric(name, series, source) for name, series in extra.items()}
    if "value" in named.known:
        bare = source.written["value"]
        if not options.metric:
            raise RecordError(
                f"column {bare!r} does not say which metric it holds",
                f'Pass its name, e.g. metric="avg@4", or rename the column {bare!r} to the metric\'s name.',
                column=bare,
            )
        if options.metric in wide:
            raise RecordError(
                f"columns {bare!r} and {options.metric!r} both hold the metric {options.metric!r}",
                f"Remove one, or pass ignore=[{bare!r}].",
            )
        wide = {options.metric: named.known["value"], **wide}
    if not wide:
        raise RecordError(
            f"no column holds a metric; the table has: {named.columns}",
            'Add a column named after the metric, e.g. "avg@4", or columns "metric" and "value".',
        )
    _check_named_metric(options, list(wide))
    return wide


def _check_named_metric(options: Options, found: Sequence[str]) -> None:
    if options.metric is not None and options.metric not in found:
        raise RecordError(
            f"metric {options.metric!r} is not in the table; it holds: {', '.join(found)}",
            f"{schema.did_you_mean(options.metric, found)}metric= names a column called 'reward' or 'value'.",
        )


def _numeric_metric(name: str, series: pl.Series, source: Source) -> pl.Series:
    """A column of no known name as a metric, unless it is text or a slip of a known name."""
    import polars as pl

    written = source.written[name]
    slip = schema.misspelt(name)
    if slip is not None:
        raise RecordError(
            f"column {written!r} is no known column, but looks like {slip!r}",
            f"Pass rename={{{written!r}: {slip!r}}} if it is, or ignore=[{written!r}] if it is not.",
        )
    texts = series.dtype == pl.String and series.str.strip_chars().cast(pl.Float64, strict=False).is_null().all()
    if texts or not (series.dtype.is_numeric() or series.dtype == pl.String):
        sample = series.drop_nulls()[0]
        raise RecordError(
            f"unknown column {written!r} holds {series.dtype} (e.g. {sample!r}), not numbers; "
            f"known: {schema.known_names()}; any other column must be a numeric metric",
            f"{schema.did_you_mean(name, list(schema.BY_NAME))}Rename it, or pass ignore=[{written!r}].",
            column=written,
        )
    return series


def _melt(frame: pl.DataFrame, metrics: Mapping[str, pl.Series], source: Source) -> pl.DataFrame:
    """One row per measured cell of the metric columns, in metric order, then row order."""
    import polars as pl

    parts: list[pl.DataFrame] = []
    for name, series in metrics.items():
        column = replace(schema.BY_NAME["value"], name=name)
        value = typed(series, column, source).alias("value")
        part = frame.with_columns(value, pl.lit(name).alias("metric"))
        parts.append(part.filter(pl.col("value").is_not_null()) if value.null_count() else part)
    melted = pl.concat(parts, rechunk=False)
    if melted.is_empty():
        raise RecordError(
            f"no measured value in {frame.height} rows: {', '.join(metrics)} are empty",
            "Check that the run has logged an evaluation.",
        )
    return melted
