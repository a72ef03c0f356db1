"""Running medians, means and noise that look back only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.fitting.surface.data import CORRELATION_POINTS, DEFAULT_NOISE, SMALLEST_NOISE, pooled_noise

Array = NDArray[np.float64]
WINDOW = 5
"""Measurements of an update step whose median is one level: two outliers in five change nothing."""
USUAL_CORRELATION = 0.3
"""Correlation of successive evaluations where few of them are there to show it."""
DOUBT = 2.0
"""A noise out of T evaluations may by chance be too small by a factor of 1 + this / sqrt(T)."""
FIRST_NOISE = 8
"""Evaluations from which the noise is taken from the run itself."""


def medians(value_T: Array) -> Array:
    """Median of the last five values at each place; NaN where there are fewer."""
    out = np.full(len(value_T), np.nan)
    if len(value_T) >= WINDOW:
        a, b, c, d, e = (value_T[i : len(value_T) - WINDOW + 1 + i] for i in range(WINDOW))
        # Neither the least nor the largest of four can be the median of five: two of them and the fifth are left.
        low = np.maximum(np.minimum(a, b), np.minimum(c, d))
        high = np.minimum(np.maximum(a, b), np.maximum(c, d))
        out[WINDOW - 1 :] = np.maximum(np.minimum(low, high), np.minimum(np.maximum(low, high), e))
    return out


def means(value_T: Array, window: int) -> Array:
    """Mean of the last `window` values at each place; NaN where there are fewer."""
    out = np.full(len(value_T), np.nan)
    if len(value_T) >= window > 0:
        out[window - 1 :] = np.lib.stride_tricks.sliding_window_view(value_T, window).mean(axis=1)
    return out


def noise_of(value_T: Array) -> Array:
    """Standard deviation of one evaluation that counts as independent, as it could be known at each place.

    From the first 8, 16, 32, ... values, so that it needs few estimates; before the eighth the usual noise of a
    reward between 0 and 1, and infinite for other ranges, about which nothing is known.
    """
    usual = DEFAULT_NOISE if np.all((value_T[:FIRST_NOISE] >= 0) & (value_T[:FIRST_NOISE] <= 1)) else np.inf
    noise_T = np.full(len(value_T), usual)
    known = FIRST_NOISE
    while known <= len(value_T):
        noise, correlation = pooled_noise([value_T[:known]])
        # The correlation above is drawn towards none by as much as it is uncertain.
        correlation += USUAL_CORRELATION * CORRELATION_POINTS / (known + CORRELATION_POINTS)
        doubt = 1.0 + DOUBT / np.sqrt(known)
        noise_T[known - 1 :] = doubt * max(noise, SMALLEST_NOISE) * np.sqrt((1.0 + correlation) / (1.0 - correlation))
        known *= 2
    return noise_T
