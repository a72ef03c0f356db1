"""Detectors over how a run is set up: groups that teach nothing, off-policy updates, samplers, filtered rollouts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.health.levels import first_lasting, known_at, start_of
from isocompute_sdk.health.report import Finding, at, found_at
from isocompute_sdk.health.traces import RunTraces, Trace
from isocompute_sdk.notes import Severity

MOST_GROUPS, NEARLY_ALL = 0.5, 0.9
"""Shares of groups without variance: worth knowing; costing money, since one rollout in ten or fewer then teaches."""
SOLVED = 0.9
"""Training reward from which groups without variance are the natural end of a run, as in the built-in task at n = 4."""


def zero_variance(run: RunTraces) -> list[Finding]:
    """Groups whose rollouts all got the same reward."""
    trace = run.traces.get("zero_variance_share")
    if trace is None:
        return []
    level_T = trace.level_T
    nearly_all = first_lasting((level_T >= NEARLY_ALL) & ~_solved(run, trace))
    place = nearly_all if nearly_all is not None else first_lasting(level_T >= MOST_GROUPS)
    if place is None:
        return []
    seen = (
        f"{level_T[place]:.0%} of groups have no variance from {at(trace, place)} on, {trace.value_T.mean():.0%} of all"
    )
    severity: Severity = "warning" if nearly_all is not None else "info"
    values = {"level": float(level_T[place]), "overall": float(trace.value_T.mean())}
    return [found_at("zero-variance-groups", severity, trace, place, seen, values)]


def _solved(run: RunTraces, trace: Trace) -> NDArray[np.bool_]:
    """Whether the training reward was near its top by then."""
    reward = run.traces.get("train_reward")
    if reward is None or np.any((reward.value_T < 0) | (reward.value_T > 1)):
        return np.zeros(len(trace), dtype=bool)
    return known_at(reward, reward.level_T, trace.rollouts_T) >= SOLVED


def off_policy(run: RunTraces) -> list[Finding]:
    """More than one update per rollout batch, by the run's own context."""
    updates = run.context.get("updates_per_batch")
    if updates is None or updates <= 1:
        return []
    seen = f"{updates} updates per rollout batch; what laws say about update steps may not hold"
    return [Finding("off-policy-unstudied", "warning", seen, values={"updates_per_batch": float(updates)})]


WEIGHT_OFF, CAPPED, SAMPLER_KL = 0.1, 0.05, 0.1
"""Mean importance weight off 1, share of weights at their cap, KL between sampler and trainer in nats per token: an
on-policy run with one engine has 0 in all three; two engines at different precision stay a tenth of these."""


def sampler_mismatch(run: RunTraces) -> list[Finding]:
    """Sampler and trainer that give different probabilities to the same tokens."""
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
            seen = f"{words} {level_T[place]:.3g} from {at(trace, place)} on"
            values = {quantity: float(level_T[place])}
            return [found_at("sampler-mismatch", "warning", trace, place, seen, values)]
    return []


TRAINED, HALF = 0.98, 0.5
"""Shares of the generated rollouts that are trained on: below the first some are filtered, below the second most."""


def filtered_rollouts(run: RunTraces) -> list[Finding]:
    """Dynamic sampling: rollouts that were generated and paid for, and not trained on."""
    trace = run.traces.get("trained_share")
    if trace is None:
        return []
    level_T = trace.level_T
    most = first_lasting(level_T < HALF)
    place = most if most is not None else first_lasting(level_T < TRAINED)
    if place is None:
        return []
    seen = f"{level_T[place]:.0%} of the generated rollouts are trained on from {at(trace, place)} on, " + (
        f"{start_of(level_T):.0%} at the start"
    )
    severity: Severity = "warning" if most is not None else "info"
    return [found_at("filtered-rollouts", severity, trace, place, seen, {"trained_share": float(level_T[place])})]
