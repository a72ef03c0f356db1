"""A run that is going on, picked from a table: its series, what the detectors find in it, its checkpoints on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.errors import FitError, RecordError, did_you_mean
from isocompute_sdk.fitting.measured_runs import MeasuredRuns, flat_runs
from isocompute_sdk.fitting.run_surface import LiveRun, Trouble
from isocompute_sdk.health.detectors import findings
from isocompute_sdk.health.findings import FALLS, Finding, notes_by_run
from isocompute_sdk.health.traces import WINDOW, noise_of
from isocompute_sdk.records.asked import best_beside, unasked
from isocompute_sdk.records.columns import check_fields
from isocompute_sdk.records.grouping import measured_as
from isocompute_sdk.records.reward_metrics import (
    TRAIN_SET,
    is_training_reward,
    no_rise,
    no_rise_note,
    rose_by,
    training_reward_note,
)

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.fitting.surface.surface import Surface
    from isocompute_sdk.notes import Note
    from isocompute_sdk.records import RunSeries, RunSet

SICK = frozenset(
    {
        "collapsed-run",
        "entropy-collapse",
        "entropy-explosion",
        "kl-drift",
        "gradient-norm-growth",
        "nothing-learned",
        "truncated-responses",
    }
)
"""Findings that a change of the recipe answers, if they are warnings."""
HARMLESS_IN_A_RISE = ("truncated-responses", "gradient-norm-growth")
"""Findings that are no trouble while the evaluated reward rises on: later checkpoints are the better ones."""
IMPROVED = 3.0
"""Standard errors by which a reward must have risen to count as better."""
SHOWN = 8
"""Runs that an error lists."""
CHANGE_FIRST = "change the recipe before you plan with this run"
"""What to do about a run with a finding that `is_recipe_first`."""


def is_recipe_first(one: Finding | Note) -> bool:
    """Whether no plan is approved with this finding, or the note of it, before the recipe has changed."""
    return one.severity == "warning" and one.code in SICK - FALLS.keys() - {*HARMLESS_IN_A_RISE}


def live_run(
    runs: RunSet,
    run_id: str | None = None,
    metric: str | None = None,
    eval_set: str | None = None,
    saved: Sequence[tuple[int, str]] = (),
) -> LiveRun:
    """Pick a run and its reward.

    Args:
        runs: the run, alone or among others.
        run_id: its name; None for the only one.
        metric: its reward, or for avg@k the avg@j that it has; None as for `fit`.
        eval_set: evaluation set; None for the only one of the metric.
        saved: (step, folder) of its checkpoints on disk.
    """
    name = _picked(runs, run_id)
    mine = runs.filter(run_id=name)
    notes = []
    if metric is None:
        metric, notes = unasked(mine, eval_set)
    else:
        check_fields([metric := measured_as(metric, mine.metrics) or metric], mine.metrics, f"metric of run {name!r}")
        if is_training_reward(metric) or {*mine.filter(metric=metric).eval_sets} == {TRAIN_SET}:
            notes = [training_reward_note(metric, asked=True)]
    (one,) = mine.series(metric, eval_set)
    where = eval_set or next(iter(mine.filter(metric=metric).eval_sets), None)
    evaluated = not is_training_reward(metric) and where != TRAIN_SET
    found = [_weighed(each, one, rewards=evaluated) for each in findings(mine, metric, eval_set).get(name, ())]
    peak = next((each.rollouts for each in found if each.code in FALLS and each.rollouts is not None), -1.0)
    flat = flat_runs(runs, metric, where, {name: peak}).get(name)
    if (
        flat is not None
        and no_rise([one.value_T])
        and not rose_by(one.value_T, int(np.count_nonzero(one.rollouts_T <= peak)))
    ):
        flat = no_rise_note(metric, 1)
    best_metric, best = best_beside(mine, metric, where).get(name, ("", None))
    return LiveRun(
        (one,),
        metric,
        eval_set,
        tuple(trouble for finding in found if (trouble := _trouble(finding)) is not None),
        notes_by_run({name: found}).get(name, ()),
        tuple(sorted(saved)),
        tuple(notes),
        best,
        best_metric,
        flat,
    )


def _trouble(finding: Finding) -> Trouble | None:
    """A finding as trouble of the run; None for what is only worth knowing."""
    if finding.severity == "info" or finding.code not in SICK | FALLS.keys():
        return None
    return Trouble(finding.code, "sick" if finding.code in SICK else "falling", finding.rollouts)


def in_sweep(live: LiveRun, fits: Fits) -> tuple[LiveRun, Surface | None]:
    """The run among the runs of fits, and their surface if it was fitted to exactly these.

    Without a surface over rollouts the run stays alone, and where they measured it on another evaluation set only.

    Raises:
        FitError: fits of another metric.
    """
    if fits.surface is None or fits.compute != "log10_rollouts" or fits.table is None:
        return live, None
    if measured_as(fits.metric, [live.metric]) is None:
        raise FitError(
            f"these fits are for {fits.metric}, the forecast is for {live.metric}", f"Fit the sweep on {live.metric}."
        )
    measured = MeasuredRuns.of(fits.table, fits.metric, fits.eval_set, stand_in=True)
    series, scales = measured.series, measured.noise_scales
    if live.one.run_id in {*fits.table.run_ids} - {one.run_id for one in series}:
        return live, None
    others = [one for one in series if one.run_id != live.one.run_id and np.any(one.rollouts_T > 0)]
    evaluations = [np.stack((one.rollouts_T, one.value_T)) for one in series if one.run_id == live.one.run_id]
    known = any(np.array_equal(one, (live.one.rollouts_T, live.one.value_T)) for one in evaluations)
    best = fits.best_reached
    other = None if best is None or best.fell or best.run_id in (None, live.one.run_id) else best
    among = replace(live, series=(live.one, *others), noise_scales=scales, other=other)
    return among, fits.surface if known else None


def _weighed(finding: Finding, one: RunSeries, *, rewards: bool) -> Finding:
    """A finding; as info if it is harmless in a rise and the reward has risen since, beyond noise."""
    began = finding.rollouts
    if not rewards or finding.code not in HARMLESS_IN_A_RISE or began is None:
        return finding
    before_T, after_T = one.value_T[one.rollouts_T <= began][-WINDOW:], one.value_T[one.rollouts_T > began][-WINDOW:]
    if min(len(before_T), len(after_T)) == 0:
        return finding
    error = float(noise_of(one.value_T)[-1]) * np.sqrt(1.0 / len(before_T) + 1.0 / len(after_T))
    return replace(finding, severity="info") if after_T.mean() - before_T.mean() > IMPROVED * error else finding


def _picked(runs: RunSet, run_id: str | None) -> str:
    names = list(runs.run_ids)
    listed = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    if run_id is None:
        if len(names) == 1:
            return names[0]
        raise RecordError(
            f"{len(names)} runs: {listed}; accepted: one of them",
            f"Name it with <--run NAME | run_id={names[0]!r}>.",
            options=(f"--run {quote(names[0])}",),
        )
    if run_id not in names:
        raise RecordError(
            f"run_id: received {run_id!r}; accepted: {listed}",
            f"{did_you_mean(run_id, names)}Use one of them: <--run NAME | run_id=>.",
        )
    return run_id
