"""Intervals beyond the data: real curves leave the family of the fits, and the further the more.

The departure of one n from its curve is taken for a random walk in ln C: its standard deviation is a share of the gain
times the square root of ln(C / C_seen). It widens intervals and leaves means, draws and choices alone. The share is
learned from the recorded sweeps by `scripts/learn_prior.py`, which writes `learned.json` and its evidence.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.model import LEARNED

DEPARTURE = float(LEARNED["departure"])
"""Standard deviation of the departure at one unit of ln C beyond the data, as a share of the gain."""


def widened(
    ends: tuple[Array, Array, Array], gain_Q: Array, beyond_Q: Array, level: float, departure: float = DEPARTURE
) -> tuple[Array, Array]:
    """Lower and upper ends with the departure.

    Args:
        ends: mean, lower and upper ends without it.
        gain_Q: expected gain over the base model.
        beyond_Q: ln C beyond the data; within them at most 0.
        level: of the interval.
        departure: as `DEPARTURE`.
    """
    mean_Q, low_Q, high_Q = ends
    spread_Q = departure * np.maximum(gain_Q, 0.0) * np.sqrt(np.maximum(beyond_Q, 0.0))
    spread_Q = NormalDist().inv_cdf((1 + level) / 2) * spread_Q
    return mean_Q - np.hypot(mean_Q - low_Q, spread_Q), mean_Q + np.hypot(high_Q - mean_Q, spread_Q)
