"""Detector: a planned run leaves the band that its fits predict."""

from __future__ import annotations

import numpy as np

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.health.diagnosis import Finding
from isocompute_sdk.health.levels import first_lasting, means
from isocompute_sdk.health.traces import REWARD, RunTraces

LEVEL = 0.98
"""Coverage of the band at one evaluation. A run's own deviation persists, so waiting does not reduce false alarms: one
healthy run in six would leave an 80 % band. Chosen on simulated sweeps (docs/checked.md)."""
EVALUATIONS = 3
"""Evaluations in one mean, and means in a row that must lie outside."""


def band_findings(run: RunTraces, fits: Fits) -> list[Finding]:
    """`below-predicted-band` (warning) or `above-predicted-band` (info) if the run leaves its band; else nothing.

    Args:
        run: the run as logged so far.
        fits: fits with a surface over rollouts; the band is their prediction for one new run of this n and B_p.
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
        f"{values['level']:.3f} at {trace.at(place)}, predicted {values['mean']:.3f} "
        f"({LEVEL:.0%} band {values['low']:.3f} to {values['high']:.3f})"
    )
    if below is not None:
        return [Finding.at("below-predicted-band", "warning", trace, place, seen, values, noticed)]
    return [Finding.at("above-predicted-band", "info", trace, place, seen, values, noticed)]
