"""Seconds of an update by the clock of a log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from isocompute_sdk.phrases import day_first
from isocompute_sdk.records.columns import numbers_in

if TYPE_CHECKING:
    import polars as pl

MIN_STRETCHES, LONG_STRETCH = 3, 3.0
"""Stretches between logged updates from which a clock says the seconds of one; and, in medians, the length above which
a stretch holds an evaluation, a checkpoint or a restart as well."""

BACK = 0.25
"""Share of rows above which a clock does not go back."""
LATEST = 1e11
"""Seconds from here on are milliseconds, microseconds or nanoseconds: they would be in the year 5138 or later."""

TIMES = "seconds, ISO 8601 such as 2026-07-13 09:33:48, or 13.07.2026 09:33:48"
"""What the cells of a clock may hold, in words."""


def seconds_in(column: pl.Series) -> pl.Series:
    """Clock times as float64 seconds: of numbers, dates, and text as in `TIMES`; null where a cell holds none."""
    import polars as pl

    if column.dtype == pl.Datetime:
        return column.dt.epoch("us") / 1e6
    numbers = numbers_in(column)
    if column.dtype == pl.String and numbers.null_count() == len(numbers):
        return pl.Series(column.name, [_since_1970(text) for text in column], dtype=pl.Float64)
    for _ in range(3):
        numbers = numbers.zip_with(~(numbers >= LATEST).fill_null(value=False), numbers / 1e3)
    return numbers


def _since_1970(text: str | None) -> float | None:
    with suppress(ValueError):
        at = datetime.fromisoformat(day_first(text or ""))
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return None


def goes_back(parts: Iterable[pl.DataFrame]) -> bool:
    """Whether the column `clock` of runs is none: a clock goes back where a run is resumed, not every other row."""
    moved = np.concatenate([np.diff(part["clock"].to_numpy()) for part in parts])
    return bool(np.count_nonzero(moved < 0) > BACK * len(moved))


def by_clock(step_T: Any, clock_T: Any) -> npt.NDArray[np.float64]:
    """Seconds of one update in the stretch that ends at each row; NaN where the clock does not say."""
    steps_T, seconds_T = np.diff(np.asarray(step_T, float), prepend=np.nan), np.diff(clock_T, prepend=np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        each_T = np.where((steps_T > 0) & (seconds_T > 0), seconds_T / steps_T, np.nan)
    if np.isfinite(each_T).sum() < MIN_STRETCHES:
        return np.full(len(each_T), np.nan)
    return np.where(each_T <= LONG_STRETCH * np.nanmedian(each_T), each_T, np.nan)
