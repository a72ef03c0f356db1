"""A forecast: evaluations, the curve through them, what lies ahead with its interval, the checkpoint to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.fitting.forecast import Forecast
from isocompute_sdk.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DENSE = 200
"""Evaluations from which their marks are small and pale."""


@style.styled
def forecast(source: Forecast, *, ax: Axes | None = None) -> Axes:
    """Evaluations of one run, the curve through them, its forecast with interval, and the checkpoint to keep.

    Args:
        source: the forecast.
        ax: where to draw; a new figure by default.
    """
    ax = style.canvas(ax)
    trained = source.evaluated > 0
    many = int(trained.sum()) > DENSE
    style.points(ax, source.evaluated[trained], source.measured[trained], style.INK, "o", many=many)
    curve = source.curve
    seen, ahead = curve.rollouts <= source.rollouts * 1.0001, curve.rollouts >= source.rollouts * 0.9999
    ax.plot(curve.rollouts[seen], curve.mean[seen], color=style.PLAN, linewidth=1.9)
    ax.plot(curve.rollouts[ahead], curve.mean[ahead], color=style.PLAN, linewidth=1.9, linestyle=(0, (4, 2)))
    ax.fill_between(curve.rollouts, curve.low, curve.high, color=style.PLAN, alpha=0.18, linewidth=0)
    first = float(source.evaluated[trained].min()) if trained.any() else float(curve.rollouts[0])
    style.log_axis(ax, min(first, float(curve.rollouts[0])) / 1.1, float(curve.rollouts[-1]) * 1.05, "rollouts C")
    ax.set_ylabel(source.metric)
    ax.set_title(f"{source.run_id}: {source.card.action}")
    style.upright(ax, source.rollouts, "so far")
    keep = source.card.keep
    if keep.reward is not None:
        style.star(ax, keep.rollouts, keep.reward, "checkpoint to keep", what="to keep")
    labels = [
        (float(curve.mean[-1]), "forecast", style.PLAN),
        (float(curve.low[-1]), f"{source.level:.0%} interval", style.PLAN),
    ]
    style.end_labels(ax, labels)
    return ax
