"""Detectors over rewards: collapse, decay, overfitting, and the band that fits predict.

Whether a run collapsed or fell, and where it was best, is defined here alone, from its own evaluations: every command
says the same, whatever other runs are there. A fall is found while it happens, or at the end by the rule of the fits
(`fitting/surface/data.py`), which finds slower ones; a fit asks it with the noise of all its runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.data import COLLAPSE_LEFT, SurfaceRun, prepare
from isocompute_sdk.health.findings import Finding
from isocompute_sdk.health.traces import (
    FIRST_NOISE,
    PROBE,
    REWARD,
    Array,
    RunTraces,
    Trace,
    first_lasting,
    range_of,
    rolling,
    start_of,
)

SCALES = (2, 4, 8, 16, 32)
"""Evaluations in one mean: short means find a collapse early, long means find a slow decay under noise."""
CERTAIN = 2.5
"""Standard errors that a fall must exceed, before the correction for repeated tests. The surface uses 4, for one test
of a finished run with the noise of a whole sweep; here `DOUBT` already enlarges the noise. Chosen on
simulated runs (docs/checked.md)."""
DECAY_LOST = 0.12
"""A run has decayed when more than this share of its largest gain is lost."""
LASTING_FALL = 2
"""Evaluations in a row that must be down, each alone and in the mean that ends there. The mean alone also holds the
one before: a single low evaluation pulls two means down."""
FEW = 3
"""Evaluations averaged to one level, except in the search for falls."""


@dataclass(frozen=True)
class Fall:
    """A lasting fall of a reward from its best level."""

    peak: int
    """Index of the highest evaluation before the fall was certain: where the run was best."""
    best: int
    """Index of the best level, the last of its evaluations."""
    noticed: int
    """Index at which the fall was certain."""
    start: float
    top: float
    level: float
    """Reward at the start, at the best level, and when the fall was certain."""
    collapsed: int | None
    """Index at which most of the gain, or of the start, was certainly lost; None if it never was."""
    scale: int
    """Evaluations in one level."""

    def seen(self, trace: Trace) -> str:
        """The fall in words: values as they were measured, and the levels that make it certain."""
        return (
            f"{trace.value_T[self.peak]:.3f} ({trace.at(self.peak)}), then {trace.value_T[self.noticed]:.3f} "
            f"({trace.at(self.noticed)}); means over {self.scale} evaluations {self.top:.3f} and {self.level:.3f}"
        )


def fall_of(trace: Trace, *, evaluated: bool = True, live: bool = False) -> Fall | None:
    """The first lasting fall from the best level that exceeds the noise and a set share of the gain, else the fall at
    the end by the rule of the fits, unless `live`; None without one.

    A fall that the run has made good is none. Until a run shows its own noise, that of an evaluation is assumed; a
    training reward (not `evaluated`) has more.
    """
    value_T = trace.value_T
    noise_T = trace.noise_T if evaluated else np.where(np.arange(len(trace)) < FIRST_NOISE, np.inf, trace.noise_T)
    # The base model is evaluated once at most, so the mean of the first evaluations is the start.
    start = start_of(rolling(value_T, min(FEW, len(value_T)), np.mean)) if len(value_T) else float("nan")
    if len(value_T) and trace.rollouts_T[0] == 0:
        start = min(start, float(value_T[0]))
    falls = [fall for scale in SCALES if (fall := _fall_at(value_T, noise_T, start, scale)) is not None]
    # That rule is for one look: asked after every evaluation, it is wrong about one healthy run in twenty.
    if not (falls or live) and (evaluated or len(trace) >= FIRST_NOISE):
        return _fall_of_fits(trace, start)
    return min(falls, key=lambda fall: fall.noticed, default=None)


def _fall_of_fits(trace: Trace, start: float) -> Fall | None:
    """The fall that a fit of this run alone leaves out."""
    value_T = trace.value_T
    if not len(value_T) or not (spread := float(np.ptp(value_T))) or trace.rollouts_T[-1] <= 0:
        return None
    run, width = SurfaceRun("", 0, None, trace.rollouts_T, value_T), range_of(value_T)
    (found,) = prepare([run], width if np.isfinite(width) else spread)
    if found.fault_compute is None:
        return None
    kept = int(np.searchsorted(trace.rollouts_T, found.fault_compute, side="right"))
    trained = max(kept - int(np.count_nonzero(trace.rollouts_T == 0)), min(kept, 1))
    if not (longest := min(trained, len(value_T) - kept, SCALES[-1])):
        return None
    means = {k: (float(np.mean(value_T[kept - k : kept])), float(np.mean(value_T[-k:]))) for k in range(1, longest + 1)}
    # Where the fall is surest: a longer mean may hold much of the rise before it.
    scale = max(means, key=lambda k: (means[k][0] - means[k][1]) * np.sqrt(k))
    top, level = means[scale]
    collapsed = len(value_T) - 1 if found.fault == "collapse" else None
    return Fall(int(np.argmax(value_T[:kept])), kept - 1, len(value_T) - 1, start, top, level, collapsed, scale)


def _fall_at(value_T: Array, noise_T: Array, start: float, scale: int) -> Fall | None:
    level_T = rolling(value_T, scale, np.mean)
    known = np.flatnonzero(~np.isnan(level_T))
    if len(known) <= scale:
        return None
    # Means that share evaluations cannot show a fall: the best is taken at least `scale` evaluations back.
    best_T = np.full(len(value_T), np.nan)
    best_T[known[0] + scale :] = np.maximum.accumulate(level_T[known[0] :])[:-scale]
    error_T = noise_T * np.sqrt(2.0 / scale)
    # The best of many noisy levels is too high, and each new level is another test.
    looks_T = np.maximum(np.arange(1, len(value_T) + 1) / scale, 1.0)
    certain_T = (CERTAIN + np.sqrt(np.log(looks_T))) * error_T
    gain_T, lost_T = best_T - start, best_T - np.fmax(level_T, value_T)
    fallen_T = (gain_T > 0) & (lost_T > certain_T) & (lost_T > DECAY_LOST * gain_T)
    fallen_T[: int(np.nanargmax(level_T))] = False
    place = first_lasting(fallen_T, LASTING_FALL)
    if place is None:
        return None
    # Only what has surely risen can lose most of its gain; a reward can also lose most of what it began with.
    gone_T = (gain_T > certain_T) & (gain_T - lost_T < COLLAPSE_LEFT * gain_T) | (level_T < COLLAPSE_LEFT * start)
    gone_T &= fallen_T
    collapsed = first_lasting(gone_T, LASTING_FALL)
    noticed = place + LASTING_FALL - 1
    best = int(np.nanargmax(level_T[: noticed - scale + 1]))
    return Fall(
        peak=int(np.argmax(value_T[: noticed + 1])),
        best=best,
        noticed=noticed,
        start=start,
        top=float(level_T[best]),
        level=float(level_T[noticed]),
        collapsed=None if collapsed is None else collapsed + LASTING_FALL - 1,
        scale=scale,
    )


def falling_reward(run: RunTraces, *, live: bool = False) -> list[Finding]:
    """A lasting fall: `collapsed-run`, `decayed-run`, or `overfitting-run` if training reward did not fall.

    At the end of a run also `low-last-evaluation`, which may be the first of a fall.
    """
    trace = run.traces.get(REWARD, run.traces.get("train_reward"))
    fall = None if trace is None else fall_of(trace, evaluated=REWARD in run.traces, live=live)
    if trace is None or fall is None:
        return [] if trace is None or live or REWARD not in run.traces else _low_at_the_end(trace)
    seen = fall.seen(trace)
    values = {"start": fall.start, "best": fall.top, "level": fall.level}
    training = _training_meanwhile(run, trace, fall)
    if training is not None:
        before, now = training
        told = f"held-out reward {seen}; training reward over the same evaluations {before:.3f} and {now:.3f}"
        values |= {"train_at_best": before, "train_level": now}
        return [Finding.at("overfitting-run", "warning", trace, fall.peak, told, values, fall.noticed)]
    if fall.collapsed is not None:
        told = f"reward {fall.start:.3f} at the start, {seen}"
        return [Finding.at("collapsed-run", "warning", trace, fall.peak, told, values, fall.collapsed)]
    return [Finding.at("decayed-run", "warning", trace, fall.peak, f"reward {seen}", values, fall.noticed)]


def _low_at_the_end(trace: Trace) -> list[Finding]:
    """Most of the gain, or of the start, is gone in the last evaluation (`low-last-evaluation`), or in the last two."""
    value_T = trace.value_T
    if len(value_T) <= FEW + 1:
        return []
    start = min(float(value_T[0]), float(np.mean(value_T[:FEW])))
    certain = (CERTAIN + np.sqrt(np.log(len(value_T)))) * float(trace.noise_T[-1]) * np.sqrt(1.0 + 1.0 / FEW)
    for lows in (LASTING_FALL, 1):
        if len(value_T) < lows + FEW + 1:
            continue
        before, last = float(np.median(value_T[-lows - FEW : -lows])), float(value_T[-lows:].max())
        gain = before - start
        gone = (gain > certain and last - start < COLLAPSE_LEFT * gain) or last < COLLAPSE_LEFT * start
        if not gone or before - last <= certain:
            continue
        at, seen = len(value_T) - lows, f"median of the {FEW} before {before:.3f}"
        values = {"start": start, "best": before, "level": last}
        if lows == 1:
            told = f"{last:.3f} ({trace.at(at)}); {seen}"
            return [Finding.at("low-last-evaluation", "warning", trace, at, told, values)]
        peak = int(np.argmax(value_T[:at]))
        told = f"reward {value_T[peak]:.3f} ({trace.at(peak)}), then at most {last:.3f} from {trace.at(at)} on; {seen}"
        return [Finding.at("collapsed-run", "warning", trace, peak, told, values, len(value_T) - 1)]
    return []


def _training_meanwhile(run: RunTraces, trace: Trace, fall: Fall) -> tuple[float, float] | None:
    """Training reward at the best held-out level and when its fall was certain; None if it fell too, or is unknown."""
    training = run.traces.get(PROBE, run.traces.get("train_reward"))
    if training is None or training is trace or not len(training):
        return None
    before, now = (_mean_between(training, trace, place, fall.scale) for place in (fall.best, fall.noticed))
    if before is None or now is None:
        return None
    # It fell too if it lost at least half of what the held-out reward lost.
    return (before, now) if before - now < 0.5 * (fall.top - fall.level) else None


def _mean_between(training: Trace, trace: Trace, place: int, scale: int) -> float | None:
    """Mean training reward over the evaluations of one level, the last of them at `place`; None before any.

    A mean over another span would lag behind the level that it is compared with.
    """
    since = trace.rollouts_T[place - scale] if place >= scale else -np.inf
    there = (training.rollouts_T > since) & (training.rollouts_T <= trace.rollouts_T[place])
    if not there.any():
        # Measured less often than the evaluations: the last value before them.
        there = training.rollouts_T <= trace.rollouts_T[place]
        return float(training.value_T[there][-1]) if there.any() else None
    return float(np.mean(training.value_T[there]))


LEVEL = 0.98
"""Coverage of the band at one evaluation. A run's own deviation persists, so waiting does not reduce false alarms: one
healthy run in four would leave an 80 % band. Chosen on simulated sweeps (docs/checked.md)."""
EVALUATIONS = 3
"""Evaluations in one mean, and means in a row that must lie outside."""


def band_findings(run: RunTraces, fits: Fits) -> list[Finding]:
    """`outside-predicted-band` if the run leaves its band: a warning below it, an info above it.

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
    level_T = rolling(trace.value_T[places], EVALUATIONS, np.mean)
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
    severity = "info" if below is None else "warning"
    return [Finding.at("outside-predicted-band", severity, trace, place, seen, values, noticed)]
