"""`check_health`: run every detector over every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from isocompute_sdk.health import batch_quality, reward_trends, training_dynamics
from isocompute_sdk.health.diagnosis import Finding, Health
from isocompute_sdk.health.traces import RunTraces, gather
from isocompute_sdk.records.runset import check_runs

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet

DETECTORS: tuple[Callable[[RunTraces], list[Finding]], ...] = (
    reward_trends.falling_reward,
    reward_trends.train_validation_gap,
    training_dynamics.entropy_collapse,
    training_dynamics.entropy_explosion,
    training_dynamics.kl_drift,
    training_dynamics.length_growth,
    training_dynamics.truncation,
    training_dynamics.gradient_spikes,
    training_dynamics.gradient_growth,
    batch_quality.zero_variance,
    batch_quality.off_policy,
    batch_quality.sampler_mismatch,
    batch_quality.filtered_rollouts,
)


def findings(runs: RunSet, metric: str | None = None, eval_set: str | None = None) -> dict[str, tuple[Finding, ...]]:
    """Findings by run id; arguments as in `check_health`."""
    return {run.run_id: detect(run) for run in gather(runs, metric, eval_set)}


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


def detect(run: RunTraces) -> tuple[Finding, ...]:
    """Findings of every detector in one run."""
    return tuple(finding for look in DETECTORS for finding in look(run))
