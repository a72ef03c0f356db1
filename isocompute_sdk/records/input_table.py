"""The columns of an input table: named, typed, and turned into one row per measured value."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.metrics import UNKNOWN_AVERAGE
from isocompute_sdk.notes import Note
from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.cells import ArgumentSource, Source, blank_to_null, refuse_clock, require, to_series, typed
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

    from isocompute_sdk.records.run_ids import Rows

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
    lenient: bool = False
    """Leave columns of text out, and take a reward without a name for the training reward if a trainer's quantities
    stand beside it, else for an evaluation; each with a note."""
    without_sizes: bool = False
    """Put 1 in place of an unknown n or B_p."""
    run_name: str = "run"
    """Name of the only run of a table that says neither its name nor n."""

    @property
    def columns_set(self) -> list[str]:
        """Columns that have one value for all rows."""
        return [schema.canonical(name) or name for name, value in self.constants.items() if value is not None]


@dataclass(frozen=True)
class Named:
    """A table with known and other columns separated."""

    known: dict[str, pl.Series]
    """Known columns by canonical name, as they came."""
    others: dict[str, pl.Series]
    """All other columns: metrics, if they are numeric."""
    source: Source
    notes: tuple[Note, ...] = ()
    """What was decided about columns that could mean two things."""

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
    import polars as pl

    as_given = as_mapping(given)
    table = {name.strip(): values for name, values in as_given.items()}
    if len(table) < len(as_given):
        raise RecordError(f"columns are there twice, but for blanks: {', '.join(as_given)}", "Rename or remove one.")
    ignored = {name.strip() for name in options.ignore}
    rename = {name.strip(): new.strip() for name, new in options.rename.items()}
    for name in (*rename, *ignored):
        if name not in table:
            raise RecordError(
                f"no column {name!r} to rename or ignore; the table has: {', '.join(table)}",
                f"{did_you_mean(name, list(table))}Use a column of the table.",
            )
    written: dict[str, str] = {}
    known: dict[str, pl.Series] = {}
    others: dict[str, pl.Series] = {}
    names = {raw: rename.get(raw, raw) for raw in table if raw not in ignored}
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
            raise RecordError(
                f"columns {first!r} and {raw!r} both mean {column or name!r}; accepted: one of them",
                f"Remove one, or pass ignore=[{raw!r}].",
            ).in_shell(f"Remove one, or add --ignore {quote(raw)}.")
        written[column or name] = raw
        if column is None:
            others[name] = series
        else:
            known[column] = series.alias(column)
    if "run_id" not in known and "id" in others and others["id"].dtype == pl.String:
        known["run_id"], written["run_id"] = others.pop("id"), written.pop("id")
    _check_lengths({**known, **others}, written)
    _by_their_values(known, others, written)
    return Named(known, others, Source(source.locate, {**source.written, **written}), _told(written, table))


def _by_their_values(known: dict[str, pl.Series], others: dict[str, pl.Series], written: dict[str, str]) -> None:
    """Mend what two names alone do not say: `samples` that keep growing are no n, and a run has one training set."""
    import polars as pl

    size = written.get("group_size", "")
    if schema.folded(size) == "samples" and FEWEST_TO_JUDGE * known["group_size"].n_unique() > len(known["group_size"]):
        others[size], written[size] = known.pop("group_size").alias(size), written.pop("group_size")
    if "run_id" in known and "eval_set" not in known and schema.folded(written.get("train_data", "")) in _SETS:
        runs = pl.DataFrame([known["run_id"], known["train_data"]]).group_by("run_id").agg(pl.all().n_unique())
        if (runs["train_data"] > 1).any():
            known["eval_set"], written["eval_set"] = known.pop("train_data"), written.pop("train_data")


_SETS = ("dataset", "data_set")
"""Names of what a run was trained on, or evaluated on if it has several."""


def _told(written: Mapping[str, str], table: Mapping[str, object]) -> tuple[Note, ...]:
    """A warning where the framework that n is named by counts rollouts in what is read as problems."""
    batch = written.get("problems_per_batch", "").rpartition(".")[2]
    if batch != schema.COUNTED_DIFFERENTLY or written.get("group_size") not in schema.OTHER_COUNTS:
        return ()
    message = (
        f"column {batch} is taken for problems per batch, as veRL counts; beside {written['group_size']} it may count "
        f"rollouts, as in TRL and OpenRLHF. If so, rename it to rollouts_per_batch: --rename "
        f"{batch}=rollouts_per_batch."
    )
    return (Note("batch-taken-for-problems", "warning", message, {"column": batch}),)


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
            f"received a {type(table).__name__}; accepted: a mapping from column name to values, a "
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
        name = _constant_name(argument)
        single = to_series(argument, [value])
        constant = typed(single, schema.BY_NAME[name], ArgumentSource(written={name: argument}))
        there = given[name].drop_nulls().unique() if name in given else ()
        if any(known != constant[0] for known in there):
            raise RecordError(
                f"{argument} is given twice: as a column of the table and as {value!r} for every row",
                f"Drop the argument, or pass ignore=[{named.source.written.get(name, name)!r}].",
            ).in_shell(f"Drop --set {argument}, or add --ignore {quote(named.source.written.get(name, name))}.")
        given[name] = constant.new_from_index(0, named.height)
    if "step" in given and "rollouts" not in given:
        refuse_clock(cast("float | None", given["step"].max()), named.source.written.get("step", "step"))
    if options.without_sizes:
        for name in sizes_unknown(given):
            given[name] = pl.Series(name, [1], dtype=pl.Int64).new_from_index(0, named.height)
            if name == "group_size" and "run_id" not in given:
                given["run_id"] = pl.Series("run_id", [options.run_name]).new_from_index(0, named.height)
    absent = ["group_size"] if "group_size" not in given else []
    if "step" not in given and "rollouts" not in given:
        absent.append("rollouts")
    if absent:
        _refuse_without(absent, named, options.columns_set)
    if schema.BATCH.name in given:
        _with_problems(given, named.source)
    frame = pl.DataFrame(list(given.values()))
    absent = [
        pl.lit(None, dtype=polars_type(column.name)).alias(column.name)
        for column in schema.COLUMNS
        if column.name not in given
    ]
    return frame.with_columns(absent)


def polars_type(name: str) -> pl.DataType:
    """The polars type of a column."""
    import polars as pl

    kinds: dict[str, pl.DataType] = {"text": pl.String(), "integer": pl.Int64(), "number": pl.Float64()}
    return kinds[schema.BY_NAME[name].kind]


def _constant_name(argument: str) -> str:
    accepted = [name for name in schema.BY_NAME if name not in ("metric", "value")]
    name = schema.canonical(argument)
    if name not in accepted:
        raise RecordError(
            f"argument {argument}: no such column; accepted: {', '.join(accepted)}",
            f"{did_you_mean(argument, accepted)}Arguments give one value for every row.",
        )
    return name


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


_LIKELY: dict[str, str] = {
    "group_size": r"g|k|num_samples|n_samples|samples|num_rollouts|n_rollouts|group|groupsize|generations|n_gen\w*",
    "problems_per_batch": r"b|bs|bsz|batch|batch_size|prompts|n_prompts|num_prompts|problems|n_problems_per_\w+",
    "step": r"(\w+_)?steps?|iter|iters|iteration|iterations|update|updates|t|step_idx",
    "rollouts": r"samples_seen|total_samples|episodes|total_episodes|num_rollouts_total",
}
"""What people call the columns that a table cannot do without: suggested, never taken unasked."""


def _suggested(wanted: str, present: Sequence[str]) -> str | None:
    """The column of the table that is most likely `wanted`."""
    column = schema.BY_NAME[wanted]
    likely = re.compile(_LIKELY[wanted])
    near = (
        found
        for spelling in (wanted, *column.aliases)
        if (found := schema.close(spelling, present, cutoff=0.8)) is not None and schema.alike(found, spelling)
    )
    return next(near, None) or next((name for name in present if likely.fullmatch(schema.folded(name))), None)


def _may_be(wanted: str, cells: pl.Series) -> bool:
    """Whether a column could be `wanted` by its values: numbers, and for a setting few of them."""
    import polars as pl

    numbers = _without_blanks(cells).cast(pl.Float64, strict=False) if not cells.dtype.is_nested() else cells.clear()
    numbers = numbers.drop_nulls()
    counts = len(numbers) >= FEWEST_TO_JUDGE and 2 * numbers.n_unique() > len(numbers)
    return len(numbers) > 0 and not (counts and schema.BY_NAME[wanted].per_run)


def _refuse_without(absent: Sequence[str], named: Named, set_for_all: Collection[str]) -> None:
    """Raise on columns that a table cannot do without, with the options that would give them."""
    source = named.source
    present = list(source.written.values())
    wanted = {"group_size": "group_size (or n)", "rollouts": "rollouts (or C, compute) or step"}
    renamed: dict[str, str] = {}
    values: dict[str, str] = {}
    batch = schema.batch_asked(named.known["group_size"].unique().to_list() if "group_size" in named.known else ())
    unset = {"problems_per_batch", schema.BATCH.name, "rollouts"}.isdisjoint((*named.known, *set_for_all))
    for name in [*absent, *(["problems_per_batch"] if unset else [])]:
        accepted = ("step", "rollouts") if name == "rollouts" else (name,)
        left = [source.written[column] for column, cells in named.others.items() if _may_be(name, cells)]
        left = [column for column in left if column not in renamed]
        found = next(((column, one) for one in accepted if (column := _suggested(one, left)) is not None), None)
        if found is not None:
            renamed[found[0]] = found[1]
        elif name != "rollouts":
            asked = batch if name == "problems_per_batch" else name
            values[asked] = schema.PLACEHOLDERS[asked]
    options = (
        *(f"--rename {quote(f'{theirs}={ours}')}" for theirs, ours in renamed.items()),
        *(f"--set {name}={value}" for name, value in values.items()),
    )
    guess = f"rename={renamed!r}" if renamed else ""
    given = ", ".join(f"{name}=..." for name in values)
    say = (
        [f"If {', '.join(map(repr, renamed))} {'is' if len(renamed) == 1 else 'are'} it, pass {guess}"] if guess else []
    )
    say += [f"give one value for all rows as {given}"] if given else []
    hint = "; ".join(say) or "Add a column step, or the rollouts as C"
    in_shell = f"Add {' '.join(options)}." if options else f"{hint}. A column of another name: --rename THEIRS=step."
    raise RecordError(
        f"no column {' and no column '.join(wanted[name] for name in absent)}; the table has: {', '.join(present)}",
        f"{hint[0].upper()}{hint[1:]}.",
        options=options,
    ).in_shell(in_shell)


def measured_rows(named: Named) -> list[Rows]:
    """For each metric the rows that hold a value of it, in order."""
    import polars as pl

    if "metric" in named.known:
        keys = [named.known[name].cast(pl.String).alias(name) for name in ("metric", "eval_set") if name in named.known]
        groups = pl.DataFrame(keys).with_row_index("row").group_by([one.name for one in keys]).agg("row")
        return [rows.to_numpy().astype(np.intp) for rows in groups["row"]]
    lone = [named.known["value"]] if "value" in named.known else []
    numbers = (
        one.cast(pl.Float64, strict=False) for one in (*named.others.values(), *lone) if not one.dtype.is_nested()
    )
    return [np.flatnonzero(one.is_not_null().to_numpy()) for one in numbers]


def to_rows(frame: pl.DataFrame, named: Named, options: Options) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """`frame` with one row per measured value, in columns metric and value; notes on what was left out.

    Long form has columns `metric` and `value`. Wide form has one column per metric; an empty cell means
    not measured there. A lone `reward` or `value` column is wide form under the name `options.metric`.

    Raises:
        RecordError: no metric, a metric without a name, a column that is neither known nor numeric, or that looks
            like a setting, a value that is NaN or infinite.
    """
    import polars as pl

    others = {name: _without_blanks(series) for name, series in named.others.items()}
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


FEWEST_TO_JUDGE = 3
"""Values in one run from which a column that never changes looks like a setting."""


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
        if (counts[f"u{i}"] <= 1).all() and (counts[f"c{i}"] >= FEWEST_TO_JUDGE).any()
    ]
    if not found or len(found) == len(metrics):
        return
    columns = [named.source.written[name] for name in found]
    several = len(columns) > 1
    missing = [one for one in ("group_size", "problems_per_batch") if one not in named.known]
    likely = next((one for one in missing if _suggested(one, columns[:1]) is not None), None)
    renamed = "THEIRS=OURS" if likely is None else quote(f"{columns[0]}={likely}")
    raise RecordError(
        f"column{'s' if several else ''} {', '.join(map(repr, columns))} never change{'' if several else 's'} within a "
        "run, as settings do; accepted: measurements, and columns of known names",
        f"Leave {'them' if several else 'it'} out, ignore={columns!r}; or rename to one of {schema.known_names()}.",
        column=columns[0],
        options=tuple(f"--ignore {quote(column)}" for column in columns),
    ).in_shell(
        f"Add {' '.join(f'--ignore {quote(column)}' for column in columns)}; or rename what has another name here: "
        f"--rename {renamed}."
    )


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
        names = [named.source.written[name] for name in extra]
        shown = f"unknown column{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
        ignored = tuple(f"--ignore {quote(name)}" for name in names)
        raise RecordError(
            f"{shown} in a table with one row per metric; known: {schema.known_names()}",
            f"Pass ignore={names!r}, or rename to known columns.",
            column=names[0],
            options=ignored,
        ).in_shell(f"Add {' '.join(ignored)}, or --rename to known columns.")
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
            raise RecordError(
                f"columns {bare!r} and {metric!r} both hold the metric {metric!r}",
                f"Remove one, or pass ignore=[{bare!r}].",
            ).in_shell(f"Remove one, or add --ignore {quote(bare)}.")
        wide = {metric: named.known["value"], **wide}
    if not wide:
        raise RecordError(
            f"no column holds a metric; the table has: {named.columns}",
            'Add a column named after the metric, e.g. "avg@4", or columns "metric" and "value".',
        )
    _check_named_metric(options, list(wide))
    return wide, notes


USUAL_METRIC = "reward"
"""What a lone reward of a table of evaluations is called unless somebody names it."""


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
    return len(apart) >= FEWEST_TO_JUDGE and apart.median() == 1


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
        raise RecordError(
            f"column {written!r} is no known column, but looks like {slip!r}",
            f"Pass rename={{{written!r}: {slip!r}}} if it is, or ignore=[{written!r}] if it is not.",
            options=(f"--rename {quote(f'{written}={slip}')}",),
        ).in_shell(f"Add --rename {quote(f'{written}={slip}')} if it is, or --ignore {quote(written)} if it is not.")
    texts = series.dtype == pl.String and series.str.strip_chars().cast(pl.Float64, strict=False).is_null().all()
    if texts or not (series.dtype.is_numeric() or series.dtype == pl.String):
        (sample,) = series.drop_nulls().head(1).to_list()
        raise RecordError(
            f"unknown column {written!r} holds {series.dtype} (e.g. {sample!r}), not numbers; accepted: metrics, which "
            "are numbers, and columns of known names",
            f"{did_you_mean(name, list(schema.BY_NAME))}Rename it to one of {schema.known_names()}, or pass "
            f"ignore=[{written!r}].",
            column=written,
            options=(f"--ignore {quote(written)}",),
        ).in_shell(f"{did_you_mean(name, list(schema.BY_NAME))}Add --rename or --ignore {quote(written)}.")
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
