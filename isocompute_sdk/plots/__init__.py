"""Figures of runs, fits, plans and audits, in one style; matplotlib is imported only when one is drawn.

Every function takes `ax=` to draw into axes of your own and returns the axes, of several panels the first. Figures made
here are not registered with pyplot. `save_figure` writes PNG, SVG or PDF.
"""

from isocompute_sdk.plots.allocation import allocation, step_laws
from isocompute_sdk.plots.audits import plot_group
from isocompute_sdk.plots.curves import reward_curves
from isocompute_sdk.plots.figures import plot_allocation_law, plot_reward_curves
from isocompute_sdk.plots.forecasts import plot_forecast
from isocompute_sdk.plots.style import save_figure

__all__ = [
    "allocation",
    "plot_allocation_law",
    "plot_forecast",
    "plot_group",
    "plot_reward_curves",
    "reward_curves",
    "save_figure",
    "step_laws",
]
