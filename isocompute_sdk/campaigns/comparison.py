"""The reward of one run against its prediction, which was made without the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError, RecordError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning import Plan
from isocompute_sdk.records import RunSeries, RunSet


@dataclass(frozen=True)
class Comparison(Saved):
    """A measured reward and its prediction, made without the run."""

    run_id: str
    metric: str
    rollouts: Annotated[float, Field(ge=0)]
    """Compute C of the run's last evaluation, at which both hold."""
    measured: float
    """The metric at that evaluation."""
    predicted: float
    """Predicted mean at that compute."""
    low: float
    high: float
    """80 % interval of one new measured run (`predict(kind="run")`)."""
    largest_compute: Annotated[float, Field(ge=0)]
    """Largest compute of the runs behind the prediction."""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise FieldError("low", self.low, f"at most high = {self.high}")

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.low <= self.measured <= self.high

    @property
    def error(self) -> float:
        """Measured minus predicted."""
        return self.measured - self.predicted

    def series(self, runs: RunSet, eval_set: str | None) -> RunSeries:
        """All evaluations of the run."""
        return next(one for one in runs.series(self.metric, eval_set) if one.run_id == self.run_id)

    def summary(self) -> str:
        """Prediction and measurement in one sentence."""
        # The difference of the rewards as shown.
        error = f"{round(self.measured, 3) - round(self.predicted, 3):+.3f}"
        if self.inside:
            verdict = f"inside the interval ({error})"
        else:
            side = "above" if self.error > 0 else "below"
            verdict = f"{side} the interval ({error}); 80 % intervals miss 1 run in 5, more far beyond the data"
        return (
            f"predicted {self.metric} {self.predicted:.3f} (80 % interval of one run {self.low:.3f} to "
            f"{self.high:.3f}), measured {self.measured:.3f}: {verdict}"
        )


COMPARISON = Document("comparison", 1, Comparison, derived=("inside", "error"))


def compare(fits: Fits, runs: RunSet) -> Comparison:
    """One run's last evaluation against the prediction of fits that were made without it."""
    series = runs.series(fits.metric, fits.eval_set)
    if len(series) != 1:
        raise RecordError(f"received {len(series)} runs; accepted: one run to compare", "Choose one with filter().")
    one = series[0]
    at = float(one.rollouts_T[-1])
    predicted = fits.predict(at, one.group_size, one.problems_per_batch, kind="run")
    return Comparison(
        run_id=one.run_id,
        metric=fits.metric,
        rollouts=at,
        measured=float(one.value_T[-1]),
        predicted=float(predicted.mean),
        low=float(predicted.low),
        high=float(predicted.high),
        largest_compute=max(curve.last_compute for curve in fits.curves.values()),
    )


def at_check(plan: Plan, run_id: str, runs: RunSet, *, ended: bool = True) -> str:
    """What the run of a plan measured at the step of its approval, in words; empty before, and of whole plans."""
    approval, fits = plan.approval, plan.fits
    if approval is None or approval.step is None or fits is None:
        return ""
    run = next((one for one in runs.series(fits.metric, fits.eval_set) if one.run_id == run_id), None)
    if run is None or not (ended or run.step_T[-1] >= approval.step):
        return ""
    at = min(int(np.searchsorted(run.step_T, approval.step)), len(run.step_T) - 1)
    value = float(run.value_T[at])
    where = f"{'at the approved' if approval.kind == 'part' else 'check at'} step {approval.step:,}"
    text = f"{where}: measured {fits.metric} {value:.3f} at step {run.step_T[at]:,.0f}"
    if approval.expected is not None:
        text += f", expected {approval.expected:.3f}"
    if approval.lowest is None:
        return text
    return f"{text}; it was to stop below {approval.lowest:.3f}: {'passed' if value >= approval.lowest else 'failed'}"
