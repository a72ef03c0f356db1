"""Runs whose n or B_p changed during training: rollouts add up piece by piece, and every configuration becomes a run.

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
from isocompute_sdk.records.cells import Source

if TYPE_CHECKING:
    import polars as pl

SIZES = ("group_size", "problems_per_batch")
"""Columns that may change inside a run: a change of any other makes it another run."""
TOLERANCE = 1e-3
"""Relative difference between given rollouts and those of the steps that is no contradiction: logs round."""
_SHOWN = 6
Array = NDArray[np.float64]


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
        f"run {run_id!r} changed its configuration ({listed(told, _SHOWN, ';')}). Rollouts go on counting through "
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
    split = [_Run(run, source).split() for run in runs]
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
    run = _Run(rows.with_row_index("_at"), source)
    return _parts(run.places(), run.axis)


def _parts(places: pl.DataFrame, axis: str) -> list[Part]:
    found = [Part(0.0, *places.select(SIZES).row(0))]
    for i in range(1, places.height):
        if places["_part"][i] != places["_part"][i - 1]:
            before = places["step"][i - 1]
            start = places[axis][i - 1] if before is None else before
            found.append(Part(start, *places.select(SIZES).row(i)))
    return found


class _Run:
    """One run that changes; `rows` has a column `_at`, the number of the row in its table."""

    def __init__(self, rows: pl.DataFrame, source: Source) -> None:
        self.rows, self.source = rows, source
        self.name: str = rows["run_id"][0]
        self.axis = self._axis()
        self.other = "rollouts" if self.axis == "step" else "step"

    def split(self) -> tuple[pl.DataFrame, Note]:
        """Its rows with the names of their parts, and the note about them."""
        import polars as pl

        places = self.places()
        parts = _parts(places, self.axis)
        names = [self.name, *(part_name(self.name, part.start) for part in parts[1:])]
        known = places.select(self.axis, "_part", *SIZES, pl.col(self.other).alias("_other"))
        rows = self.rows.drop(SIZES).join(known, on=self.axis, how="left", maintain_order="left")
        rows = rows.with_columns(
            pl.col("_part").replace_strict(range(len(names)), names, return_dtype=pl.String).alias("run_id"),
            pl.col(self.other).fill_null(pl.col("_other")),
        ).with_columns(pl.col("rollouts_spent").fill_null(pl.col("rollouts")))
        remark, data = self._doubts(places)
        return rows.select(self.rows.columns), change_note(self.name, parts, remark, **data)

    def _axis(self) -> str:
        """What orders the rows: the column that every row has."""
        for name in ("step", "rollouts"):
            if not self.rows[name].null_count():
                return name
        at = int(self.rows.filter(self.rows["step"].is_null())["_at"][0])
        raise RecordError(
            f"{self.source.locate(at)}: run {self.name!r} changes its n or B_p, and some of its rows have no step and "
            "some no rollouts; accepted: steps in every row, or rollouts in every row",
            "Fill in one of the two columns.",
        )

    def places(self) -> pl.DataFrame:
        """One row per step, in order: n, B_p, the number of the part, steps and rollouts as far as they are known."""
        import polars as pl

        by_place = self.rows.group_by(self.axis, maintain_order=True)
        several = by_place.agg(pl.col(name).drop_nulls().n_unique() for name in SIZES)
        several = several.filter(pl.any_horizontal(pl.col(name) > 1 for name in SIZES))
        if several.height:
            self._refuse_two_at(several[self.axis][0])
        places = by_place.agg(pl.col(name).drop_nulls().first() for name in (*SIZES, self.other)).sort(self.axis)
        for name in SIZES:
            self._refuse_gap(places, name)
            places = places.with_columns(pl.col(name).forward_fill().backward_fill())
        places = places.with_columns(pl.struct(SIZES).rle_id().cast(pl.Int64).alias("_part"))
        rate_T = _numbers(places["group_size"]) * _numbers(places["problems_per_batch"])
        slope_T = rate_T if self.axis == "step" else 1.0 / rate_T
        total_T = _accumulated(_numbers(places[self.axis]), _numbers(places[self.other]), slope_T)
        self._refuse_mixture(places)
        self._refuse_first(places)
        return places.with_columns(
            pl.col(self.other).alias("_given"),
            pl.Series("_rate", rate_T),
            pl.Series(self.other, total_T).fill_nan(None),
        )

    def _refuse_two_at(self, place: float) -> None:
        here = self.rows.filter(self.rows[self.axis] == place)
        first = here.row(0, named=True)
        for name in SIZES:
            differing = here.filter((here[name] != first[name]).fill_null(False))
            if differing.height:
                other = differing.row(0, named=True)
                raise RecordError(
                    f"run {self.name!r}: {self.source.name(name)} is {first[name]!r} "
                    f"({self.source.locate(first['_at'])}) and {other[name]!r} ({self.source.locate(other['_at'])}) at "
                    f"{self.axis} {place:.10g}; accepted: one value at each",
                    "Give the two parts different run_ids if they are different runs. If the run went back to an "
                    "earlier step and on with another configuration, leave out the rows that were given up.",
                )

    def _refuse_gap(self, places: pl.DataFrame, name: str) -> None:
        """A row without a value between two of different values could belong to either."""
        before, after = places[name].forward_fill(), places[name].backward_fill()
        unclear = (places[name].is_null() & (before != after)).fill_null(False)
        if not unclear.any():
            return
        index = int(unclear.arg_max() or 0)
        at = self.rows.filter(self.rows[self.axis] == places[self.axis][index])["_at"][0]
        raise RecordError(
            f"{self.source.cell(at, name)}: the cell is empty, and {self.source.name(name)} of run {self.name!r} "
            f"changes from {before[index]} to {after[index]} around it",
            "Write into the row which of the two its updates were made with.",
        )

    def _refuse_mixture(self, places: pl.DataFrame) -> None:
        """Two runs of one name, or a run that went back, change more often by step than from row to row."""
        import polars as pl

        order = self.rows.select(self.axis).join(
            places.with_columns(pl.struct(SIZES).alias("_sizes")).select(self.axis, "_sizes"),
            on=self.axis,
            how="left",
            maintain_order="left",
        )
        if places["_part"][-1] > int(order["_sizes"].rle_id().max() or 0):  # pyright: ignore[reportArgumentType]
            back = self.rows.filter((self.rows[self.axis].diff() < 0).fill_null(False))
            where = self.source.locate(int(back["_at"][0]))
            raise RecordError(
                f"run {self.name!r}: rows of different n or B_p interleave, and at {where} the {self.axis} goes back; "
                "accepted: a run that goes on from where it changed",
                "Give different runs their own run_ids. If the run went back to an earlier step and on with another "
                "configuration, leave out the rows that were given up.",
            )

    def _refuse_first(self, places: pl.DataFrame) -> None:
        """What stands at step 0 alone held for no update, or for those up to the next row."""
        if places[self.axis][0] != 0 or places.height == 1 or places["_part"][1] == places["_part"][0]:
            return
        first, second = (places.select(SIZES).row(i) for i in (0, 1))
        raise RecordError(
            f"run {self.name!r}: n and B_p are {first} at {self.axis} 0, before any update, and {second} at "
            f"{self.axis} {places[self.axis][1]:.10g}; nothing says which of them the updates between had",
            f"Write into the row of {self.axis} 0 what held for the first updates.",
        )

    def _doubts(self, places: pl.DataFrame) -> tuple[str, dict[str, Any]]:
        """How far the rollouts may be off, in words and as data."""
        if self.axis == "rollouts":
            return "", {}
        rate, given = _numbers(places["_rate"]), _numbers(places["_given"])
        length, before = np.diff(_numbers(places["step"]), prepend=0.0), np.concatenate([rate[:1], rate[:-1]])
        if not np.isnan(given).all():
            made = np.diff(given, prepend=0.0)
            low, high = length * np.minimum(before, rate), length * np.maximum(before, rate)
            off = np.maximum(np.maximum(low - made, made - high), 0.0)
            # Values around a gap cannot be compared; nan is no contradiction.
            off = np.where(off > np.maximum(TOLERANCE * given, 1.0), off, 0.0)
            worst = float(off.max(initial=0.0))
            told = f" They differ from steps * n * B_p by up to {worst:,.0f} between two rows." if worst else ""
            return f" Its rollouts are those of the table.{told}", {"rollouts_given": True, "contradiction": worst}
        doubt = float(np.sum(np.maximum(length - 1.0, 0.0) * np.abs(rate - before)))
        if not doubt:
            return "", {"doubt": 0.0}
        remark = (
            " A row is taken to hold for all updates since the row before it; where the change came later, its "
            f"rollouts are up to {doubt:,.0f} off. Give rollouts (C) to have them exact."
        )
        return remark, {"doubt": doubt}


def _numbers(series: pl.Series) -> Array:
    import polars as pl

    return np.array(series.cast(pl.Float64).fill_null(float("nan")).to_numpy(), dtype=np.float64)


def _accumulated(axis_T: Array, given_T: Array, slope_T: Array) -> Array:
    """Running sums of slope * difference from (0, 0) on; a given value counts, and the sum goes on from it."""
    total_T = given_T.copy()
    at = total = 0.0
    for i in range(len(axis_T)):
        if np.isnan(total_T[i]):
            total_T[i] = total + (axis_T[i] - at) * slope_T[i]
        at, total = float(axis_T[i]), float(total_T[i])
    return total_T
