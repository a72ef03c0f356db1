"""A run that is going on, picked from a table: its series, what the detectors find in it, its checkpoints on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.fitting.one_run.forecast import LiveRun
from isocompute_sdk.health.detectors import check_health
from isocompute_sdk.health.levels import WINDOW, noise_of
from isocompute_sdk.health.training_dynamics import IMPROVED
from isocompute_sdk.metrics import average_of
from isocompute_sdk.records.rewards import (
    TRAIN_REWARD,
    TRAIN_SET,
    best_beside,
    is_training_reward,
    training_reward_note,
    unasked,
)

if TYPE_CHECKING:
    from isocompute_sdk.notes import Note
    from isocompute_sdk.records import RunSeries, RunSet

HARMLESS_IN_A_RISE = ("truncated-responses", "gradient-norm-growth")
"""Findings that are no trouble while the evaluated reward rises on: later checkpoints are the better ones."""
SHOWN = 8
"""Runs that an error lists."""


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
        metric: its reward; None as for `fit`.
        eval_set: evaluation set; None for the only one of the metric.
        saved: (step, folder) of its checkpoints on disk.

    Raises:
        RecordError: an unknown run or metric, or several runs without `run_id`.
    """
    name = _picked(runs, run_id)
    mine = runs.filter(run_id=name)
    notes = []
    if metric is None:
        metric, notes = unasked(mine, eval_set)
    elif metric not in mine.metrics:
        raise RecordError(
            f"metric: received {metric!r}; run {name!r} has {', '.join(mine.metrics)}",
            f"{did_you_mean(metric, mine.metrics)}Use one of them.",
        ).in_shell(f"{did_you_mean(metric, mine.metrics)}Use one of them: --metric NAME.")
    elif is_training_reward(metric) or {*mine.filter(metric=metric).eval_sets} == {TRAIN_SET}:
        notes = [training_reward_note(metric, asked=True)]
    (one,) = mine.series(metric, eval_set)
    where = eval_set or next(iter(mine.filter(metric=metric).eval_sets), None)
    others = runs.filter(metric=metric)
    others = [
        series
        for series in (others.series(metric, where) if where in others.eval_sets else ())
        if series.run_id != name
    ]
    reward = metric if average_of(metric) is not None else None
    seen = check_health(mine, reward, eval_set if reward is not None else None).by_run.get(name, ())
    found = [_weighed(note, one) if average_of(metric) is not None else note for note in seen]
    _, best = best_beside(mine, metric, where).get(name, ("", None))
    train = _training_of(mine, metric)
    return LiveRun((one, *others), metric, eval_set, tuple(found), tuple(sorted(saved)), tuple(notes), best, train)


def _weighed(note: Note, one: RunSeries) -> Note:
    """A finding; as info if it is harmless in a rise and the reward has risen since, beyond noise."""
    began = note.data.get("rollouts")
    if note.code not in HARMLESS_IN_A_RISE or began is None:
        return note
    before_T, after_T = one.value_T[one.rollouts_T <= began][-WINDOW:], one.value_T[one.rollouts_T > began][-WINDOW:]
    if min(len(before_T), len(after_T)) == 0:
        return note
    error = float(noise_of(one.value_T)[-1]) * np.sqrt(1.0 / len(before_T) + 1.0 / len(after_T))
    return replace(note, severity="info") if after_T.mean() - before_T.mean() > IMPROVED * error else note


def _training_of(mine: RunSet, metric: str) -> RunSeries | None:
    """Training reward of a run beside its avg@k; None if not recorded."""
    if average_of(metric) is None or TRAIN_REWARD not in mine.metrics:
        return None
    found = mine.series(TRAIN_REWARD, mine.filter(metric=TRAIN_REWARD).eval_sets[0])
    return found[0] if found else None


def _picked(runs: RunSet, run_id: str | None) -> str:
    names = list(runs.run_ids)
    listed = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    if run_id is None:
        if len(names) == 1:
            return names[0]
        raise RecordError(
            f"{len(names)} runs: {listed}; accepted: one of them", f"Name it, e.g. run_id={names[0]!r}."
        ).in_shell("Name it with --run.")
    if run_id not in names:
        raise RecordError(
            f"run_id: received {run_id!r}; accepted: {listed}", f"{did_you_mean(run_id, names)}Use one of them."
        ).in_shell(f"{did_you_mean(run_id, names)}Use one of them: --run NAME.")
    return run_id
