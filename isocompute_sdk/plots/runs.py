"""Runs without a fit: evaluations by n, coverage and sharpening, record-breaking points, several campaigns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.auditing.grouping import group_runs
from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper.analysis import record_breaking
from isocompute_sdk.planning import Plan
from isocompute_sdk.plots import style
from isocompute_sdk.plots.curves import MANY, reward_curves, split
from isocompute_sdk.records import RunSeries, RunSet
from isocompute_sdk.records.rewards import headline, measured_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 12
"""Groups of runs drawn side by side."""
AT_END = 0.8
"""Values from this share of a run's compute on are averaged for the place of its label."""
BIN_WIDTH = 0.005
"""Reward bin of the paper's record-breaking points."""
_K = re.compile(r"(?:best|worst)@(\d+)")


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
    _draw(ax, series, metric, style.by_size(one.group_size for one in series))
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


def _measured(series: Iterable[RunSeries], metric: str) -> list[tuple[RunSeries, Array, Array]]:
    """Compute and reward of every run that was evaluated during training."""
    found: list[tuple[RunSeries, Array, Array]] = []
    for one in series:
        seen = (one.rollouts_T > 0) & np.isfinite(one.value_T)
        if seen.any():
            found.append((one, one.rollouts_T[seen], one.value_T[seen]))
    if not found:
        raise FitError(
            f"{metric} was only measured at step 0; needed: evaluations during training", "Log more of them."
        )
    return found


def _axes(ax: Axes, measured: Sequence[tuple[RunSeries, Array, Array]], metric: str) -> None:
    """Compute from the first evaluation to the last, and the metric."""
    low, high = min(float(x[0]) for _, x, _ in measured), max(float(x[-1]) for _, x, _ in measured)
    style.log_axis(ax, low / 1.1, max(high, low * 1.5) * 1.1, "sampling compute C (rollouts)")
    ax.set_ylabel(metric)


def _draw(ax: Axes, series: Sequence[RunSeries], metric: str, look: style.Look) -> None:
    """Points and lines of every run, with a label for every n at its mean end."""
    many = sum(len(one.value_T) for one in series) > MANY
    measured = _measured(series, metric)
    ends: dict[int, list[float]] = {}
    last: dict[int, float] = {}
    for one, x, y in measured:
        colour, mark = look[one.group_size]
        last[one.group_size] = max(last.get(one.group_size, 0.0), float(x[-1]))
        style.points(ax, x, y, colour, mark, many=many)
        ax.plot(x, y, color=colour, linewidth=0.9, alpha=0.35 if many else 0.8, zorder=1.5)
        ends.setdefault(one.group_size, []).append(float(y[x >= AT_END * x[-1]].mean()))
    _axes(ax, measured, metric)
    style.clip_falls(ax, [(x, y, look[one.group_size][0]) for one, x, y in measured])
    style.name_sizes(ax, ends, look, last)


Logged = tuple[str, int, Array, Array]
"""Run, n, rollouts and values of one line."""


@style.styled
def logged(lines: Sequence[Logged], title: str, *, dashed: Sequence[Logged] = (), ax: Axes | None = None) -> Axes:
    """A logged quantity of every run over compute, in the colour of its n."""
    ax = style.canvas(ax, size=(style.PANEL_WIDTH, style.PANEL_HEIGHT))
    look = style.by_size(n for _, n, *_ in (*lines, *dashed))
    ends: dict[int, list[float]] = {}
    spent: list[float] = []
    # Marks as well as colours, so that each n can be told in print.
    for some, mark in ((lines, "-"), (dashed, "--")):
        for _, n, rollouts_T, value_T in some:
            seen = (rollouts_T > 0) & np.isfinite(value_T)
            if seen.any():
                x, y = rollouts_T[seen], value_T[seen]
                every = max(len(x) // 6, 1)
                ax.plot(
                    x, y, look[n][1] + mark, color=look[n][0], linewidth=1.2, alpha=0.8, markersize=4, markevery=every
                )
                spent += [float(x[0]), float(x[-1])]
                if mark == "-":
                    ends.setdefault(n, []).append(float(y[-1]))
    low, high = min(spent, default=1.0), max(spent, default=10.0)
    style.log_axis(ax, low / 1.1, max(high, low * 1.5) * 1.1, "rollouts C")
    ax.set_title(title)
    style.name_sizes(ax, ends, look)
    return ax


@style.styled
def coverage(runs: RunSet, *, k: int | None = None, eval_set: str | None = None, ax: Axes | None = None) -> Axes:
    """best@k and worst@k over compute, a panel each: does training find new answers or sharpen those it has?

    best@k (one of k samples is right) is coverage, worst@k (all are) sharpening (paper, section 5).

    Args:
        runs: runs that log best@k, worst@k or both.
        k: samples. None: the largest that is there.
        eval_set: set they were measured on; needed where there are several.
        ax: axes for one of them, best@k first; a new figure by default.

    Returns:
        The axes; of two panels the first.

    Raises:
        FitError: neither was logged.
    """
    there = {int(found[1]) for metric in runs.metrics if (found := _K.fullmatch(metric))}
    k = max(there, default=0) if k is None else k
    wanted = [metric for metric in (f"best@{k}", f"worst@{k}") if metric in runs.metrics]
    if not wanted:
        raise FitError(
            f"no best@{k or 'k'} or worst@{k or 'k'} among the metrics {', '.join(runs.metrics)}; needed: columns such "
            "as best@4 and worst@4",
            "Log them, or compute them from single rewards with best_at_k and worst_at_k.",
        )
    axes = [ax] if ax is not None else style.panels(len(wanted))
    found = {metric: runs.series(metric, eval_set) for metric in wanted}
    look = style.by_size(one.group_size for series in found.values() for one in series)
    for panel, metric in zip(axes, wanted, strict=False):
        _draw(panel, found[metric], metric, look)
        panel.set_title(f"{metric}: {'coverage' if metric.startswith('best') else 'sharpening'}")
    return axes[0]


@style.styled
def records(
    runs: RunSet,
    metric: str | None = None,
    *,
    bin_width: float = BIN_WIDTH,
    eval_set: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Record-breaking points: evaluations that enter a higher reward bin than all before in their run (section 4).

    They are drawn solid and joined, all other evaluations pale.

    Args:
        runs: the runs.
        metric: what to draw. None: the reward.
        bin_width: width of a bin, in units of reward.
        eval_set: set it was measured on; needed where there are several.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: no metric of an evaluation.
        RecordError: no such metric, or several evaluation sets.
    """
    metric, eval_set = _metric(runs, metric, eval_set)
    ax = style.canvas(ax)
    series = runs.series(metric, eval_set)
    look = style.by_size(one.group_size for one in series)
    measured = _measured(series, metric)
    ends: dict[int, list[float]] = {}
    kept = 0
    for one, x, y in measured:
        colour, mark = look[one.group_size]
        best = record_breaking(y, bin_width)
        kept += len(best)
        ax.plot(x, y, mark, color=colour, markersize=2.6, alpha=0.25, markeredgewidth=0, zorder=1)
        ax.plot(x[best], y[best], mark + "-", color=colour, markersize=4, linewidth=1.0, label=one.run_id, zorder=3)
        ends.setdefault(one.group_size, []).append(float(y[best[-1]]))
    _axes(ax, measured, metric)
    every = sum(int((one.rollouts_T > 0).sum()) for one in series)
    ax.set_title(f"Record-breaking points: {kept:,} of {every:,} evaluations (bins of {bin_width:g})")
    style.name_sizes(ax, {n: [max(y)] for n, y in ends.items()}, look)
    return ax


@style.styled
def side_by_side(source: RunSet | Mapping[str, Fits | Plan | RunSet], metric: str | None = None) -> Axes:
    """Several models, problem sets or recipes, a panel each on common axes.

    Args:
        source: runs, which are grouped by the context in which they differ (model, data, algorithm, ...), or fits,
            plans or runs by the title of their panel.
        metric: what to draw of runs. None: the reward.

    Returns:
        The first axes; all are in `axes.figure.axes`.

    Raises:
        FitError: a single group, more than 12, or nothing.
    """
    groups = _groups(source) if isinstance(source, RunSet) else dict(source)
    if not 1 < len(groups) <= MAX_PANELS:
        raise FitError(
            f"{len(groups)} group(s) to set side by side; accepted: 2 to {MAX_PANELS}",
            "Give runs that differ in a context column (model, train_data, algorithm, learning_rate, ...), or name the "
            "fits: {'Easy': fits, 'Hard': others}.",
        )
    axes = style.panels(len(groups), columns=3 if len(groups) in (3, 5, 6, 9) else 2)
    parts = [one for one in groups.values() if isinstance(one, RunSet)]
    look = style.by_size(run.group_size for part in parts for run in part.runs())
    limits = _common_limits(groups.values(), metric)
    for ax, (name, one) in zip(axes, groups.items(), strict=True):
        if limits is not None:
            ax.set_ylim(limits)
        if isinstance(one, RunSet):
            named, eval_set = _metric(one, metric, None)
            _draw(ax, one.series(named, eval_set), named, look)
        else:
            reward_curves(one, ax=ax)
        ax.set_title(name)
    return axes[0]


def _common_limits(parts: Iterable[Fits | Plan | RunSet], metric: str | None) -> tuple[float, float] | None:
    """Limits that hold every evaluation; None for different metrics."""
    found: dict[str, list[np.ndarray]] = {}
    for one in parts:
        if isinstance(one, RunSet):
            named, eval_set = _metric(one, metric, None)
            found.setdefault(named, []).extend(part.value_T for part in one.series(named, eval_set))
        else:
            fits, _ = split(one)
            found.setdefault(fits.metric, []).extend(curve.reward_T for curve in fits.curves.values())
    if len(found) != 1:
        return None
    values = np.concatenate(next(iter(found.values())))
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = max(0.06 * (high - low), 1e-3)
    return low - room, high + room


def _groups(runs: RunSet) -> dict[str, RunSet]:
    """Runs that may be compared, by the context in which the groups differ."""
    found = group_runs(runs.runs())
    names = dict.fromkeys(name for group in found for name in group.context)
    differ = [name for name in names if len({repr(group.context.get(name)) for group in found}) > 1]
    named: dict[str, RunSet] = {}
    for i, group in enumerate(found):
        title = ", ".join(_titled(name, group.context[name]) for name in differ if name in group.context)
        title = title or f"group {i + 1}"
        ids = {run.run_id for run in group.runs}
        named[title if title not in named else f"{title} ({i + 1})"] = runs.filter(run_id=ids)
    return named


def _titled(name: str, value: object) -> str:
    if name in ("model", "train_data"):
        return str(value).rstrip("/").rsplit("/", 1)[-1]
    return f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
