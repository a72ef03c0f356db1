"""Figures that decide something, of runs, fits, plans, audits and forecasts, in one style.

Of fits and plans:

- `reward_curves`: evaluations, fitted curves and their frontier, per B_p; the plan with its interval.
- `allocation`: n that plans choose at each budget with the range that holds the best n, or the law n*(C); in
  rollouts or tokens.
- `reward_by_budget`: predicted reward of the plan for each budget.
- `sensitivity_to_n`: predicted reward by n: what a wrong one costs.
- `backtest`: prediction against outcome, the end of the runs hidden and predicted.

Of runs, without a fit:

- `evaluations`: every evaluation of one metric over compute, by n.
- `logged`: any logged quantity of every run.

Of others: `audit_runs` and `audit_costs` of a group of an audit, `forecast` of a forecast.

They return axes, of several panels the first; the figure is `figure_of(axes)`. Those with one panel take `ax=` for axes
of your own. `iso.plot(source, kind)` and `isocompute report SOURCE --figure KIND` call them by kind. Missing data raise
an error that names what is needed. `save_figure` writes PNG, SVG or PDF; equal figures give equal files. Nothing is
registered with pyplot, and matplotlib is imported only when something is drawn.
"""

from isocompute_sdk.plots.audits import audit_costs, audit_runs, plot_group
from isocompute_sdk.plots.best_n import allocation, reward_by_budget
from isocompute_sdk.plots.checks import backtest, sensitivity_to_n
from isocompute_sdk.plots.curves import forecast, reward_curves
from isocompute_sdk.plots.figures import plot
from isocompute_sdk.plots.runs import evaluations, logged
from isocompute_sdk.plots.style import as_svg, figure_of, save_figure

__all__ = [
    "allocation",
    "as_svg",
    "audit_costs",
    "audit_runs",
    "backtest",
    "evaluations",
    "figure_of",
    "forecast",
    "logged",
    "plot",
    "plot_group",
    "reward_by_budget",
    "reward_curves",
    "save_figure",
    "sensitivity_to_n",
]
