"""Detectors over rewards: collapse, decay, overfitting, and the gap between training and held-out problems.

What counts as a collapse or a decay is what a surface repairs (`fitting/surface/data.py`); here it has to be certain at
the time, and to last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocompute_sdk.fitting.surface.data import COLLAPSE_LEFT, DECAY_LOST, SIGNIFICANT
from isocompute_sdk.health.levels import first_lasting, known_at, start_of
from isocompute_sdk.health.quantities import PROBE, REWARD
from isocompute_sdk.health.report import Finding, at, found_at
from isocompute_sdk.health.smoothing import Array, means
from isocompute_sdk.health.traces import RunTraces, Trace

SCALES = (2, 4, 8, 16, 32)
"""Evaluations in one mean: short ones see a collapse soon, long ones a slow decay through the noise."""
CERTAIN = 2.5
"""Standard errors that a fall must exceed, before the allowance for many looks. The surface's 4 is for one look at a
finished run with the noise of a whole sweep; here the noise is already taken at its upper end (`smoothing.DOUBT`).
Chosen on simulated runs, see docs/health.md."""
LASTING_FALL = 3
"""Evaluations in a row at which the reward has to be down."""
FEW = 3
"""Evaluations whose mean stands for a reward at one time, outside the search for falls."""
UPDATES_AT_A_TIME = 10
"""Training rewards of that many updates make one level."""


@dataclass(frozen=True)
class Fall:
    """A lasting fall of one reward from its best."""

    best: int
    """Place at which the level was best."""
    noticed: int
    """Place at which the fall was certain."""
    start: float
    top: float
    level: float
    """Reward at the start, at the best, and where the fall was certain."""
    collapsed: int | None
    """Place at which most of the gain had been gone for long enough; None where it never was."""


def fall_of(trace: Trace) -> Fall | None:
    """The first lasting fall of a reward: beyond noise, and a good part of what had been gained."""
    value_T = trace.value_T
    noise_T = trace.noise_T
    # The base model is measured once or not at all: the first mean stands for the start, as it does for a short run.
    start = start_of(means(value_T, min(FEW, len(value_T)))) if len(value_T) else float("nan")
    if len(value_T) and trace.rollouts_T[0] == 0:
        start = min(start, float(value_T[0]))
    falls = [fall for scale in SCALES if (fall := _fall_at(value_T, noise_T, start, scale)) is not None]
    return min(falls, key=lambda fall: fall.noticed, default=None)


def _fall_at(value_T: Array, noise_T: Array, start: float, scale: int) -> Fall | None:
    level_T = means(value_T, scale)
    known = np.flatnonzero(~np.isnan(level_T))
    if len(known) <= scale:
        return None
    # Means that share evaluations cannot differ by a fall: the best is looked for `scale` evaluations back.
    best_T = np.full(len(value_T), np.nan)
    best_T[known[0] + scale :] = np.maximum.accumulate(level_T[known[0] :])[:-scale]
    error_T = noise_T * np.sqrt(2.0 / scale)
    # The best of many noisy levels stands above the truth, and every level has another chance to be low.
    looks_T = np.maximum(np.arange(1, len(value_T) + 1) / scale, 1.0)
    certain_T = (CERTAIN + np.sqrt(np.log(looks_T))) * error_T
    gain_T, lost_T = best_T - start, best_T - level_T
    fallen_T = (gain_T > 0) & (lost_T > certain_T) & (lost_T > DECAY_LOST * gain_T)
    place = first_lasting(fallen_T, LASTING_FALL)
    if place is None:
        return None
    gone_T = fallen_T & (gain_T - lost_T < COLLAPSE_LEFT * gain_T)
    collapsed = first_lasting(gone_T, LASTING_FALL)
    best = int(np.nanargmax(level_T[: place - scale + 1]))
    noticed = place + LASTING_FALL - 1
    return Fall(
        best=best,
        noticed=noticed,
        start=start,
        top=float(best_T[place]),
        level=float(level_T[noticed]),
        collapsed=None if collapsed is None else collapsed + LASTING_FALL - 1,
    )


def falling_reward(run: RunTraces) -> list[Finding]:
    """Collapse, decay, or overfitting where the reward on training problems did not fall with it."""
    trace = run.traces.get(REWARD, run.traces.get("train_reward"))
    fall = None if trace is None else fall_of(trace)
    if trace is None or fall is None:
        return []
    seen = f"{fall.top:.3f} at its best ({at(trace, fall.best)}), {fall.level:.3f} by {at(trace, fall.noticed)}"
    values = {"start": fall.start, "best": fall.top, "level": fall.level}
    training = _training_meanwhile(run, trace, fall)
    if training is not None:
        before, now = training
        told = f"held-out reward {seen}; training reward {before:.3f} and {now:.3f} at these times"
        values |= {"train_at_best": before, "train_level": now}
        return [found_at("overfitting-run", "warning", trace, fall.best, told, values, fall.noticed)]
    if fall.collapsed is not None:
        told = f"reward {fall.start:.3f} at the start, {seen}"
        return [found_at("collapsed-run", "warning", trace, fall.best, told, values, fall.collapsed)]
    return [found_at("decayed-run", "warning", trace, fall.best, f"reward {seen}", values, fall.noticed)]


def _training_meanwhile(run: RunTraces, trace: Trace, fall: Fall) -> tuple[float, float] | None:
    """Training reward at the best of the held-out one and when its fall was certain; None where it fell as well."""
    training = run.traces.get(PROBE, run.traces.get("train_reward"))
    if training is None or training is trace:
        return None
    width = FEW if PROBE in run.traces else UPDATES_AT_A_TIME
    level_T = known_at(training, means(training.value_T, min(width, len(training))), trace.rollouts_T)
    before, now = float(level_T[fall.best]), float(level_T[fall.noticed])
    # Half of the fall of the held-out reward: less than that is not the same fall.
    return (before, now) if before - now < 0.5 * (fall.top - fall.level) else None


GAP_GROWTH = 0.1
"""Share of the reward's range by which the gap may grow: small sets of the built-in task reach it after 40 epochs."""


def train_validation_gap(run: RunTraces) -> list[Finding]:
    """Training reward that has run ahead of the held-out one since the start."""
    trace, training = run.traces.get(REWARD), run.traces.get(PROBE, run.traces.get("train_reward"))
    if trace is None or training is None:
        return []
    width = FEW if PROBE in run.traces else UPDATES_AT_A_TIME
    train_T = known_at(training, means(training.value_T, width), trace.rollouts_T)
    gap_T = train_T - means(trace.value_T, FEW)
    start = start_of(gap_T)
    error_T = trace.noise_T * np.sqrt(4.0 / FEW)
    growth_T = gap_T - start
    place = first_lasting((growth_T > GAP_GROWTH) & (growth_T > SIGNIFICANT * error_T), LASTING_FALL)
    if place is None:
        return []
    seen = f"training minus held-out reward {start:+.3f} at the start, {gap_T[place]:+.3f} at {at(trace, place)}" + (
        "" if PROBE in run.traces else " (training reward is that of the updates, no fixed probe was evaluated)"
    )
    values = {"start": start, "gap": float(gap_T[place])}
    noticed = place + LASTING_FALL - 1
    return [found_at("train-validation-gap", "info", trace, place, seen, values, noticed)]
