"""What can be drawn of what: the kinds of `iso.plot` and `isocompute report --figure`, and figures instead of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from isocompute_sdk.auditing import Audit
from isocompute_sdk.errors import FitError, typed_value
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.forecast import Forecast
from isocompute_sdk.planning import Plan
from isocompute_sdk.plots import checks, runs
from isocompute_sdk.plots.audits import audit_costs, audit_runs, fitted_group
from isocompute_sdk.plots.best_n import allocation
from isocompute_sdk.plots.curves import forecast, reward_curves
from isocompute_sdk.records import RunSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _runs_of_audit(audit: Audit, *, group: str | None = None, ax: Axes | None = None) -> Axes:
    return audit_runs(fitted_group(audit, group), audit.metric, ax=ax)


def _costs_of_audit(audit: Audit, *, group: str | None = None, ax: Axes | None = None) -> Axes:
    return audit_costs(fitted_group(audit, group), ax=ax)


OF_FITS: Mapping[str, Callable[..., Axes]] = {
    "curves": reward_curves,
    "allocation": allocation,
    "sensitivity-n": checks.sensitivity_to_n,
    "backtest": checks.backtest,
}
"""Figures of fits and of plans, by kind."""
OF_RUNS: Mapping[str, Callable[..., Axes]] = {"evaluations": runs.evaluations}
"""Figures of runs, by kind."""
OF_AUDIT: Mapping[str, Callable[..., Axes]] = {"runs": _runs_of_audit, "costs": _costs_of_audit}
"""Figures of an audit, by kind."""
OF_FORECAST: Mapping[str, Callable[..., Axes]] = {"forecast": forecast}


def plot(source: Fits | Plan | RunSet | Audit | Forecast, kind: str | None = None, **options: Any) -> Axes:
    """Draw one kind of figure.

    Args:
        source: what to draw.
        kind: a key of `OF_FITS` (also for plans), `OF_RUNS`, `OF_AUDIT` or `OF_FORECAST`. None: the first; for a
            plan or fits without reward curves `allocation`.
        **options: arguments of the figure's function, such as `ax`.

    Returns:
        The axes; of several panels the first.

    Raises:
        FitError: no such kind, or the data for it are missing.
        RecordError: as `FitError`, for runs.
    """
    of: Mapping[type, Mapping[str, Callable[..., Axes]]] = {RunSet: OF_RUNS, Audit: OF_AUDIT, Forecast: OF_FORECAST}
    if not isinstance(cast("Any", source), (*of, Fits, Plan)):
        raise FitError(
            f"received {typed_value(source)}; accepted: fits, a plan, runs, an audit or a forecast",
            "isocompute_sdk.read(...) makes runs of a table or of logs, fit(runs) fits.",
        )
    kinds = of.get(type(source), OF_FITS)
    if kind is None:
        fits = source.fits if isinstance(source, Plan) else source
        kind = "allocation" if isinstance(fits, Fits) and not fits.curves else next(iter(kinds))
    if kind not in kinds:
        raise FitError(
            f"{type(source).__name__} has no figure {kind!r}; accepted: {', '.join(kinds)}", "Use one of these."
        )
    return kinds[kind](source, **options)
