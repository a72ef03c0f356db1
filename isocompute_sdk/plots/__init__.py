"""Figures that decide something, of runs, fits, plans, audits and forecasts, in one style.

| function | figure | of |
|---|---|---|
| `reward_curves` | evaluations, fitted curves and their frontier, per B_p; the plan with its interval | fits, plan |
| `allocation` | n that plans choose at each budget with the 80 % set of the best n; or the law n*(C), in rollouts or tokens | fits, plan |
| `step_laws` | n*(M) and B_p*(M) at a fixed batch B | fits, plan |
| `sensitivity_to_n` | predicted reward by n at three computes: what a wrong n costs | fits, plan |
| `sensitivity_to_bp` | the same by B_p | fits, plan |
| `backtest` | prediction against outcome: the end of the runs hidden and predicted | fits, plan |
| `evaluations` | every evaluation of one metric over compute, by n | runs |
| `coverage` | best@k and worst@k over compute: coverage and sharpening | runs |
| `records` | record-breaking points among all evaluations | runs |
| `side_by_side` | several models, problem sets or recipes on common axes | runs, or fits and plans by title |
| `pass_rates` | distribution of pass@1 over problems during training, and how it polarises (interference) | folders of runs |
| `difficulty` | how many problems the base model solves how often, with the paper's bands | pass counts |
| `audit_runs`, `audit_costs` | where audited runs ended; cost of the same reward at the best known n | group of an audit |
| `forecast` | one run and what lies ahead of it | forecast |

Each takes `ax=` for axes of your own (figures with several panels excepted) and returns axes, of several panels the
first; the figure is `axes.figure`. `Fits.plot(kind)`, `Plan.plot(kind)`, `RunSet.plot(kind)` and `Audit.plot(kind)` call
them by kind (`draw`), as does `isocompute plot`. Data that are missing raise an error that names what is needed.
`save_figure` writes PNG, SVG or PDF; equal figures give equal files. Nothing is registered with pyplot, and matplotlib
is imported only when something is drawn.
"""

from isocompute_sdk.plots.best_n import allocation, step_laws
from isocompute_sdk.plots.audits import audit_costs, audit_runs, plot_group
from isocompute_sdk.plots.checks import backtest, sensitivity_to_bp, sensitivity_to_n
from isocompute_sdk.plots.curves import reward_curves
from isocompute_sdk.plots.figures import draw, plot_allocation_law, plot_reward_curves
from isocompute_sdk.plots.forecasts import forecast, plot_forecast
from isocompute_sdk.plots.problems import difficulty, pass_rates, polarisation
from isocompute_sdk.plots.runs import coverage, evaluations, records, side_by_side
from isocompute_sdk.plots.style import save_figure

__all__ = [
    "allocation",
    "audit_costs",
    "audit_runs",
    "backtest",
    "coverage",
    "difficulty",
    "draw",
    "evaluations",
    "forecast",
    "pass_rates",
    "plot_allocation_law",
    "plot_forecast",
    "plot_group",
    "plot_reward_curves",
    "polarisation",
    "records",
    "reward_curves",
    "save_figure",
    "sensitivity_to_bp",
    "sensitivity_to_n",
    "side_by_side",
    "step_laws",
]
