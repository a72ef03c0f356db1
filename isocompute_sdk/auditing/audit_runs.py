"""`audit`: group runs that may be compared, fit each group, and judge every run against the fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from isocompute_sdk import api
from isocompute_sdk.auditing.grouping import Group, differences, group_runs
from isocompute_sdk.auditing.measure_choice import Measure, choose_measure, kin
from isocompute_sdk.auditing.result import Audit, GroupAudit, RunAudit
from isocompute_sdk.auditing.size_comparison import compare_sizes
from isocompute_sdk.auditing.standing import Field, judge, total_cost
from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arguments import check_level, metric_range, whole_number
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.measured_runs import check_bounds
from isocompute_sdk.fitting.surface.data import SurfaceRun, noise_scale, pooled_noise, prepare
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.comparable import check_pool
from isocompute_sdk.records.runset import RunInfo, RunSeries, check_runs

CARRIED = (
    "avg-at-another-k",
    "backtest-missed",
    "base-reward-unmeasured",
    "group-size-confounded",
    "one-seed-per-cell",
    "no-rise-seen",
    "rise-not-seen",
)
"""Notes of a fit that an audit passes on; the others repeat what the audit itself says."""

OF_READING = ("column-assumed",)
"""Notes of the reader on what columns were taken for."""


def audit(
    runs: RunSet,
    metric: str | None = None,
    eval_set: str | None = None,
    *,
    pool: Collection[str] = (),
    level: float = 0.8,
    bounds: tuple[float, float] | None = None,
    rng: np.random.Generator | int | None = None,
    draws: int = 200,
    left_out: Mapping[str, str] | None = None,
) -> Audit:
    """Compare each run and each n of existing runs with the best known n at the same compute.

    Runs are grouped by context (model, data, recipe). A run with unknown fields joins the only group it does not
    contradict. Each group is fitted separately; `GroupAudit.reason` says why one could not be fitted.

    Args:
        runs: runs of any number of models and studies.
        metric: metric to compare. None: avg@4, else the one that most runs have.
        eval_set: evaluation set. None: `validation`, else the one that most runs have.
        pool: context fields that may differ within a group.
        level: coverage of intervals.
        bounds: range of the metric. None: guessed from the values.
        rng: generator or seed. None: a fixed seed.
        draws: draws from each group's posterior.
        left_out: files and columns that could not be read -> reason; shown beside the runs without the metric.

    Raises:
        RecordError: no run has the metric or the evaluation set.
        FitError: an unknown context field in `pool`, a level outside (0, 1), a reward outside `bounds`.
    """
    check_runs(runs)
    level = check_level(level)
    pool = check_pool(pool)
    bounds = None if bounds is None else metric_range(bounds)
    draws = whole_number("draws", draws)
    rng = rng if rng is None or isinstance(rng, np.random.Generator) else whole_number("rng", rng)
    measure = choose_measure(runs, metric, eval_set, bounds)
    series = _series(runs, measure)
    if bounds is not None:
        check_bounds(series.values(), measure.metric, bounds)
    infos = [info for info in runs.runs() if info.run_id in series]
    absent = dict(left_out or {})
    for info in runs.runs():
        if info.run_id not in series:
            absent[info.run_id] = f"no {measure.metric} on {measure.eval_set}"
    found = grouped(infos, series, measure, pool)
    seed = api.DEFAULT_SEED if rng is None else rng
    audited = [
        _audit_group(str(i + 1), group, runs, series, measure, level, np.random.default_rng(seed), draws)
        for i, group in enumerate(found)
    ]
    return Audit(
        metric=measure.metric,
        eval_set=measure.eval_set,
        level=level,
        groups=tuple(audited),
        left_out=absent,
        apart=tuple(_apart(found)),
        notes=unique([*measure.notes, *(note for note in runs.notes if note.code in OF_READING)]),
    )


def grouped(
    infos: Sequence[RunInfo], series: Mapping[str, RunSeries], measure: Measure, pool: Collection[str] = ()
) -> list[Group]:
    """Runs that may be compared, by what they state and by their rewards at step 0; see `group_runs`."""
    trained = [one.value_T[one.rollouts_T > 0] for one in series.values()]
    bases = {run: float(np.mean(one.value_T[one.rollouts_T == 0])) for run, one in series.items() if _has_base(one)}
    scale = noise_scale([one.value_T for one in series.values()], measure.bounds[1] - measure.bounds[0])
    return group_runs(infos, pool, bases, pooled_noise(trained, scale)[0])


def _series(runs: RunSet, measure: Measure) -> dict[str, RunSeries]:
    """The metric of every run that has it; avg@j replaces a missing avg@k."""
    found: dict[str, RunSeries] = {}
    table = runs.filter(eval_set=measure.eval_set)
    for name in kin(measure.metric, table.metrics):
        for one in table.series(name, measure.eval_set):
            found.setdefault(one.run_id, one)
    return found


def _audit_group(
    name: str,
    group: Group,
    runs: RunSet,
    series: Mapping[str, RunSeries],
    measure: Measure,
    level: float,
    rng: np.random.Generator,
    draws: int,
) -> GroupAudit:
    members = [series[info.run_id] for info in group.runs]
    plain = tuple(_plain_run(one) for one in members)
    spent = float(sum(run.rollouts for run in plain))
    try:
        fits = _fit(group, runs, measure, rng, draws)
    except FitError as error:
        reason = error.message
        return GroupAudit(
            name, group.context, plain, sentence=f"not fitted: {reason}", reason=reason, spent=spent, notes=group.notes
        )
    prepared = prepare([_surface_run(one) for one in members], fits.bounds[1] - fits.bounds[0])
    known = Field.of(fits, prepared, level)
    varied = known.surface.layout.set_reference is not None
    judged = [
        judge(known, run, ready, _problem_set(info) if varied else None)
        for run, ready, info in zip(plain, prepared, group.runs, strict=True)
    ]
    audited = tuple(run for run, _ in judged)
    comparisons = compare_sizes(known, audited)
    return GroupAudit(
        name=name,
        context=group.context,
        runs=audited,
        comparisons=comparisons,
        sentence=comparisons[0].sentence if comparisons else _one_size(known),
        spent=spent,
        equal_reward=total_cost([equal_D for _, equal_D in judged], level) if len(known.reach) > 1 else None,
        notes=unique([*group.notes, *_about_runs(audited), *(note for note in fits.notes if _carried(note, group))]),
        fits=fits,
    )


def _fit(group: Group, runs: RunSet, measure: Measure, rng: np.random.Generator, draws: int) -> Fits:
    names = kin(measure.metric, runs.metrics)
    table = runs.filter(run_id={info.run_id for info in group.runs}, metric=set(names), eval_set=measure.eval_set)
    # If every run has a replacement, the replacement is the metric.
    metric = measure.metric if measure.metric in table.metrics else table.metrics[0]
    found = api.fit(table, metric, measure.eval_set, rng=rng, draws=draws, bounds=measure.bounds, pool=group.pooled)
    if not found.curves:
        raise FitError("no evaluation after step 0", "Evaluate during training.")
    return found


def _plain_run(one: RunSeries) -> RunAudit:
    value = one.value_T
    return RunAudit(
        run_id=one.run_id,
        group_size=one.group_size,
        problems_per_batch=one.problems_per_batch,
        seed=one.seed,
        rollouts=float(one.rollouts_T[-1]),
        evaluations=len(value),
        reached=best_level(one.rollouts_T, value),
    )


def best_level(rollouts_T: Array, value_T: Array) -> float:
    """A run's best level: the largest mean of a few successive evaluations after step 0; a single one is noisy.

    A mean covers a tenth of the evaluations, 3 to 15, within one octave of compute, over which the policy changes
    little. Means of fewer evaluations than the median are ignored.
    """
    trained = rollouts_T > 0
    if not np.any(trained):
        return float(np.max(value_T))
    rollouts, value = rollouts_T[trained], value_T[trained]
    longest = min(max(len(value) // 10, 3), 15)
    start = np.maximum(np.searchsorted(rollouts, rollouts / 2), np.arange(len(value)) - longest + 1)
    means = np.array([np.mean(value[first : end + 1]) for end, first in enumerate(start)])
    averaged = np.arange(len(value)) - start + 1
    return float(np.max(means[averaged >= np.median(averaged)]))


def _surface_run(one: RunSeries) -> SurfaceRun:
    return SurfaceRun(one.run_id, one.group_size, one.problems_per_batch, one.rollouts_T, one.value_T)


def _has_base(one: RunSeries) -> bool:
    return bool(np.any(one.rollouts_T == 0))


def _problem_set(info: RunInfo) -> float | None:
    size = info.context["n_problems"]
    return None if size is None else float(size)


def _one_size(known: Field) -> str:
    sizes = known.fits.group_sizes
    if len(sizes) == 1:
        return f"only n = {sizes[0]} was run, so it cannot be compared with another n"
    return "no two group sizes were run to a common compute"


def _carried(note: Note, group: Group) -> bool:
    # A field on which the stated values agree is covered by the note context-taken-for-granted.
    return note.code in CARRIED and not (note.code == "group-size-confounded" and note.data["field"] in group.context)


def _about_runs(runs: Sequence[RunAudit]) -> list[Note]:
    """`run-off-its-curve`: runs that the fit does not describe."""
    off = [run for run in runs if run.off_curve is not None]
    if not off:
        return []
    listed = ", ".join(f"{run.run_id} by {run.off_curve:+.3f}" for run in off[:5])
    return [
        Note(
            "run-off-its-curve",
            "warning",
            f"{len(off)} run(s) ended further from the reward fitted for their n and B_p than chance explains for one "
            f"run: {listed}. Either another setting differs, or rewards are not smooth in n here. These runs get no "
            "verdict; check their settings first.",
            {"runs": {run.run_id: run.off_curve for run in off}},
        )
    ]


def _apart(groups: Sequence[Group]) -> list[str]:
    """Why each group cannot be compared with the earlier group that it resembles most."""
    found: list[str] = []
    for i, group in enumerate(groups[1:], start=1):
        between = [differences(group, other) for other in groups[:i]]
        nearest = min(range(i), key=lambda j: len(between[j]))
        differing = "; ".join(
            f"{name} ({_value(mine)} and {_value(other)})" for name, (mine, other) in between[nearest].items()
        )
        why = f"differ in {differing}" if differing else "stay apart: unstated context fields fit several groups"
        found.append(f"groups {i + 1} and {nearest + 1} {why}")
    return found


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(_value, value))
    return "not stated" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
