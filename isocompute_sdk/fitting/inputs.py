"""Runs as the fitting sees them: one series per run on the axis asked for, stand-ins where a metric is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.paper.analysis import Run
from isocompute_sdk.fitting.surface.data import SurfaceRun
from isocompute_sdk.metrics import average_of
from isocompute_sdk.notes import Note

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSeries, RunSet


def series_of(
    runs: RunSet, name: str, eval_set: str | None, *, stand_in: bool
) -> tuple[list[RunSeries], dict[str, tuple[int, int]]]:
    """Runs that measured a metric; for avg@k also those that measured avg@j only, by run id with (k, j).

    Both estimate the same mean, the more samples the less noisily.
    """
    series = list(runs.series(name, eval_set))
    found: dict[str, tuple[int, int]] = {}
    wanted = average_of(name)
    if not stand_in or wanted is None:
        return series, found
    for other in runs.metrics:
        samples = average_of(other)
        if samples is None or other == name:
            continue
        have = {s.run_id for s in series}
        more = [s for s in runs.series(other, eval_set or _eval_set(runs, name)) if s.run_id not in have]
        series += more
        found |= {s.run_id: (wanted, samples) for s in more}
    return series, found


def _eval_set(runs: RunSet, metric: str) -> str | None:
    """The one evaluation set of a metric."""
    names = runs.filter(metric=metric).eval_sets
    return names[0] if len(names) == 1 else None


def stood_in(metric: str, standing_in: dict[str, tuple[int, int]]) -> list[Note]:
    """That some runs enter by an average over another number of samples."""
    if not standing_in:
        return []
    listed = ", ".join(f"{run} (avg@{j})" for run, (_, j) in list(standing_in.items())[:5])
    return [
        Note(
            "avg-at-another-k",
            "info",
            f"{len(standing_in)} run(s) have no {metric} and enter by an average over another number of samples, with "
            f"its noise scaled: {listed}.",
            {"runs": {run: j for run, (_, j) in standing_in.items()}},
        )
    ]


def paper_run(series: RunSeries, compute: str) -> Run:
    """A run for the paper's method, on the axis asked for (`log10_rollouts` or `log10_tokens`)."""
    axis = _axis(series, compute)
    return Run(series.run_id, series.group_size, series.problems_per_batch, axis, series.value_T)


def surface_run(series: RunSeries, compute: str, samples: tuple[int, int] | None) -> SurfaceRun:
    """A run for the surface; `samples` are (k, j) where avg@j stands in for avg@k, whose noise is scaled."""
    sets = series.context.get("n_problems")
    return SurfaceRun(
        series.run_id,
        series.group_size,
        series.problems_per_batch,
        _axis(series, compute),
        series.value_T,
        None if sets is None else int(sets),
        1.0 if samples is None else float(np.sqrt(samples[0] / samples[1])),
    )


def _axis(series: RunSeries, compute: str) -> Array:
    axis = series.rollouts_T
    if compute == "log10_tokens":
        if series.tokens_T is None:
            raise FitError(
                f"run {series.run_id!r} has no tokens, and compute='tokens' was asked for",
                "Add a tokens column (cumulative sampled tokens), or fit on rollouts.",
            )
        axis = series.tokens_T
    return axis


def check_bounds(series: Sequence[RunSeries], metric: str, bounds: tuple[float, float]) -> None:
    """Refuse rewards outside the metric's bounds.

    Raises:
        FitError: naming the first, and how many there are.
    """
    for one in series:
        outside = np.flatnonzero((one.value_T < bounds[0]) | (one.value_T > bounds[1]))
        if outside.size:
            first = int(outside[0])
            raise FitError(
                f"run {one.run_id!r}, C = {one.rollouts_T[first]:,.10g}: {metric} = {one.value_T[first]:g} lies "
                f"outside bounds = {bounds} ({outside.size} value(s) do)",
                "Pass bounds=(lowest, highest) of this metric, or repair the values.",
            )
