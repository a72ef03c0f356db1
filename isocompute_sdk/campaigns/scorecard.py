"""Predictions against outcomes: one run against its prediction, and how often intervals hold below a folder.

A campaign writes `comparison.json`; `keep_score` writes `*.score.json` beside a plan. `read_scorecard` finds both;
nothing else is stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Converted, Document, Saved
from isocompute_sdk.errors import FieldError, RecordError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.phrases import off
from isocompute_sdk.planning import Plan
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET

COMPARISON_FILE, SCORE_SUFFIX = "comparison.json", ".score.json"
"""File of a campaign, and end of the names of those beside plans."""
NOMINAL = 0.8
"""Coverage that prediction intervals promise."""
CONFIDENCE = 0.95
"""Confidence of the interval for the true coverage."""


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

    def summary(self) -> str:
        """Prediction and measurement in one sentence."""
        # The difference of the rewards as shown.
        error = f"{round(self.measured, 3) - round(self.predicted, 3):+.3f}"
        if self.inside:
            verdict = f"inside the interval ({error})"
        else:
            side = "above" if self.error > 0 else "below"
            verdict = f"{side} the interval ({error}); 80 % intervals miss one in five, more far beyond the data"
        return (
            f"predicted {self.metric} {self.predicted:.3f} (80 % interval of one run {self.low:.3f} to "
            f"{self.high:.3f}), measured {self.measured:.3f}: {verdict}"
        )


COMPARISON = Document("comparison", 1, Comparison, derived=("inside", "error"))


@dataclass(frozen=True)
class Scorecard(Saved):
    """Every prediction below a folder that has an outcome."""

    scores: tuple[Annotated[Comparison, Converted(COMPARISON.to_dict, COMPARISON.from_dict)], ...]

    @property
    def coverage_interval(self) -> tuple[float, float]:
        """Exact binomial (Clopper-Pearson) interval for the true coverage; 0 to 1 without scores."""
        from scipy.special import betaincinv

        count, tail = len(self.scores), (1 - CONFIDENCE) / 2
        held = sum(score.inside for score in self.scores)
        low = 0.0 if held == 0 else float(betaincinv(held, count - held + 1, tail))
        high = 1.0 if held == count else float(betaincinv(held + 1, count - held, 1 - tail))
        return low, high

    @property
    def bias(self) -> float | None:
        """Mean of measured minus predicted; None without scores."""
        return float(np.mean([score.error for score in self.scores])) if self.scores else None

    @property
    def verdict(self) -> str:
        """Whether the true coverage is surely below or above the promised one, in one sentence with its numbers."""
        if not self.scores:
            return "no prediction has an outcome yet"
        (low, high), total = self.coverage_interval, len(self.scores)
        held = sum(score.inside for score in self.scores)
        if high < NOMINAL:
            meaning = f"intervals are too narrow here, true coverage is at most {high:.0%}"
        elif low > NOMINAL:
            meaning = f"intervals are wider than needed, true coverage is at least {low:.0%}"
        else:
            few = "" if high - low < 0.3 else "; so few scores say little"
            meaning = f"consistent with {NOMINAL:.0%} (true coverage {low:.0%} to {high:.0%}){few}"
        return f"{held} of {total} measurements lie in their {NOMINAL:.0%} interval ({held / total:.0%}): {meaning}"

    def summary(self) -> str:
        """The scorecard as text."""
        bias = [] if self.bias is None else [f"predictions were {off(-self.bias)} on average"]
        scores = [f"{one.run_id} at {one.rollouts:,.0f} rollouts: {one.summary()}" for one in self.scores]
        return "\n".join([self.verdict, *bias, *scores])


SCORECARD = Document("scorecard", 1, Scorecard, derived=("verdict", "coverage_interval", "bias"))


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


def keep_score(plan_file: str | Path, runs: RunSet, eval_set: str | None = None) -> tuple[Path, ...]:
    """Score every run that carried out a plan, and write each score beside the plan.

    Returns:
        The files written, one per run.
    """
    path = Path(plan_file)
    plan = Plan.load(path)
    if plan.fits is None or not plan.fits.curves:
        raise RecordError(
            f"{path} holds no reward prediction to score",
            "Plan with `isocompute allocate` or `isocompute plan --fits`, and save the plan with --output.",
        )
    n, problems = plan.group_size, plan.problems_per_batch
    mine = [run.run_id for run in runs.runs() if (run.group_size, run.problems_per_batch) == (n, problems)]
    if not mine:
        found = sorted({(run.group_size, run.problems_per_batch or 0) for run in runs.runs()})
        listed = ", ".join(f"({a}, {b or '?'})" for a, b in found[:8])
        raise RecordError(
            f"no run has the plan's n = {n}, B_p = {problems}; these have (n, B_p): {listed}",
            "Give the run that carried out the plan.",
        )
    chosen = eval_set or plan.fits.eval_set or DEFAULT_EVAL_SET
    fits = replace(plan.fits, eval_set=chosen)
    written: list[Path] = []
    for run_id in mine:
        one = runs.filter(run_id=run_id)
        _refuse_known(fits, one, plan.metric)
        compared = compare(fits, one.filter(metric=plan.metric))
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id)
        written.append(compared.save(path.with_name(f"{path.stem}.{name}{SCORE_SUFFIX}")))
    return tuple(written)


def _refuse_known(fits: Fits, run: RunSet, metric: str) -> None:
    """Refuse a run that the fit was made from: its prediction is not independent of it."""
    (one,) = run.series(metric, fits.eval_set)
    curve = fits.curves.get((one.group_size, one.problems_per_batch))
    end, value = one.rollouts_T[-1], one.value_T[-1]
    if curve is not None and bool(np.any((curve.compute_T == end) & (curve.reward_T == value))):
        raise RecordError(
            f"run {one.run_id!r} is one of those that the plan was made from, so it cannot test the prediction",
            "Give only the run that carried out the plan.",
        )


def read_scorecard(folder: str | Path) -> Scorecard:
    """Every score and every campaign's comparison below a folder.

    Raises:
        RecordError: no such folder.
        IsoComputeError: a file of that name is damaged.
    """
    root = Path(folder)
    if not root.is_dir():
        wrong = f"{root} is a file; accepted: a folder" if root.exists() else f"no such folder: {root}"
        raise RecordError(wrong, "Give a folder that holds plans or campaigns.")
    paths = sorted([*root.rglob(f"*{SCORE_SUFFIX}"), *root.rglob(COMPARISON_FILE)])
    return Scorecard(tuple(Comparison.load(path) for path in paths))
