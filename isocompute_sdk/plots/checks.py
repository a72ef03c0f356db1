"""Is it so? Prediction against outcome, and how much the reward depends on n and on B_p."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import Prediction
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.phrases import short
from isocompute_sdk.planning import Plan
from isocompute_sdk.plots import style
from isocompute_sdk.plots.curves import split

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = (1 / 9, 1 / 3, 1.0)
"""Computes at which sensitivity is drawn, as shares of the plan's or the longest run's."""


@style.styled
def backtest(source: Fits | Plan, *, ax: Axes | None = None) -> Axes:
    """Prediction against outcome: the end of every run hidden, predicted from the rest, and measured.

    Horizontal bars are 80 % intervals of one run; a bar that crosses the diagonal held.

    Args:
        source: fits of a surface with a backtest, or a plan made from them.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: fits without a backtest, with what it needs.
    """
    fits, _ = split(source)
    test = None if fits.passport is None else fits.passport.backtest
    if test is None:
        why = (
            f"fits of method {fits.method!r} have no backtest"
            if fits.passport is None
            else "these runs have too few evaluations to hide some"
        )
        raise FitError(
            f"{why}; needed: runs fitted with method 'surface', each with 6 or more evaluations", "Fit the runs again."
        )
    ax = style.canvas(ax, size=(style.WIDTH * 0.75, style.HEIGHT))
    every = [value for run in test.by_run for value in (run.measured, run.low, run.high)]
    room = max(0.05 * (max(every) - min(every)), 1e-3)
    low, high = min(every) - room, max(every) + room
    ax.plot([low, high], [low, high], color=style.MUTED, linewidth=1.1, linestyle=":", zorder=1)
    for run in test.by_run:
        colour, mark = style.look(run.group_size)
        ax.plot([run.low, run.high], [run.measured] * 2, color=colour, linewidth=2.2, alpha=0.45, zorder=2)
        ax.plot(
            [run.predicted], [run.measured], mark, color=colour, markersize=7, zorder=3, label=f"n = {run.group_size}"
        )
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    ax.set_xlabel(f"predicted {fits.metric},\nwith the 80 % interval of one run")
    ax.set_ylabel(f"measured {fits.metric}")
    held = round(test.coverage * test.runs)
    measured: dict[int, list[float]] = {}
    for run in test.by_run:
        measured.setdefault(run.group_size, []).append(run.measured)
    style.name_sizes(ax, measured)
    ax.set_title(f"Backtest {test.factor:.2g}x beyond {short(test.hidden_beyond)}: {held} of {test.runs} runs inside")
    return ax


@style.styled
def sensitivity_to_n(
    source: Fits | Plan,
    *,
    compute: Sequence[float] | None = None,
    problems_per_batch: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Predicted reward by n at a few computes, with 80 % intervals: how much a wrong n costs.

    Args:
        source: fits with reward curves, or a plan made from such fits.
        compute: computes. None: 1/9, 1/3 and all of the plan's, or of the longest run's.
        problems_per_batch: B_p. None: that of the plan, else the smallest that was run.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: no curves, or curves of one n only.
    """
    fits, plan = split(source)
    fits.select()
    if len(fits.group_sizes) < 2:
        known = ", ".join(map(str, fits.group_sizes))
        raise FitError(f"only n = {known} was run; needed: runs of two or more n", "Run another n.")
    bp = problems_per_batch if problems_per_batch is not None or plan is None else plan.problems_per_batch
    levels = fits.group_sizes
    sizes = np.unique(np.concatenate([levels, np.geomspace(levels[0], levels[-1], 25)]))
    at_bp = fits.nearest_problems_per_batch(bp) if fits.surface is None or bp is None else bp
    where = "" if at_bp is None else f" at $B_p$ = {at_bp}"
    ax = style.canvas(ax)
    _draw(ax, fits, sizes, levels, _computes(fits, plan, compute), lambda at, n: fits.predict(at, n, bp), f"n{where}")
    ax.set_xlabel("group size n")
    return ax


@style.styled
def sensitivity_to_bp(
    source: Fits | Plan,
    *,
    compute: Sequence[float] | None = None,
    group_size: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Predicted reward by B_p at a few computes, with 80 % intervals: how much a wrong B_p costs.

    Args:
        source: fits with curves at two or more B_p, or a plan made from them.
        compute: as of `sensitivity_to_n`.
        group_size: n. None: that of the plan, else the n of the frontier at the largest compute.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: no curves, or one B_p only.
    """
    fits, plan = split(source)
    fits.select()
    levels = fits.problems_per_batch
    if len(levels) < 2:
        known = f"only B_p = {levels[0]} was run" if levels else "the runs do not record B_p"
        raise FitError(
            f"{known}; needed: runs at two or more problems_per_batch", "Run another B_p, or draw sensitivity to n."
        )
    computes = _computes(fits, plan, compute)
    best = fits.frontier([max(computes)]).group_size.ravel()
    n = group_size or (plan.group_size if plan is not None else int(best[0]))
    n = min(max(n, fits.group_sizes[0]), fits.group_sizes[-1])
    between = np.unique(np.geomspace(levels[0], levels[-1], 17).round()) if fits.surface is not None else []
    sizes = np.array(sorted({*levels, *between}), dtype=float)
    ax = style.canvas(ax)
    _draw(ax, fits, sizes, levels, computes, lambda at, bp: fits.predict(at, n, int(bp)), f"$B_p$ at n = {n}")
    ax.set_xlabel("problems per batch $B_p$")
    return ax


def _computes(fits: Fits, plan: Plan | None, given: Sequence[float] | None) -> list[float]:
    """Computes to draw, increasing, none below the first evaluation."""
    if given is not None:
        return sorted(given)
    full = plan.compute if plan is not None else max(curve.last_compute for curve in fits.select())
    first = min(curve.first_compute for curve in fits.select())
    return sorted({max(share * full, first) for share in SHARES})


def _draw(
    ax: Axes,
    fits: Fits,
    sizes: Array,
    levels: Sequence[int],
    computes: Sequence[float],
    reward: Callable[[float, float], Prediction],
    along: str,
) -> None:
    """A line with its band for every compute, and marks where runs were made."""
    labels: list[tuple[float, str, str]] = []
    mean = np.zeros(len(sizes))
    for compute, colour in zip(computes, style.shades(len(computes)), strict=True):
        found = [reward(compute, size) for size in sizes]
        mean, low, high = (np.array([float(part) for part in parts]) for parts in zip(*found, strict=True))
        if np.all(np.isfinite(low)):
            ax.fill_between(sizes, low, high, color=colour, alpha=0.13, linewidth=0, zorder=1)
        text = f"C = {short(compute)}"
        ax.plot(sizes, mean, color=colour, linewidth=1.9, zorder=3, label=text)
        ax.plot(levels, np.interp(levels, sizes, mean), "o", color=colour, markersize=4.5, zorder=4)
        labels.append((float(mean[-1]), text, colour))
    ax.set_ylabel(f"predicted {fits.metric}")
    style.log_axis(ax, levels[0] / 1.15, levels[-1] * 1.15, "")
    ax.set_xscale("log", base=2)
    ax.set_xticks(levels, [str(level) for level in levels])
    ax.set_title(f"{fits.metric} by {along}: {float(np.ptp(mean)):.3f} between best and worst")
    style.end_labels(ax, labels)
