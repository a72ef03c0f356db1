"""Runs without a fit: evaluations by n, logged quantities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.plots import style
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.reward_metrics import headline, measured_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AT_END = 0.8
"""Values from this share of a run's compute on are averaged for the place of its label."""


@style.styled
def evaluations(
    runs: RunSet, metric: str | None = None, *, eval_set: str | None = None, ax: Axes | None = None
) -> Axes:
    """Every evaluation of one metric over compute, a line per run in the colour of its n.

    Args:
        runs: the runs.
        metric: what to draw. None: the reward, avg@4 or what comes nearest to it.
        eval_set: set it was measured on; needed where there are several.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: no metric of an evaluation.
        RecordError: no such metric, or several evaluation sets.
    """
    metric, eval_set = _metric(runs, metric, eval_set)
    ax = style.canvas(ax)
    series = runs.series(metric, eval_set)
    seen = [(one, (one.rollouts_T > 0) & np.isfinite(one.value_T)) for one in series]
    measured = [(one, one.rollouts_T[some], one.value_T[some]) for one, some in seen if some.any()]
    if not measured:
        raise FitError(
            f"{metric} was only measured at step 0; needed: evaluations during training", "Log more of them."
        )
    many = sum(len(one.value_T) for one in series) > style.MANY
    ends: dict[int, list[float]] = {}
    for one, x, y in measured:
        colour, mark = style.look(one.group_size)
        style.points(ax, x, y, colour, mark, many=many)
        # Where points are too small to tell n, the line carries its mark.
        marks: dict[str, Any] = {"marker": mark, "markevery": max(len(x) // 6, 1)} if many else {}
        ax.plot(x, y, color=colour, linewidth=0.9, alpha=0.6 if many else 0.8, markersize=4, zorder=1.5, **marks)
        ends.setdefault(one.group_size, []).append(float(y[x >= AT_END * x[-1]].mean()))
    low, high = min(float(x[0]) for _, x, _ in measured), max(float(x[-1]) for _, x, _ in measured)
    style.log_axis(ax, low / 1.1, max(high, low * 1.5) * 1.1, "sampling compute C (rollouts)")
    ax.set_ylabel(metric)
    style.clip_falls(ax, [(x, y, style.look(one.group_size)[0]) for one, x, y in measured])
    style.name_sizes(ax, ends)
    ax.set_title(metric + ("" if eval_set is None else f" on {eval_set}"))
    return ax


def _metric(runs: RunSet, metric: str | None, eval_set: str | None) -> tuple[str, str | None]:
    if metric is not None:
        return metric, eval_set
    chosen = headline(measured_in(runs.to_polars()))
    if chosen is None:
        raise FitError(
            f"no reward among the metrics {', '.join(runs.metrics)}; needed: a column such as avg@4", "Name the metric."
        )
    return chosen[0], eval_set or chosen[1]


Logged = tuple[str, int, Array, Array]
"""Run, n, rollouts and values of one line."""


@style.styled
def logged(
    lines: Sequence[Logged],
    title: str,
    *,
    dashed: Sequence[Logged] = (),
    reward: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """A logged quantity of every run over compute, in the colour of its n.

    Args:
        lines: what is drawn as solid lines.
        title: what it is.
        dashed: what is drawn beside it.
        reward: it is one, so runs that collapse leave the axis to the others.
        ax: where to draw; a new figure by default.
    """
    ax = style.canvas(ax, size=(style.PANEL_WIDTH, style.PANEL_HEIGHT))
    ends: dict[int, list[float]] = {}
    drawn: list[tuple[Array, Array, str]] = []
    # Marks as well as colours, so that each n can be told in print.
    for some, mark in ((lines, "-"), (dashed, "--")):
        for _, n, rollouts_T, value_T in some:
            seen = (rollouts_T > 0) & np.isfinite(value_T)
            if seen.any():
                x, y = rollouts_T[seen], value_T[seen]
                every = max(len(x) // 6, 1)
                colour, shape = style.look(n)
                ax.plot(x, y, shape + mark, color=colour, linewidth=1.2, alpha=0.8, markersize=4, markevery=every)
                drawn.append((x, y, colour))
                if mark == "-":
                    ends.setdefault(n, []).append(float(y[-1]))
    low, high = min((x[0] for x, *_ in drawn), default=1.0), max((x[-1] for x, *_ in drawn), default=10.0)
    style.log_axis(ax, low / 1.1, max(high, low * 1.5) * 1.1, "rollouts C")
    if reward:
        style.clip_falls(ax, drawn)
    ax.set_title(title)
    style.name_sizes(ax, ends)
    return ax
