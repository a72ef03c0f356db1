"""An audited group: where its runs ended on the curves, and the cost of equal reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.auditing.result import Audit, GroupAudit, RunAudit
from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import span
from isocompute_sdk.plots import style
from isocompute_sdk.plots.curves import axis_name, frontier_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILLED = {"best": 1.0, "level": 1.0, "behind": 0.0, "undecided": 0.35, "alone": 1.0, "not-judged": 1.0}
"""Share of its colour inside the mark of a run, whose shape is that of n; what may be behind is pale as its cost."""
MEANING = {"best": "best known here", "level": "about equal", "behind": "behind", "undecided": "may be behind"}
EDGE = (1.0, 1.8)
"""Width of the edge of a mark, and of that of the best."""
MAX_BARS = 30
SMALLEST_SHARE = 0.01


def fitted_group(audit: Audit, name: str | None = None) -> GroupAudit:
    """A group with fits: the one named, else the first.

    Raises:
        FitError: no such group, or none that was fitted.
    """
    groups = {group.name: group for group in audit.groups}
    if name is not None and name not in groups:
        raise FitError(f"there is no group {name!r}; accepted: {', '.join(groups)}", "Use one of these names.")
    found = [group for group in audit.groups if name in (None, group.name) and group.fits is not None]
    if not found:
        why = "; ".join(f"group {group.name}: {group.reason or 'saved without its fits'}" for group in audit.groups)
        raise FitError(f"no group of this audit was fitted ({why})", "Audit the runs themselves again, and draw that.")
    return found[0]


@style.styled
def plot_group(group: GroupAudit, metric: str) -> Figure:
    """Both figures of a group side by side; the first alone where nothing is compared.

    Raises:
        FitError: the group could not be fitted.
    """
    from matplotlib.figure import Figure

    bars = _compared(group)
    figure = Figure(
        figsize=(11.0 if bars else style.WIDTH, max(style.HEIGHT, 0.24 * len(bars) + 1.4)), layout="constrained"
    )
    left, *right = figure.subplots(1, 2, width_ratios=(1.35, 1)) if bars else [figure.add_subplot()]
    audit_runs(group, metric, ax=left)
    if right:
        audit_costs(group, ax=right[0])
    model = group.context.get("model")
    figure.suptitle(f"Audit of group {group.name}" + (f": {model}" if model else ""), fontsize=11.5, x=0.01, ha="left")
    return figure


@style.styled
def audit_runs(group: GroupAudit, metric: str, *, ax: Axes | None = None) -> Axes:
    """Evaluations, fitted curves, their frontier, and where every run ended.

    Args:
        group: a group of an audit.
        metric: its metric, for the axis.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: the group could not be fitted.
    """
    from matplotlib.patches import Patch

    fits = group.fits
    if fits is None:
        raise FitError(f"group {group.name} was not fitted: {group.reason}", "Draw a group that was fitted.")
    ax = style.canvas(ax)
    curves = fits.select()
    low, high = span(curves)
    last: dict[tuple[int, int | None], float] = {}
    for run in group.runs:
        key = (run.group_size, run.problems_per_batch)
        end = run.useful if run.fault == "collapse" else run.rollouts
        last[key] = max(last.get(key, 0.0), end)
    many = sum(len(curve.compute_T) for curve in curves) > style.MANY
    last_value, lowest, drawn = dict[int, list[float]](), list[float](), list[tuple[Array, Array, str]]()
    for curve in curves:
        n = curve.group_size
        colour, mark = style.look(n)
        seen = curve.compute_T > 0
        drawn.append((curve.compute_T[seen], curve.reward_T[seen], colour))
        style.points(ax, *drawn[-1], mark, many=many)
        grid = np.geomspace(curve.first_compute, last.get((n, curve.problems_per_batch), curve.last_compute), 120)
        values = curve.predict(grid)
        ax.plot(grid, values, color=colour, linewidth=1.6, zorder=3)
        last_value[n] = [float(values[-1])]
        lowest.append(float(values.min()))
    grid = np.geomspace(low, high, 240)
    frontier = frontier_line(ax, grid, fits.frontier(grid).reward)
    judged = [run for run in group.runs if run.expected is not None]
    for run in judged:
        colour, mark = style.look(run.group_size)
        best = run.standing == "best"
        ax.plot(
            [run.rollouts],
            [run.reached],
            mark,
            color=_face(colour, run.standing),
            markeredgecolor=style.INK if best else colour,
            markeredgewidth=EDGE[best],
            markersize=13 if best else 8,
            zorder=4 if best else 5,
        )
    style.log_axis(ax, low / 1.1, high * 1.25, axis_name(fits))
    ax.set_ylabel(metric)
    ax.set_title("Highest evaluation of each run, at the compute where it ended")
    style.clip_falls(ax, drawn, fitted=lowest)
    samples = [
        Patch(
            facecolor=_face(style.MUTED, standing),
            edgecolor=style.INK if standing == "best" else style.MUTED,
            linewidth=EDGE[standing == "best"],
            label=MEANING[standing],
        )
        for standing in dict.fromkeys(run.standing for run in judged)
        if standing in MEANING
    ]
    style.legend_below(ax, samples)
    style.name_sizes(ax, last_value, [frontier])
    return ax


def _face(colour: str, standing: str) -> str:
    """The colour inside a mark, mixed with white."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (1.0 - FILLED[standing] * (1.0 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _compared(group: GroupAudit) -> list[RunAudit]:
    """Runs compared with another configuration, in order of rollouts lost, so that the largest loss is on top."""
    held = [run for run in group.runs if run.equal_reward is not None and run.standing not in ("best", "alone")]
    held.sort(key=lambda run: run.rollouts - (run.equal_reward.mean if run.equal_reward else 0.0))
    return held[-MAX_BARS:]


@style.styled
def audit_costs(group: GroupAudit, *, ax: Axes | None = None) -> Axes:
    """Share of a run's rollouts with which the best known n reaches the same reward, with its interval, run by run.

    Args:
        group: a group of an audit.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: no run of the group is compared with another n.
    """
    runs = _compared(group)
    if not runs:
        why = f": {group.reason}" if group.reason else ""
        raise FitError(
            f"no run of group {group.name} is compared with another configuration{why}", "Draw another group or kind."
        )
    ax = style.canvas(ax)
    ends = [1.0]
    for y, run in enumerate(runs):
        assert run.equal_reward is not None, "only runs with a cost are drawn"
        share, low, high = (max(value / run.rollouts, SMALLEST_SHARE) for value in run.equal_reward)
        faded = 0.6 if run.standing == "undecided" else 1.0
        ax.plot([low, high], [y, y], color=style.PLAN, linewidth=3, alpha=0.45 * faded, solid_capstyle="butt")
        ax.plot([share], [y], "o", color=style.PLAN, markersize=6, alpha=faded)
        ends += [low, high]
    ax.axvline(1.0, color=style.MUTED, linewidth=1.0)
    style.log_axis(
        ax,
        min(ends) / 1.15,
        max(ends) * 1.15,
        "rollouts for the same reward at the best known n,\nas a share of what the run spent",
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
    names = [run.run_id if len(run.run_id) <= 28 else f"...{run.run_id[-25:]}" for run in runs]
    ax.set_yticks(range(len(runs)), names, fontsize=8)
    ax.set_ylim(-0.7, len(runs) - 0.3)
    ax.grid(axis="y", visible=False)
    ax.set_title(
        "Cost of equal reward" + (" (pale: may be behind)" if any(r.standing == "undecided" for r in runs) else "")
    )
    return ax
