"""Has a planned run left the band that its fits predict?"""

from __future__ import annotations

import numpy as np

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.health.levels import first_lasting
from isocompute_sdk.health.quantities import REWARD
from isocompute_sdk.health.report import Finding, at, found_at
from isocompute_sdk.health.smoothing import means
from isocompute_sdk.health.traces import RunTraces

LEVEL = 0.98
"""Coverage of the band at one evaluation. How a run differs from the average lasts for all of it, so that persistence
cannot help: an 80 % band would be left by one healthy run in six. Chosen on simulated sweeps, see docs/health.md."""
EVALUATIONS = 3
"""Evaluations in one mean, and means in a row that have to lie outside."""


def band_findings(run: RunTraces, fits: Fits) -> list[Finding]:
    """Where a run leaves its predicted band: below it is a warning, above it worth knowing.

    Args:
        run: a run, so far.
        fits: a surface in rollouts; its prediction for one new run of this n and B_p is what the run is held against.
    """
    trace = run.traces.get(REWARD)
    if trace is None:
        return []
    begun = float(min(curve.first_compute for curve in fits.curves.values()))
    places = np.flatnonzero((trace.rollouts_T > 0) & (trace.rollouts_T >= begun))
    if len(places) < 2 * EVALUATIONS - 1:
        return []
    predicted = fits.predict(trace.rollouts_T[places], run.group_size, run.problems_per_batch, level=LEVEL, kind="run")
    level_T = means(trace.value_T[places], EVALUATIONS)
    below = first_lasting(level_T < predicted.low, EVALUATIONS)
    above = first_lasting(level_T > predicted.high, EVALUATIONS)
    outside = below if below is not None else above
    if outside is None:
        return []
    place = int(places[outside])
    noticed = int(places[outside + EVALUATIONS - 1])
    values = {"level": float(level_T[outside]), "low": float(predicted.low[outside])}
    values |= {"mean": float(predicted.mean[outside]), "high": float(predicted.high[outside])}
    seen = (
        f"{values['level']:.3f} at {at(trace, place)}, predicted {values['mean']:.3f} "
        f"({LEVEL:.0%} band {values['low']:.3f} to {values['high']:.3f})"
    )
    if below is not None:
        return [found_at("below-predicted-band", "warning", trace, place, seen, values, noticed)]
    return [found_at("above-predicted-band", "info", trace, place, seen, values, noticed)]
