"""The run of every row, one configuration per run, and runs whose n or B_p changed during training.

A row says under which n and B_p the updates since the row before it were made. A run of one n is what a fit expects, so
that the parts after a change are runs of their own, whose rollouts go on where the part before stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import RecordError
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import listed
from isocompute_sdk.records.cells import Source, require
from isocompute_sdk.records.columns import CONTEXT_FIELDS, PER_RUN

if TYPE_CHECKING:
    import polars as pl

Rows = NDArray[np.intp]
SIZES = ("group_size", "problems_per_batch")
"""Columns that may change inside a run: a change of any other makes it another run."""
TOLERANCE = 1e-3
"""Relative difference between given rollouts and those of the steps that is no contradiction: logs round."""
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
    cell that is empty takes the value its run has elsewhere, and a run whose n or B_p changes is taken apart, see
    `split_changed`. A learning rate that follows a schedule is the largest of its run.

    Args:
        frame: the rows, typed.
        source: where each stood.
        prefix: put before run ids that are made from the configuration.
        measured: the rows of each metric, in order; none to leave steps that begin anew in one run.

    Raises:
        RecordError: an empty run_id or group size, or a run that changes otherwise.
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
        return frame, _one_run_perhaps(frame)
    require(frame["run_id"], source, "Give every row its run_id, or none.")
    frame = _peak_rate(frame, ["run_id"])
    frame = fill_runs(frame, source, [name for name in PER_RUN if name not in SIZES])
    frame, notes = split_changed(frame, source)
    require(frame["group_size"], source, "Give the run its group size in at least one row.")
    return frame, notes


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


def _one_run_perhaps(frame: pl.DataFrame) -> tuple[Note, ...]:
    """Rows without run ids whose configurations follow each other in steps may be one run that changed."""
    import polars as pl

    others = [name for name in PER_RUN if name not in SIZES]
    spans = frame.group_by("run_id", maintain_order=True).agg(
        *(pl.col(name).first() for name in others),
        pl.col("step").min().alias("low"),
        pl.col("step").max().alias("high"),
    )
    found: list[Note] = []
    for group in spans.drop_nulls("low").sort("low").partition_by(others):
        apart = (group["low"] > group["high"].shift(1)).fill_null(True).all()
        if group.height > 1 and apart and (group["low"] < group["high"]).all():
            names = group["run_id"].to_list()
            message = (
                f"the rows have no run_id, and the steps of {', '.join(names[:5])} follow each other without overlap: "
                "they are read as different runs. If they are one run whose n or B_p changed, give its rows one "
                "run_id, so that its rollouts add up through the change."
            )
            found.append(Note("one-run-or-several", "warning", message, {"runs": names}))
    return tuple(found)


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
            "Give the two parts different run_ids: they are different runs. A run whose n or B_p changed in mid-run is "
            "read where all its rows stand in one file.",
        )


@dataclass(frozen=True)
class Part:
    """One configuration of a run."""

    start: float
    """Step after which it held; 0 for the first."""
    group_size: int | None
    """n."""
    problems_per_batch: int | None
    """B_p; None if unknown."""


def part_name(run_id: str, start: float) -> str:
    """Run id of the part of a run that follows a change after step `start`."""
    return f"{run_id}/from-step-{start:.10g}"


def change_note(run_id: str, parts: Sequence[Part], remark: str = "", **data: Any) -> Note:
    """Note that a run has several configurations, and how to fit its later parts."""
    told = [f"from step {p.start:.10g}: n = {p.group_size}, B_p = {p.problems_per_batch or '?'}" for p in parts]
    message = (
        f"run {run_id!r} changed its configuration ({listed(told, 6, ';')}). Rollouts go on counting through "
        "the change, and the parts after it are runs of their own that did not start from the base model: leave them "
        f"out of a fit unless that is what you mean.{remark}"
    )
    starts = [part.start for part in parts[1:]]
    names = [part_name(run_id, start) for start in starts]
    return Note(
        "configuration-changed", "warning", message, {"run_id": run_id, "steps": starts, "parts": names, **data}
    )


def split_changed(frame: pl.DataFrame, source: Source) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """Fill empty cells of n and B_p from other rows of their run, and take runs in which they change apart.

    Rollouts of a changed run that are not given add up from the differences between its steps, each times the n * B_p
    of the row that it leads to; steps that are not given follow from the rollouts in the same way.

    Raises:
        RecordError: nothing says where n or B_p changed, or two runs may have one name.
    """
    import polars as pl

    uneven = [name for name in SIZES if frame[name].null_count() or frame[name].n_unique() > 1]
    changed = pl.repeat(False, frame.height, eager=True)
    for name in uneven:
        spread = (pl.col(name).min() != pl.col(name).max()).over("run_id").fill_null(False)
        changed |= frame.select(spread).to_series()
    gaps = [name for name in uneven if frame[name].null_count()]
    filled = frame.with_columns(
        pl.when(changed).then(pl.col(name)).otherwise(pl.col(name).max().over("run_id")).alias(name) for name in gaps
    )
    if not changed.any():
        return filled, ()
    rows = filled.with_row_index("_at")
    runs = rows.filter(changed).partition_by("run_id", maintain_order=True)
    split = [_split(run, source) for run in runs]
    whole = pl.concat([rows.filter(~changed), *(part for part, _ in split)]).sort("_at").drop("_at")
    return whole, tuple(note for _, note in split)


def parts_of(rows: pl.DataFrame, source: Source) -> list[Part]:
    """The configurations of one run, in order.

    Args:
        rows: columns run_id, step, rollouts and `SIZES`; step or rollouts without gaps.
        source: names rows in errors.

    Raises:
        RecordError: as `split_changed`.
    """
    places, axis = _places(rows.with_row_index("_at"), source)
    return _parts(places, axis)


def _parts(places: pl.DataFrame, axis: str) -> list[Part]:
    changes = [0, *(np.flatnonzero(np.diff(places["_part"].to_numpy())) + 1).tolist()]
    starts = [0.0]
    for i in changes[1:]:
        before = places["step"][i - 1]
        starts.append(places[axis][i - 1] if before is None else before)
    return [Part(start, *places.select(SIZES).row(i)) for start, i in zip(starts, changes, strict=True)]


def _split(rows: pl.DataFrame, source: Source) -> tuple[pl.DataFrame, Note]:
    """The rows of one run that changes, with the names of its parts, and the note about them."""
    import polars as pl

    name: str = rows["run_id"][0]
    places, axis = _places(rows, source)
    other = "rollouts" if axis == "step" else "step"
    parts = _parts(places, axis)
    names = [name, *(part_name(name, part.start) for part in parts[1:])]
    known = places.select(axis, "_part", *SIZES, pl.col(other).alias("_other"))
    split = rows.drop(SIZES).join(known, on=axis, how="left", maintain_order="left")
    split = split.with_columns(
        pl.col("_part").replace_strict(range(len(names)), names, return_dtype=pl.String).alias("run_id"),
        pl.col(other).fill_null(pl.col("_other")),
    ).with_columns(pl.col("rollouts_spent").fill_null(pl.col("rollouts")))
    remark = " A row holds for all updates since the row before it; give rollouts (C) if the change came later."
    if rows["rollouts"].null_count() < rows.height:
        remark = f" Its rollouts are those of the table.{_contradiction(places) if axis == 'step' else ''}"
    return split.select(rows.columns), change_note(name, parts, remark)


def _contradiction(places: pl.DataFrame) -> str:
    """By how much the rollouts of a table differ from those of its steps, in words; empty where logs only round."""
    rate_T = _numbers(places["group_size"]) * _numbers(places["problems_per_batch"])
    total_T, before_T = _numbers(places["rollouts"]), np.concatenate([rate_T[:1], rate_T[:-1]])
    made_T, length_T = np.diff(total_T, prepend=0.0), np.diff(_numbers(places["step"]), prepend=0.0)
    # The change came at any update between two rows.
    low_T, high_T = length_T * np.minimum(before_T, rate_T), length_T * np.maximum(before_T, rate_T)
    off_T = np.maximum(low_T - made_T, made_T - high_T)
    worst = float(off_T[off_T > np.maximum(TOLERANCE * total_T, 1.0)].max(initial=0.0))
    return f" They differ from steps * n * B_p by up to {worst:,.0f} between two rows." if worst else ""


def _places(rows: pl.DataFrame, source: Source) -> tuple[pl.DataFrame, str]:
    """One row per step of a run that changes: n, B_p, number of the part, steps, rollouts; and the column that orders.

    Raises:
        RecordError: nothing says where n or B_p changed, or two runs may have one name.
    """
    import polars as pl

    name = rows["run_id"][0]
    axis = next((one for one in ("step", "rollouts") if not rows[one].null_count()), None)
    if axis is None:
        at = int(rows.filter(rows["step"].is_null())["_at"][0])
        raise RecordError(
            f"{source.locate(at)}: run {name!r} changes its n or B_p, and some of its rows have no step and some no "
            "rollouts; accepted: steps in every row, or rollouts in every row",
            "Fill in one of the two columns.",
        )
    other = "rollouts" if axis == "step" else "step"
    back = rows.filter((rows[axis].diff() < 0).fill_null(False))
    by_place = rows.group_by(axis, maintain_order=True)
    several = by_place.agg(pl.col(one).drop_nulls().n_unique() for one in SIZES)
    several = several.filter(pl.any_horizontal(pl.col(one) > 1 for one in SIZES))
    places = by_place.agg(pl.col(one).drop_nulls().first() for one in (*SIZES, other)).sort(axis)
    gaps = [
        (one, places[axis][int(unclear.arg_max() or 0)])
        for one in SIZES
        if (unclear := _between_two(places[one])).any()
    ]
    places = places.with_columns(pl.col(*SIZES).forward_fill().backward_fill())
    places = places.with_columns(pl.struct(SIZES).rle_id().cast(pl.Int64).alias("_part"))
    in_file = rows.select(axis).join(places.select(axis, *SIZES), on=axis, how="left", maintain_order="left")
    mixed = places["_part"][-1] > int(in_file.select(pl.struct(SIZES).rle_id()).to_series().max())  # pyright: ignore
    place = several[axis][0] if several.height else back[axis][0] if mixed else None
    if place is not None:
        here = rows.filter(rows[axis] == place)
        where = " and ".join(dict.fromkeys(source.locate(int(i)) for i in here["_at"]))
        raise RecordError(
            f"run {name!r}: rows of different n or B_p interleave at {axis} {place:.10g} ({where}); accepted: a run "
            "that goes on from where it changed, with one n and B_p at each step",
            "Give different runs their own run_ids. If the run went back to an earlier step and on with another "
            "configuration, leave out the rows that were given up.",
        )
    if gaps:
        column, place = gaps[0]
        at = rows.filter(rows[axis] == place)["_at"][0]
        raise RecordError(
            f"{source.cell(at, column)}: the cell is empty, and {source.name(column)} of run {name!r} changes around it",
            "Write into the row which of the two its updates were made with.",
        )
    if places[axis][0] == 0 and places.height > 1 and places["_part"][1] != places["_part"][0]:
        raise RecordError(
            f"run {name!r}: n and B_p are {places.select(SIZES).row(0)} at {axis} 0, before any update, and "
            f"{places.select(SIZES).row(1)} at {axis} {places[axis][1]:.10g}; nothing says which of them the updates "
            "between had",
            f"Write into the row of {axis} 0 what held for the first updates.",
        )
    rate_T = _numbers(places["group_size"]) * _numbers(places["problems_per_batch"])
    slope_T = rate_T if axis == "step" else 1.0 / rate_T
    total_T = _accumulated(_numbers(places[axis]), _numbers(places[other]), slope_T)
    return places.with_columns(pl.Series(other, total_T).fill_nan(None)), axis


def _between_two(sizes: pl.Series) -> pl.Series:
    """Empty cells between two of different values, which could belong to either."""
    return (sizes.is_null() & (sizes.forward_fill() != sizes.backward_fill())).fill_null(False)


def _numbers(series: pl.Series) -> NDArray[np.float64]:
    import polars as pl

    return np.array(series.cast(pl.Float64).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def _accumulated(
    axis_T: NDArray[np.float64], given_T: NDArray[np.float64], slope_T: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Running sums of slope * difference from (0, 0) on; a given value counts, and the sum goes on from it."""
    total_T = given_T.copy()
    at = total = 0.0
    for i in range(len(axis_T)):
        if np.isnan(total_T[i]):
            total_T[i] = total + (axis_T[i] - at) * slope_T[i]
        at, total = float(axis_T[i]), float(total_T[i])
    return total_T
