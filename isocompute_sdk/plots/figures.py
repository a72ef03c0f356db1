"""Figures as matplotlib figures that are not registered with pyplot: they are freed like any object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning import Plan
from isocompute_sdk.plots.allocation import allocation, step_laws
from isocompute_sdk.plots.curves import reward_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_reward_curves(source: Fits | Plan, problems_per_batch: int | None = None) -> Figure:
    """The figure of `reward_curves`."""
    return figure_of(reward_curves(source, problems_per_batch=problems_per_batch))


def plot_allocation_law(source: Fits | Plan, name: str = "group_size") -> Figure:
    """The figure of `allocation`, or for a law in steps of `step_laws`."""
    return figure_of(allocation(source) if name == "group_size" else step_laws(source, name=name))


def figure_of(axes: Axes) -> Figure:
    """The whole figure that axes belong to."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes that were drawn belong to a figure"
    return figure
