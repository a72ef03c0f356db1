"""Lack of fit: how far true curves leave the family of curves that is fitted, drawn on the logit of the gain's share.

    logit share + level(x) + reach tilt(x),   reach = ln(C / C_seen) beyond the data, at most `LARGEST_REACH`

level and tilt have a part common to all n and one that changes along n (AR(1) over the knots). Within the data the
level keeps an interval from shrinking to nothing as runs are added; beyond them the tilt widens it with the distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Matrix

LEVEL_COMMON, LEVEL_OWN = 0.04, 0.03
TILT_MEAN, TILT_COMMON, TILT_OWN = 0.0075, 0.02, 0.015
TILT_LEAST, TILT_SLOPE = 0.3, 4.0
"""Share of the tilt that is left when the whole rise was seen, and by how much it grows with the unseen share."""
ALONG = 0.7
"""Correlation of the parts that change along n, per octave."""
LARGEST_REACH = 3.5
PER_DRIFT = 10.0
"""Factor on the common tilt of draws whose curves drift by s within the data: sqrt(1 + (`PER_DRIFT` s)^2)."""
SIZE = (0.7, 2.0)
"""Least and largest factor that a backtest may put on these sizes."""
AS_MANY_RUNS = 10.0
"""Runs of a backtest that weigh as much as the belief in the sizes above."""


@dataclass(frozen=True)
class Misfit:
    """Draws of the lack of fit at the K knots."""

    level_DK: Annotated[Matrix, Field(alias="level")]
    tilt_DK: Annotated[Matrix, Field(alias="tilt")]

    def __post_init__(self) -> None:
        if self.level_DK.shape != self.tilt_DK.shape:
            raise FieldError("tilt", self.tilt_DK.shape, f"shape {self.level_DK.shape}, as level")

    def scaled(self, factor: float) -> Misfit:
        """The same draws, this many times as large."""
        return Misfit(factor * self.level_DK, factor * self.tilt_DK)


def learned_size(surprise: float | None, runs: int) -> float:
    """Factor on the sizes that a backtest asks for: sqrt((k + R s^2) / (k + R)), k = `AS_MANY_RUNS`.

    Errors s times as large as predicted are what a lack of fit of another size leaves. On simulated sweeps with s above
    1.5 intervals held .79 to .83 without it, against .85 to .93 in the others, also on a simulator of other families.

    Args:
        surprise: root mean square error s of the backtest, in predicted standard deviations; None without one.
        runs: its runs R.
    """
    if surprise is None:
        return 1.0
    return float(np.sqrt((AS_MANY_RUNS + runs * surprise**2) / (AS_MANY_RUNS + runs)).clip(*SIZE))


def sample_misfit(drift_D: Array, knots: int, rng: np.random.Generator) -> Misfit:
    """Draws from the prior; data do not enter, since they are what misfit stands beside.

    Args:
        drift_D: size of the drift of each draw within the data.
        knots: number of knots.
        rng: their randomness.
    """
    draws = len(drift_D)
    size_D1 = np.hypot(1.0, drift_D[:, None] * PER_DRIFT)
    level = LEVEL_COMMON * rng.standard_normal((draws, 1)) + LEVEL_OWN * _along(knots, draws, rng)
    tilt = TILT_MEAN + size_D1 * TILT_COMMON * rng.standard_normal((draws, 1)) + TILT_OWN * _along(knots, draws, rng)
    return Misfit(level, tilt)


def unseen_factor(seen: Array) -> Array:
    """Factor on the tilt for the share of a rise that was seen: a plateau that was seen mostly goes on."""
    return TILT_LEAST + (1.0 - TILT_LEAST) * plateau_open(seen)


def plateau_open(seen: Array) -> Array:
    """1 until three quarters of a rise were seen, then falling to 0 where all of it was."""
    return np.clip(TILT_SLOPE * (1.0 - seen), 0.0, 1.0)


def _along(knots: int, draws: int, rng: np.random.Generator) -> Array:
    fresh = rng.standard_normal((draws, knots))
    out = fresh.copy()
    for k in range(1, knots):
        out[:, k] = ALONG * out[:, k - 1] + np.sqrt(1.0 - ALONG**2) * fresh[:, k]
    return out
