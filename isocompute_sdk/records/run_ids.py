"""The run of every row, one configuration per run, and one run in several tables, which counts once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import RecordError
from isocompute_sdk.notes import Note
from isocompute_sdk.records.cells import Source, require
from isocompute_sdk.records.columns import CONTEXT_FIELDS, PER_RUN

if TYPE_CHECKING:
    import polars as pl


Rows = NDArray[np.intp]
SIZES = ("group_size", "problems_per_batch")
"""n and B_p."""
MIN_ROWS = 3
"""Rows of a run that was told apart by steps that begin anew."""
_RATE = "learning_rate"
_SCHEDULE = 3
"""Different learning rates of one run from which they are a schedule."""


def name_runs(
    frame: pl.DataFrame, source: Source, prefix: str = "", measured: Sequence[Rows] = ()
) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """Give every row its run_id, and every run one value in each column that belongs to the run; notes on both.

    Without run ids, rows of equal configuration and seed are one run (seed 0 where none is given), named
    like `n8-bp32-seed0`; rows where the steps of a metric begin anew are the next seed. With them, a configuration
    cell that is empty takes the value its run has elsewhere. A learning rate that follows a schedule is the largest of
    its run.

    Args:
        frame: the rows, typed.
        source: where each stood.
        prefix: put before run ids that are made from the configuration.
        measured: the rows of each metric, in order; none to leave steps that begin anew in one run.

    Raises:
        RecordError: an empty run_id or group size, or a run that changes.
    """
    import polars as pl

    if frame["run_id"].null_count() == frame.height:
        require(frame["group_size"], source, "Give every row its group size, or a run_id that shares it.")
        without_seed = frame["seed"].null_count() == frame.height
        frame = _peak_rate(frame.with_columns(pl.col("seed").fill_null(0)), [*SIZES, "seed"])
        frame = frame.with_columns(_default_ids(frame, prefix))
        begun = _begun_anew(frame, measured) if without_seed else None
        if begun is not None:
            frame = frame.with_columns(begun)
            frame = frame.with_columns(_default_ids(frame, prefix))
            return frame, (_several_runs(frame),)
        return frame, ()
    require(frame["run_id"], source, "Give every row its run_id, or none.")
    frame = _peak_rate(frame, ["run_id"])
    frame = fill_runs(frame, source)
    require(frame["group_size"], source, "Give the run its group size in at least one row.")
    return frame, ()


def fill_runs(frame: pl.DataFrame, source: Source, columns: Sequence[str] = PER_RUN) -> pl.DataFrame:
    """Fill empty cells of a run's configuration from its other rows.

    Raises:
        RecordError: a run has two values in one of `columns`, which belong to the run.
    """
    import polars as pl

    uneven = [name for name in columns if not _is_constant(frame[name])]
    _refuse_changes(frame, uneven, source)
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


def _begun_anew(frame: pl.DataFrame, measured: Sequence[Rows]) -> pl.Series | None:
    """Seeds that tell apart runs of one configuration whose steps begin anew; None if they do not, or repeat otherwise.

    Steps that go back to somewhere after the first may be a resume, which nothing here can tell from another run.
    """
    import polars as pl

    places = frame.select(pl.coalesce("step", "rollouts")).to_series()
    if places.null_count():
        return None
    place_T, run_T = places.to_numpy(), frame["run_id"].rank("dense").to_numpy()
    seed_T = np.zeros(len(place_T), dtype=np.int64)
    for run in np.unique(run_T):
        columns = [rows for every in measured if len(rows := every[run_T[every] == run])]
        for rows, number_T in zip(columns, numbered_starts([(r, place_T[r]) for r in columns]), strict=True):
            seed_T[rows] = number_T
        own = np.unique(np.concatenate(columns)) if columns else np.zeros(0, dtype=np.intp)
        starts = [place_T[own[seed_T[own] == seed]] for seed in np.unique(seed_T[own])]
        if len(starts) > 1 and any(len(one) < MIN_ROWS or one.min() > starts[0].min() for one in starts):
            return None
    return pl.Series("seed", seed_T) if seed_T.any() else None


def numbered_starts(columns: Sequence[tuple[Rows, NDArray[Any]]]) -> list[NDArray[np.int64]]:
    """For every value of every column the number of the start of its run that logged it, from 0 on.

    A new start shows where the steps of a column go down. Columns may stand beside each other or one below the other.
    Rows in no order, or from the last step to the first, are one start.

    Args:
        columns: rows and steps of the values of each column, rows in order.
    """
    if not columns:
        return []
    own = [np.cumsum(np.diff(step_T, prepend=step_T[:1]) < 0, dtype=np.int64) for _, step_T in columns]
    row_V, number_V = np.concatenate([rows for rows, _ in columns]), np.concatenate(own)
    if MIN_ROWS * (number_V.max() + 1) > max(len(rows) for rows, _ in columns):
        return [np.zeros(len(rows), dtype=np.int64) for rows, _ in columns]
    of_row = np.zeros(row_V.max() + 1, dtype=np.int64)
    of_row[row_V] = number_V
    if len({int(number_T[-1]) for number_T in own}) == 1 and (of_row[row_V] == number_V).all():
        return own
    # A column that is measured less often goes down later, at the same start.
    falls = [(rows[i + 1], rows[i]) for rows, step_T in columns for i in np.flatnonzero(np.diff(step_T) < 0)]
    starts = [0]
    for row, before in sorted(falls):
        if before >= starts[-1]:
            starts.append(int(row))
    return [np.searchsorted(starts, rows, side="right") - 1 for rows, _ in columns]


def _several_runs(frame: pl.DataFrame) -> Note:
    names = frame["run_id"].unique(maintain_order=True).to_list()
    message = (
        f"the rows have no run_id, and their steps begin anew: they are read as {len(names)} runs, "
        f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}. Give them run ids, or seeds, if that is wrong."
    )
    return Note("runs-told-apart-by-step", "warning", message, {"runs": names})


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


def _refuse_changes(frame: pl.DataFrame, names: Sequence[str], source: Source) -> None:
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
        raise RecordError(
            f"run {run_id!r}: {source.name(name)} changes from {first[name]!r} ({source.locate(first['_at'])}) "
            f"to {other[name]!r} ({source.locate(other['_at'])}); accepted: one value per run",
            "Give the two parts different run_ids: they are different runs. If n or B_p changed in mid-run, give "
            "rollouts (C) in place of steps, which go on counting through the change.",
        )


MIN_CHANGES = 6
"""Fractions beyond the first of each measurement that two logs have to share, step by step, to be one run."""
RTOL = 1e-6
"""Relative difference between copies: event files keep single precision."""
Run = tuple[int, str]
"""Position of a table, and the run in it."""
_KEY = ("run_id", "metric", "eval_set")
Curves = Mapping[Any, NDArray[np.float64]]
"""Measurement -> step and value, shape (evaluations, 2)."""


def once(tables: Sequence[pl.DataFrame]) -> tuple[list[pl.DataFrame], dict[Run, Run]]:
    """Canonical tables without rows that an earlier one holds, some perhaps empty; and each copy with its original.

    A run is a copy if n, B_p and context agree with those of the original, as far as both are known, and every metric
    of both has the same values at the same steps, as far as both go.
    """
    import polars as pl

    if len(tables) < 2:
        return list(tables), {}
    copies: dict[Run, Run] = {}
    for original, copy in _pairs(tables):
        if copy not in copies and original not in copies and _same(*(_rows(tables, run) for run in (original, copy))):
            copies[copy] = original
    found: list[pl.DataFrame] = []
    for i, table in enumerate(tables):
        names = {run: original[1] for (part, run), original in copies.items() if part == i}
        own = table.with_columns(pl.col("run_id").replace(names), _at=pl.coalesce("step", "rollouts"))
        of_copies = [one.select(*_KEY, "_at") for one in found if names]
        repeated = pl.concat(of_copies) if of_copies else own.clear().select(*_KEY, "_at")
        there = pl.col("run_id").is_in([*names.values()])
        found.append(pl.concat([own.filter(~there), own.filter(there).join(repeated, on=[*_KEY, "_at"], how="anti")]))
    return [one.drop("_at") for one in found], copies


def shared_changes(mine: Curves, theirs: Curves) -> int | None:
    """Different fractions, beyond the first of each measurement, that two runs share; None if values or steps differ.

    Measurements are compared as far as both go. Whole numbers and constants prove nothing.
    """
    found = 0
    for name in mine.keys() & theirs.keys():
        size = min(len(mine[name]), len(theirs[name]))
        one, other = mine[name][:size], theirs[name][:size]
        # TensorBoard keeps single precision, other logs every digit.
        values = one[:, 1].astype(np.float32)
        same = np.allclose(values, other[:, 1].astype(np.float32), rtol=RTOL, atol=0.0, equal_nan=True)
        if not (same and np.array_equal(one[:, 0], other[:, 0])):
            return None
        found += max(0, len(np.unique(values[values != np.floor(values)])) - 1)
    return found


def told(original: str) -> str:
    """What is wrong with a copy, for people."""
    return f"its evaluations are those of {original!r}, value for value: one run in two logs"


def repeated(name: str, original: str) -> Note:
    """That a run is left out, since it would count twice."""
    message = f"run {name!r}: {told(original)}. It is left out, since it would count twice."
    return Note("run-repeated", "warning", message, {"run_id": name, "same_as": original})


def _rows(tables: Sequence[pl.DataFrame], run: Run) -> pl.DataFrame:
    import polars as pl

    return tables[run[0]].filter(pl.col("run_id") == run[1])


def _pairs(tables: Sequence[pl.DataFrame]) -> list[tuple[Run, Run]]:
    """Runs of different tables that begin with the same value of a metric, at the same step."""
    import polars as pl

    begun: dict[tuple[Any, ...], list[Run]] = {}
    place = pl.coalesce("step", "rollouts").alias("at")
    for i, table in enumerate(tables):
        first = table.select(*_KEY, place, "value").group_by(_KEY, maintain_order=True).first()
        for name, metric, where, at, value in first.iter_rows():
            begun.setdefault((metric, where, at, float(np.float32(value))), []).append((i, name))
    pairs = {pair for alike in begun.values() for pair in combinations(alike, 2) if pair[0][0] != pair[1][0]}
    return sorted(pairs)


def _same(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    a, b = one.row(0, named=True), other.row(0, named=True)
    if any(None not in (a[name], b[name]) and a[name] != b[name] for name in PER_RUN if name != "seed"):
        return False
    shared = shared_changes(_curves(one), _curves(other))
    return shared is not None and shared >= MIN_CHANGES


def _curves(run: pl.DataFrame) -> Curves:
    """(metric, evaluation set) -> step and value, shape (evaluations, 2)."""
    import polars as pl

    place = pl.coalesce("step", "rollouts").alias("at")
    parts = run.select("metric", "eval_set", place, "value").group_by("metric", "eval_set")
    return {key: part.select("at", "value").to_numpy() for key, part in parts}
