"""Reward curves with their frontier and the plan; what the other figures of fits share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import span
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.forecast import Forecast
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.planning import Plan
from isocompute_sdk.plots import style
from isocompute_sdk.records import RunSeries

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@style.styled
def forecast(source: Forecast, *, ax: Axes | None = None) -> Axes:
    """Evaluations of one run, the curve through them, its forecast with interval, and the checkpoint to keep.

    Without a rise, or after a fall that no curve follows, the evaluations alone.

    Args:
        source: the forecast.
        ax: where to draw; a new figure by default.
    """
    ax = style.canvas(ax)
    trained = source.evaluated > 0
    many = int(trained.sum()) > style.MANY
    style.points(ax, source.evaluated[trained], source.measured[trained], style.INK, "o", many=many)
    curve = source.curve
    first = float(source.evaluated[trained].min()) if trained.any() else float(curve.rollouts[0])
    end = float(curve.rollouts[-1]) if source.told else source.rollouts
    style.log_axis(ax, min(first, float(curve.rollouts[0])) / 1.1, end * 1.05, "rollouts C")
    ax.set_ylabel(source.metric)
    ax.set_title(f"{source.run_id}: {source.card.action}")
    style.upright(ax, source.rollouts, "so far")
    keep = source.card.keep
    if keep.reward is not None and (source.rises or source.lost):
        text = "checkpoint to keep" if keep.path else "best so far"
        style.star(ax, keep.rollouts, keep.reward, text, what="to keep")
    if source.told:
        _draw_ahead(ax, source)
    return ax


def _draw_ahead(ax: Axes, source: Forecast) -> None:
    """The curve of a forecast, dashed ahead, with its interval."""
    curve, last = source.curve, source.rollouts
    # A curve that misses the last evaluations ends before them.
    seen, ahead = curve.rollouts <= last * (0.9999 if source.missed else 1.0001), curve.rollouts >= last * 0.9999
    ax.plot(curve.rollouts[seen], curve.mean[seen], color=style.PLAN, linewidth=1.9)
    line = style.line_to(ax, curve.rollouts[ahead], curve.mean[ahead], None, color=style.PLAN, label="forecast")
    for part in (seen, ahead):
        ends = curve.rollouts[part], curve.low[part], curve.high[part]
        band = ax.fill_between(*ends, color=style.PLAN, alpha=0.18, linewidth=0)
    band.set_label(f"{source.level * 100:g} %\ninterval")
    style.end_labels(ax, [(float(curve.mean[-1]), line), (float(curve.low[-1]), band)])


POINTS, MARKED = 240, 48
"""Computes at which a curve is drawn, and from mark to mark of a curve."""
JUMP = 0.03
"""Rise between two of them, as a share of the whole, that no smooth frontier has."""


def split(source: Fits | Plan) -> tuple[Fits, Plan | None]:
    """Fits, and the plan made from them if there is one.

    Raises:
        FitError: a plan that was saved without its fits.
    """
    if isinstance(source, Fits):
        return source, None
    if source.fits is None:
        raise FitError(
            "this plan was saved without its fits, so there is nothing to draw",
            "Plan again (<isocompute allocate | planner.allocate>) and draw that plan.",
        )
    return source.fits, source


def axis_name(fits: Fits) -> str:
    """What the compute axis counts."""
    return f"sampling compute C ({'tokens' if fits.compute == 'log10_tokens' else 'rollouts'})"


@style.styled
def reward_curves(
    source: Fits | Plan,
    *,
    problems_per_batch: int | None = None,
    trained: RunSeries | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Evaluations, the fitted curve of every n, their frontier, and the plan with its 80 % interval.

    Where no run rises a line is the mean of its evaluations, and there is no frontier.

    Curves are dashed beyond their runs, and of an n that was not run. A plan is drawn at its own B_p: the curves of a
    surface are those of exactly that B_p, points are of the nearest one that was run.

    Args:
        source: fits with reward curves, or a plan made from such fits.
        problems_per_batch: B_p drawn. None: that of the plan; of fits every one, a panel each (with `ax`, the
            smallest).
        trained: the run that carried the plan out, drawn as a thin line.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; of several panels the first.

    Raises:
        FitError: the fits have no reward curves, or none at this B_p.
    """
    fits, plan = split(source)
    fits.select()
    levels: Sequence[int | None] = fits.problems_per_batch or (None,)
    if problems_per_batch is not None:
        levels = [problems_per_batch]
    elif plan is not None:
        levels = [fits.nearest_problems_per_batch(plan.problems_per_batch)]
    elif ax is not None:
        levels = levels[:1]
    axes = [style.canvas(ax)] if len(levels) == 1 else style.panels(len(levels))
    for one, level in zip(axes, levels, strict=True):
        _draw_curves(one, fits, plan, level, trained)
    return axes[0]


CURVES = "Reward curves and frontier"


def _values(fits: Fits, curve: RewardCurve, grid: Array, problems_per_batch: int | None) -> Array:
    """What is drawn of a curve, at another B_p if one is given; the mean of its evaluations where no run rises."""
    if fits.no_rise:
        return np.full(len(grid), curve.reward_T.mean())
    if problems_per_batch is None:
        return curve.predict(grid)
    return fits.expected_reward(grid, curve.group_size, problems_per_batch)


def _draw_curves(ax: Axes, fits: Fits, plan: Plan | None, level: int | None, trained: RunSeries | None) -> None:
    curves = fits.select(level)
    # The plan's own B_p, if the surface reaches it; another level that was asked for is drawn without the plan.
    if plan is not None and fits.nearest_problems_per_batch(plan.problems_per_batch) != level:
        plan = None
    exact = plan.problems_per_batch if plan is not None and fits.surface is not None and level is not None else level
    at_plan = plan is not None and plan.predicted_reward is not None
    low, last = span(curves)
    high = max(last, plan.compute) if plan is not None else last
    grid = np.geomspace(low, high * 1.001, POINTS)
    many = sum(len(curve.compute_T) for curve in curves) > style.MANY
    every: list[Array] = []
    drawn = [] if trained is None else [_draw_trained(ax, trained)]
    labels: list[style.Label] = [] if trained is None else [(float(drawn[0][1][-1]), ax.lines[-1])]
    for i, curve in enumerate(curves):
        colour, mark = style.look(curve.group_size)
        seen = curve.compute_T > 0
        drawn.append((curve.compute_T[seen], curve.reward_T[seen], colour))
        style.points(ax, *drawn[-1], mark, many=many)
        begun = grid >= curve.first_compute * 0.999
        values = _values(fits, curve, grid, None if exact == level else exact)
        # Where points are too small to tell n, the curve carries its mark.
        marks: dict[str, Any] = {"marker": mark, "markevery": (i * MARKED // len(curves), MARKED)} if many else {}
        line, name = (grid[begun], values[begun], curve.last_compute), f"n = {curve.group_size}"
        style.line_to(ax, *line, color=colour, label=name, **marks)
        every.append(np.where(begun, values, -np.inf))
        labels.append((float(values[-1]), style.sample(curve.group_size)))
    sizes = [curve.group_size for curve in curves]
    marked = plan.group_size if plan is not None and at_plan else sizes[int(np.argmax([one[-1] for one in every]))]
    colour, _ = style.look(marked)
    if marked not in sizes:
        values = fits.expected_reward(grid, marked, exact)
        labels.append((float(values[-1]), style.line_to(ax, grid, values, None, color=colour, label=f"n = {marked}")))
    if fits.surface is not None and not fits.no_rise:
        x = grid[grid >= min((c.first_compute for c in curves if c.group_size == marked), default=low) * 0.999]
        _, under, above = fits.predict(x, marked, exact)
        how: dict[str, Any] = {"color": colour, "alpha": 0.16, "linewidth": 0, "zorder": 1}
        how["label"] = f"80 % interval,\nn = {marked}"
        labels.append((float(above[-1]), ax.fill_between(x, under, above, **how)))
    if not fits.no_rise:
        measured = grid <= last * 1.001
        _, line = frontier_line(ax, grid[measured], np.max(every, axis=0)[measured])
        # Below the names of n, which stand beside the ends of their lines.
        labels.insert(0, (min(y for y, _ in labels), line))
    style.log_axis(ax, low / 1.1, high * 1.1, axis_name(fits))
    ax.set_ylabel(fits.metric)
    ax.margins(y=0.06)
    ax.autoscale_view(scalex=False)
    predicted = [plan.predicted_reward] if plan is not None and plan.predicted_reward is not None else []
    style.clip_falls(ax, drawn, [*(y for y, _ in labels), *predicted], [min(y[np.isfinite(y)]) for y in every])
    where = "" if exact is None else f" at $B_p$ = {exact}" + (f" (points at {level})" if exact != level else "")
    ax.set_title(f"{'No rise: evaluations and means' if fits.no_rise else CURVES}{where}")
    if plan is not None:
        _mark_plan(ax, plan)
    style.end_labels(ax, labels)


def _mark_plan(ax: Axes, plan: Plan) -> None:
    """The plan at its compute, with its reward and interval; nothing where no reward is predicted."""
    if plan.predicted_reward is not None:
        text = f"plan: n = {plan.group_size}, {plan.predicted_reward:.3f}"
        if plan.reward_interval is not None:
            text += "\n80 %: {:.3f} to {:.3f}".format(*plan.reward_interval)
        style.star(ax, plan.compute, plan.predicted_reward, text, plan.reward_interval)


def frontier_line(ax: Axes, grid: Array, best: Array) -> style.Label:
    """The frontier behind its curves, after the jumps at its start, where better curves begin; its label at the end."""
    jumps = np.flatnonzero(np.diff(best[: len(best) // 4]) > JUMP * np.ptp(best))
    x, y = (part[int(jumps[-1]) + 1 if len(jumps) else 0 :] for part in (grid, best))
    (line,) = ax.plot(x, y, color=style.MUTED, linewidth=4.6, solid_capstyle="butt", label="frontier", zorder=2.5)
    return float(y[-1]), line


def _draw_trained(ax: Axes, run: RunSeries) -> tuple[Array, Array, str]:
    """Evaluations of the run that carried the plan out; what was drawn, with its colour."""
    (colour, mark), seen = style.look(run.group_size), run.rollouts_T > 0
    x, y = run.rollouts_T[seen], run.value_T[seen]
    ax.plot(x, y, f"{mark}-", color=colour, linewidth=0.9, markersize=3.5, alpha=0.8, zorder=3.5, label="trained")
    return x, y, colour
