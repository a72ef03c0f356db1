"""Figures of fits and plans: reward curves with their frontier (paper, fig. 6) and n*(C) (paper, fig. 7).

Every function takes `Fits` or a `Plan` and returns a matplotlib figure that is not registered with pyplot: it is freed
like any object and needs no display.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk import files
from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.allocation_laws.allocation import AllocationLaw
from isocompute_sdk.fitting.allocation_laws.frontier import span
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.answers.law import REACH
from isocompute_sdk.planning import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FRONTIER, BUDGET, LAW = "#000000", "#D55E00", "#0072B2"
"""Colours of the Okabe-Ito palette, distinguishable with any colour vision."""
BAND_POINTS = 120
"""Computes at which a surface's set of best n is drawn."""


def plot_reward_curves(source: Fits | Plan, problems_per_batch: int | None = None) -> Figure:
    """Measured rewards, the fitted curve of every group size, and their upper envelope.

    Curves are dashed beyond the data. A surface's curve is its mean; the band behind it is the 80 % interval of the
    reward averaged over runs.

    Args:
        source: fits with reward curves, or a plan made from such fits (which adds the budget).
        problems_per_batch: B_p of the curves. None: the smallest.

    Raises:
        FitError: the fits have no reward curves.
    """
    fits, plan = _split(source)
    levels = fits.problems_per_batch
    chosen = levels[0] if problems_per_batch is None and len(levels) > 1 else problems_per_batch
    curves = fits.select(chosen)
    figure, axes = _canvas()
    low = min(c.first_compute for c in curves)
    high = max([c.last_compute for c in curves] + ([_planned(fits, plan)] if plan is not None else []))
    grid = np.geomspace(low, high, 600)
    for curve, colour in zip(curves, colours(len(curves)), strict=True):
        _draw_curve(axes, curve, grid, colour)
        if fits.surface is not None:
            after = grid[grid >= curve.first_compute]
            _, below, above = fits.predict(after, curve.group_size, curve.problems_per_batch)
            axes.fill_between(after, below, above, color=colour, alpha=0.13, linewidth=0, zorder=1)
    best = fits.frontier(grid[grid <= max(c.last_compute for c in curves)], chosen)
    axes.plot(best.compute, best.reward, color=FRONTIER, linewidth=7, alpha=0.22, label="frontier", zorder=1.5)
    if plan is not None:
        _mark_budget(axes, fits, plan)
    suffix = f" at B_p = {chosen or levels[0]}" if levels else ""
    axes.set_title(f"Reward curves and frontier{suffix}{_whose(fits)}")
    axes.set_ylabel(fits.metric)
    _finish(axes, fits, (low, high))
    axes.legend(fontsize=8.5, ncols=2, loc="upper left", framealpha=0.9)
    return figure


def plot_allocation_law(source: Fits | Plan, name: str = "group_size") -> Figure:
    """Best group size against compute: frontier points, fitted law with its band, grid limits, budget.

    For a surface, the thick line is the n that plans choose at each budget, in steps, with the 80 % set of the best n;
    dashed beyond the data. A law is drawn over them if the fits have one.

    Args:
        source: fits, or a plan (which adds its budget and choice).
        name: the law; a law in steps has M on the horizontal axis.

    Raises:
        FitError: the fits have neither this law nor a surface.
    """
    fits, plan = _split(source)
    own = fits.surface is not None and name == "group_size"
    law = fits.laws.get(name) if own else fits.law(name)
    figure, axes = _canvas()
    in_steps = law is not None and law.x == "update_steps"
    low, high = _law_range(fits, plan, name)
    grid = np.linspace(low, high, 600) if in_steps else np.geomspace(low, high, 600)
    shown = [_draw_best(axes, fits, grid)] if own else _draw_band(axes, fits, grid, name)
    if law is not None:
        _draw_law(axes, fits, law, grid, beside=own)
        shown.append(law.predict(grid))
    if not in_steps and fits.curves and not own:
        _draw_frontier_points(axes, fits)
    smallest, largest = fits.group_size_range
    if name == "group_size" and fits.method != "prior":
        axes.axhline(largest, color="0.45", linestyle=":", linewidth=1.2, label="largest n that was run")
    if plan is not None and not in_steps:
        _mark_budget(axes, fits, plan)
        axes.plot(
            [_planned(fits, plan)],
            [plan.group_size],
            "*",
            color=BUDGET,
            markersize=15,
            zorder=6,
            label=f"plan: n = {plan.group_size}",
        )
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("best problems per batch B_p*" if name.startswith("problems") else "best group size n*")
    shown.append(np.array([smallest, largest, *([plan.group_size] if plan is not None and not in_steps else [])]))
    axes.set_ylim(min(map(np.min, shown)) / 1.5, max(map(np.max, shown)) * 1.5)
    axes.set_title(("Best group size" if own else "Allocation law") + _whose(fits))
    if in_steps:
        axes.set_xlabel(f"update steps M at B = {fits.rollouts_per_batch:,} rollouts per batch")
        axes.grid(alpha=0.25)
    else:
        _finish(axes, fits, (low, high))
    rising = law.rising if law is not None else bool(shown[0][-1] >= shown[0][0])
    axes.legend(fontsize=8.5, loc="upper left" if rising else "upper right", framealpha=0.9)
    return figure


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure (PNG, SVG or PDF by its suffix); a kill leaves the old file or the new one.

    Raises:
        IsoComputeError: an unknown suffix, or a file that cannot be written.
    """

    def write(temporary: Path) -> None:
        figure.savefig(temporary, dpi=150)

    with files.saving(path) as target:
        kinds = figure.canvas.get_supported_filetypes()
        if target.suffix.removeprefix(".").lower() not in kinds:
            raise FitError(
                f"{target} ends in {target.suffix!r}; accepted: {', '.join(f'.{kind}' for kind in kinds)}",
                "Use one of these suffixes, such as .png.",
            )
        return files.write_with(target, write)


def _split(source: Fits | Plan) -> tuple[Fits, Plan | None]:
    if isinstance(source, Fits):
        return source, None
    if source.fits is None:
        raise FitError(
            "this plan was saved without its fits, so there is nothing to draw",
            "Plan again (`isocompute allocate`) and draw that plan.",
        )
    return source.fits, source


def _canvas() -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4.8), layout="constrained")
    return figure, figure.add_subplot()


def colours(count: int) -> list[Any]:
    """`count` colours, from dark to light."""
    from matplotlib import colormaps

    # The pale end of the map is left out: yellow on white is hard to see.
    return [colormaps["viridis"](v) for v in np.linspace(0.0, 0.88, max(count, 2))[:count]]


def _draw_curve(axes: Axes, curve: RewardCurve, grid: np.ndarray, colour: Any) -> None:
    seen = (grid >= curve.first_compute) & (grid <= curve.last_compute)
    after = grid >= curve.last_compute
    positive = curve.compute_T > 0
    dense = positive.sum() > 40
    axes.plot(
        curve.compute_T[positive],
        curve.reward_T[positive],
        "o",
        color=colour,
        markersize=2.8 if dense else 4,
        alpha=0.45 if dense else 0.7,
        markeredgewidth=0,
    )
    axes.plot(grid[seen], curve.predict(grid[seen]), color=colour, linewidth=1.8, label=f"n = {curve.group_size}")
    axes.plot(grid[after], curve.predict(grid[after]), color=colour, linewidth=1.2, linestyle="--")


def _draw_frontier_points(axes: Axes, fits: Fits) -> None:
    curves = fits.select()
    low, high = min(c.first_compute for c in curves), max(c.last_compute for c in curves)
    best = fits.frontier(np.geomspace(low, high, 60))
    seen = ~best.extrapolated
    axes.plot(
        best.compute[seen],
        best.group_size[seen],
        "o",
        color=FRONTIER,
        markersize=4,
        alpha=0.6,
        markeredgewidth=0,
        label="n of the best curve",
    )


def _draw_band(axes: Axes, fits: Fits, grid: np.ndarray, name: str) -> list[np.ndarray]:
    """Draw the law's interval; returns no values, since the axes need not hold all of it."""
    band = fits.law_interval(grid, name=name)
    if band is not None:
        kind = "80 % of the prior" if fits.method == "prior" else "80 % band (uncalibrated)"
        axes.fill_between(grid, *band, color=LAW, alpha=0.18, linewidth=0, label=kind)
    return []


def _draw_best(axes: Axes, fits: Fits, grid: np.ndarray) -> np.ndarray:
    """Draw the n that plans choose with the 80 % set, which holds it; returns that n on a thinned grid."""
    # Each compute is one query of the surface; fewer suffice, since the set's edges are steps.
    at = grid[:: max(len(grid) // BAND_POINTS, 1)]
    band = fits.law_interval(at)
    assert band is not None, "a surface has draws"
    best = fits.best_group_size(at)
    axes.fill_between(at, *band, color=LAW, alpha=0.15, linewidth=0, step="mid", label="80 % set of n*")
    last = fits.largest_compute or at[-1]
    seen, later = at <= last, at >= at[max(int(np.searchsorted(at, last, side="right")) - 1, 0)]
    style: dict[str, Any] = {"color": LAW, "drawstyle": "steps-mid"}
    axes.plot(at[seen], best[seen], linewidth=2.2, label="n* of the surface", **style)
    axes.plot(at[later], best[later], linewidth=1.4, linestyle="--", **style)
    return best


def _draw_law(axes: Axes, fits: Fits, law: AllocationLaw, grid: np.ndarray, *, beside: bool) -> None:
    """Draw the law; beside a surface it only describes n*."""
    if beside:
        axes.plot(grid, law.predict(grid), color=FRONTIER, linewidth=1.1, linestyle="-.", label="law through n*")
    else:
        label = "median law" if fits.method == "prior" else "law"
        axes.plot(grid, law.predict(grid), color=LAW, linewidth=2.2, label=label)


def _law_range(fits: Fits, plan: Plan | None, name: str) -> tuple[float, float]:
    if fits.surface is not None and name == "group_size":
        low, high = (float(np.log10(end)) for end in span(fits.select()))
        high += float(np.log10(REACH))
    else:
        law = fits.law(name)
        if law.x == "update_steps":
            return law.x_range or (1.0, max(4 * law.midpoint, 400.0))
        low, high = law.x_range or (law.midpoint - 1.2, law.midpoint + 1.2)
    if plan is not None:
        planned = float(np.log10(_planned(fits, plan)))
        low, high = min(low, planned - 0.3), max(high, planned + 0.3)
    return float(10.0**low), float(10.0**high)


def _planned(fits: Fits, plan: Plan) -> float:
    """The plan's compute on the axis of the fits."""
    if fits.compute == "log10_tokens":
        return plan.costs["tokens"]
    return float(plan.rollouts)


def _mark_budget(axes: Axes, fits: Fits, plan: Plan) -> None:
    axes.axvline(_planned(fits, plan), color=BUDGET, linestyle="--", linewidth=1.5, label="budget planned", zorder=3)


def _whose(fits: Fits) -> str:
    return f" ({fits.model})" if fits.model else (" (prior, no data)" if fits.method == "prior" else "")


def _finish(axes: Axes, fits: Fits, limits: tuple[float, float]) -> None:
    unit = "tokens" if fits.compute == "log10_tokens" else "rollouts"
    axes.set_xscale("log")
    axes.set_xlim(limits[0] / 1.12, limits[1] * 1.12)
    axes.set_xlabel(f"sampling compute C ({unit})")
    axes.xaxis.set_major_formatter(compact())
    axes.xaxis.set_minor_formatter(compact(minor=True))
    axes.tick_params(axis="x", which="minor", labelsize=7.5)
    axes.grid(alpha=0.25)


def compact(minor: bool = False) -> Callable[[float, float], str]:
    """Formatter of ticks: 1.5M for 1.5e6; minor ticks are labelled at 2 and 5 only."""

    def show(value: float, _: float) -> str:
        if value <= 0 or (minor and round(value / 10 ** np.floor(np.log10(value) + 1e-9)) not in (2, 5)):
            return ""
        for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
            if value >= size * (1 - 1e-9):
                return f"{value / size:g}{suffix}"
        return f"{value:g}"

    return show
