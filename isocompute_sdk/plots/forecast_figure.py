"""Figure of a forecast: evaluations, the curve through them, what lies ahead with its interval, the point to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.fitting.one_run.forecast import Forecast
from isocompute_sdk.plots.figures import BUDGET, FRONTIER, LAW, compact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DENSE = 200
"""Evaluations from which their marks are small and pale."""


def plot_forecast(forecast: Forecast) -> Figure:
    """Draw one forecast; the figure is not registered with pyplot.

    The horizontal axis is logarithmic from the first evaluation after step 0.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4.8), layout="constrained")
    axes = figure.add_subplot()
    trained = forecast.evaluated > 0
    dense = int(trained.sum()) > DENSE
    axes.plot(
        forecast.evaluated[trained],
        forecast.measured[trained],
        "o",
        color=FRONTIER,
        markersize=2 if dense else 3.5,
        alpha=0.15 if dense else 0.5,
        markeredgewidth=0,
        label="evaluations",
    )
    curve = forecast.curve
    seen, ahead = curve.rollouts <= forecast.rollouts * 1.0001, curve.rollouts >= forecast.rollouts * 0.9999
    axes.plot(curve.rollouts[seen], curve.mean[seen], color=LAW, linewidth=1.8)
    axes.plot(curve.rollouts[ahead], curve.mean[ahead], color=LAW, linewidth=1.8, linestyle="--", label="forecast")
    axes.fill_between(
        curve.rollouts,
        curve.low,
        curve.high,
        color=LAW,
        alpha=0.18,
        linewidth=0,
        label=f"{forecast.level:.0%} interval",
    )
    keep = forecast.card.keep
    if keep.reward is not None:
        axes.plot([keep.rollouts], [keep.reward], "*", color=BUDGET, markersize=14, zorder=5, label="to keep")
    axes.axvline(forecast.rollouts, color="0.45", linestyle=":", linewidth=1.2)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(compact())
    axes.set_xlabel("rollouts C")
    axes.set_ylabel(forecast.metric)
    axes.set_title(f"{forecast.run_id}: {forecast.card.action}")
    axes.grid(alpha=0.2)
    axes.legend(fontsize=8.5, loc="best", framealpha=0.9)
    return figure
