"""`method="paper"`: record-breaking points, a monotone curve per configuration, envelope, sigmoid of n*."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting import findings
from isocompute_sdk.fitting.allocation import AllocationLaw, LawVariable
from isocompute_sdk.fitting.bootstrap import best_draws, curve_draws, law_draws
from isocompute_sdk.fitting.curves import Points, RewardCurve, fit_curve
from isocompute_sdk.fitting.fits import Configuration, Fits
from isocompute_sdk.fitting.frontier import frontier, log_grid, span
from isocompute_sdk.fitting.record_breaking import record_breaking
from isocompute_sdk.fitting.shapes import Array
from isocompute_sdk.notes import Note, unique

LAW_POINTS_PER_DECADE = 60
"""Density at which the frontier is sampled to fit n*(C)."""
MONOTONE_SHARE = 0.8
"""A law in steps is refused where the best monotone step function explains less of log2 n* than this. On simulated
sweeps with a monotone truth it explained at least .94 at an evaluation noise of .01."""


@dataclass(frozen=True)
class Run:
    """One run's evaluations on one metric."""

    run_id: str
    group_size: int
    problems_per_batch: int | None
    compute_T: Array
    """Rollouts or tokens used so far, increasing; 0 for the base model."""
    reward_T: Array


@dataclass(frozen=True)
class PaperOptions:
    """How the paper's data analysis is carried out."""

    points: Literal["records", "all"] = "records"
    """`records`: the paper's record-breaking points; `all`: every evaluation, which is less biased."""
    bin_width: float = 0.005
    """Width of a reward bin for `records`, as a share of the metric's range."""
    curve: str = "auto"
    """Curve shape, a key of `SHAPES`, or `auto`."""
    compute: LawVariable = "log10_rollouts"
    max_rollouts_per_batch: int | None = None
    """B_max of the sweep, to see where the batch limit, not the reward, ends the growth of n*."""
    rollouts_per_batch: int | None = None
    """Fixed batch B for the laws in steps; None for the one with most configurations."""

    def __post_init__(self) -> None:
        if self.points not in ("records", "all"):
            raise FitError(f"points = {self.points!r}; accepted: 'records', 'all'", "Use one of the two.")
        # Options come from command lines and notebooks: their types are promises, not facts.
        width: Any = vars(self)["bin_width"]
        if isinstance(width, bool) or not isinstance(width, float | int) or not 0 < width <= 1:
            raise FitError(
                f"bin_width = {width!r}; accepted: a share of the metric's range, 0 < width <= 1",
                "Leave it at 0.005, as the paper.",
            )
        check_batches(self)


def check_batches(options: object) -> None:
    """Check the batch sizes that the options of every method have.

    Raises:
        FitError: one that is neither None nor a whole number of 1 or more.
    """
    for name in ("max_rollouts_per_batch", "rollouts_per_batch"):
        value: Any = getattr(options, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise FitError(f"{name} = {value!r}; accepted: a whole number, 1 or more", "Leave it out if unknown.")


def fit_paper(
    runs: Sequence[Run],
    metric: str,
    bounds: tuple[float, float],
    options: PaperOptions,
    draws: int,
    rng: np.random.Generator,
) -> Fits:
    """Fit curves, frontier and laws to the runs of one context.

    Args:
        runs: at least two group sizes with two evaluations each.
        metric: its name, for messages.
        bounds: range of the metric.
        options: details of the method.
        draws: bootstrap replicates; 0 for none.
        rng: randomness of the bootstrap.

    Raises:
        FitError: fewer than two group sizes with a curve, or problems per batch known for some runs only.
    """
    _refuse_partly_known(runs)
    points, dropped = _pool(runs, options, bounds)
    curves = {key: fit_curve(p, options.curve, bounds) for key, p in points.items()}
    if len({n for n, _ in curves}) < 2:
        levels = sorted({run.group_size for run in runs})
        kind = " that break their run's record" if options.points == "records" else ""
        raise FitError(
            f"{len({n for n, _ in curves})} group size(s) with two or more evaluations of {metric!r}{kind} "
            f"(group sizes in the runs: {levels}); the best n cannot be seen in fewer than two",
            "Run at least two group sizes, better four, at the same problems_per_batch.",
        )
    drawn = {key: curve_draws(curves[key], points[key], draws, bounds, rng) for key in curves} if draws else {}
    fits = Fits(
        metric=metric,
        method="paper",
        curves=curves,
        compute=options.compute,
        bounds=bounds,
        max_rollouts_per_batch=options.max_rollouts_per_batch,
        curve_draws=drawn,
    )
    fits = _with_group_size_law(fits)
    fits = with_step_laws(fits, options.rollouts_per_batch)
    notes: list[Note] = [*dropped, *fits.notes, *findings.about_curves(fits), *findings.about_laws(fits)]
    if draws:
        notes.append(findings.uncalibrated())
    return replace(fits, notes=unique(notes))


def _refuse_partly_known(runs: Sequence[Run]) -> None:
    unknown = [run.run_id for run in runs if run.problems_per_batch is None]
    if unknown and len(unknown) < len(runs):
        raise FitError(
            f"{len(unknown)} of {len(runs)} runs do not say their problems per batch ({', '.join(unknown[:3])}); "
            "they cannot stand on one frontier with runs that do",
            "Add problems_per_batch to all of them, or fit them apart.",
        )


def _pool(
    runs: Sequence[Run], options: PaperOptions, bounds: tuple[float, float]
) -> tuple[dict[Configuration, Points], list[Note]]:
    """Evaluations of all runs of a configuration in one set of points, each run reduced on its own first."""
    kept: dict[Configuration, list[tuple[Array, Array]]] = defaultdict(list)
    base: dict[Configuration, list[float]] = defaultdict(list)
    seen: dict[Configuration, list[float]] = defaultdict(list)
    for run in runs:
        key = (run.group_size, run.problems_per_batch)
        order = np.argsort(run.compute_T, kind="stable")
        compute, reward = run.compute_T[order], run.reward_T[order]
        base[key].extend(reward[compute == 0].tolist())
        seen[key].extend(compute[compute > 0].tolist())
        if options.points == "records":
            index = record_breaking(reward, options.bin_width * (bounds[1] - bounds[0]), bounds[0])
            compute, reward = compute[index], reward[index]
        kept[key].append((compute, reward))
    pooled: dict[Configuration, Points] = {}
    notes: list[Note] = []
    for key in sorted(kept, key=lambda k: (k[0], k[1] or 0)):
        compute = np.concatenate([c for c, _ in kept[key]])
        reward = np.concatenate([r for _, r in kept[key]])
        order = np.argsort(compute, kind="stable")
        if len(np.unique(compute)) < 2 or compute.max() <= 0:
            notes.append(findings.configuration_dropped(key, len(compute), options.points))
            continue
        base_reward = float(np.mean(base[key])) if base[key] else None
        pooled[key] = Points(
            *key,
            compute_T=compute[order],
            reward_T=reward[order],
            base_reward=base_reward,
            observed=(min(seen[key]), max(seen[key])),
        )
    return pooled, notes


def _with_group_size_law(fits: Fits) -> Fits:
    curves = fits.select()
    grid = log_grid(*span(curves), LAW_POINTS_PER_DECADE)
    best = frontier(curves, grid)
    seen = ~best.extrapolated
    if len(np.unique(grid[seen])) < 2:
        return replace(fits, unsupported={"group_size": "no budget at which the best curve was observed"})
    law = AllocationLaw.fit(grid[seen], best.group_size[seen], fits.compute)
    draws = dict(fits.law_draws)
    if fits.curve_draws:
        octaves = _best_octaves(fits, curves, grid[seen])[0]
        draws["group_size"] = law_draws(grid[seen], octaves, fits.compute)
    return replace(fits, laws={**fits.laws, "group_size": law}, law_draws=draws)


def _best_octaves(fits: Fits, curves: list[RewardCurve], grid: Array) -> tuple[Array, Array]:
    """log2 of the best n and of the best B_p, each of shape (draws, T)."""
    keys = [(c.group_size, c.problems_per_batch) for c in curves]
    winners = best_draws(curves, [fits.curve_draws[key] for key in keys], grid)
    sizes = np.log2([c.group_size for c in curves])
    problems = np.log2([c.problems_per_batch or np.nan for c in curves])
    return sizes[winners], problems[winners]


def with_step_laws(fits: Fits, rollouts_per_batch: int | None) -> Fits:
    """Fits with n*(M) and B_p*(M) at one fixed batch B = n B_p, or with the reason why there are none.

    Args:
        fits: fits with curves.
        rollouts_per_batch: the batch; None for the one that most configurations share.

    Raises:
        FitError: a batch that fewer than two configurations have.
    """
    names = ("group_size_vs_steps", "problems_per_batch_vs_steps")
    by_batch: dict[int, list[RewardCurve]] = defaultdict(list)
    for curve in fits.select():
        if curve.problems_per_batch is not None:
            by_batch[curve.group_size * curve.problems_per_batch].append(curve)
    shared = {batch: curves for batch, curves in by_batch.items() if len(curves) > 1}
    if rollouts_per_batch not in (None, *shared):
        raise FitError(
            f"rollouts_per_batch = {rollouts_per_batch}: fewer than two configurations have it; "
            f"shared by two or more: {sorted(shared) or 'none'}",
            "Choose one of these batches, or leave rollouts_per_batch out.",
        )

    def without(reason: str, *notes: Note) -> Fits:
        unsupported = {**fits.unsupported, **dict.fromkeys(names, reason)}
        return replace(fits, unsupported=unsupported, notes=(*fits.notes, *notes))

    if fits.compute != "log10_rollouts":
        return without("laws in steps need compute in rollouts, and these fits count tokens")
    if not shared:
        return without("no two configurations share one rollouts_per_batch = n * B_p")
    batch = rollouts_per_batch or max(shared, key=lambda b: (len(shared[b]), b))
    curves = shared[batch]
    grid = log_grid(*span(curves), LAW_POINTS_PER_DECADE)
    best = frontier(curves, grid)
    seen = ~best.extrapolated
    steps = grid[seen] / batch
    if len(np.unique(steps)) < 2:
        return without(f"at B = {batch} there is no budget at which the best curve was observed")
    if not monotone(steps, np.log2(best.group_size[seen])):
        reason = f"at B = {batch} the best n goes up and down with M: it is not monotone, so no sigmoid describes it"
        return without(reason, findings.not_monotone(batch))
    laws, draws = dict(fits.laws), dict(fits.law_draws)
    values = (best.group_size[seen].astype(float), best.problems_per_batch[seen])
    drawn = _best_octaves(fits, curves, grid[seen]) if fits.curve_draws else None
    for index, name in enumerate(names):
        laws[name] = AllocationLaw.fit(steps, values[index], "update_steps")
        if drawn is not None:
            draws[name] = law_draws(steps, drawn[index], "update_steps")
    return replace(fits, laws=laws, law_draws=draws, rollouts_per_batch=batch)


def monotone(x: Array, octaves: Array) -> bool:
    """Whether a rising or falling curve explains most of how the best size moves with x."""
    from scipy.optimize import isotonic_regression

    total = float(np.sum((octaves - octaves.mean()) ** 2))
    if total == 0:
        return True
    ordered = octaves[np.argsort(x)]
    fitted = [np.asarray(isotonic_regression(ordered, increasing=up).x, dtype=float) for up in (True, False)]
    left = min(float(np.sum((ordered - values) ** 2)) for values in fitted)
    return 1 - left / total >= MONOTONE_SHARE
