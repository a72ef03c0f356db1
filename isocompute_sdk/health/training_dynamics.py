"""Detectors over step metrics: entropy, KL, response length, truncation, gradient norm.

Each takes a run and returns its findings; its thresholds stand above it. At any place it uses earlier values only
(`levels.py`). No such thresholds are published: these are guesses, tested for false alarms on healthy runs
(docs/health.md).
"""

from __future__ import annotations

import numpy as np

from isocompute_sdk.health.diagnosis import Finding
from isocompute_sdk.health.levels import WINDOW, Array, first_lasting, means, start_of
from isocompute_sdk.health.traces import REWARD, RunTraces, Trace
from isocompute_sdk.notes import Severity

ENTROPY_LEFT = 0.1
"""Entropy is used up below this share of its start. Healthy runs of the built-in task kept 0.13 or more."""
ENTROPY_TO_FAILURES = 0.25
"""Ratio of entropy left to failures left below which low entropy is a collapse: a run that solves its problems loses
entropy too. Healthy runs of the built-in task stay above 1."""


def entropy_collapse(run: RunTraces) -> list[Finding]:
    """Entropy is used up while most failures remain: `entropy-collapse`."""
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
        f"entropy {start:.3g} at the start, {level_T[place]:.3g} from {trace.at(place)} on, with "
        f"{failures_T[place]:.0%} of the failures left"
    )
    values = {"start": start, "level": float(level_T[place]), "failures_left": float(failures_T[place])}
    return [Finding.at("entropy-collapse", "warning", trace, place, seen, values)]


def _failures_left(run: RunTraces, rollouts_T: Array) -> Array:
    """Failure rate relative to the start, from the training reward; 1 if unknown or if the reward leaves [0, 1]."""
    reward = run.traces.get("train_reward", run.traces.get(REWARD))
    if reward is None or np.any((reward.value_T < 0) | (reward.value_T > 1)):
        return np.ones(len(rollouts_T))
    level_T = reward.known_at(reward.level_T, rollouts_T)
    start = start_of(reward.level_T)
    if not start < 1:
        return np.ones(len(rollouts_T))
    return np.where(np.isnan(level_T), 1.0, np.minimum((1.0 - level_T) / (1.0 - start), 1.0))


ENTROPY_GROWTH, ENTROPY_RISE = 2.0, 0.3
"""Factor and nats per token by which entropy must exceed its start; both, since doubling a tiny entropy is harmless."""


def entropy_explosion(run: RunTraces) -> list[Finding]:
    """Entropy stays far above its start: `entropy-explosion`."""
    grown = _grown(run, "entropy", ENTROPY_GROWTH, ENTROPY_RISE)
    return [] if grown is None else [Finding.at("entropy-explosion", "warning", *grown)]


def _grown(
    run: RunTraces, quantity: str, factor: float, rise: float = 0.0
) -> tuple[Trace, int, str, dict[str, float]] | None:
    """Where a quantity begins to stay above a multiple of its start, and by some amount above it; else None.

    Returns:
        The trace, the place in it, the observation in words, and its numbers.
    """
    trace = run.traces.get(quantity)
    if trace is None:
        return None
    level_T = trace.level_T
    start = start_of(level_T)
    place = first_lasting((level_T > factor * start) & (level_T > start + rise)) if start > 0 or rise > 0 else None
    if place is None:
        return None
    seen = f"{quantity.replace('_', ' ')} {start:.3g} at the start, {level_T[place]:.3g} from {trace.at(place)} on"
    return trace, place, seen, {"start": start, "level": float(level_T[place])}


KL_LIMIT = 0.5
"""KL to the base model, in nats per token, that no known healthy run reached; usual runs end at 0.001 to 0.1."""
KL_BURST, KL_NOTICEABLE, KL_HALVES = 8.0, 0.02, 20
"""Growth factor over the second half of the steps so far, the level from which it matters, and values needed in the
first half. A policy that moves in a straight line gains a factor of 4: KL grows with the square of the distance."""


def kl_drift(run: RunTraces) -> list[Finding]:
    """KL to the base model is unusually large, or grows faster than along a straight line: `kl-drift`."""
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
    seen = f"KL {level_T[place]:.3g} nats per token from {trace.at(place)} on, {half_T[place]:.3g} at half of that"
    values = {"level": float(level_T[place]), "at_half": float(np.nan_to_num(half_T[place]))}
    return [Finding.at("kl-drift", "warning", trace, place, seen, values)]


LENGTH_GROWTH = 2.5
"""Factor over the length at the start. Healthy runs of the simulator, patterned on the paper's, stay below 2."""
IMPROVED = 3.0
"""Standard errors by which a reward must have risen to count as better."""


def length_growth(run: RunTraces) -> list[Finding]:
    """Responses are several times longer: `response-length-growth`, a warning if the reward did not rise."""
    trace = run.traces.get("response_length")
    if trace is None:
        return []
    level_T = trace.level_T
    start = start_of(level_T)
    place = first_lasting(level_T > LENGTH_GROWTH * start) if start > 0 else None
    if place is None:
        return []
    better = _improved(run, trace.rollouts_T)[place]
    seen = f"{start:,.4g} tokens a response at the start, {level_T[place]:,.4g} from {trace.at(place)} on, " + (
        "while the reward rose" if better else "and the reward has not risen"
    )
    values = {"start": start, "level": float(level_T[place])}
    severity: Severity = "info" if better else "warning"
    return [Finding.at("response-length-growth", severity, trace, place, seen, values)]


def _improved(run: RunTraces, rollouts_T: Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the reward had risen by then, beyond noise."""
    reward = run.traces.get(REWARD, run.traces.get("train_reward"))
    if reward is None or len(reward) < WINDOW:
        return np.zeros(len(rollouts_T), dtype=bool)
    level_T, error_T = means(reward.value_T, WINDOW), reward.noise_T * np.sqrt(2.0 / WINDOW)
    better_T = level_T > start_of(level_T) + IMPROVED * error_T
    return reward.known_at(better_T.astype(float), rollouts_T) == 1.0


TRUNCATED, TRUNCATED_GROWTH, EVERY = 0.1, 2.0, 0.99
"""Share of truncated responses that is too many, its growth over the start from which training causes it, and the share
that is all of them."""


def truncation(run: RunTraces) -> list[Finding]:
    """Many responses are truncated: `truncated-responses`, a warning if their share grew, else info.

    Where all end at the limit throughout and are rewarded, that is the length of the task's answers.
    """
    trace = run.traces.get("truncated_share")
    if trace is None:
        return []
    reward = run.traces.get("train_reward", run.traces.get(REWARD))
    if np.nanmin(trace.value_T) >= EVERY and reward is not None and np.nanmax(reward.value_T) > 0:
        return []
    level_T = trace.level_T
    start = start_of(level_T)
    grown = first_lasting((level_T >= TRUNCATED) & (level_T >= TRUNCATED_GROWTH * start))
    place = grown if grown is not None else first_lasting(level_T >= TRUNCATED)
    if place is None:
        return []
    seen = f"{level_T[place]:.0%} of responses truncated from {trace.at(place)} on, {start:.0%} at the start"
    severity: Severity = "warning" if grown is not None else "info"
    values = {"start": start, "level": float(level_T[place])}
    return [Finding.at("truncated-responses", severity, trace, place, seen, values)]


SPIKE, SPIKE_MEMORY, SPIKES_NEAR, SPIKES = 10.0, 20, 100, 3
"""A spike is a norm above `SPIKE` times the median of the `SPIKE_MEMORY` steps before it; `SPIKES` of them within
`SPIKES_NEAR` steps are a finding. Healthy runs of the built-in task stay below 3 times the median."""


def gradient_spikes(run: RunTraces) -> list[Finding]:
    """The gradient norm jumps several times within few steps: `gradient-norm-spikes`. A single jump is clipped away."""
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
        f"{last - first + 1} steps, the first at {trace.at(first)}"
    )
    values = {"usual": float(usual_T[first]), "spike": float(trace.value_T[first])}
    return [Finding.at("gradient-norm-spikes", "warning", trace, first, seen, values, last)]


def _medians_of_many(value_T: Array) -> Array:
    """Median of the last `SPIKE_MEMORY` values at each place; NaN before that many."""
    import polars as pl

    return pl.Series(value_T).rolling_median(window_size=SPIKE_MEMORY).to_numpy().astype(np.float64)


GRADIENT_GROWTH = 5.0
"""Factor over the norm at the start. Healthy runs of the built-in task stay within 1.5."""


def gradient_growth(run: RunTraces) -> list[Finding]:
    """The gradient norm stays far above its start: `gradient-norm-growth`."""
    grown = _grown(run, "gradient_norm", GRADIENT_GROWTH)
    return [] if grown is None else [Finding.at("gradient-norm-growth", "warning", *grown)]
