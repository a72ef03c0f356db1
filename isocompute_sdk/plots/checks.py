"""Is it so? Prediction against outcome, and how much the reward depends on n."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.phrases import counted, multiple, short
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

    A row for each run, by n and outcome: its mark is what was measured, the bar the 80 % interval that was predicted,
    with the mean as a tick.

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
            else "these runs have too few evaluations to hold some back"
        )
        raise FitError(
            f"{why}; needed: runs fitted with method 'surface', each with 6 or more evaluations", "Fit the runs again."
        )
    ax = style.canvas(ax, size=(style.WIDTH * 0.75, style.HEIGHT))
    rows: dict[int, list[float]] = {}
    # The largest n on top, and room between two n.
    ordered = sorted(test.by_run, key=lambda run: (run.group_size, run.measured))
    size = min(7.0, max(3.0, 150 / len(ordered)))
    y = 0.0
    for i, run in enumerate(ordered):
        y += 1.0 if i and run.group_size == ordered[i - 1].group_size else 1.8
        rows.setdefault(run.group_size, []).append(y)
        colour, mark = style.look(run.group_size)
        bar: dict[str, Any] = {"color": colour, "linewidth": size * 0.7, "alpha": 0.3, "solid_capstyle": "butt"}
        ax.plot([run.low, run.high], [y, y], zorder=2, **bar)
        ax.plot([run.predicted], [y], "|", color=colour, markersize=size * 1.4, markeredgewidth=1.4, zorder=3)
        ax.plot([run.measured], [y], mark, color=colour, markersize=size, zorder=4, label=f"n = {run.group_size}")
    ax.set_ylim(0.6, y + 1.2)
    ax.set_yticks([])
    ax.locator_params(axis="x", nbins=5)
    ax.set_ylabel("runs")
    ax.set_xlabel(f"{fits.metric}: measured (mark),\npredicted (tick, 80 % interval)")
    held = round(test.coverage * test.runs)
    beyond = f"{multiple(test.factor)} x beyond {short(test.hidden_beyond)}"
    ax.set_title(f"Backtest {beyond}: {held} of {counted(test.runs, 'run')} inside")
    style.name_sizes(ax, rows)
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
    labels: list[style.Label] = []
    mean = np.zeros(len(sizes))
    computes = _computes(fits, plan, compute)
    for at, colour in zip(computes, style.shades(len(computes)), strict=True):
        mean, low, high = fits.predict(at, sizes, bp)
        if np.all(np.isfinite(low)):
            ax.fill_between(sizes, low, high, color=colour, alpha=0.13, linewidth=0, zorder=1)
        (line,) = ax.plot(sizes, mean, color=colour, linewidth=1.9, zorder=3, label=f"C = {short(at)}")
        ax.plot(levels, np.interp(levels, sizes, mean), "o", color=colour, markersize=4.5, zorder=4)
        labels.append((float(mean[-1]), line))
    style.log_axis(ax, levels[0] / 1.15, levels[-1] * 1.15, "")
    ax.set_xscale("log", base=2)
    ax.set_xticks(levels, [str(level) for level in levels])
    ax.set_title(f"{fits.metric} by n{where}: {float(np.ptp(mean)):.3f} between best and worst")
    style.end_labels(ax, labels)
    ax.set_ylabel(f"predicted {fits.metric}, 80 % bands")
    ax.set_xlabel("group size n")
    return ax


def _computes(fits: Fits, plan: Plan | None, given: Sequence[float] | None) -> list[float]:
    """Computes to draw, increasing, none below the first evaluation."""
    if given is not None:
        return sorted(given)
    full = plan.compute if plan is not None else max(curve.last_compute for curve in fits.select())
    first = min(curve.first_compute for curve in fits.select())
    return sorted({max(share * full, first) for share in SHARES})
