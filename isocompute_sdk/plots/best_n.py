"""The best n by budget: what plans choose, or the law of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import span
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.planning.questions import plan_if_enough
from isocompute_sdk.plots import style
from isocompute_sdk.plots.curves import axis_name, split
from isocompute_sdk.tolerances import FAR, LEVEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BUDGETS = 36
"""Budgets at which a plan is made for the picture of a plan."""
BAND_POINTS = 120
"""Computes at which a law or a surface is asked."""
BELOW, ABOVE = 30.0, 4.0
"""A picture of a plan reaches from this part of its budget to this multiple of it."""
UNITS = {"rollouts": "rollouts", "tokens": "tokens", "gpu_hours": "GPU-hours", "usd": "US dollars"}


@dataclass(frozen=True)
class Chosen:
    """Best n along one axis, with the range that holds it with 80 % probability."""

    x: Array
    size: Array
    low: Array | None
    high: Array | None
    steps: bool
    """Whether sizes are executable ones, drawn as steps."""
    what: str
    """What the line is."""
    last: float | None = None
    """Where the runs end; None if that is not known."""


@style.styled
def allocation(source: Fits | Plan, *, plans: Sequence[Plan] | None = None, ax: Axes | None = None) -> Axes:
    """Best n by budget, with the range that holds it with 80 % probability.

    Of a plan: the n that its planner chooses at each budget, and the plan itself, which lies on that line; a plan with
    M or B fixed stands at what it spends, beside the line of its fits. Of a surface: the n that plans choose without
    limits of hardware. Of other fits: their law, and the n of the best curve as points. The line is dashed beyond the
    runs. Rollouts or tokens, as the fits or the budget count.

    Args:
        source: fits with a law or a surface, or a plan.
        plans: of a plan, what its planner chooses by increasing budget, itself included. None: they are made.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: fits with neither a law nor a surface.
    """
    fits, plan = split(source)
    planned = None if plan is None else _chosen(plan, plans) if plans is not None else _of_plan(plan, fits)
    found, label = planned or (_of_fits(fits), axis_name(fits))
    ax = style.canvas(ax)
    whose = ", prior without data" if fits.method == "prior" else ""
    ax.set_title(f"Best group size by {'compute' if planned is None else 'budget'}{whose}")
    labels = _draw(ax, found)
    shown = [found.size, *(part for part in (found.low, found.high) if part is not None)]
    if planned is None and fits.curves and fits.surface is None:
        low, high = span(fits.select())
        best = fits.frontier(np.geomspace(low, high, 60))
        measured = ~best.extrapolated
        sizes = best.group_size[measured].astype(float)
        how: dict[str, Any] = {"color": style.MUTED, "markersize": 3.5, "label": "n of the\nbest curve", "zorder": 3}
        labels.append((float(sizes[-1]), ax.plot(best.compute[measured], sizes, "o", **how)[0]))
        shown.append(sizes)
    if fits.method != "prior":
        largest = fits.group_size_range[1]
        how = {"color": style.MUTED, "linestyle": ":", "linewidth": 1.1, "label": "largest n run", "zorder": 1}
        labels.append((float(largest), ax.axhline(largest, **how)))
        shown.append(np.array(fits.group_size_range))
    at = [] if plan is None else [plan.compute if planned is None else plan.budget.amount]
    style.log_axis(ax, min([found.x[0], *at]) / 1.05, max([found.x[-1], *at]) * 1.05, label)
    shown += [] if plan is None else [np.array([plan.group_size])]
    style.size_axis(ax, min(map(np.min, shown)), max(map(np.max, shown)), "best group size n")
    if plan is not None:
        style.star(ax, at[0], plan.group_size, f"plan: n = {plan.group_size}")
    style.end_labels(ax, labels)
    return ax


def _draw(ax: Axes, found: Chosen) -> list[style.Label]:
    """The line and its band, with their labels."""
    drawn = "steps-mid" if found.steps else "default"
    line = style.line_to(ax, found.x, found.size, found.last, drawstyle=drawn, label=found.what)
    labels: list[style.Label] = [(float(found.size[-1]), line)]
    if found.low is not None and found.high is not None:
        low, high, step = found.low, found.high, "mid" if found.steps else None
        if found.steps:
            # Chances near 80 % flicker from budget to budget.
            low, high = (np.median(sliding_window_view(np.pad(end, 3, mode="edge"), 7), axis=1) for end in (low, high))
            low, high = np.minimum(low, found.size), np.maximum(high, found.size)
            # A band of one n would lie behind the line.
            thin = np.where(low == high, 1.08, 1.0)
            low, high = low / thin, high * thin
        band: dict[str, Any] = {"color": style.PLAN, "alpha": 0.2, "linewidth": 0, "step": step}
        filled = ax.fill_between(found.x, low, high, zorder=1, label="best n\n(80 %)", **band)
        labels.append((float(np.sqrt(high[-1] * low[-1])) * 0.98, filled))
    _mark_last(ax, found.x, found.last)
    return labels


def _mark_last(ax: Axes, x: Array, last: float | None) -> None:
    if last is not None and x[0] < last < x[-1] / 1.05:
        style.upright(ax, last, "longest run")


def _in_compute(plan: Plan) -> bool:
    """Whether the budget counts what the curves do: rollouts or tokens."""
    compute = "rollouts" if plan.fits is None else plan.fits.compute.removeprefix("log10_")
    return plan.budget.unit == compute


def _last_run(plans: Sequence[Plan]) -> float | None:
    """The budget of which the plan is as long as the longest run; between two plans in proportion of logarithms."""
    fits = plans[0].fits
    if fits is not None and _in_compute(plans[0]):
        return fits.largest_compute
    reach = [one.extrapolation for one in plans if one.extrapolation is not None]
    if len(reach) < len(plans):
        return None
    amounts = np.log([one.budget.amount for one in plans])
    return float(np.exp(np.interp(0.0, np.log(np.maximum.accumulate(reach)), amounts, -np.inf, np.inf)))


def _of_fits(fits: Fits) -> Chosen:
    """What plans choose from a surface, or the law."""
    if fits.surface is not None:
        low, high = span(fits.select())
        grid = np.geomspace(low, high * FAR, BAND_POINTS)
        band = fits.law_interval(grid)
        assert band is not None, "a surface has draws"
        chosen = fits.best_group_size(grid)
        return Chosen(grid, chosen, *band, steps=True, what="n that\nplans choose", last=fits.largest_compute)
    law = fits.law()
    low, high = law.x_range or (law.midpoint - 1.2, law.midpoint + 1.2)
    grid = np.geomspace(10.0**low, 10.0**high, BAND_POINTS)
    low_high = fits.law_interval(grid)
    what = "median law" if fits.method == "prior" else "law $n^*$(C)"
    under, above = low_high if low_high is not None else (None, None)
    return Chosen(grid, law.predict(grid), under, above, steps=False, what=what, last=fits.largest_compute)


def _of_plan(plan: Plan, fits: Fits) -> tuple[Chosen, str] | None:
    """What its planner chooses at budgets around the plan's, which is among them; None if it chooses another plan."""
    planner = Planner.of(plan)
    tried: tuple[dict[str, Any], ...] = ({**plan.options}, {"problems_per_batch": plan.problems_per_batch})
    for options in tried:
        with suppress(PlanError):
            again = planner.allocate(plan.budget, slots=0, **options)
            if (again.group_size, again.problems_per_batch) == (plan.group_size, plan.problems_per_batch):
                break
    else:
        return None
    here = plan.budget.amount
    low, high = here / BELOW, here * ABOVE
    if fits.curves and _in_compute(plan):
        first, last = span(fits.select())
        low, high = min(first, here / 3), max(1.5 * here, 1.2 * last)
    return _chosen(
        plan, plans_around(plan, planner, options, (low, high), BUDGETS), fixed="problems_per_batch" in options
    )


def plans_around(
    plan: Plan, planner: Planner, options: Mapping[str, Any], ends: tuple[float, float], count: int
) -> list[Plan]:
    """Plans by increasing budget around that of a plan, which is among them; what to run before them is not asked."""
    here, allocate = plan.budget.amount, partial(planner.allocate, **{**options, "slots": 0})
    low = max(ends[0], plan.budget.committed * 1.01)
    try:
        allocate(plan.budget.with_amount(low))
    except PlanError as error:
        low = max(low, error.smallest_budget or low)
    plans = {here: plan}
    for amount in np.geomspace(min(low, here), ends[1], count):
        rounded = float(f"{amount:.3g}")
        one = None if rounded in plans else plan_if_enough(allocate, plan.budget.with_amount(rounded))
        if one is not None:
            plans[rounded] = one
    return [plans[amount] for amount in sorted(plans)]


def _chosen(plan: Plan, plans: Sequence[Plan], *, fixed: bool = False) -> tuple[Chosen, str]:
    """The n of plans by budget with their ranges, and the name of their axis."""
    unit = plan.budget.unit
    bands = [_likely_sizes(one) for one in plans]
    known = [band for band in bands if band is not None]
    size = np.array([one.group_size for one in plans], dtype=float)
    under, above = np.array(known, dtype=float).T if len(known) == len(bands) else (None, None)
    at = f"\nat $B_p$ = {plan.problems_per_batch}" if fixed else ""
    amounts = np.array([one.budget.amount for one in plans])
    what, last = f"n that\nplans choose{at}", _last_run(plans)
    return Chosen(amounts, size, under, above, steps=True, what=what, last=last), _budget_axis(unit)


def _likely_sizes(plan: Plan) -> tuple[int, int] | None:
    """The smallest range around the plan's n whose n are best with 80 % probability together; of a law its band."""
    if plan.odds is None:
        return plan.group_size_interval
    odds = {one.group_size: one.odds.probability_best for one in plan.alternatives if one.odds is not None}
    odds[plan.group_size] = plan.odds.probability_best
    sizes = sorted(odds)
    held = np.cumsum([0.0, *(odds[n] for n in sizes)])
    here = sizes.index(plan.group_size)
    ranges = [(j - i, i, j) for i in range(here + 1) for j in range(here, len(sizes)) if held[j + 1] - held[i] >= LEVEL]
    _, first, last = min(ranges, default=(0, 0, len(sizes) - 1))
    return sizes[first], sizes[last]


def _budget_axis(unit: str) -> str:
    return f"budget ({UNITS.get(unit, unit)})"


@style.styled
def reward_by_budget(plan: Plan, plans: Sequence[Plan], *, ax: Axes | None = None) -> Axes:
    """Predicted reward of the plan for each budget, with its 80 % interval; dashed beyond the longest run.

    Args:
        plan: the plan to mark.
        plans: plans with predicted rewards, by increasing budget.
        ax: where to draw; a new figure by default.

    Raises:
        FitError: a plan without a predicted reward.
    """
    known = [one for one in plans if one.predicted_reward is not None]
    if len(known) < len(plans) or plan.predicted_reward is None:
        raise FitError("plans without predicted rewards; needed: plans from fits with reward curves", "Fit runs.")
    ax = style.canvas(ax)
    x = np.array([one.budget.amount for one in plans])
    mean = np.array([one.predicted_reward for one in plans], dtype=float)
    ends = [one.reward_interval for one in plans if one.reward_interval is not None]
    if len(ends) == len(plans):
        low, high = np.array(ends, dtype=float).T
        ax.fill_between(x, low, high, color=style.PLAN, alpha=0.2, linewidth=0, zorder=1)
    last = _last_run(plans)
    style.line_to(ax, x, mean, last)
    style.log_axis(ax, x[0] / 1.05, x[-1] * 1.05, _budget_axis(plan.budget.unit))
    ax.set_ylabel(f"predicted {plan.metric}, 80 % band")
    ax.set_title(f"{plan.metric} of the best plan for each budget")
    _mark_last(ax, x, last)
    style.star(ax, plan.budget.amount, plan.predicted_reward, f"this plan: {plan.predicted_reward:.3f}")
    return ax
