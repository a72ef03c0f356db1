"""Is it so? Prediction against outcome, and how much the reward depends on n."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.errors import FitError
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
    labels: list[tuple[float, str, str]] = []
    mean = np.zeros(len(sizes))
    computes = _computes(fits, plan, compute)
    for at, colour in zip(computes, style.shades(len(computes)), strict=True):
        mean, low, high = fits.predict(at, sizes, bp)
        if np.all(np.isfinite(low)):
            ax.fill_between(sizes, low, high, color=colour, alpha=0.13, linewidth=0, zorder=1)
        text = f"C = {short(at)}"
        ax.plot(sizes, mean, color=colour, linewidth=1.9, zorder=3, label=text)
        ax.plot(levels, np.interp(levels, sizes, mean), "o", color=colour, markersize=4.5, zorder=4)
        labels.append((float(mean[-1]), text, colour))
    style.log_axis(ax, levels[0] / 1.15, levels[-1] * 1.15, "")
    ax.set_xscale("log", base=2)
    ax.set_xticks(levels, [str(level) for level in levels])
    ax.set_title(f"{fits.metric} by n{where}: {float(np.ptp(mean)):.3f} between best and worst")
    style.end_labels(ax, labels)
    ax.set_ylabel(f"predicted {fits.metric}")
    ax.set_xlabel("group size n")
    return ax


def _computes(fits: Fits, plan: Plan | None, given: Sequence[float] | None) -> list[float]:
    """Computes to draw, increasing, none below the first evaluation."""
    if given is not None:
        return sorted(given)
    full = plan.compute if plan is not None else max(curve.last_compute for curve in fits.select())
    first = min(curve.first_compute for curve in fits.select())
    return sorted({max(share * full, first) for share in SHARES})
