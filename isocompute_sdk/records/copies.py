"""One run in several tables, such as a history that was exported three times: it counts once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.notes import Note
from isocompute_sdk.records.columns import PER_RUN

if TYPE_CHECKING:
    import polars as pl

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
