"""Figure of an audited group: where its runs ended on the curves, and the cost of equal reward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.auditing.result import GroupAudit, RunAudit
from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.plots.figures import FRONTIER, colours, compact

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = {"best": "*", "level": "o", "behind": "v", "undecided": "D", "alone": "o", "not-judged": "o"}
MEANING = {"best": "best known here", "level": "level with it", "behind": "behind it", "undecided": "cannot tell"}
MOST_BARS = 30
SMALLEST_SHARE = 0.01


def plot_group(group: GroupAudit, metric: str) -> Figure:
    """Left: evaluations, fitted curves, their envelope and the end of every run. Right: cost of equal reward.

    The figure is not registered with pyplot.

    Raises:
        FitError: the group could not be fitted.
    """
    from matplotlib.figure import Figure

    if group.fits is None:
        raise FitError(f"group {group.name} was not fitted: {group.reason}", "Draw a group that was fitted.")
    bars = _bars(group)
    figure = Figure(figsize=(12.5 if bars else 7.6, max(4.8, 0.26 * len(bars) + 1.4)), layout="constrained")
    if bars:
        left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
        _draw_costs(right, bars)
    else:
        left = figure.add_subplot()
    _draw_runs(left, group, group.fits, metric)
    model = group.context.get("model")
    figure.suptitle(f"Audit of group {group.name}" + (f": {model}" if model else ""), fontsize=12)
    return figure


def _draw_runs(axes: Axes, group: GroupAudit, fits: Fits, metric: str) -> None:
    sizes = fits.group_sizes
    colour = dict(zip(sizes, colours(len(sizes)), strict=True))
    last: dict[tuple[int, int | None], float] = {}
    for run in group.runs:
        key = (run.group_size, run.problems_per_batch)
        end = run.fault_rollouts if run.fault == "collapse" and run.fault_rollouts else run.rollouts
        last[key] = max(last.get(key, 0.0), end)
    for (n, bp), curve in fits.curves.items():
        seen = curve.compute_T > 0
        axes.plot(curve.compute_T[seen], curve.reward_T[seen], ".", color=colour[n], alpha=0.25, markersize=3)
        grid = np.geomspace(curve.first_compute, last.get((n, bp), curve.last_compute), 120)
        axes.plot(grid, curve.predict(grid), color=colour[n], linewidth=1.4)
    curves = list(fits.curves.values())
    low, high = min(c.first_compute for c in curves), max(c.last_compute for c in curves)
    best = fits.frontier(np.geomspace(low, high, 300))
    axes.plot(best.compute, best.reward, color=FRONTIER, linewidth=7, alpha=0.18, zorder=1.5)
    judged = [run for run in group.runs if run.expected is not None]
    for run in judged:
        _mark(axes, run.standing, colour[run.group_size], ([run.rollouts], [run.reached]))
    handles: list[Any] = [axes.plot([], [], color=colour[n], linewidth=3, label=f"n = {n}")[0] for n in sizes]
    for standing in dict.fromkeys(run.standing for run in judged):
        if standing in MEANING:
            handles += _mark(axes, standing, "white", ([], []), MEANING[standing])
    axes.legend(handles=handles, fontsize=8.5, ncols=2, framealpha=0.9)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(compact())
    axes.xaxis.set_minor_formatter(compact(minor=True))
    axes.tick_params(axis="x", which="minor", labelsize=7.5)
    axes.set_xlabel("sampling compute C (rollouts)")
    axes.set_ylabel(metric)
    axes.set_title("Where each run ended; envelope in grey", fontsize=10.5)
    axes.grid(alpha=0.25)


def _mark(
    axes: Axes, standing: str, colour: Any, at: tuple[list[float], list[float]], label: str | None = None
) -> list[Any]:
    return axes.plot(
        *at,
        MARKERS[standing],
        color=colour,
        markeredgecolor="black",
        markeredgewidth=0.7,
        markersize=13 if standing == "best" else 8,
        zorder=5,
        label=label,
    )


def _bars(group: GroupAudit) -> list[RunAudit]:
    """Runs compared with another configuration, in order of rollouts lost, so that the largest loss is on top."""
    held = [run for run in group.runs if run.equal_reward is not None and run.standing not in ("best", "alone")]
    held.sort(key=lambda run: run.rollouts - (run.equal_reward.mean if run.equal_reward else 0.0))
    return held[-MOST_BARS:]


def _draw_costs(axes: Axes, runs: list[RunAudit]) -> None:
    for y, run in enumerate(runs):
        assert run.equal_reward is not None, "only runs with a cost are drawn"
        share, low, high = (max(value / run.rollouts, SMALLEST_SHARE) for value in run.equal_reward)
        faded = 0.35 if run.standing == "undecided" else 1.0
        axes.plot([low, high], [y, y], color="#0072B2", linewidth=3, alpha=0.45 * faded, solid_capstyle="butt")
        axes.plot([share], [y], "o", color="#0072B2", markersize=6, alpha=faded)
    axes.axvline(1.0, color="0.3", linewidth=1.0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:.0%}" if f"{value:.0e}"[0] in "25" else "")
    axes.tick_params(axis="x", which="minor", labelsize=7.5)
    names = [run.run_id if len(run.run_id) <= 28 else f"...{run.run_id[-25:]}" for run in runs]
    axes.set_yticks(range(len(runs)), names, fontsize=8)
    axes.set_ylim(-0.7, len(runs) - 0.3)
    axes.set_xlabel("rollouts for the same reward at the best known n,\nas a share of what the run spent")
    axes.set_title("Cost of equal reward (pale: cannot tell)", fontsize=10.5)
    axes.grid(alpha=0.25, axis="x", which="both")
