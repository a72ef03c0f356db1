"""`RunSet`: an immutable table of evaluations, and the questions fits and plots ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk import upward
from isocompute_sdk.errors import RecordError, did_you_mean, typed_value
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.phrases import counted, listed, or_unknown, short
from isocompute_sdk.records.columns import (
    COLUMNS,
    CONTEXT_FIELDS,
    DEFAULT_EVAL_SET,
    PER_RUN,
    TRAIN_SETS,
    OnDuplicate,
    Options,
    Source,
    canonical,
    check_fields,
)
from isocompute_sdk.records.table import KEY, ROW, build, fill_runs, settle

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass(frozen=True)
class RunInfo:
    """One run of a `RunSet`: its configuration and how far it has got."""

    run_id: str
    """Name of the run."""
    group_size: int
    """Rollouts per problem in one update, n."""
    problems_per_batch: int | None
    """Problems per update, B_p; None if unknown."""
    seed: int | None
    """Seed; None if unknown."""
    rollouts: float
    """Compute at the last evaluation, C in rollouts."""
    evaluations: int
    """Number of values measured, over all metrics."""
    context: Mapping[str, Any]
    """Every context field; None if unknown."""
    rollouts_spent: float | None = None
    """Compute paid for up to the last evaluation, attempts that were given up included; None if unknown."""
    framework: str | None = None
    """What trained it, by the name of its log format or backend; None if unknown."""
    gpus: int | None = None
    """GPUs that it had; None if unknown."""


@dataclass(frozen=True, eq=False)
class RunSeries:
    """One metric of one run over time; all arrays float64, sorted by `rollouts_T`."""

    run_id: str
    """Name of the run."""
    group_size: int
    """Rollouts per problem in one update, n."""
    problems_per_batch: int | None
    """Problems per update, B_p; None if unknown."""
    seed: int | None
    """Seed; None if unknown."""
    step_T: NDArray[np.float64]
    """Update steps done; may be fractional, NaN where unknown."""
    rollouts_T: NDArray[np.float64]
    """Compute C in rollouts."""
    value_T: NDArray[np.float64]
    """Measured values."""
    tokens_T: NDArray[np.float64] | None
    """Tokens sampled so far, NaN if unknown; None if the run has none."""
    context: Mapping[str, Any]
    """Every context field; None if unknown."""


class RunSet:
    """Evaluations of training runs, one row per (run, step, metric, evaluation set); immutable.

    Columns are those of `records.COLUMNS`. Rows are ordered by first appearance of their run, then
    rollouts, step, metric and evaluation set. A `RunSet` is never empty.

    Made by `isocompute_sdk.read`, or by `RunSet.from_columns`, which guesses nothing; the constructor takes the
    frame of another one.
    """

    __slots__ = ("_frame", "_names", "_notes", "_runs")
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, frame: pl.DataFrame, notes: Iterable[Note] = ()) -> None:
        if [*getattr(frame, "columns", ())] != [column.name for column in COLUMNS]:
            raise RecordError(
                f"RunSet: received a {type(frame).__name__} of other columns; accepted: what RunSet.to_polars returns",
                "Read any other table with isocompute_sdk.read(table).",
            )
        self._frame = frame
        self._names: dict[str, tuple[str, ...]] = {}
        self._runs: tuple[RunInfo, ...] = ()
        every = tuple(notes)
        self._notes = unique(every) if every else ()

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any] | pl.DataFrame | pd.DataFrame | Any,
        *,
        metric: str | None = None,
        eval_set: str | None = None,
        on_duplicate: OnDuplicate = "error",
        ignore: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        set: Mapping[str, object] | None = None,
        **constants: object,
    ) -> RunSet:
        """Read a table held in memory, in long form (columns metric, value) or wide (a column per metric).

        Args:
            columns: name -> list or array of numpy, pandas, polars or Arrow, all of one length; or a table of
                `from_frame`. Group size (`group_size` or `n`) and compute are needed: `rollouts` (or `C`,
                `compute`), or `step` with `problems_per_batch` (or `bp`, `Bp`, `B_p`). None is an empty cell, as
                is NaN in a pandas frame; in a wide metric column it means not measured there.
            metric: name of what a column `reward` or `value` holds, if there is no column `metric`.
            eval_set: name of the evaluation set for all rows; `validation` by default.
            on_duplicate: `"error"` refuses a repeated (run, step, metric, evaluation set); `"last"` keeps
                the last of them.
            ignore: columns to leave out.
            rename: names in the table -> names to use.
            set: any column or context field -> one value for all rows, e.g. `{"problems_per_batch": 32}`.
            **constants: the same as arguments.

        Raises:
            RecordError: for anything missing, malformed or contradictory, with its row, column and value.

        Examples:
            >>> table = {"n": [8, 8], "B_p": [32, 32], "step": [0, 10], "avg@4": [0.41, 0.44]}
            >>> iso.RunSet.from_columns(table).to_polars()["rollouts"].to_list()
            [0.0, 2560.0]
        """
        constants = {**(set or {}), **constants}
        options = Options(metric, eval_set, on_duplicate, tuple(ignore), dict(rename or {}), constants)
        return cls(*build(columns, options))

    @classmethod
    def from_frame(cls, frame: object, **options: Any) -> RunSet:
        """`isocompute_sdk.read` of a table in memory: a frame, an Arrow table, a list of dicts or columns by name."""
        return cls.read(frame, **options)

    @classmethod
    def read(cls, source: object, format: str = "auto", **options: Any) -> RunSet:
        """`isocompute_sdk.read`: files, folders or globs with tables, W&B exports or logs; or a table in memory.

        Args:
            source: where the runs are.
            format: see `isocompute_sdk.read`, as for the options.
            **options: its other arguments.
        """
        runs: RunSet = upward.call("read", source, format, **options)
        return runs

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> RunSet:
        """Inverse of `to_dict`, exact to the last bit.

        Raises:
            RecordError: the content is not what `to_dict` writes, or contradicts itself.
        """
        # Types are promises: what people pass is anything.
        given = dict(raw) if isinstance(cast("Any", raw), Mapping) else {type(raw).__name__: raw}
        if not all(isinstance(given.get(part), Mapping) for part in ("columns", "constants")):
            raise RecordError(
                f"received {', '.join(map(repr, given)) or 'nothing'}; accepted: 'columns' and 'constants'",
                "Give what RunSet.to_dict returned; the file may be damaged.",
            )
        constants = dict(raw["constants"])
        table = dict(raw["columns"])
        if "metric" in constants:
            table["metric"] = [constants.pop("metric")] * len(table.get("value", ()))
        frame, notes = build(table, Options(constants=constants))
        return cls(frame, [*notes, *(Note(**note) for note in raw.get("notes", ()))])

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form: columns as lists, constant columns once, empty columns left out."""
        kept = [s for s in self._frame.iter_columns() if s.null_count() < len(s)]
        same = {s.name for s in kept if s.name not in ("value", "rollouts") and s.n_unique() == 1}
        notes = {"notes": [note.to_dict() for note in self._notes]} if self._notes else {}
        return {
            **notes,
            "columns": {s.name: s.to_list() for s in kept if s.name not in same},
            "constants": {s.name: s[0] for s in kept if s.name in same},
        }

    def to_polars(self) -> pl.DataFrame:
        """The table, all columns of `records.COLUMNS`."""
        return self._frame.clone()

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas frame; whole-number columns with gaps become `Int64`.

        Raises:
            RecordError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise RecordError(
                f"pandas cannot be imported: {error}", "Install it: pip install 'isocompute[pandas]'."
            ) from error
        kinds = {column.name: column.kind for column in COLUMNS}
        data: dict[str, Any] = {}
        for series in self._frame.iter_columns():
            if kinds[series.name] == "number":
                data[series.name] = _floats(series)
            elif kinds[series.name] == "integer":
                data[series.name] = pd.array(series.to_list(), dtype="Int64" if series.null_count() else "int64")
            else:
                data[series.name] = series.to_list()
        return pd.DataFrame(data)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was noticed while reading: files cut off, logs that begin late, configurations that change."""
        return self._notes

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, sorted."""
        return self._names_in("metric")

    @property
    def eval_sets(self) -> tuple[str, ...]:
        """Names of the evaluation sets, sorted."""
        return self._names_in("eval_set")

    def _names_in(self, column: str) -> tuple[str, ...]:
        if column not in self._names:
            self._names[column] = tuple(sorted(self._frame[column].unique()))
        return self._names[column]

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Names of the runs, in order of appearance."""
        return tuple(self._frame["run_id"].unique(maintain_order=True))

    def runs(self) -> tuple[RunInfo, ...]:
        """Configuration and extent of every run, in order of appearance."""
        self._runs = self._runs or self._described()
        # A caller may change what it was given.
        return tuple(replace(run, context={**run.context}) for run in self._runs)

    def _described(self) -> tuple[RunInfo, ...]:
        import polars as pl

        table = self._frame.group_by("run_id", maintain_order=True).agg(
            *(pl.col(name).first() for name in PER_RUN),
            pl.col("rollouts").max(),
            pl.col("rollouts_spent").max(),
            pl.len().alias("evaluations"),
        )
        return tuple(
            RunInfo(
                **{k: v for k, v in row.items() if k not in CONTEXT_FIELDS},
                context={name: row[name] for name in CONTEXT_FIELDS},
            )
            for row in table.iter_rows(named=True)
        )

    def series(self, metric: str, eval_set: str | None = None) -> tuple[RunSeries, ...]:
        """One metric on one evaluation set, a `RunSeries` for each run that has it, in order of appearance.

        Args:
            metric: a member of `metrics`.
            eval_set: a member of `eval_sets`; may be None if the metric was measured on a single set (sets of training
                problems not counted).

        Raises:
            RecordError: the metric or the set is not there, or there are several sets to choose from.
        """
        import polars as pl

        check_fields([metric], self.metrics, "metric")
        part = self._frame.filter(pl.col("metric") == metric)
        sets = tuple(part["eval_set"].unique().sort())
        held_out = [name for name in sets if name not in TRAIN_SETS]
        if eval_set is None and len(held_out) == 1:
            eval_set = held_out[0]
        if eval_set is None and len(sets) > 1:
            counts = part.group_by("eval_set").agg(pl.col("run_id").n_unique()).sort("eval_set").rows()
            likely = max((one for one in counts if one[0] in (held_out or sets)), key=lambda one: one[1])[0]
            raise RecordError(
                f"{metric} was measured on several evaluation sets: {', '.join(sets)}; received none",
                f"Choose one, e.g. eval_set={likely!r}.",
            ).in_shell(f"Choose one, e.g. --eval-set {likely}.", (f"--eval-set {quote(likely)}",))
        check_fields([] if eval_set is None else [eval_set], sets, f"eval_set of {metric}")
        if eval_set is not None:
            part = part.filter(pl.col("eval_set") == eval_set)
        found: list[RunSeries] = []
        for run in part.partition_by("run_id", maintain_order=True):
            first, tokens = run.row(0, named=True), run["tokens"]
            found.append(
                RunSeries(
                    run_id=first["run_id"],
                    group_size=first["group_size"],
                    problems_per_batch=first["problems_per_batch"],
                    seed=first["seed"],
                    step_T=_floats(run["step"]),
                    rollouts_T=_floats(run["rollouts"]),
                    value_T=_floats(run["value"]),
                    tokens_T=None if tokens.null_count() == len(tokens) else _floats(tokens),
                    context={name: first[name] for name in CONTEXT_FIELDS},
                )
            )
        return tuple(found)

    def concat(self, *others: RunSet, on_duplicate: OnDuplicate = "error") -> RunSet:
        """This table with those of `others` below it.

        A run in two of them must be continued by one of them, and evaluations in both must agree: where those of a
        metric interleave, two runs of one name have been mixed up more often than not.

        Args:
            *others: more tables.
            on_duplicate: `"last"` takes interleaved runs for the same run read again; where an evaluation is
                repeated, the last one counts.

        Raises:
            RecordError: a run is in two tables with another configuration, or interleaved.
        """
        check_runs(self)  # A list, if it is called on the class.
        others = tuple(check_runs(other) for other in others)
        frames = [self._frame, *(other._frame for other in others)]
        notes = [note for one in (self, *others) for note in one._notes]
        return RunSet(join(frames, [f"table {i + 1}" for i in range(len(frames))], on_duplicate), notes)

    def filter(self, *predicates: pl.Expr, **conditions: object) -> RunSet:
        """The rows that meet every condition.

        Args:
            *predicates: polars expressions over the columns.
            **conditions: column (or alias) = one value, a collection of accepted values, None for
                unknown, or a function from a value to True or False.

        Raises:
            RecordError: no such column, or no row is left.
        """
        for predicate in predicates:
            if not hasattr(predicate, "meta"):
                raise RecordError(
                    f"filter: received {predicate!r:.60}; accepted: polars expressions and column=value",
                    "For example filter(group_size=8) or filter(pl.col('rollouts') < 1e6).",
                )
        kept = self._frame.filter(*predicates) if predicates else self._frame
        for written, wanted in conditions.items():
            name = canonical(written) or written
            check_fields([name], kept.columns, "column to filter by")
            kept = kept.filter(_meets(kept[name], wanted))
            if kept.is_empty():
                values = [str(value) for value in self._frame[name].unique().sort()]
                shown = ", ".join(values[:20]) + (", ..." if len(values) > 20 else "")
                raise RecordError(
                    f"no rows left with {written} = {wanted!r}; {name} holds: {shown}",
                    f"{did_you_mean(str(wanted), values)}Filter by one of these values.",
                )
        if kept.is_empty():
            raise RecordError("no row meets the predicates", "Loosen them.")
        return RunSet(kept, self._notes)

    def on_one_set(self, eval_set: str | None = None) -> RunSet:
        """The same runs with their held-out evaluation sets under one name, as of the same problems.

        Args:
            eval_set: the name, if a set has it; runs that were measured on that set keep their others apart.

        Raises:
            RecordError: a run was measured on several.
        """
        import polars as pl

        held_out = [name for name in self.eval_sets if name not in TRAIN_SETS]
        if len(held_out) < 2:
            return self
        one = next(name for name in (eval_set, DEFAULT_EVAL_SET, *held_out) if name in held_out)
        moved = pl.col("eval_set").is_in(held_out)
        if one == eval_set:
            moved &= ~(pl.col("eval_set") == one).any().over("run_id")
        named = pl.when(moved).then(pl.lit(one)).otherwise(pl.col("eval_set"))
        frame = self._frame.with_columns(named.alias("eval_set"))
        if frame.select("run_id", "step", "metric", "eval_set").is_duplicated().any():
            raise RecordError(
                f"a run was measured on several of {', '.join(held_out)}; accepted: one evaluation set for each run",
                f"Choose one, e.g. eval_set={one!r}.",
                options=(f"--eval-set {quote(one)}",),
            )
        return RunSet(frame, self._notes)

    def __len__(self) -> int:
        """Number of rows."""
        return self._frame.height

    def __eq__(self, other: object) -> bool:
        """Equal rows; the order in which the runs appear does not count."""
        if not isinstance(other, RunSet):
            return NotImplemented
        mine, theirs = (runs._frame.sort("run_id", maintain_order=True) for runs in (self, other))
        return mine.equals(theirs)

    def __repr__(self) -> str:
        sizes, rollouts = self._frame["group_size"], self._frame["rollouts"].to_numpy()
        return (
            f"RunSet({counted(len(self.run_ids), 'run')}, {counted(len(self), 'evaluation')}; "
            f"metrics {listed(self.metrics, 8)}; eval_sets {listed(self.eval_sets, 8)}; "
            f"group sizes {sizes.min()} to {sizes.max()}; rollouts {short(rollouts.min())} to {short(rollouts.max())})"
        )

    def _repr_html_(self) -> str:
        from isocompute_sdk import notebook

        rows = [
            (
                run.run_id,
                str(run.group_size),
                or_unknown(run.problems_per_batch),
                or_unknown(run.seed),
                f"{run.rollouts:,.0f}",
                f"{run.evaluations:,}",
            )
            for run in self.runs()
        ]
        header = ("run", "n", "B_p", "seed", "rollouts C", "values")
        return notebook.table(header, rows, repr(self)) + notebook.notes(self.notes)


def join(frames: Sequence[pl.DataFrame], labels: Sequence[str], on_duplicate: OnDuplicate) -> pl.DataFrame:
    """Canonical frames as one; `labels` name them in errors.

    Raises:
        RecordError: a run is in two frames with another configuration, or its evaluations of one metric
            interleave while `on_duplicate` is "error". Those that both hold with one value count once.
    """
    import polars as pl

    check_fields([on_duplicate], get_args(OnDuplicate), "on_duplicate")
    if len(frames) == 1:
        return frames[0]
    table = pl.concat([frame.with_columns(_part=pl.lit(i)) for i, frame in enumerate(frames)]).with_row_index(ROW)
    parts: list[int] = table["_part"].to_list()
    source = Source(lambda index: labels[parts[index]])
    table = fill_runs(table, source)
    if on_duplicate == "error":
        same = [*KEY, pl.coalesce("step", "rollouts"), "value"]
        table = table.filter(pl.struct(same).is_first_distinct())
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
        f"{pair['metric']!r} on {pair['eval_set']!r}; accepted: a run that continues where it stopped",
        "For different runs, give each its own run_id or a context field such as train_data=...; for the "
        'same run read again, pass on_duplicate="last".',
    ).in_shell(
        "For different runs, give each its own run_id or a context field. For a run that was resumed, remove from the "
        "earlier file the rows that the later one repeats with other values."
    )


def check_runs(runs: object) -> RunSet:
    """The argument, if it is a `RunSet`."""
    if isinstance(runs, RunSet):
        return runs
    raise RecordError(
        f"runs: received {typed_value(runs)}; accepted: a RunSet",
        "Make one first: isocompute_sdk.read(...).",
    )


def _floats(series: pl.Series) -> NDArray[np.float64]:
    """Own copy as float64, null as NaN."""
    return np.array(series.to_numpy(), dtype=np.float64)


def _meets(series: pl.Series, wanted: object) -> pl.Series:
    """Which cells are `wanted`: a value, a collection of values, None, or a test of one value.

    Each distinct value is tested once, and empty cells pass only if None is wanted.
    """
    import polars as pl

    if wanted is None:
        return series.is_null()
    several = isinstance(wanted, Iterable) and not isinstance(wanted, str)
    accepted = set(cast(Iterable[Any], wanted)) if several else {wanted}
    test = cast(Callable[[Any], object], wanted) if callable(wanted) else accepted.__contains__
    passed = [value for value in series.unique().to_list() if value is not None and test(value)]
    found = series.is_in(pl.Series(passed, dtype=series.dtype).implode())
    return found | series.is_null() if None in accepted else found
