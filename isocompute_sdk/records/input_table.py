"""The columns of an input table: named, typed, and turned into one row per measured value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.cells import ArgumentSource, Source, blank_to_null, require, to_series, typed

if TYPE_CHECKING:
    import polars as pl

OnDuplicate = Literal["error", "last"]


@dataclass(frozen=True)
class Options:
    """How a table is to be read; see `RunSet.from_columns` for each."""

    metric: str | None = None
    eval_set: str | None = None
    on_duplicate: OnDuplicate = "error"
    ignore: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    constants: Mapping[str, object] = field(default_factory=dict[str, object])
    run_prefix: str = ""
    """Put before run ids that are made from the configuration."""


@dataclass(frozen=True)
class Named:
    """A table with known and other columns separated."""

    known: dict[str, pl.Series]
    """Known columns by canonical name, as they came."""
    others: dict[str, pl.Series]
    """All other columns: metrics, if they are numeric."""
    source: Source

    @property
    def height(self) -> int:
        """Number of rows."""
        return len(next(iter((*self.known.values(), *self.others.values()))))

    @property
    def columns(self) -> str:
        """The columns as the user wrote them."""
        return ", ".join(self.source.written.values())


def name_columns(given: object, options: Options, source: Source) -> Named:
    """Split the columns of `given` into known ones (by canonical name) and others, which may be metrics.

    Raises:
        RecordError: not a table, two columns of one meaning, unequal lengths, no rows.
    """
    table = _as_mapping(given)
    ignored = set(options.ignore)
    for name in (*options.rename, *options.ignore):
        if name not in table:
            raise RecordError(
                f"no column {name!r} to rename or ignore; the table has: {', '.join(table)}",
                f"{schema.did_you_mean(name, list(table))}Use a column of the table.",
            )
    written: dict[str, str] = {}
    known: dict[str, pl.Series] = {}
    others: dict[str, pl.Series] = {}
    for raw, values in table.items():
        if raw in ignored:
            continue
        name = options.rename.get(raw, raw).strip()
        column = schema.canonical(name)
        if (column or name) in known or name in others:
            first = written.get(column or name, name)
            raise RecordError(
                f"columns {first!r} and {raw!r} both mean {column or name!r}; accepted: one of them",
                f"Remove one, or pass ignore=[{raw!r}].",
            ).in_shell(f"Remove one, or add --ignore {quote(raw)}.")
        series = to_series(raw, values)
        written[column or name] = raw
        if column is None:
            others[name] = series
        else:
            known[column] = series
    _check_lengths({**known, **others}, written)
    return Named(known, others, Source(source.locate, {**source.written, **written}))


def _as_mapping(table: object) -> dict[str, object]:
    """A mapping, or a polars or pandas frame, as name -> column."""
    if isinstance(table, Mapping):
        mapping = cast(Mapping[object, object], table)
        return {str(name): values for name, values in mapping.items()}
    # Both frames have these two; a lazy frame or an Arrow table, which cannot be read by column, has not.
    if not (hasattr(table, "to_dict") and hasattr(table, "columns")):
        raise RecordError(
            f"received a {type(table).__name__}; accepted: a mapping from column name to values, or a "
            "polars or pandas frame",
            'Give the columns by name: RunSet.from_columns({"n": [...], "C": [...], "avg@4": [...]}).',
        )
    frame = cast(Any, table)
    columns = {str(name): frame[name] for name in frame.columns}
    # What set_index and groupby leave in the index of a pandas frame; a level of another name is only a counter.
    index = getattr(frame, "index", None)
    levels = [name for name in getattr(index, "names", ()) if isinstance(name, str) and schema.canonical(name.strip())]
    extra = {name: cast(Any, index).get_level_values(name).to_series() for name in levels if name not in columns}
    return {**extra, **columns}


def _check_lengths(table: Mapping[str, pl.Series], written: Mapping[str, str]) -> None:
    lengths = {written[name]: len(series) for name, series in table.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise RecordError(
            f"columns have unequal lengths: {listed}; accepted: one entry per row in every column",
            "Use None for values that were not measured.",
        )
    if not lengths or not next(iter(lengths.values())):
        names = ", ".join(lengths) or "none"
        raise RecordError(
            f"the table is empty: columns {names}, no rows; accepted: at least one evaluation",
            "Check that the run has logged an evaluation and that the right file or folder was given.",
        )


def typed_frame(named: Named, options: Options) -> pl.DataFrame:
    """All columns but metric and value, typed; those that are absent are null.

    Raises:
        RecordError: a cell of the wrong type, an unknown argument, no group size or no compute.
    """
    import polars as pl

    given = {
        name: typed(series, schema.BY_NAME[name], named.source)
        for name, series in named.known.items()
        if name not in ("metric", "value")
    }
    for argument, value in [*options.constants.items(), ("eval_set", options.eval_set)]:
        if value is None:
            continue
        name = _constant_name(argument)
        if name in given and given[name].null_count() < named.height:
            raise RecordError(
                f"{argument} is given twice: as a column of the table and as {value!r} for every row",
                f"Drop the argument, or pass ignore=[{named.source.written.get(name, name)!r}].",
            ).in_shell(f"Drop --set {argument}, or add --ignore {quote(named.source.written.get(name, name))}.")
        single = to_series(argument, [value])
        constant = typed(single, schema.BY_NAME[name], ArgumentSource(written={name: argument}))
        given[name] = constant.new_from_index(0, named.height)
    if "group_size" not in given:
        _refuse_without("group_size", named.source)
    if "step" not in given and "rollouts" not in given:
        _refuse_without("rollouts", named.source)
    frame = pl.DataFrame(list(given.values()))
    absent = [
        pl.lit(None, dtype=polars_type(column.name)).alias(column.name)
        for column in schema.COLUMNS
        if column.name not in given
    ]
    return frame.with_columns(absent).with_columns(pl.col("eval_set").fill_null(schema.DEFAULT_EVAL_SET))


def polars_type(name: str) -> pl.DataType:
    """The polars type of a column."""
    import polars as pl

    kinds: dict[str, pl.DataType] = {"text": pl.String(), "integer": pl.Int64(), "number": pl.Float64()}
    return kinds[schema.BY_NAME[name].kind]


def _constant_name(argument: str) -> str:
    accepted = [column.name for column in schema.COLUMNS if column.name not in ("metric", "value")]
    name = schema.canonical(argument)
    if name not in accepted:
        raise RecordError(
            f"argument {argument}: no such column; accepted: {', '.join(accepted)}",
            f"{schema.did_you_mean(argument, accepted)}Arguments give one value for every row.",
        )
    return name


def _refuse_without(name: str, source: Source) -> None:
    present = list(source.written.values())
    column = schema.BY_NAME[name]
    nearest = schema.close(name, present) or next(
        (found for alias in column.aliases if (found := schema.close(alias, present, cutoff=0.8))), None
    )
    add = f"add it, or give one value for all rows as {name}=...."
    wanted = {"group_size": "group_size (or n)", "rollouts": "rollouts (or C, compute) or step"}[name]
    raise RecordError(
        f"no column {wanted}; the table has: {', '.join(present)}",
        f"If {nearest!r} is it, pass rename={{{nearest!r}: {name!r}}}; otherwise {add}"
        if nearest
        else add.capitalize(),
    ).in_shell(
        f"If {nearest!r} is it, add --rename {quote(f'{nearest}={name}')}; otherwise --set {name}=..."
        if nearest
        else f"Add it, or give one value for all rows: --set {name}=..."
    )


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
        ).in_shell(f"Add --ignore {quote(name)}, or --rename it to a known column.")
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
            ).in_shell(f"Add its name, e.g. --metric avg@4, or rename the column {bare!r} to the metric's name.")
        if options.metric in wide:
            raise RecordError(
                f"columns {bare!r} and {options.metric!r} both hold the metric {options.metric!r}",
                f"Remove one, or pass ignore=[{bare!r}].",
            ).in_shell(f"Remove one, or add --ignore {quote(bare)}.")
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
        ).in_shell(
            f"{schema.did_you_mean(options.metric, found)}--metric names a metric of the table, or what its column "
            "'reward' or 'value' holds."
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
        ).in_shell(f"Add --rename {quote(f'{written}={slip}')} if it is, or --ignore {quote(written)} if it is not.")
    texts = series.dtype == pl.String and series.str.strip_chars().cast(pl.Float64, strict=False).is_null().all()
    if texts or not (series.dtype.is_numeric() or series.dtype == pl.String):
        sample = series.drop_nulls()[0]
        raise RecordError(
            f"unknown column {written!r} holds {series.dtype} (e.g. {sample!r}), not numbers; "
            f"known: {schema.known_names()}; any other column must be a numeric metric",
            f"{schema.did_you_mean(name, list(schema.BY_NAME))}Rename it, or pass ignore=[{written!r}].",
            column=written,
        ).in_shell(f"{schema.did_you_mean(name, list(schema.BY_NAME))}Add --rename or --ignore {quote(written)}.")
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
