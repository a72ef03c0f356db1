"""Predictions against outcomes: do intervals hold as often as they promise, and are predictions biased?

A campaign writes `comparison.json`; `keep_score` writes `*.score.json` beside a plan. `read_scorecard` finds both below
a folder; nothing else is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from isocompute_sdk.campaigns import campaign
from isocompute_sdk.campaigns.prediction_check import COMPARISON, CheckedPrediction, compare
from isocompute_sdk.documents import Converted, Document, Saved
from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning import Plan
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.checkpoints import ChosenCheckpoint, choose_checkpoint
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET
from isocompute_sdk.run_folders.store import METRICS_FILE

NOMINAL = 0.8
"""Coverage that prediction intervals promise."""
CONFIDENCE = 0.95
"""Confidence of the interval for the true coverage, and of the test for a bias."""
SHORT = 0.9
"""A run shorter than this share of its plan is marked in the text."""


Calibration = Literal["unknown", "too-narrow", "too-wide", "consistent"]
"""How often intervals hold against what they promise; `unknown`: no scores."""


@dataclass(frozen=True, kw_only=True)
class Score(CheckedPrediction):
    """The prediction of one plan and the measurement of the run that carried it out."""

    plan: str
    """File of the plan, or of the plan in a campaign's folder."""
    when: str
    """Time at which the outcome was known, ISO 8601, UTC."""
    planned_rollouts: float | None
    """Compute of the plan; None if its file is gone."""
    checkpoint: ChosenCheckpoint | None = None
    """Best checkpoint of the run, with its reward on another set; None if the evaluations are gone."""

    @property
    def covered(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.inside


SCORE = Document("score", 1, Score, derived=("covered", "error"))


@dataclass(frozen=True)
class Scorecard(Saved):
    """Every scored prediction below a folder, oldest first."""

    scores: tuple[Annotated[Score, Converted(SCORE.to_dict, SCORE.from_dict)], ...]
    waiting: tuple[str, ...] = ()
    """Files of plans without an outcome."""
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files named like scores that cannot be read -> reason."""

    @property
    def coverage(self) -> float | None:
        """Share of predictions whose interval held; None without scores."""
        return None if not self.scores else float(np.mean([score.covered for score in self.scores]))

    @property
    def coverage_interval(self) -> tuple[float, float]:
        """Exact binomial (Clopper-Pearson) interval for the true coverage; 0 to 1 without scores."""
        return binomial_interval(sum(score.covered for score in self.scores), len(self.scores))

    @property
    def nominal(self) -> float:
        """Coverage that the intervals promise."""
        return NOMINAL

    @property
    def bias(self) -> float | None:
        """Mean of measured minus predicted; None without scores."""
        return float(np.mean([score.error for score in self.scores])) if self.scores else None

    @property
    def bias_standard_error(self) -> float | None:
        """Standard error of `bias`; None with fewer than two scores."""
        errors = np.array([score.error for score in self.scores])
        return float(errors.std(ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else None

    @property
    def bias_direction(self) -> Literal["low", "high"] | None:
        """Whether predictions are surely too low or too high (Student's t test); None if not sure."""
        from scipy.stats import t

        if self.bias is None or self.bias_standard_error is None:
            return None
        sure = float(t.ppf((1 + CONFIDENCE) / 2, len(self.scores) - 1)) * self.bias_standard_error
        return None if abs(self.bias) <= sure else "low" if self.bias > 0 else "high"

    @property
    def calibration(self) -> Calibration:
        """Whether the true coverage is surely below or above the promised one."""
        low, high = self.coverage_interval
        if not self.scores:
            return "unknown"
        return "too-narrow" if high < NOMINAL else "too-wide" if low > NOMINAL else "consistent"

    @property
    def verdict(self) -> str:
        """The calibration in one sentence with its numbers."""
        if not self.scores:
            return "no prediction has an outcome yet"
        (low, high), total = self.coverage_interval, len(self.scores)
        held = sum(score.covered for score in self.scores)
        few = "" if high - low < 0.3 else "; so few scores say little"
        meaning = {
            "too-narrow": f"intervals are too narrow here, true coverage is at most {high:.0%}",
            "too-wide": f"intervals are wider than needed, true coverage is at least {low:.0%}",
        }.get(self.calibration, f"consistent with {NOMINAL:.0%} (true coverage {low:.0%} to {high:.0%}){few}")
        return f"{held} of {total} measurements lie in their {NOMINAL:.0%} interval ({held / total:.0%}): {meaning}"

    def summary(self) -> str:
        """The scorecard as text."""
        lines = [self.verdict]
        if self.bias is not None:
            error = self.bias_standard_error
            spread = "" if error is None else f", standard error {error:.3f}"
            side = f"; predictions are too {self.bias_direction} here" if self.bias_direction else ""
            lines.append(f"mean of measured minus predicted: {self.bias:+.3f}{spread}{side}")
        for i, score in enumerate(self.scores):
            held = sum(one.covered for one in self.scores[: i + 1])
            lines.append(f"{describe(score)}; so far {held} of {i + 1}")
            if score.checkpoint is not None:
                lines.append(f"    {score.checkpoint.sentence}")
        lines += [f"waiting for an outcome: {plan}" for plan in self.waiting]
        lines += [f"not read: {name}: {why}" for name, why in self.unreadable.items()]
        return "\n".join(lines)


SCORECARD = Document(
    "scorecard",
    1,
    Scorecard,
    derived=("calibration", "verdict", "nominal", "coverage", "coverage_interval", "bias", "bias_standard_error"),
)


def describe(score: Score) -> str:
    """One score on one line."""
    short = ""
    if score.planned_rollouts is not None and score.rollouts < SHORT * score.planned_rollouts:
        short = f" ({score.rollouts / score.planned_rollouts:.0%} of the plan)"
    side = "covered" if score.covered else "above" if score.error > 0 else "below"
    return (
        f"{score.when[:10]}  {score.run_id}: {score.metric} at {score.rollouts:,.0f} rollouts{short}, predicted "
        f"{score.predicted:.3f} ({score.low:.3f} to {score.high:.3f}), measured {score.measured:.3f}, {side} "
        f"({score.error:+.3f})"
    )


def binomial_interval(held: int, count: int) -> tuple[float, float]:
    """Clopper-Pearson interval of a share; its coverage is at least `CONFIDENCE`."""
    from scipy.stats import beta

    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if held == 0 else float(beta.ppf(tail, held, count - held + 1))
    high = 1.0 if held == count else float(beta.ppf(1 - tail, held + 1, count - held))
    return low, high


def keep_score(plan_file: str | Path, runs: RunSet, eval_set: str | None = None) -> tuple[Path, ...]:
    """Score every run that carried out a plan, and write each score beside the plan.

    Args:
        plan_file: a saved plan with its fits.
        runs: evaluations; runs with the plan's n and B_p are scored.
        eval_set: evaluation set of the comparison. None: that of the fits, else `validation`.

    Returns:
        The files written, one per run.

    Raises:
        RecordError: no run with this n and B_p, a run that the fits were made from, or a plan without fits.
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
        score = Score(
            **vars(compared),
            plan=str(path),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            planned_rollouts=float(plan.rollouts),
            checkpoint=choose_checkpoint(one, run_id, plan.metric, chosen),
        )
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id)
        written.append(SCORE.save(path.with_name(f"{path.stem}.{name}.score.json"), score))
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
    """
    root = Path(folder)
    if not root.is_dir():
        wrong = f"{root} is a file; accepted: a folder" if root.exists() else f"no such folder: {root}"
        raise RecordError(wrong, "Give a folder that holds plans or campaigns.")
    scores: list[Score] = []
    bad: dict[str, str] = {}
    for path in sorted([*root.rglob("*.score.json"), *root.rglob(campaign.COMPARISON)]):
        try:
            scores.append(_read(path))
        except IsoComputeError as error:
            bad[str(path)] = error.message
    done = {Path(score.plan).resolve() for score in scores}
    waiting = [path for path in sorted(root.rglob("*plan*.json")) if _waits(path, done)]
    ordered = sorted(scores, key=lambda score: (score.when, score.plan, score.run_id))
    return Scorecard(tuple(ordered), tuple(map(str, waiting)), bad)


def _read(path: Path) -> Score:
    if path.name != campaign.COMPARISON:
        return SCORE.load(path)
    found = COMPARISON.load(path)
    plan_file = path.with_name(campaign.PLAN)
    planned = _plan(plan_file)
    return Score(
        **vars(found),
        plan=str(plan_file),
        when=datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds"),
        planned_rollouts=None if planned is None else float(planned.rollouts),
        checkpoint=_checkpoint_of(path.parent, found.run_id, found.metric),
    )


def _checkpoint_of(folder: Path, run_id: str, metric: str) -> ChosenCheckpoint | None:
    """The best checkpoint of a campaign's planned run; None if its evaluations are gone."""
    journals = sorted(folder.rglob(f"{run_id}/{METRICS_FILE}"))
    if not journals:
        return None
    runs = RunSet.read(journals[0])
    return choose_checkpoint(runs, runs.run_ids[0], metric)


def _waits(path: Path, done: set[Path]) -> bool:
    """Whether a file is a plan with a prediction and no outcome."""
    if path.name.endswith(".score.json") or path.resolve() in done:
        return False
    planned = _plan(path)
    return planned is not None and planned.predicted_reward is not None


def _plan(path: Path) -> Plan | None:
    """A saved plan; None if the file is not a plan that this release reads."""
    try:
        return Plan.load(path)
    except IsoComputeError:
        return None
