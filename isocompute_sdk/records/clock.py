"""Seconds of an update by the clock of a log."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

MIN_STRETCHES, LONG_STRETCH = 3, 3.0
"""Stretches between logged updates from which a clock says the seconds of one; and, in medians, the length above which
a stretch holds an evaluation, a checkpoint or a restart as well."""


def by_clock(step_T: Any, clock_T: Any) -> npt.NDArray[np.float64]:
    """Seconds of one update in the stretch that ends at each row; NaN where the clock does not say."""
    steps_T, seconds_T = np.diff(np.asarray(step_T, float), prepend=np.nan), np.diff(clock_T, prepend=np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        each_T = np.where((steps_T > 0) & (seconds_T > 0), seconds_T / steps_T, np.nan)
    if np.isfinite(each_T).sum() < MIN_STRETCHES:
        return np.full(len(each_T), np.nan)
    return np.where(each_T <= LONG_STRETCH * np.nanmedian(each_T), each_T, np.nan)
