"""Detectors over what every update logs: entropy, KL, length, truncation, gradients.

Each is `detect(run) -> findings`, looks at no value before its time (`levels.py`), and holds its thresholds above it.
Nobody has published such thresholds: they are guesses, checked for false alarms on healthy runs (docs/health.md).
"""

from __future__ import annotations

import numpy as np

from isocompute_sdk.health.levels import first_lasting, known_at, start_of
from isocompute_sdk.health.quantities import REWARD
from isocompute_sdk.health.report import Finding, at, found_at
from isocompute_sdk.health.smoothing import WINDOW, Array, means
from isocompute_sdk.health.traces import RunTraces
from isocompute_sdk.notes import Severity

ENTROPY_LEFT = 0.1
"""Share of the first entropy below which it counts as used up: healthy runs of the built-in task kept .13 or more."""
ENTROPY_TO_FAILURES = 0.25
"""It is no collapse where the failures have gone as well: entropy left over failures left must be below this. Healthy
runs of the built-in task stay above 1."""


def entropy_collapse(run: RunTraces) -> list[Finding]:
    """Entropy used up while most of the failures are still there."""
    trace = run.traces.get("entropy")
    if trace is None:
        return []
    level_T = trace.level_T
    start = start_of(level_T)
    if not start > 0:
        return []
    left_T = level_T / start
    failures_T = _failures_left(run, trace.rollouts_T)
    place = first_lasting((left_T < ENTROPY_LEFT) & (left_T < ENTROPY_TO_FAILURES * failures_T))
    if place is None:
        return []
    seen = (
        f"entropy {start:.3g} at the start, {level_T[place]:.3g} from {at(trace, place)} on, with "
        f"{failures_T[place]:.0%} of the failures left"
    )
    values = {"start": start, "level": float(level_T[place]), "failures_left": float(failures_T[place])}
    return [found_at("entropy-collapse", "warning", trace, place, seen, values)]


def _failures_left(run: RunTraces, rollouts_T: Array) -> Array:
    """Failure rate over that of the start, by the training reward; 1 where unknown or not a rate."""
    reward = run.traces.get("train_reward", run.traces.get(REWARD))
    if reward is None or np.any((reward.value_T < 0) | (reward.value_T > 1)):
        return np.ones(len(rollouts_T))
    level_T = known_at(reward, reward.level_T, rollouts_T)
    start = start_of(reward.level_T)
    if not start < 1:
        return np.ones(len(rollouts_T))
    return np.where(np.isnan(level_T), 1.0, np.minimum((1.0 - level_T) / (1.0 - start), 1.0))


ENTROPY_GROWTH, ENTROPY_RISE = 2.0, 0.3
"""Factor and nats per token by which entropy has to exceed its start: both, since doubling a tiny one means nothing."""


def entropy_explosion(run: RunTraces) -> list[Finding]:
    """Entropy far above its start."""
    trace = run.traces.get("entropy")
    if trace is None:
        return []
    level_T = trace.level_T
    start = start_of(level_T)
    place = first_lasting((level_T > ENTROPY_GROWTH * start) & (level_T > start + ENTROPY_RISE))
    if place is None:
        return []
    seen = f"entropy {start:.3g} at the start, {level_T[place]:.3g} from {at(trace, place)} on"
    values = {"start": start, "level": float(level_T[place])}
    return [found_at("entropy-explosion", "warning", trace, place, seen, values)]


KL_LIMIT = 0.5
"""Nats per token that no healthy run is known to need; usual runs end at .001 to .1."""
KL_BURST, KL_NOTICEABLE, KL_HALVES = 8.0, 0.02, 20
"""Growth over the second half of the steps so far, the level from which it matters, and measurements needed in the
first half. A policy that walks straight on gains a factor of 4 (KL grows with the square of the distance)."""


def kl_drift(run: RunTraces) -> list[Finding]:
    """KL to the base model beyond any usual size, or growing faster than a straight walk."""
    trace = run.traces.get("kl")
    if trace is None:
        return []
    level_T = trace.level_T
    places = np.arange(len(level_T))
    half_T = level_T[places // 2]
    burst_T = (places // 2 >= KL_HALVES) & (level_T > KL_BURST * half_T) & (level_T > KL_NOTICEABLE)
    place = first_lasting(burst_T | (level_T > KL_LIMIT))
    if place is None:
        return []
    seen = f"KL {level_T[place]:.3g} nats per token from {at(trace, place)} on, {half_T[place]:.3g} at half of that"
    values = {"level": float(level_T[place]), "at_half": float(np.nan_to_num(half_T[place]))}
    return [found_at("kl-drift", "warning", trace, place, seen, values)]


LENGTH_GROWTH = 2.5
"""Factor over the first responses: the simulator's healthy runs, patterned on the paper's, stay below 2."""
IMPROVED = 3.0
"""Standard errors by which a reward has to have risen to count as better."""


def length_growth(run: RunTraces) -> list[Finding]:
    """Responses several times as long as at first: a warning where the reward has gained nothing by it."""
    trace = run.traces.get("response_length")
    if trace is None:
        return []
    level_T = trace.level_T
    start = start_of(level_T)
    place = first_lasting(level_T > LENGTH_GROWTH * start) if start > 0 else None
    if place is None:
        return []
    better = _improved(run, trace.rollouts_T)[place]
    seen = f"{start:,.4g} tokens a response at the start, {level_T[place]:,.4g} from {at(trace, place)} on, " + (
        "while the reward rose" if better else "and the reward has not risen"
    )
    values = {"start": start, "level": float(level_T[place])}
    severity: Severity = "info" if better else "warning"
    return [found_at("response-length-growth", severity, trace, place, seen, values)]


def _improved(run: RunTraces, rollouts_T: Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the reward was above its start by then, beyond noise."""
    reward = run.traces.get(REWARD, run.traces.get("train_reward"))
    if reward is None or len(reward) < WINDOW:
        return np.zeros(len(rollouts_T), dtype=bool)
    level_T, error_T = means(reward.value_T, WINDOW), reward.noise_T * np.sqrt(2.0 / WINDOW)
    better_T = level_T > start_of(level_T) + IMPROVED * error_T
    return known_at(reward, better_T.astype(float), rollouts_T) == 1.0


TRUNCATED, TRUNCATED_GROWTH = 0.1, 2.0
"""Share of responses cut off that is too many, and the growth over the start that makes it the training's doing."""


def truncation(run: RunTraces) -> list[Finding]:
    """Responses cut off at the token limit, more and more of them: a warning; from the start on: worth knowing."""
    trace = run.traces.get("truncated_share")
    if trace is None:
        return []
    level_T = trace.level_T
    start = start_of(level_T)
    grown = first_lasting((level_T >= TRUNCATED) & (level_T >= TRUNCATED_GROWTH * start))
    place = grown if grown is not None else first_lasting(level_T >= TRUNCATED)
    if place is None:
        return []
    seen = f"{level_T[place]:.0%} of responses cut off from {at(trace, place)} on, {start:.0%} at the start"
    severity: Severity = "warning" if grown is not None else "info"
    values = {"start": start, "level": float(level_T[place])}
    return [found_at("truncated-responses", severity, trace, place, seen, values)]


SPIKE, SPIKE_MEMORY, SPIKES_NEAR, SPIKES = 10.0, 20, 100, 3
"""A spike is this many times the median of so many steps before it; that many within so many steps are reported.
Healthy runs of the built-in task stay below 3 times."""


def gradient_spikes(run: RunTraces) -> list[Finding]:
    """Several jumps of the gradient norm close together; one alone is clipped and forgotten."""
    trace = run.traces.get("gradient_norm")
    if trace is None or len(trace) <= SPIKE_MEMORY:
        return []
    usual_T = np.concatenate([[np.nan], _medians_of_many(trace.value_T)[:-1]])
    places = np.flatnonzero(trace.value_T > SPIKE * usual_T)
    near = np.flatnonzero(places[SPIKES - 1 :] - places[: len(places) - SPIKES + 1] < SPIKES_NEAR)
    if not near.size:
        return []
    first, last = int(places[near[0]]), int(places[near[0] + SPIKES - 1])
    seen = (
        f"{SPIKES} gradient norms of more than {SPIKE:g} times the usual {usual_T[first]:.3g} within "
        f"{last - first + 1} steps, the first at {at(trace, first)}"
    )
    values = {"usual": float(usual_T[first]), "spike": float(trace.value_T[first])}
    return [found_at("gradient-norm-spikes", "warning", trace, first, seen, values, last)]


def _medians_of_many(value_T: Array) -> Array:
    """Median of the last `SPIKE_MEMORY` values at each place."""
    import polars as pl

    return pl.Series(value_T).rolling_median(window_size=SPIKE_MEMORY).to_numpy().astype(np.float64)


GRADIENT_GROWTH = 5.0
"""Factor over the first gradient norms; in healthy runs of the built-in task it stays within 1.5."""


def gradient_growth(run: RunTraces) -> list[Finding]:
    """A gradient norm that has left its usual size for good."""
    trace = run.traces.get("gradient_norm")
    if trace is None:
        return []
    level_T = trace.level_T
    start = start_of(level_T)
    place = first_lasting(level_T > GRADIENT_GROWTH * start) if start > 0 else None
    if place is None:
        return []
    seen = f"gradient norm {start:.3g} at the start, {level_T[place]:.3g} from {at(trace, place)} on"
    values = {"start": start, "level": float(level_T[place])}
    return [found_at("gradient-norm-growth", "warning", trace, place, seen, values)]
