"""Levels of noisy series and the first place at which they stay bad. No function looks ahead.

A detector reports the first moment at which the values measured so far were bad for long enough. Checking a run after
every evaluation, or once at its end, therefore gives the same answer, and checking often adds no false alarms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.fitting.surface.data import CORRELATION_POINTS, DEFAULT_NOISE, SMALLEST_NOISE, pooled_noise

Array = NDArray[np.float64]
WINDOW = 5
"""Values in one running median; two outliers in five do not move it."""
LASTING = 5
"""Bad levels in a row that make a finding. With `WINDOW`, nine successive steps decide."""
USUAL_CORRELATION = 0.3
"""Correlation assumed between successive evaluations while a run has few of them."""
DOUBT = 2.0
"""A noise estimated from T evaluations is multiplied by 1 + DOUBT / sqrt(T), since it may be too small by chance."""
FIRST_NOISE = 8
"""Evaluations from which a run's noise is estimated from its own values."""


def medians(value_T: Array) -> Array:
    """Median of the last five values at each place; NaN at the first four."""
    out = np.full(len(value_T), np.nan)
    if len(value_T) >= WINDOW:
        a, b, c, d, e = (value_T[i : len(value_T) - WINDOW + 1 + i] for i in range(WINDOW))
        # Neither the smallest nor the largest of four can be the median of five: two of them and the fifth remain.
        low = np.maximum(np.minimum(a, b), np.minimum(c, d))
        high = np.minimum(np.maximum(a, b), np.maximum(c, d))
        out[WINDOW - 1 :] = np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e))
    return out


def means(value_T: Array, window: int) -> Array:
    """Mean of the last `window` values at each place; NaN at the first `window - 1`."""
    out = np.full(len(value_T), np.nan)
    if len(value_T) >= window > 0:
        out[window - 1 :] = np.lib.stride_tricks.sliding_window_view(value_T, window).mean(axis=1)
    return out


def noise_of(value_T: Array) -> Array:
    """Standard deviation of one independent evaluation, at each place from the values up to a power of two before it.

    It is re-estimated after 8, 16, 32, ... values. Before the eighth it is the usual noise of a reward in [0, 1], and
    infinite for a metric with another range.
    """
    usual = DEFAULT_NOISE if np.all((value_T[:FIRST_NOISE] >= 0) & (value_T[:FIRST_NOISE] <= 1)) else np.inf
    noise_T = np.full(len(value_T), usual)
    known = FIRST_NOISE
    while known <= len(value_T):
        noise, correlation = pooled_noise([value_T[:known]])
        # pooled_noise shrinks an uncertain correlation towards 0; here it shrinks towards the usual one.
        correlation += USUAL_CORRELATION * CORRELATION_POINTS / (known + CORRELATION_POINTS)
        doubt = 1.0 + DOUBT / np.sqrt(known)
        noise_T[known - 1 :] = doubt * max(noise, SMALLEST_NOISE) * np.sqrt((1.0 + correlation) / (1.0 - correlation))
        known *= 2
    return noise_T


def start_of(level_T: Array) -> float:
    """The first level that is not NaN; NaN if all are."""
    known = np.flatnonzero(~np.isnan(level_T))
    return float(level_T[known[0]]) if known.size else float("nan")


def first_lasting(bad_T: NDArray[np.bool_], lasting: int = LASTING) -> int | None:
    """Index at which the first `lasting` bad places in a row begin; None if there are no such places."""
    if len(bad_T) < lasting:
        return None
    runs = np.lib.stride_tricks.sliding_window_view(bad_T, lasting).all(axis=1)
    return int(np.argmax(runs)) if runs.any() else None
