"""The measured columns of a table as rows: long or wide, rewards without a name, settings that are no metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.metrics import UNKNOWN_AVERAGE
from isocompute_sdk.notes import Note
from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.cells import (
    MIN_TO_JUDGE,
    Named,
    Options,
    Source,
    require,
    typed,
    without_blanks,
    wrong_column,
)
from isocompute_sdk.records.rewards import (
    EVALUATIONS,
    OTHER,
    TRAIN_REWARD,
    TRAIN_SET,
    headline,
    is_training_reward,
    names_a_reward,
    rank,
)

if TYPE_CHECKING:
    import polars as pl

USUAL_METRIC = "reward"
"""What a lone reward of a table of evaluations is called unless somebody names it."""


def to_rows(frame: pl.DataFrame, named: Named, options: Options) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """`frame` with one row per measured value, in columns metric and value; notes on what was left out.

    Long form has columns `metric` and `value`. Wide form has one column per metric; an empty cell means
    not measured there. A lone `reward` or `value` column is wide form under the name `options.metric`.

    Raises:
        RecordError: no metric, a metric without a name, a column that is neither known nor numeric, or that looks
            like a setting, a value that is NaN or infinite.
    """
    import polars as pl

    others = {name: without_blanks(series) for name, series in named.others.items()}
    extra = {name: series for name, series in others.items() if series.null_count() < len(series)}
    left: list[str] = []
    notes: list[Note] = []
    of_updates: list[str] = []
    if options.lenient:
        extra, told = _finite(extra, named.source)
        # With one row per metric an empty value is an error of its own.
        lone = {name: one for name, one in named.known.items() if name == "value" and "metric" not in named.known}
        values, more = _finite(lone, named.source)
        named = replace(named, known={**named.known, **values})
        notes += [*told, *more]
        left = [name for name, series in extra.items() if schema.misspelt(name) is None and _is_text(series)]
        extra = {name: series for name, series in extra.items() if name not in left}
    notes += [_left_out([named.source.written[name] for name in left])] if left else []
    if "metric" in named.known:
        rows = _long(frame, named, extra, options)
    else:
        metrics, told = _metric_columns(frame, named, extra, options)
        _refuse_settings(frame, metrics, named, options)
        of_updates = _of_every_update(frame, metrics)
        evaluated = any(rank(name, schema.DEFAULT_EVAL_SET) in EVALUATIONS for name in metrics)
        notes += [*told, *(_taken_for_training(name) for name in of_updates if not evaluated)]
        rows = _melt(frame, metrics, named.source)
    training = [name for name in rows["metric"].unique() if is_training_reward(name) or name in of_updates]
    held_out = pl.lit(schema.DEFAULT_EVAL_SET)
    home = pl.when(pl.col("metric").is_in(training)).then(pl.lit(TRAIN_SET)).otherwise(held_out)
    return rows.with_columns(pl.coalesce("eval_set", home).alias("eval_set")), tuple(notes)


def _left_out(columns: Sequence[str]) -> Note:
    message = f"columns of text that are no known columns were left out: {', '.join(columns)}."
    return Note("columns-left-out", "info", message, {"columns": list(columns)})


def _finite(columns: Mapping[str, pl.Series], source: Source) -> tuple[dict[str, pl.Series], list[Note]]:
    """Columns with cells of NaN and infinities empty, and a warning for each that had any."""
    import polars as pl

    found: dict[str, pl.Series] = {}
    notes: list[Note] = []
    for name, series in columns.items():
        found[name] = series
        if series.dtype != pl.String and not series.dtype.is_float():
            continue
        numbers = series.str.strip_chars() if series.dtype == pl.String else series
        bad = ~numbers.cast(pl.Float64, strict=False).is_finite().fill_null(True)
        first = bad.arg_max() if bad.any() else None
        if first is not None:
            found[name] = series.set(bad, None)
            count = int(bad.sum())
            more = f", and {count - 1} more" if count > 1 else ""
            message = (
                f"{source.cell(first, name)}: not finite and left out{more}. If the run failed there, use only what "
                "came before."
            )
            notes.append(Note("values-not-finite", "warning", message, {"metric": name, "values": count}))
    return found, notes


def _is_text(series: pl.Series) -> bool:
    """Whether a column holds nothing that could be a number."""
    import polars as pl

    if series.dtype == pl.String:
        cells = series.drop_nulls().str.strip_chars()
        return (
            bool(cells.cast(pl.Float64, strict=False).is_null().all())
            and not cells.str.contains(r"^[-+]?[\d.,]+\s*%?$").any()
        )
    return series.dtype == pl.Boolean or series.dtype.is_temporal() or series.dtype.is_nested()


def _refuse_settings(frame: pl.DataFrame, metrics: Mapping[str, pl.Series], named: Named, options: Options) -> None:
    """Raise on columns of unknown names that never change within a run: most likely settings, and no metrics."""
    import polars as pl

    unknown = [
        name
        for name in metrics
        if name != options.metric and name in named.others and rank(name, schema.DEFAULT_EVAL_SET) == OTHER
    ]
    if not unknown or len(metrics) == len(unknown) == 1:
        return
    table = pl.DataFrame([frame["run_id"], *(metrics[name].alias(f"_{i}") for i, name in enumerate(unknown))])
    counts = table.group_by("run_id").agg(
        *(pl.col(f"_{i}").drop_nulls().n_unique().alias(f"u{i}") for i in range(len(unknown))),
        *(pl.col(f"_{i}").count().alias(f"c{i}") for i in range(len(unknown))),
    )
    found = [
        name
        for i, name in enumerate(unknown)
        if (counts[f"u{i}"] <= 1).all() and (counts[f"c{i}"] >= MIN_TO_JUDGE).any()
    ]
    if not found or len(found) == len(metrics):
        return
    columns = [named.source.written[name] for name in found]
    several = len(columns) > 1
    raise wrong_column(
        f"column{'s' if several else ''} {', '.join(map(repr, columns))} never change{'' if several else 's'} within a "
        "run, as settings do; accepted: measurements, and columns of known names",
        f"Rename what has another name here (--rename THEIRS=OURS); known: {schema.known_names()}.",
        columns,
    )


def _long(frame: pl.DataFrame, named: Named, extra: Mapping[str, pl.Series], options: Options) -> pl.DataFrame:
    if "value" not in named.known:
        raise RecordError(
            "column 'metric' needs a column 'value' beside it",
            f"The table has: {named.columns}. Rename the measured column to 'value'.",
        )
    if extra:
        names = [named.source.written[name] for name in extra]
        shown = f"unknown column{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
        message = f"{shown} in a table with one row per metric; known: {schema.known_names()}"
        raise wrong_column(message, "Rename to known columns.", names)
    metric = typed(named.known["metric"], schema.BY_NAME["metric"], named.source)
    value = typed(named.known["value"], schema.BY_NAME["value"], named.source)
    require(metric, named.source, "Give every row the name of its metric.")
    require(value, named.source, "Drop the rows of evaluations that were not measured.")
    _check_named_metric(options, metric.unique(maintain_order=True).to_list())
    return frame.with_columns(metric, value)


def _metric_columns(
    frame: pl.DataFrame, named: Named, extra: Mapping[str, pl.Series], options: Options
) -> tuple[dict[str, pl.Series], tuple[Note, ...]]:
    """Wide form: the measured columns by metric name."""
    source = named.source
    wide = {name: _numeric_metric(name, series, source) for name, series in extra.items()}
    notes: tuple[Note, ...] = ()
    metric = options.metric
    if "value" in named.known:
        bare = source.written["value"]
        if options.lenient and metric in (None, *wide):
            # A metric that has a column of its own says that this column is another one.
            training = metric is not None or _of_updates(frame, wide)
            metric = TRAIN_REWARD if training else USUAL_METRIC
            notes = (_taken_for_training(bare) if training else _taken_for_evaluation(bare),)
        if not metric:
            raise RecordError(
                f"column {bare!r} does not say which metric it holds",
                f'Pass its name, e.g. metric="avg@4", or rename the column {bare!r} to the metric\'s name.',
                column=bare,
            ).in_shell(f"Add its name, e.g. --metric avg@4, or rename the column {bare!r} to the metric's name.")
        if metric in wide:
            message = f"columns {bare!r} and {metric!r} both hold the metric {metric!r}"
            raise wrong_column(message, "Remove one.", [bare])
        wide = {metric: named.known["value"], **wide}
    if not wide:
        raise RecordError(
            f"no column holds a metric; the table has: {named.columns}",
            'Add a column named after the metric, e.g. "avg@4", or columns "metric" and "value".',
        )
    _check_named_metric(options, list(wide))
    return wide, notes


def _of_updates(frame: pl.DataFrame, beside: Collection[str]) -> bool:
    """Whether a reward is that of updates: beside a trainer's quantities or an evaluation, or in every step's row."""
    return any(rank(name, schema.DEFAULT_EVAL_SET) != OTHER for name in beside) or _in_every_step(frame)


def _of_every_update(frame: pl.DataFrame, metrics: Mapping[str, pl.Series]) -> list[str]:
    """Rewards with a value for every update, beside a trainer's quantities, whose names do not say where."""
    if all(rank(name, schema.DEFAULT_EVAL_SET) is not None for name in metrics):
        return []
    named = {name: series for name, series in metrics.items() if names_a_reward(name)}
    return [name for name, series in named.items() if _in_every_step(frame.filter(series.is_not_null()))]


def _in_every_step(frame: pl.DataFrame) -> bool:
    import polars as pl

    apart = frame.select(pl.col("step").diff().over("run_id")).to_series().drop_nulls()
    return len(apart) >= MIN_TO_JUDGE and apart.median() == 1


def _taken_for_evaluation(column: str) -> Note:
    message = (
        f"column {column!r} does not say what it measures and is taken for an evaluation, {USUAL_METRIC}. Name it with "
        f"--metric (metric= in Python); if it is the training reward, --metric {TRAIN_REWARD}."
    )
    return Note("reward-taken-for-evaluation", "warning", message, {"column": column})


def _taken_for_training(column: str) -> Note:
    message = (
        f"column {column!r} does not say what it measures and is taken for the training reward. If it is an "
        f"evaluation, name it: --rename {column}=avg@4 (rename= in Python)."
    )
    return Note("reward-taken-for-training", "warning", message, {"column": column})


def _check_named_metric(options: Options, found: Sequence[str]) -> None:
    # An average over an unknown number of samples may be the one that is asked about.
    if options.metric is not None and options.metric not in found and UNKNOWN_AVERAGE not in found:
        likely = headline((name, schema.DEFAULT_EVAL_SET) for name in found)
        raise RecordError(
            f"metric {options.metric!r} is not in the table; it holds: {', '.join(found)}",
            f"{did_you_mean(options.metric, found)}metric= names a column called 'reward' or 'value'.",
            options=() if likely is None else (f"--metric {quote(likely[0])}",),
        ).in_shell(
            f"{did_you_mean(options.metric, found)}--metric names a metric of the table, or what its column "
            "'reward' or 'value' holds."
        )


def _numeric_metric(name: str, series: pl.Series, source: Source) -> pl.Series:
    """A column of no known name as a metric, unless it is text or a slip of a known name."""
    import polars as pl

    written = source.written[name]
    slip = schema.misspelt(name)
    if slip is not None:
        raise wrong_column(f"column {written!r} is no known column, but looks like {slip!r}", "", [written], slip)
    texts = series.dtype == pl.String and series.str.strip_chars().cast(pl.Float64, strict=False).is_null().all()
    if texts or not (series.dtype.is_numeric() or series.dtype == pl.String):
        (sample,) = series.drop_nulls().head(1).to_list()
        raise wrong_column(
            f"unknown column {written!r} holds {series.dtype} (e.g. {sample!r}), not numbers; accepted: metrics, which "
            "are numbers, and columns of known names",
            f"{did_you_mean(name, list(schema.BY_NAME))}Rename it to one of {schema.known_names()}.",
            [written],
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
