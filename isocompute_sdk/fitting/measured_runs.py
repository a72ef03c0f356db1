"""Runs with their values of one metric: as each method takes them, which may be compared, and which do not rise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import Reached
from isocompute_sdk.fitting.run_surface import RunSurface
from isocompute_sdk.fitting.surface.data import FALLS, BestAtK, SurfaceRun, noise_scale, pooled_noise
from isocompute_sdk.metrics import average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import listed
from isocompute_sdk.records.asked import best_beside
from isocompute_sdk.records.columns import PLAN_WITHOUT, TRAIN_SETS
from isocompute_sdk.records.grouping import Group, group_runs, kin
from isocompute_sdk.records.reward_metrics import (
    ONE_SCALE,
    bounds_option,
    likely_range,
    no_rise,
    no_rise_note,
    rose_by,
    two_scales,
)
from isocompute_sdk.records.runset import RunInfo, RunSeries, RunSet

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits

MIN_FILLED = 0.01
"""Share of wide bounds that rewards must reach: shares of 1 are not percent."""


@dataclass(frozen=True)
class MeasuredRuns:
    """The runs that measured one metric; for avg@k also those that measured another avg@j only."""

    metric: str
    eval_set: str
    series: tuple[RunSeries, ...]
    stand_ins: Mapping[str, int | None]
    """Samples j by run id, for runs whose avg@j stands in for avg@k; None where j is unknown."""
    best: Mapping[str, tuple[str, RunSeries]]
    """Name and series of best@k by run id, of runs that log it beside avg@k."""

    @classmethod
    def of(cls, runs: RunSet, metric: str, eval_set: str | None, *, stand_in: bool) -> MeasuredRuns:
        """Series of a metric.

        Args:
            runs: the evaluations.
            metric: name of the metric.
            eval_set: evaluation set; None for the only one.
            stand_in: whether avg@j may stand in for avg@k. Both estimate the same mean, with different noise.

        Raises:
            RecordError: a metric or evaluation set that the runs do not have.
        """
        series = list(runs.series(metric, eval_set))
        stand_ins: dict[str, int | None] = {}
        sets = runs.filter(metric=metric).eval_sets
        where = eval_set or next((name for name in sets if name not in TRAIN_SETS), sets[0])
        # On another set it is another reward.
        on_set = runs.filter(eval_set=where)
        for other in kin(metric, on_set.metrics)[1:] if stand_in else ():
            have = {one.run_id for one in series}
            more = [one for one in on_set.series(other, where) if one.run_id not in have]
            series += more
            stand_ins |= {one.run_id: average_of(other) for one in more}
        return cls(metric, where, tuple(series), stand_ins, best_beside(runs, metric, eval_set))

    @property
    def noise_scales(self) -> dict[str, float]:
        """Noise of the stand-ins relative to the other runs', by run id; without those of unknown samples."""
        k = average_of(self.metric)
        return {run: float(np.sqrt(k / j)) for run, j in self.stand_ins.items() if k is not None and j is not None}

    def for_surface(self, compute: str) -> list[SurfaceRun]:
        """The runs on a compute axis (`log10_rollouts` or `log10_tokens`)."""
        scales = self.noise_scales
        return [
            SurfaceRun.of(
                one,
                _compute(one, compute),
                scales.get(one.run_id, 1.0),
                self._best_of(one.run_id, compute),
            )
            for one in self.series
        ]

    def _best_of(self, run_id: str, compute: str) -> BestAtK | None:
        name, series = self.best.get(run_id, ("", None))
        if series is None or (compute == "log10_tokens" and series.tokens_T is None):
            return None
        return BestAtK(name, _compute(series, compute), series.value_T)


def still_runs(series: Sequence[RunSeries], fell: Collection[str]) -> tuple[list[str], list[str]]:
    """Runs that do not rise where others of their B_p do; those that fell are not among them.

    Returns:
        Those of whose n, or of a smaller and of a larger one, others rise: a fit would take what failed in them for an
        effect of n. And those of the smallest n, which may be too small; a large one may not have risen yet.
    """

    def outrun(one: RunSeries, other: RunSeries) -> bool:
        """Whether the other has risen by the same compute, and half of its values lie above all of this one."""
        value_T = other.value_T[other.rollouts_T <= one.rollouts_T[-1]]
        return len(value_T) > 0 and not no_rise([value_T]) and float(np.median(value_T)) > float(one.value_T.max())

    failed, at_edge = list[str](), list[str]()
    for one in (one for one in series if one.run_id not in fell and no_rise([one.value_T])):
        beside = [other for other in series if other.problems_per_batch == one.problems_per_batch]
        sides = {int(np.sign(other.group_size - one.group_size)) for other in beside if outrun(one, other)}
        if 0 in sides or {-1, 1} <= sides:
            failed.append(one.run_id)
        elif 1 in sides:
            at_edge.append(one.run_id)
    return failed, at_edge


def still_note(metric: str, still: Sequence[str]) -> Note:
    """That they are left out."""
    text = (
        f"{listed(still, 5)} left out: no rise in {metric} beyond noise, but runs of the same n, or of a smaller and "
        "a larger one, rise. Check reward, grader and learning rate."
    )
    return Note("outlying-run", "warning", text, {"runs": [*still], "left_out": [*still]})


def edge_note(metric: str, still: Sequence[str]) -> Note:
    """That runs of the smallest n may have failed, and what follows."""
    text = (
        f"{listed(still, 5)}: no rise in {metric} beyond noise, but runs of larger n rise. Either this n is too small "
        "here or these runs failed, and then larger n look better than they are. Check reward, grader and learning "
        f"rate; if they failed, {PLAN_WITHOUT}."
    )
    return Note("outlying-run", "warning", text, {"runs": [*still], "at_edge": [*still]})


def left_out(notes: Iterable[Note]) -> set[str]:
    """The runs that a fit left out as `still_runs`, by its notes."""
    return {run for note in notes if note.code == "outlying-run" for run in note.data.get("left_out", ())}


def run_surfaces(fits: Fits) -> dict[str, RunSurface]:
    """The surface of each run by id, as its forecast takes it; none without a surface or the table of runs."""
    if fits.surface is None or fits.table is None:
        return {}
    runs = MeasuredRuns.of(fits.table, fits.metric, fits.eval_set, stand_in=True).for_surface(fits.compute)
    return {one.run.run_id: one for one in RunSurface.of_all(runs, fits.bounds, fits.surface)}


def best_reached(fits: Fits) -> Reached | None:
    """The best that a run reached; see `Fits.best_reached`. Where runs have no surface each curve counts as one."""
    # A fall that is seen in one run alone may be noise to the joint fit.
    falls = [note.data["runs"] for note in fits.notes if note.code in FALLS]
    fell = {run: best["rollouts"] for runs in falls for run, best in runs.items()}
    until: dict[str, float] = {}
    if fell and fits.table is not None:
        for one in MeasuredRuns.of(fits.table, fits.metric, fits.eval_set, stand_in=True).series:
            # Notes count rollouts on every axis.
            at_T = _compute(one, fits.compute)[one.rollouts_T <= fell.get(one.run_id, np.inf)]
            until[one.run_id] = float(at_T.max(initial=0.0))
    found = [one.best(until.get(name, np.inf)) for name, one in fits.run_surfaces.items()]
    found = [replace(one, fell=one.fell or one.run_id in fell) for one in found]
    curves = {} if fits.source or found else fits.curves
    found += [
        Reached(n, problems, one.last_compute, float(fits.predict(one.last_compute, n, problems).mean))
        for (n, problems), one in curves.items()
    ]
    return max(found, key=lambda one: one.reward, default=None)


def going_on(fits: Fits, best: Reached, reach: Callable[[int], float]) -> tuple[str | None, float]:
    """The run that ends highest if it goes on, and what that gains over the best so far.

    By its own curve; unknown without the table of runs.

    Args:
        fits: the fits.
        best: the best so far.
        reach: how many more rollouts can be spent in batches of so many; 0 where such a batch cannot be run.
    """
    if fits.compute != "log10_rollouts":
        return None, 0.0
    runs = [one for one in fits.run_surfaces.values() if not one.run.fault]
    ends = [
        (one.run.run_id, one.going_on(more))
        for one in runs
        if (more := reach(one.run.group_size * (one.run.problems_per_batch or 1))) > 0
    ]
    name, reward = max(ends, key=lambda end: end[1], default=(None, best.reward))
    return name, min(reward, fits.bounds[1]) - best.reward


def start_rewards(
    series: Mapping[str, RunSeries], bounds: tuple[float, float] | None = None
) -> tuple[dict[str, float], float]:
    """Reward at step 0 by run id, of runs that measured it, and the standard deviation of one evaluation.

    Args:
        series: rewards by run id, of one run at least.
        bounds: range of the rewards; None: guessed from their values.
    """
    values = [one.value_T for one in series.values()]
    low, high = likely_range(np.concatenate(values)) if bounds is None else bounds
    trained = [one.value_T[one.rollouts_T > 0] for one in series.values()]
    start = {
        run: float(np.mean(one.value_T[one.rollouts_T == 0])) for run, one in series.items() if 0 in one.rollouts_T
    }
    return start, pooled_noise(trained, noise_scale(values, high - low))[0]


def grouped(
    infos: Sequence[RunInfo],
    series: Mapping[str, RunSeries],
    bounds: tuple[float, float] | None = None,
    pool: Collection[str] = (),
) -> list[Group]:
    """Runs that may be compared, by what they state and by their rewards at step 0; see `group_runs`.

    Args:
        infos: the runs.
        series: their rewards by run id.
        bounds: range of the rewards; None: guessed from their values.
        pool: context fields that may differ within a group.
    """
    return group_runs(infos, pool, *start_rewards(series, bounds)) if series else group_runs(infos, pool)


def flat_runs(
    runs: RunSet, metric: str, eval_set: str | None, fell: Mapping[str, float] | None = None
) -> dict[str, Note]:
    """That a run does not rise, by run id: all runs of its group together (`grouped`), or it alone.

    Args:
        runs: the evaluations.
        metric: name of the metric.
        eval_set: evaluation set; None for the only one.
        fell: rollouts at which a run that fell was best, by run id: by then it may have risen.
    """
    found: dict[str, Note] = {}
    series = {one.run_id: one for one in runs.series(metric, eval_set)}
    for group in grouped([run for run in runs.runs() if run.run_id in series], series):
        mine = {run.run_id: series[run.run_id] for run in group.runs}
        if len(mine) > 1 and no_rise(one.value_T for one in mine.values()):
            found |= dict.fromkeys(mine, no_rise_note(metric, len(mine)))
            continue
        first = min(mine.values(), key=lambda one: one.rollouts_T[0])
        for run, one in mine.items():
            # Of a run that was evaluated late only, the rise may lie before.
            began = first.value_T[:1] if one.rollouts_T[0] > first.rollouts_T[0] else one.value_T[:0]
            before = int(np.count_nonzero(one.rollouts_T <= (fell or {}).get(run, -1.0)))
            if no_rise([np.concatenate([began, one.value_T])]) and not rose_by(one.value_T, before):
                found[run] = no_rise_note(metric, 1)
    return found


def check_bounds(
    series: Iterable[RunSeries], metric: str, bounds: tuple[float, float], among: RunSet | None = None
) -> None:
    """Refuse rewards outside the metric's bounds; `among` are all runs, whose range is told, and perhaps the metric."""
    every, others = list(series), None if among is None else among.filter(metric=metric)
    beside = [] if others is None else [others.to_polars()["value"].to_numpy()]
    values = np.concatenate([*(one.value_T for one in every), *beside]) if every else np.zeros(1)
    mixed = among is not None and others is not None and len(others.run_ids) < len(among.run_ids)
    named = [f"--metric {quote(metric)}"] if mixed else []
    largest = max((float(np.abs(one.value_T).max()) for one in every), default=0.0)
    wide = MIN_FILLED * (bounds[1] - bounds[0]) >= 1.0
    scales = two_scales(metric, ((one.run_id, one.value_T) for one in every))
    if scales is not None and (wide or largest > bounds[1]):
        raise FitError(scales[0], ONE_SCALE)
    for one in every:
        outside = np.flatnonzero((one.value_T < bounds[0]) | (one.value_T > bounds[1]))
        if outside.size:
            first, (low, high) = int(outside[0]), (values.min(), values.max())
            span = f"span {low:g} to {high:g}" if low < high else f"have {low:g} throughout"
            raise FitError(
                f"run {one.run_id!r}, C = {one.rollouts_T[first]:,.10g}: {metric} = {one.value_T[first]:g} lies "
                f"outside bounds = {bounds}; all runs together {span}",
                "Pass bounds=(lowest, highest) of this metric, or repair the values.",
            ).in_shell(
                "Give the lowest and highest value of the reward function: they decide what counts as equal. "
                "Or repair the values." + (f" The runs have several metrics: this is about {metric}." if mixed else ""),
                (*named, bounds_option(values)),
            )
    if wide and 0 < largest <= 1.0:
        own = np.concatenate([one.value_T for one in every])
        raise FitError(
            f"{metric} spans {own.min():g} to {own.max():g}, a tiny part of bounds = {bounds}",
            "Pass the bounds of this metric as it was logged, such as bounds=(0, 1).",
        ).in_shell("Give the range of this metric as it was logged.", (*named, bounds_option(own)))


def _compute(series: RunSeries, axis: str) -> Array:
    if axis != "log10_tokens":
        return series.rollouts_T
    if series.tokens_T is None:
        raise FitError(
            f"run {series.run_id!r} has no tokens, and compute='tokens' was asked for",
            "Add a tokens column (cumulative sampled tokens), or fit on rollouts.",
        )
    return series.tokens_T
