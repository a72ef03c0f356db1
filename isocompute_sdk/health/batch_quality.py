"""Detectors of batches that teach little: zero variance, off-policy updates, sampler mismatch, filtered rollouts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.health.diagnosis import Finding
from isocompute_sdk.health.levels import LASTING, first_lasting, start_of
from isocompute_sdk.health.traces import RunTraces, Trace
from isocompute_sdk.notes import Severity

MOST_GROUPS, NEARLY_ALL = 0.5, 0.9
"""Shares of zero-variance groups for an info and for a warning. At the second, at most one rollout in ten teaches."""
SOLVED = 0.9
"""Training reward above which zero-variance groups are the natural end of a run, as in the built-in task at n = 4."""


def zero_variance(run: RunTraces) -> list[Finding]:
    """Many groups have equal rewards and no gradient: `zero-variance-groups`."""
    trace = run.traces.get("zero_variance_share")
    if trace is None:
        return []
    level_T = trace.level_T
    nearly_all = first_lasting((level_T >= NEARLY_ALL) & ~_solved(run, trace))
    place = nearly_all if nearly_all is not None else first_lasting(level_T >= MOST_GROUPS)
    if place is None:
        return []
    seen = (
        f"{level_T[place]:.0%} of groups have zero variance from {trace.at(place)} on, "
        f"{trace.value_T.mean():.0%} over the whole run"
    )
    severity: Severity = "warning" if nearly_all is not None else "info"
    values = {"level": float(level_T[place]), "overall": float(trace.value_T.mean())}
    return [Finding.at("zero-variance-groups", severity, trace, place, seen, values)]


def _solved(run: RunTraces, trace: Trace) -> NDArray[np.bool_]:
    """Whether the training reward was near 1 by then."""
    reward = run.traces.get("train_reward")
    if reward is None or np.any((reward.value_T < 0) | (reward.value_T > 1)):
        return np.zeros(len(trace), dtype=bool)
    return reward.known_at(reward.level_T, trace.rollouts_T) >= SOLVED


def nothing_learned(run: RunTraces, least: int = LASTING) -> list[Finding]:
    """No logged update had a gradient, because all rewards of every group were equal: `nothing-learned`.

    Without a log of zero-variance groups, a training reward of 0 throughout says so. This is a verdict on a run that
    has ended, not one of `DETECTORS`: a run that begins so may still learn.

    Args:
        run: the run.
        least: fewer logged updates are no evidence.
    """
    share, reward = run.traces.get("zero_variance_share"), run.traces.get("train_reward")
    trace = share if share is not None else reward
    if trace is None or len(trace) < least or np.any(trace.value_T != (1.0 if share is not None else 0.0)):
        return []
    values = {"updates": float(len(trace))}
    told = ""
    if reward is not None:
        values["train_reward"] = float(reward.value_T.mean())
        told = f"; mean training reward {reward.value_T.mean():.3f}"
    seen = f"all {len(trace)} logged updates had no gradient: the rewards of every group were equal{told}"
    return [Finding.at("nothing-learned", "warning", trace, 0, seen, values)]


def off_policy(run: RunTraces) -> list[Finding]:
    """The run's context states more than one update per rollout batch: `off-policy-unstudied`."""
    updates = run.context.get("updates_per_batch")
    if updates is None or updates <= 1:
        return []
    seen = f"{updates} updates per rollout batch; laws in update steps may not hold"
    return [Finding("off-policy-unstudied", "warning", seen, values={"updates_per_batch": float(updates)})]


WEIGHT_OFF, CAPPED, SAMPLER_KL = 0.1, 0.05, 0.1
"""Limits: distance of the mean importance weight from 1, share of capped weights, KL between sampler and trainer in
nats per token. An on-policy run with one engine has 0 in all three; two engines of different precision reach a
tenth."""


def sampler_mismatch(run: RunTraces) -> list[Finding]:
    """Sampler and trainer disagree about token probabilities: `sampler-mismatch`."""
    tests = (
        ("importance_weight", "mean importance weight", 1.0, WEIGHT_OFF),
        ("importance_capped", "share of capped importance weights", 0.0, CAPPED),
        ("sampler_kl", "KL between sampler and trainer", 0.0, SAMPLER_KL),
    )
    for quantity, words, ideal, limit in tests:
        trace = run.traces.get(quantity)
        if trace is None:
            continue
        level_T = trace.level_T
        place = first_lasting(np.abs(level_T - ideal) > limit)
        if place is not None:
            seen = f"{words} {level_T[place]:.3g} from {trace.at(place)} on"
            values = {quantity: float(level_T[place])}
            return [Finding.at("sampler-mismatch", "warning", trace, place, seen, values)]
    return []


TRAINED, HALF = 0.98, 0.5
"""Shares of generated rollouts that are trained on: info below the first, warning below the second."""


def filtered_rollouts(run: RunTraces) -> list[Finding]:
    """Dynamic sampling discards generated rollouts: `filtered-rollouts`."""
    trace = run.traces.get("trained_share")
    if trace is None:
        return []
    level_T = trace.level_T
    most = first_lasting(level_T < HALF)
    place = most if most is not None else first_lasting(level_T < TRAINED)
    if place is None:
        return []
    seen = f"{level_T[place]:.0%} of the generated rollouts are trained on from {trace.at(place)} on, " + (
        f"{start_of(level_T):.0%} at the start"
    )
    severity: Severity = "warning" if most is not None else "info"
    return [Finding.at("filtered-rollouts", severity, trace, place, seen, {"trained_share": float(level_T[place])})]
