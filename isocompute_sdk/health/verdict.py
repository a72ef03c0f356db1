"""`check_health`: every detector over every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from isocompute_sdk.health import dynamics, outcome, settings
from isocompute_sdk.health.report import Finding, Health, together
from isocompute_sdk.health.traces import RunTraces, gather
from isocompute_sdk.notes import Note, by_severity
from isocompute_sdk.records.runset import check_runs

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet

DETECTORS: tuple[Callable[[RunTraces], list[Finding]], ...] = (
    outcome.falling_reward,
    outcome.train_validation_gap,
    dynamics.entropy_collapse,
    dynamics.entropy_explosion,
    dynamics.kl_drift,
    dynamics.length_growth,
    dynamics.truncation,
    dynamics.gradient_spikes,
    dynamics.gradient_growth,
    settings.zero_variance,
    settings.off_policy,
    settings.sampler_mismatch,
    settings.filtered_rollouts,
)


def findings(runs: RunSet, metric: str | None = None, eval_set: str | None = None) -> dict[str, tuple[Finding, ...]]:
    """What the detectors see in each run, by run id; arguments as in `check_health`."""
    return {run.run_id: detect(run) for run in gather(runs, metric, eval_set)}


def check_health(runs: RunSet, metric: str | None = None, eval_set: str | None = None) -> Health:
    """Look for what makes a run a bad witness, or a waste: from what it logged, before a fit or while it goes on.

    Every quantity that is missing is passed over in silence: no finding is no proof of health.

    Args:
        runs: what was logged; names of metrics are those of the built-in runner, or of OpenRLHF, veRL and TRL.
        metric: reward on held-out problems; None for avg@k with the largest k that each run has.
        eval_set: set of held-out problems; None for `validation`, or the first that is not of training problems.
    """
    every = gather(check_runs(runs), metric, eval_set)
    found = {run.run_id: detect(run) for run in every}
    return Health(together(every, found), notes_of(found), len(every))


def notes_of(found: Mapping[str, Sequence[Finding]]) -> dict[str, tuple[Note, ...]]:
    """Notes of each run that has any, the gravest first."""
    return {run: tuple(by_severity(one.note(run) for one in some)) for run, some in found.items() if some}


def detect(run: RunTraces) -> tuple[Finding, ...]:
    """What every detector sees in one run."""
    return tuple(finding for look in DETECTORS for finding in look(run))
