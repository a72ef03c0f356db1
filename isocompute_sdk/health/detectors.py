"""`check_health`: every detector over every run.

Most detectors watch the level of one quantity (`Watch`): a line in `DETECTORS` with the test of a bad level. At any
place a test uses earlier values only. No such thresholds are published: these are guesses, tested for false alarms on
healthy runs (docs/health.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.health.findings import FALLS, Finding, Health
from isocompute_sdk.health.rewards import falling_reward
from isocompute_sdk.health.traces import (
    LASTING,
    REWARD,
    Array,
    RunTraces,
    Trace,
    first_lasting,
    gather,
    rolling,
    start_of,
)
from isocompute_sdk.notes import Severity
from isocompute_sdk.records.runset import check_runs

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet

Bad = Callable[[RunTraces, Trace, float], NDArray[np.bool_]]
"""Whether the level is bad at each place: from a run, the trace, and its first level."""
ENTROPY_LEFT = 0.1
"""Entropy is used up below this share of its start. Healthy runs of the built-in task kept 0.13 or more."""
ENTROPY_TO_FAILURES = 0.25
"""Ratio of entropy left to failures left below which low entropy is a collapse: a run that solves its problems loses
entropy too. Healthy runs of the built-in task stay above 1."""
ENTROPY_GROWTH, ENTROPY_RISE = 2.0, 0.3
"""Factor and nats per token by which entropy must exceed its start; both, since doubling a tiny entropy is harmless."""
KL_LIMIT = 0.5
"""KL to the base model, in nats per token, that no known healthy run reached; usual runs end at 0.001 to 0.1."""
KL_BURST, KL_NOTICEABLE, KL_HALVES = 8.0, 0.02, 20
"""Growth factor over the second half of the steps so far, the level from which it matters, and values needed in the
first half. A policy that moves in a straight line gains a factor of 4: KL grows with the square of the distance."""
TRUNCATED, TRUNCATED_GROWTH, EVERY = 0.1, 2.0, 0.99
"""Share of truncated responses that is too many, its growth over the start from which training causes it, and the share
that is all of them: where all end at the limit throughout and are rewarded, that is the length of the answers."""
GRADIENT_GROWTH = 5.0
"""Factor over the norm at the start. Healthy runs of the built-in task stay within 1.5."""
MANY_GROUPS, NEARLY_ALL = 0.5, 0.9
"""Shares of zero-variance groups for an info and for a warning. At the second, at most one rollout in ten teaches."""
SOLVED = 0.9
"""Training reward above which zero-variance groups are the natural end of a run, as in the built-in task at n = 4."""
WEIGHT_OFF, CAPPED, SAMPLER_KL = 0.1, 0.05, 0.1
"""Limits: distance of the mean importance weight from 1, share of capped weights, KL between sampler and trainer in
nats per token. An on-policy run with one engine has 0 in all three; two engines of different precision reach a
tenth."""
TRAINED, HALF = 0.98, 0.5
"""Shares of generated rollouts that are trained on: info below the first, warning below the second."""


@dataclass(frozen=True)
class Watch:
    """A detector of one quantity whose level stays bad."""

    code: str
    quantity: str
    words: str
    """The quantity in words."""
    bad: Bad | None
    """What is a warning; None if nothing is."""
    worth_knowing: Bad | None = None
    """What is an info where nothing is a warning."""
    form: str = ".3g"
    """Format of its values."""

    def __call__(self, run: RunTraces) -> list[Finding]:
        """Its finding in a run, if there is one."""
        trace = run.traces.get(self.quantity)
        if trace is None:
            return []
        start = start_of(trace.level_T)
        tests: tuple[tuple[Severity, Bad | None], ...] = (("warning", self.bad), ("info", self.worth_knowing))
        for severity, test in tests:
            place = None if test is None else first_lasting(test(run, trace, start))
            if place is not None:
                level = float(trace.level_T[place])
                before, now = f"{start:{self.form}}", f"{level:{self.form}}"
                seen = f"{self.words} {before} at the start, {now} from {trace.at(place)} on"
                seen = f"{self.words} {now} from the start on" if before == now else seen
                told = f"{self.words} {level:{self.form}}"
                values = {"start": start, "level": level}
                return [Finding.at(self.code, severity, trace, place, seen, values, level=told)]
        return []


def _entropy_used_up(run: RunTraces, trace: Trace, start: float) -> NDArray[np.bool_]:
    """Entropy is gone while most failures remain."""
    left_T = trace.level_T / start if start > 0 else np.full(len(trace), np.nan)
    failures_T = _failures_left(run, trace.rollouts_T)
    return (left_T < ENTROPY_LEFT) & (left_T < ENTROPY_TO_FAILURES * failures_T)


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


def _kl_drifts(run: RunTraces, trace: Trace, start: float) -> NDArray[np.bool_]:
    """KL to the base model is unusually large, or grows faster than along a straight line."""
    level_T, half_T = trace.level_T, np.arange(len(trace)) // 2
    burst_T = (half_T >= KL_HALVES) & (level_T > KL_BURST * level_T[half_T]) & (level_T > KL_NOTICEABLE)
    return burst_T | (level_T > KL_LIMIT)


def _grown(factor: float, rise: float = 0.0) -> Bad:
    """The level exceeds its start by a factor, and by some amount."""

    def test(run: RunTraces, trace: Trace, start: float) -> NDArray[np.bool_]:
        known = start > 0 or rise > 0
        return (trace.level_T > factor * start) & (trace.level_T > start + rise) & known

    return test


def _truncated(growth: float) -> Bad:
    """Many responses are cut off, and this many times more than at the start."""

    def test(run: RunTraces, trace: Trace, start: float) -> NDArray[np.bool_]:
        reward = run.traces.get("train_reward", run.traces.get(REWARD))
        if np.nanmin(trace.value_T) >= EVERY and reward is not None and np.nanmax(reward.value_T) > 0:
            return np.zeros(len(trace), dtype=bool)
        return (trace.level_T >= TRUNCATED) & (trace.level_T >= growth * start)

    return test


def _solved(run: RunTraces, trace: Trace) -> NDArray[np.bool_]:
    """Whether the training reward was near 1 by then."""
    reward = run.traces.get("train_reward")
    if reward is None or np.any((reward.value_T < 0) | (reward.value_T > 1)):
        return np.zeros(len(trace), dtype=bool)
    return reward.known_at(reward.level_T, trace.rollouts_T) >= SOLVED


SPIKE, SPIKE_MEMORY, SPIKES_NEAR, SPIKES = 10.0, 20, 100, 3
"""A spike is a norm above `SPIKE` times the median of the `SPIKE_MEMORY` steps before it; `SPIKES` of them within
`SPIKES_NEAR` steps are a finding. Healthy runs of the built-in task stay below 3 times the median."""


def gradient_spikes(run: RunTraces) -> list[Finding]:
    """The gradient norm jumps several times within few steps: `gradient-norm-spikes`. A single jump is clipped away."""
    trace = run.traces.get("gradient_norm")
    if trace is None:
        return []
    # A batch of groups with equal rewards has no gradient at all.
    moved_M = np.flatnonzero(trace.value_T)
    if len(moved_M) <= SPIKE_MEMORY:
        return []
    usual_M = np.concatenate([[np.nan], rolling(trace.value_T[moved_M], SPIKE_MEMORY, np.median)[:-1]])
    jumped_M = trace.value_T[moved_M] > SPIKE * usual_M
    places, usual = moved_M[jumped_M], usual_M[jumped_M]
    near = np.flatnonzero(places[SPIKES - 1 :] - places[: len(places) - SPIKES + 1] < SPIKES_NEAR)
    if not near.size:
        return []
    first, last = int(places[near[0]]), int(places[near[0] + SPIKES - 1])
    seen = (
        f"{SPIKES} gradient norms of more than {SPIKE:g} times the usual {usual[near[0]]:.3g} within "
        f"{last - first + 1} steps, the first at {trace.at(first)}"
    )
    values = {"usual": float(usual[near[0]]), "spike": float(trace.value_T[first])}
    return [Finding.at("gradient-norm-spikes", "warning", trace, first, seen, values, last)]


def nothing_learned(run: RunTraces, least: int = LASTING) -> list[Finding]:
    """No logged update had a gradient, because all rewards of every group were equal: `nothing-learned`.

    Without a log of zero-variance groups, a training reward of 0 throughout says so. This is a verdict on a run that
    has ended, not one of `DETECTORS`: a run that begins so may still learn.
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
    seen = f"all {len(trace)} logged updates had no gradient: within every group all rewards were equal{told}"
    return [Finding.at("nothing-learned", "warning", trace, 0, seen, values)]


def off_policy(run: RunTraces) -> list[Finding]:
    """The run's context states more than one update per rollout batch: `off-policy-unstudied`."""
    updates = run.context.get("updates_per_batch")
    if updates is None or updates <= 1:
        return []
    seen = f"{updates} updates per rollout batch; laws in update steps may not hold"
    return [Finding("off-policy-unstudied", "warning", seen, values={"updates_per_batch": float(updates)})]


DETECTORS: tuple[Callable[[RunTraces], list[Finding]], ...] = (
    Watch("entropy-collapse", "entropy", "entropy", _entropy_used_up),
    Watch("entropy-explosion", "entropy", "entropy", _grown(ENTROPY_GROWTH, ENTROPY_RISE)),
    Watch("kl-drift", "kl", "KL in nats per token", _kl_drifts),
    Watch(
        "truncated-responses",
        "truncated_share",
        "truncated responses",
        _truncated(TRUNCATED_GROWTH),
        _truncated(0.0),
        form=".0%",
    ),
    gradient_spikes,
    Watch("gradient-norm-growth", "gradient_norm", "gradient norm", _grown(GRADIENT_GROWTH)),
    Watch(
        "zero-variance-groups",
        "zero_variance_share",
        "groups with equal rewards",
        lambda run, trace, _: (trace.level_T >= NEARLY_ALL) & ~_solved(run, trace),
        lambda _, trace, __: trace.level_T >= MANY_GROUPS,
        form=".0%",
    ),
    off_policy,
    Watch(
        "sampler-mismatch",
        "importance_weight_mean",
        "mean importance weight",
        lambda _, trace, __: np.abs(trace.level_T - 1.0) > WEIGHT_OFF,
    ),
    Watch(
        "sampler-mismatch",
        "importance_capped_share",
        "share of capped importance weights",
        lambda _, trace, __: trace.level_T > CAPPED,
    ),
    Watch(
        "sampler-mismatch",
        "sampler_kl",
        "KL between sampler and trainer",
        lambda _, trace, __: trace.level_T > SAMPLER_KL,
    ),
    Watch(
        "filtered-rollouts",
        "trained_share",
        "share of generated rollouts trained on",
        lambda _, trace, __: trace.level_T < HALF,
        lambda _, trace, __: trace.level_T < TRAINED,
        form=".0%",
    ),
)


def findings(runs: RunSet, metric: str | None = None, eval_set: str | None = None) -> dict[str, tuple[Finding, ...]]:
    """Findings by run id; arguments as in `check_health`."""
    return {run.run_id: detect(run) for run in gather(runs, metric, eval_set)}


def falls(runs: RunSet, metric: str | None = None, eval_set: str | None = None) -> dict[str, Finding]:
    """Where each run that fell was best before, by run id; arguments as in `check_health`."""
    found = findings(runs, metric, eval_set)
    return {run: one for run, some in found.items() for one in some if one.code in FALLS}


def check_health(runs: RunSet, metric: str | None = None, eval_set: str | None = None) -> Health:
    """Check logged runs for collapse, drift, overfitting and the like, before a fit or while they train.

    A detector whose quantities a run did not log is skipped; an empty result is not a clean bill of health.

    Args:
        runs: evaluations and step metrics, under the names of the built-in runner, OpenRLHF, veRL or TRL.
        metric: reward on held-out problems. None: avg@k with the largest k that a run has.
        eval_set: set of held-out problems. None: `validation`, else the first set without training problems.

    Raises:
        RecordError: `runs` is not a `RunSet`.
    """
    traces = gather(check_runs(runs), metric, eval_set)
    return Health.of(traces, {run.run_id: detect(run) for run in traces})


def detect(run: RunTraces, *, live: bool = False) -> tuple[Finding, ...]:
    """Findings of every detector in one run, one for each code; `live`: it is looked at again and again."""
    found: dict[str, Finding] = {}
    for finding in (*falling_reward(run, live=live), *(one for look in DETECTORS for one in look(run))):
        found.setdefault(finding.code, finding)
    return tuple(found.values())
