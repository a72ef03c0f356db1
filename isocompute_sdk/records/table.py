"""From columns as they come (long or wide, aliases, gaps) to the one table behind a `RunSet`.

The stages: name the columns, type them, give every row its run, complete steps and rollouts, turn the metrics into
rows, refuse repeats. All work on whole columns; single rows are looked at only to name an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from shlex import quote
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import RecordError, typed_value
from isocompute_sdk.metrics import UNKNOWN_AVERAGE, average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.clock import by_clock, goes_back, seconds_in
from isocompute_sdk.records.columns import (
    CONTEXT_FIELDS,
    MIN_TO_JUDGE,
    N_AND_BP,
    PER_RUN,
    ArgumentSource,
    Named,
    OnDuplicate,
    Options,
    Source,
    given_twice,
    numbers_in,
    polars_type,
    refuse_clock,
    require,
    to_series,
    typed,
    wrong_column,
)
from isocompute_sdk.records.reward_metrics import headline, measured_in, to_rows
from isocompute_sdk.records.suggested import (
    against_names,
    batch_of_runs,
    changes_within,
    refuse_without,
    tells_apart,
)

if TYPE_CHECKING:
    import polars as pl


ROW = "_row"
"""Working column: number of the row that an evaluation came from."""
KEY = ("run_id", "metric", "eval_set")
_PLACE = "_place"
_COUNTER = re.compile(r"(?<![a-z])(steps?|updates?|iter(ation)?s?)(?![a-z])", re.IGNORECASE)
"""Names of columns that may count updates."""
STEP_TOLERANCE = 1e-3
"""Relative difference allowed between rollouts and step * n * B_p: logs round one or the other."""


def build(table: object, options: Options, source: Source | None = None) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """The canonical frame, one row per evaluation in columns of `columns.COLUMNS`, and notes on its runs.

    Rows are ordered by first appearance of their run, then rollouts, step, metric and evaluation set.

    Raises:
        RecordError: for anything in `table` that is missing, malformed or contradictory.
    """
    import polars as pl

    schema.check_fields([options.on_duplicate], get_args(OnDuplicate), "on_duplicate")
    named = name_columns(table, options, source or Source())
    frame = name_runs(typed_frame(named, options), named, options.run_prefix)
    notes: tuple[Note, ...] = ()
    if options.without_sizes and (unknown := sizes_unknown({*named.known, *options.columns_set})):
        notes += (sizes_note(frame["run_id"].unique(maintain_order=True).to_list(), unknown),)
    given = [name for name in N_AND_BP if name in options.columns_set]
    sizes = frame.select("run_id", *given).unique(maintain_order=True)
    # Of ids that are made from the configuration only the file's name says more.
    file = None if "run_id" in named.known else options.run_prefix.rstrip("/")
    notes += tuple(against_names({file or row["run_id"]: row for row in sizes.to_dicts()}))
    frame = _with_rollouts(frame, named.source)
    named = _with_seconds(frame, named)
    rows, left_out = to_rows(frame.with_row_index(ROW), named, options)
    if (rows["metric"] == UNKNOWN_AVERAGE).any():
        # A column, or the metric asked about, says over how many samples.
        asked = pl.lit(None if options.metric is None else average_of(options.metric), dtype=pl.Int64)
        k = pl.coalesce("eval_samples", asked)
        known = (pl.col("metric") == UNKNOWN_AVERAGE) & k.is_not_null()
        rows = rows.with_columns(pl.when(known).then(pl.format("avg@{}", k)).otherwise("metric").alias("metric"))
    if options.lenient and options.on_duplicate == "error":
        rows = _without_repeats(rows, options.metric)
    notes += tuple(_going_back(rows, named.source))
    settled = settle(rows, options.on_duplicate, named.source, named)
    if "run_id" not in named.known:
        _refuse_restarts(frame, named)
    return settled, (*named.notes, *notes, *left_out)


def _going_back(rows: pl.DataFrame, source: Source) -> Iterator[Note]:
    """A warning for each run whose steps go back in the order of the table, see `goes_back_at`."""
    import polars as pl

    fell = rows.filter((_place().diff() < 0).over(KEY) & pl.col("rollouts_spent").is_null())
    of_runs = rows.with_columns(_place()).join(fell, on=KEY, how="semi")
    parts = of_runs.unique([*KEY, _PLACE], keep="last", maintain_order=True).partition_by(KEY, maintain_order=True)
    told = set[str]()
    for part in parts:
        run, at, place_T = part["run_id"][0], goes_back_at(part[_PLACE].to_numpy()), part[_PLACE]
        if at is not None and run not in told:
            told.add(run)
            yield going_back_note(run, place_T[at - 1], place_T[at], source.locate(part[ROW][at]))


def goes_back_at(step_T: NDArray[Any]) -> int | None:
    """Where steps in the order of a table jump back and rise again between those before, as after a restart from 0.

    None of rows in no order, or in parts that follow each other.
    """
    falls = np.flatnonzero(np.diff(step_T) < 0) + 1
    if MIN_TO_JUDGE * (len(falls) + 1) > len(step_T):
        return None
    for at, (one, other) in zip(falls.tolist(), pairwise(np.split(step_T, falls)), strict=True):
        between = (np.count_nonzero((a[0] < b) & (b < a[-1])) for a, b in ((one, other), (other, one)))
        if min(between) >= MIN_TO_JUDGE:
            return at
    return None


def going_back_note(run: str, before: float, step: float, place: object) -> Note:
    """That the steps of a run go back, at a place in words."""
    message = (
        f"run {run!r}: {place}: steps go back from {before:.10g} to {step:.10g} and rise again; all rows are read as "
        "one start of the run."
    )
    return Note("steps-go-back", "warning", f"{message} {GOING_BACK}", {"run_id": run, "before": before, "step": step})


GOING_BACK = (
    "If a resumed run counted from 0 again, give rollouts (C), which keep counting, instead of steps, or each part its "
    "own run_id. If these checkpoints were evaluated later, leave it as it is."
)


def _without_repeats(rows: pl.DataFrame, asked: str | None) -> pl.DataFrame:
    """Rows without those that repeat an evaluation with its value, or one of a metric that nobody asked about."""
    import polars as pl

    place = [*KEY, _place()]
    if not rows.select(place).is_duplicated().any():
        return rows
    likely = headline(measured_in(rows))
    decides = asked or (likely[0] if likely is not None else None)
    kept = rows.with_columns(_place()).unique([*KEY, _PLACE, "value"], keep="first", maintain_order=True)
    return pl.concat(
        [
            kept.filter(pl.col("metric") == decides),
            kept.filter(pl.col("metric") != decides).unique([*KEY, _PLACE], keep="last", maintain_order=True),
        ]
    ).drop(_PLACE)


def sizes_note(runs: Sequence[str], unknown: Sequence[str]) -> Note:
    """That runs were read without n or B_p."""
    message = (
        f"{', '.join(runs[:5])}{', ...' if len(runs) > 5 else ''}: no file states {' and '.join(unknown)}, which "
        "a fit needs; 1 is used instead, and rollouts are unknown."
    )
    return Note("sizes-unknown", "warning", message, {"runs": list(runs), "columns": list(unknown)})


_RATE = "learning_rate"
_SCHEDULE = 3
"""Different learning rates of one run from which they are a schedule."""


def name_runs(frame: pl.DataFrame, named: Named, prefix: str = "") -> pl.DataFrame:
    """Give every row its run_id, and every run one value in each column that belongs to the run.

    Without run ids, rows of equal configuration and seed are one run (seed 0 where none is given), named
    like `n8-bp32-seed0`. With them, a configuration cell that is empty takes the value its run has elsewhere. A
    learning rate that follows a schedule is the largest of its run.

    Raises:
        RecordError: an empty run_id or group size, or a run that changes.
    """
    import polars as pl

    source = named.source
    if frame["run_id"].null_count() == frame.height:
        require(frame["group_size"], source, "Give the group size in every row, or in one row of every run_id.")
        frame = _peak_rate(frame.with_columns(pl.col("seed").fill_null(0)), [*N_AND_BP, "seed"])
        return frame.with_columns(_default_ids(frame, prefix))
    require(frame["run_id"], source, "Give a run_id in every row, or in none.")
    others = {source.written[name]: cells for name, cells in named.others.items()}
    frame = fill_runs(_peak_rate(frame, ["run_id"]), source, others)
    require(frame["group_size"], source, "Give the run its group size in at least one row.")
    return frame


def fill_runs(frame: pl.DataFrame, source: Source, others: Mapping[str, pl.Series] | None = None) -> pl.DataFrame:
    """Fill empty cells of a run's configuration from its other rows.

    `others`: columns of the table that have no known meaning, which may tell runs of one name apart.

    Raises:
        RecordError: a run has two values in a column of `PER_RUN`.
    """
    import polars as pl

    uneven = [name for name in PER_RUN if not _is_constant(frame[name])]
    if "gpus" in uneven:
        # A run that went on with other GPUs is one run, of which no number of GPUs gives the speed.
        one = (pl.col("gpus").min() == pl.col("gpus").max()).over("run_id")
        frame = frame.with_columns(pl.when(one).then("gpus"))
    _refuse_changes(frame, uneven, source, others or {})
    gaps = [name for name in uneven if frame[name].null_count()]
    return frame.with_columns(pl.col(name).max().over("run_id") for name in gaps)


def _is_constant(series: pl.Series) -> bool:
    return series.null_count() == len(series) or (not series.null_count() and series.n_unique() == 1)


def _peak_rate(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The largest learning rate of each group of rows that is one run and whose rate follows a schedule."""
    import polars as pl

    if _is_constant(frame[_RATE]):
        return frame
    place = pl.coalesce("step", "rollouts")
    schedule = (pl.col(_RATE).n_unique() >= _SCHEDULE) & (pl.struct(place, _RATE).n_unique() == place.n_unique())
    return frame.with_columns(
        pl.when(schedule.over(keys)).then(pl.col(_RATE).max().over(keys)).otherwise(pl.col(_RATE)).alias(_RATE)
    )


def _refuse_restarts(frame: pl.DataFrame, named: Named) -> None:
    """Raise on rows that would be one run and begin again wherever an unknown column of text changes.

    Raises:
        RecordError: such a column, with what it may say.
    """
    import polars as pl

    texts = {name: one for name, one in named.others.items() if one.dtype == pl.String and one.n_unique() > 1}
    if not texts:
        return
    measured = [name for name in KEY[1:] if name in named.known]
    of_rows = frame.select("run_id", "rollouts").with_columns(
        *(named.known[name].alias(name) for name in measured),
        *(one.alias(f"_{name}") for name, one in texts.items()),
    )
    parts = of_rows.partition_by("run_id", *measured, maintain_order=True)
    again = [name for name in texts if any(_begins_again(part, f"_{name}") for part in parts)]
    if not again:
        return
    # That with the fewest values says most about several runs.
    written = [named.source.written[name] for name in sorted(again, key=lambda name: texts[name].n_unique())]
    renamed = f"{written[0]}=train_data"
    raise RecordError(
        f"rows of one configuration begin again where {' and '.join(map(repr, written))} "
        f"change{'s' * (len(written) == 1)}, as several runs do; does {written[0]!r} name their training problems?",
        f"If so, rename={{{written[0]!r}: 'train_data'}}; else give every run a name in a column run_id.",
        (f"--rename {quote(renamed)}",),
    ).in_shell(f"If so, add --rename {quote(renamed)}; else give every run a name in a column run_id.")


def _begins_again(rows: pl.DataFrame, name: str) -> bool:
    """Whether compute goes back wherever a column of rows in the order of their file changes, and nowhere else."""
    moved = rows["rollouts"].diff().to_numpy()[1:] < 0
    return bool(moved.any()) and np.array_equal(
        moved, (rows[name] != rows[name].shift())[1:].fill_null(False).to_numpy()
    )


def _default_ids(frame: pl.DataFrame, prefix: str) -> pl.Series:
    """`n8-bp32-seed0`, with `-field=value` for each context field that two such rows differ in."""
    import polars as pl

    base = pl.concat_str(
        pl.format("n{}", "group_size"),
        pl.format("bp{}", "problems_per_batch"),
        pl.format("seed{}", "seed"),
        separator="-",
        ignore_nulls=True,
    ).alias("run_id")
    named = frame.with_columns(base)
    fields = [name for name in CONTEXT_FIELDS if not _is_constant(frame[name])]
    counts = named.group_by("run_id").agg(pl.col(name).n_unique() for name in fields)
    differing = [name for name in fields if counts[name].max() != 1]
    parts = [pl.col("run_id"), *(pl.format(f"{name}={{}}", name) for name in differing)]
    joined = pl.concat_str(parts, separator="-", ignore_nulls=True)
    return named.select(pl.concat_str(pl.lit(prefix), joined).alias("run_id")).to_series()


def _refuse_changes(frame: pl.DataFrame, names: Sequence[str], source: Source, others: Mapping[str, pl.Series]) -> None:
    """Raise on a run with two values in one of `names`, naming both rows."""
    import polars as pl

    for name in names:
        column = pl.col(name)
        changed = frame.select((column.min() != column.max()).over("run_id").fill_null(False)).to_series()
        if not changed.any():
            continue
        run_id = frame.filter(changed)["run_id"][0]
        rows = frame.with_row_index("_at").filter(pl.col("run_id") == run_id, column.is_not_null())
        first = rows.row(0, named=True)
        other = rows.filter(column != first[name]).row(0, named=True)
        here = frame["run_id"] == run_id
        raise changes_within(
            f"run {run_id!r}: {source.name(name)} changes from {first[name]!r} ({source.locate(first['_at'])}) "
            f"to {other[name]!r} ({source.locate(other['_at'])}); accepted: one value per run",
            "Give the two parts different run_ids: they are different runs. If n or B_p changed mid-run, give "
            "rollouts (C), which stay right across the change, instead of steps.",
            {theirs: cells.filter(here) for theirs, cells in others.items()},
            frame[name].filter(here),
            source.written.get("run_id"),
        )


def _with_rollouts(frame: pl.DataFrame, source: Source) -> pl.DataFrame:
    """Complete rollouts from step * n * B_p and step from rollouts; refuse rows where they disagree.

    Rows with `rollouts_spent` were counted by a reader of logs or through a change of n or B_p, filtered rollouts
    included: there the product says less than the count.
    """
    import polars as pl

    batch = pl.col("group_size").cast(pl.Float64) * pl.col("problems_per_batch").cast(pl.Float64)
    expected = pl.col("step") * batch
    slack = pl.max_horizontal(pl.col("rollouts") * STEP_TOLERANCE, pl.lit(1.0))
    contradicts = ((pl.col("rollouts") - expected).abs() > slack).fill_null(False)
    wrong = frame.select(contradicts & pl.col("rollouts_spent").is_null()).to_series()
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
        if all(frame[name].null_count() < frame.height for name in empty):
            raise RecordError(
                f"{source.locate(index)}: {' and '.join(empty)} has no value ({frame['rollouts'].null_count()} such "
                "rows); accepted: a number in every row",
                "Fill the cell, or leave the row out.",
            )
        batch = schema.batch_asked(frame["group_size"].unique().to_list())
        raise RecordError(
            f"{source.locate(index)}: rollouts are not given, and cannot be computed from step * group_size * "
            f"problems_per_batch without {' and '.join(empty)}",
            f"Give rollouts, or step and {batch} ({batch}=256 sets it for all rows).",
        ).in_shell(
            f"If a column holds B_p, add --rename COLUMN=problems_per_batch. If all rows share "
            f"{'B_p' if batch == 'problems_per_batch' else 'n x B_p'}, add --set {batch}={schema.PLACEHOLDERS[batch]}.",
            (f"--set {batch}={schema.PLACEHOLDERS[batch]}",) if empty == ["problems_per_batch"] else (),
        )
    return frame


def _with_seconds(frame: pl.DataFrame, named: Named) -> Named:
    """Seconds per update between the rows of a run, as a metric, instead of the columns of a clock."""
    import polars as pl

    rows = frame.select("run_id", "step").with_row_index("row")
    clocks: dict[str, list[pl.DataFrame]] = {}
    for name in (one for one in schema.CLOCKS if one in named.others):
        timed = rows.with_columns(clock=seconds_in(named.others[name])).drop_nulls().sort("step", maintain_order=True)
        # Seconds of single updates have such names too.
        if timed.height and not goes_back(parts := timed.partition_by("run_id")):
            clocks[name] = parts
    if not clocks:
        return named
    clock, parts = next(iter(clocks.items()))
    others = {name: series for name, series in named.others.items() if name not in clocks}
    if schema.STEP_SECONDS not in others and "metric" not in named.known:
        seconds = np.full(frame.height, np.nan)
        for part in parts:
            seconds[part["row"].to_numpy()] = by_clock(part["step"], part["clock"])
        others[schema.STEP_SECONDS] = pl.Series(schema.STEP_SECONDS, seconds).fill_nan(None)
    written = {**named.source.written, schema.STEP_SECONDS: clock}
    return replace(named, others=others, source=Source(named.source.locate, written))


def name_columns(given: object, options: Options, source: Source) -> Named:
    """Split the columns of `given` into known ones (by canonical name) and others, which may be metrics."""
    import polars as pl

    as_given = as_mapping(given)
    table = {name.strip(): values for name, values in as_given.items()}
    if len(table) < len(as_given):
        raise RecordError(f"columns whose names differ only in spaces: {', '.join(as_given)}", "Rename or remove one.")
    ignored = {name.strip() for name in options.ignore}
    rename = {name.strip(): new.strip() for name, new in options.rename.items()}
    schema.check_fields((*rename, *ignored), list(table), "name to rename or ignore")
    written: dict[str, str] = {}
    known: dict[str, pl.Series] = {}
    others: dict[str, pl.Series] = {}
    names = {raw: schema.spelled(rename.get(raw, raw)) for raw in table if raw not in ignored}
    meant = schema.fields(names.values())
    for raw, name in names.items():
        column = meant[name]
        if column is None and name in schema.WANDB_STEPS:
            continue
        series = to_series(raw, table[raw])
        if (column or name) in written:
            first = written[column or name]
            if column is not None and known[column].equals(series.alias(column)):
                continue
            message = f"columns {first!r} and {raw!r} both mean {column or name!r}; accepted: one of them"
            raise wrong_column(message, "Remove one.", [raw])
        written[column or name] = raw
        if column is None:
            others[name] = series
        else:
            known[column] = series.alias(column)
    if "run_id" not in known and "id" in others and others["id"].dtype == pl.String:
        known["run_id"], written["run_id"] = others.pop("id"), written.pop("id")
    _check_lengths({**known, **others}, written)
    told = _batch_told(written)
    if written.get("step") == schema.WANDB_STEPS[0] and schema.WANDB_STEPS[0] not in rename:
        told += _step_told(known["step"], others)
    return Named(known, others, Source(source.locate, {**source.written, **written}), tuple(told))


def _batch_told(written: Mapping[str, str]) -> list[Note]:
    """A warning where the framework that n is named by counts rollouts in what is read as problems."""
    batch = written.get("problems_per_batch", "").rpartition(".")[2]
    if batch != schema.COUNTED_DIFFERENTLY or written.get("group_size") not in schema.OTHER_COUNTS:
        return []
    message = (
        f"column {batch} is read as problems per batch, as veRL counts; beside {written['group_size']} it may count "
        f"rollouts, as in TRL and OpenRLHF. If so, rename it to rollouts_per_batch: --rename "
        f"{batch}=rollouts_per_batch."
    )
    return [Note("column-assumed", "warning", message, {"column": batch, "as": "problems_per_batch"})]


def _step_told(step: pl.Series, others: Mapping[str, pl.Series]) -> list[Note]:
    """A warning where another column counts beside W&B's own step, and more slowly."""
    logged = numbers_in(step)
    for name, series in others.items():
        counts = numbers_in(series)
        whole = not counts.null_count() and bool((counts % 1 == 0).all() and (counts <= logged).all())
        if not _COUNTER.search(name) or not whole or 2 * counts.n_unique() < logged.n_unique() or counts.equals(logged):
            continue
        message = (
            f"column {schema.WANDB_STEPS[0]} is read as the update step; it counts W&B's log calls, and {name!r} "
            f"counts fewer. If that counts updates, rename it: --rename {quote(f'{name}=step')}."
        )
        return [Note("column-assumed", "warning", message, {"column": schema.WANDB_STEPS[0], "as": "step"})]
    return []


def as_mapping(table: object) -> dict[str, object]:
    """A mapping, or a polars or pandas frame, as name -> column."""
    if isinstance(table, Mapping):
        mapping = cast(Mapping[object, object], table)
        return {str(name): values for name, values in mapping.items()}
    if hasattr(table, "column_names") and hasattr(table, "column"):
        arrow = cast(Any, table)
        return {str(name): arrow.column(index) for index, name in enumerate(arrow.column_names)}
    # Both frames have these two; a lazy frame, which cannot be read by column, has not.
    if not (hasattr(table, "to_dict") and hasattr(table, "columns")):
        raise RecordError(
            f"received {typed_value(table)}; accepted: a mapping from column name to values, a "
            "polars or pandas frame, or an Arrow table",
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
        accepted = [name for name in schema.BY_NAME if name not in ("metric", "value")]
        name = schema.canonical(argument) or argument
        schema.check_fields([name], accepted, "argument")
        single = to_series(argument, [value])
        constant = typed(single, schema.BY_NAME[name], ArgumentSource(written={name: argument}))
        there = given[name].drop_nulls().unique() if name in given else ()
        if any(known != constant[0] for known in there):
            raise given_twice(argument, value, "a column of the table", named.source.written.get(name, name))
        given[name] = constant.new_from_index(0, named.height)
    if "step" in given and "rollouts" not in given:
        refuse_clock(cast("float | None", given["step"].max()), named.source.written.get("step", "step"))
    unsized = sizes_unknown(given)
    unknown = [*unsized, *(["rollouts"] if {"step", "rollouts"}.isdisjoint(given) else [])]
    sized = not options.without_sizes
    # A table that counts its rollouts can be read without B_p, which may lie there under another name.
    counted = "rollouts" in given and {"problems_per_batch", schema.BATCH.name}.isdisjoint(given)
    batch = batch_of_runs(named) if options.lenient and sized and counted else None
    if "rollouts" in unknown or (unsized and sized) or batch is not None:
        refuse_without(unknown, named, batch, sized=sized)
    for name in unsized:
        given[name] = pl.Series(name, [1], dtype=pl.Int64).new_from_index(0, named.height)
        if name == "group_size" and "run_id" not in given:
            given["run_id"] = pl.Series("run_id", [options.run_name]).new_from_index(0, named.height)
    if schema.BATCH.name in given:
        _with_problems(given, named.source)
    frame = pl.DataFrame(list(given.values()))
    absent = [
        pl.lit(None, dtype=polars_type(column.name)).alias(column.name)
        for column in schema.COLUMNS
        if column.name not in given
    ]
    return frame.with_columns(absent)


def sizes_unknown(given: Collection[str]) -> list[str]:
    """Of n and B_p what a table with these columns does not say and needs for its rollouts."""
    needed = ["group_size"] if "group_size" not in given else []
    counted = "rollouts" in given or schema.BATCH.name in given
    return [*needed, *(["problems_per_batch"] if not counted and "problems_per_batch" not in given else [])]


def _with_problems(given: dict[str, pl.Series], source: Source) -> None:
    """Replace the rollouts of a batch by its problems."""
    batch, size = given.pop(schema.BATCH.name), given["group_size"]
    problems = batch // size
    wrong = (batch % size != 0).fill_null(False)
    if "problems_per_batch" in given:
        wrong |= (given["problems_per_batch"] != problems).fill_null(False)
        problems = given["problems_per_batch"].fill_null(problems)
    index = wrong.arg_max() if wrong.any() else None
    if index is not None:
        raise RecordError(
            f"{source.cell(index, schema.BATCH.name)}: received {batch[index]} with n = {size[index]}; accepted: n "
            "times the problems of a batch",
            "Check whether the column counts problems: then rename it to problems_per_batch.",
        )
    given["problems_per_batch"] = problems.alias("problems_per_batch")


def settle(frame: pl.DataFrame, on_duplicate: OnDuplicate, source: Source, named: Named | None = None) -> pl.DataFrame:
    """Reject or resolve repeats, then order rows and columns; `frame` has a column `ROW`.

    `named` is the table that it was made from, whose other columns may tell runs apart.

    Raises:
        RecordError: naming two rows that hold the same evaluation.
    """
    import polars as pl

    # Texts are compared by number: the same answer in a third of the time.
    keys = (pl.col(key).cast(pl.Categorical).to_physical() for key in KEY)
    repeated = frame.select(*keys, _place()).is_duplicated()
    if repeated.any():
        if on_duplicate == "error":
            _refuse_duplicate(frame, repeated, source, named)
        frame = frame.sort(ROW).with_columns(_place()).unique([*KEY, _PLACE], keep="last")
    order = pl.col(ROW).min().over("run_id").alias("_order")
    keys = ["_order", "rollouts", "step", "metric", "eval_set"]
    return frame.with_columns(order).sort(keys).select(column.name for column in schema.COLUMNS)


def _place() -> pl.Expr:
    """The step, or the rollouts if it is unknown."""
    import polars as pl

    return pl.coalesce("step", "rollouts").alias(_PLACE)


def _refuse_duplicate(frame: pl.DataFrame, repeated: pl.Series, source: Source, named: Named | None) -> None:
    rows = frame.filter(repeated).with_columns(_place()).sort(ROW)
    first = rows.row(0, named=True)
    twin = next(
        row for row in rows.slice(1).iter_rows(named=True) if all(row[key] == first[key] for key in (*KEY, _PLACE))
    )
    at = f"rollouts {first['rollouts']:.10g}" if first["step"] is None else f"step {first['step']:.10g}"
    others = {} if named is None else {source.written[name]: cells for name, cells in named.others.items()}
    found = None if named is None else tells_apart(named.known, others)
    option = "" if found is None else f"--rename {quote('='.join(found))}"
    raise RecordError(
        f"{source.locate(twin[ROW])} repeats {source.locate(first[ROW])}: run {first['run_id']!r}, {at}, "
        f"metric {first['metric']!r}, eval_set {first['eval_set']!r} (values {first['value']:.6g} and "
        f"{twin['value']:.6g}; {rows.height} such rows); accepted: one value each",
        "Give different runs their own run_id or seed; if the later row replaces the earlier one, pass "
        'on_duplicate="last".',
        options=() if found is None else (option,),
    ).in_shell(
        "Give different runs their own run_id or seed. If the later row replaces the earlier one, as after a resume, "
        "remove the earlier; docs/logs.md has a call that does."
        if found is None
        else f"If column {found[0]!r} names the runs, add {option}."
    )
