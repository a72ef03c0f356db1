"""Levels of noisy series as they were known at the time: nothing here looks ahead.

Every detector finds the first moment at which what had been measured by then was bad for long enough. Looking at a
run after each evaluation, or once at its end, therefore gives the same answer, and no number of looks adds false
alarms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.health.smoothing import Array
from isocompute_sdk.health.traces import Trace

LASTING = 5
"""Measurements in a row that have to be bad: with the window, nine successive steps decide."""


def start_of(level_T: Array) -> float:
    """The first level; NaN where there is none."""
    known = np.flatnonzero(~np.isnan(level_T))
    return float(level_T[known[0]]) if known.size else float("nan")


def first_lasting(bad_T: NDArray[np.bool_], lasting: int = LASTING) -> int | None:
    """Where the first `lasting` bad places in a row begin; None where there are none."""
    if len(bad_T) < lasting:
        return None
    runs = np.lib.stride_tricks.sliding_window_view(bad_T, lasting).all(axis=1)
    return int(np.argmax(runs)) if runs.any() else None


def known_at(trace: Trace, level_T: Array, rollouts_T: Array) -> Array:
    """Level of another trace at each compute, as far as it was measured by then; NaN where it was not."""
    out = np.full(len(rollouts_T), np.nan)
    place_T = np.searchsorted(trace.rollouts_T, rollouts_T, side="right") - 1
    out[place_T >= 0] = level_T[place_T[place_T >= 0]]
    return out
