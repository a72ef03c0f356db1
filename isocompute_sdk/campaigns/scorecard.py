"""Predictions beside outcomes, over time: do intervals hold as often as they say, and is there a bias?

A campaign leaves `comparison.json`; `keep_score` leaves `*.score.json` beside a plan. Both are found again by looking
through a folder, so that the score is the files and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from isocompute_sdk import files
from isocompute_sdk.campaigns import campaign
from isocompute_sdk.campaigns.prediction_check import SCHEMA_VERSION as COMPARISON_VERSION
from isocompute_sdk.campaigns.prediction_check import compare
from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.plan import SCHEMA_VERSION as PLAN_VERSION
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.checkpoints import ChosenCheckpoint, choose_checkpoint
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET
from isocompute_sdk.run_folders.store import METRICS_FILE

SCHEMA_VERSION = 1
NOMINAL = 0.8
"""Coverage that intervals of predictions promise."""
CONFIDENCE = 0.95
"""Of the interval for the coverage itself."""
SHORT = 0.9
"""A run shorter than this share of its plan is marked."""


@dataclass(frozen=True)
class Score:
    """One prediction and what became of it."""

    plan: str
    """File of the plan, or the folder of its campaign."""
    run_id: str
    when: str
    """Time at which the outcome was known, ISO 8601, UTC."""
    metric: str
    rollouts: float
    """Compute at which both hold: the last evaluation of the run."""
    planned_rollouts: float | None
    """Compute of the plan; None where its file is gone."""
    predicted: float
    """Prediction for one new run there, from the runs before it."""
    low: float
    high: float
    measured: float
    largest_compute: float
    """Largest compute behind the prediction."""
    checkpoint: ChosenCheckpoint | None = None
    """Best checkpoint of the run, on a set that did not choose it; None where its evaluations are gone."""

    @property
    def covered(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.low <= self.measured <= self.high

    @property
    def error(self) -> float:
        """Measured minus predicted."""
        return self.measured - self.predicted

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        derived = {"covered": self.covered, "error": self.error}
        return {"kind": "score", "schema_version": SCHEMA_VERSION, **asdict(self), **derived}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Score:
        """Inverse of `to_dict`."""
        values: dict[str, Any] = {name: raw[name] for name in cls.__dataclass_fields__}
        chosen = raw["checkpoint"]
        values["checkpoint"] = None if chosen is None else ChosenCheckpoint(**chosen)
        return cls(**values)


@dataclass(frozen=True)
class Scorecard:
    """Every scored prediction below a folder, the oldest first."""

    scores: tuple[Score, ...]
    waiting: tuple[str, ...] = ()
    """Plans without an outcome."""
    unreadable: Mapping[str, str] | None = None
    """Files that look like scores and are none, with the reason."""

    @property
    def coverage(self) -> float | None:
        """Share of predictions whose interval held; None without any."""
        return None if not self.scores else float(np.mean([score.covered for score in self.scores]))

    @property
    def coverage_interval(self) -> tuple[float, float]:
        """Exact binomial (Clopper-Pearson) interval for the true coverage; 0 to 1 without any score."""
        return binomial_interval(sum(score.covered for score in self.scores), len(self.scores))

    @property
    def bias(self) -> tuple[float, float] | None:
        """Mean of measured minus predicted and its standard error (NaN for one score); None without any."""
        if not self.scores:
            return None
        errors = np.array([score.error for score in self.scores])
        spread = float(errors.std(ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else float("nan")
        return float(errors.mean()), spread

    @property
    def verdict(self) -> str:
        """What the scores say about the intervals, in one sentence."""
        count = len(self.scores)
        if not count:
            return "no prediction has an outcome yet"
        low, high = self.coverage_interval
        held = sum(score.covered for score in self.scores)
        told = f"{held} of {count} measurements lie in their {NOMINAL:.0%} interval ({held / count:.0%})"
        if high < NOMINAL:
            return f"{told}: intervals are too narrow here, true coverage is at most {high:.0%}"
        if low > NOMINAL:
            return f"{told}: intervals are wider than they need be, true coverage is at least {low:.0%}"
        end = "" if high - low < 0.3 else ", and so few say little"
        return f"{told}: nothing against {NOMINAL:.0%} (true coverage {low:.0%} to {high:.0%}){end}"

    def _side(self, mean: float, error: float) -> str:
        """Whether predictions are too low or too high, where that is sure (Student's t)."""
        from scipy.stats import t

        if np.isnan(error) or abs(mean) <= float(t.ppf((1 + CONFIDENCE) / 2, len(self.scores) - 1)) * error:
            return ""
        return f"; predictions are too {'low' if mean > 0 else 'high'} here"

    def summary(self) -> str:
        """The scorecard as text."""
        lines = [self.verdict]
        if self.bias is not None:
            mean, error = self.bias
            spread = "" if np.isnan(error) else f", standard error {error:.3f}"
            lines.append(f"mean of measured less predicted: {mean:+.3f}{spread}{self._side(mean, error)}")
        for i, score in enumerate(self.scores):
            held = sum(one.covered for one in self.scores[: i + 1])
            lines.append(f"{describe(score)}; so far {held} of {i + 1}")
            if score.checkpoint is not None:
                lines.append(f"    {score.checkpoint.sentence}")
        lines += [f"waiting for an outcome: {plan}" for plan in self.waiting]
        lines += [f"not read: {name}: {why}" for name, why in (self.unreadable or {}).items()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        bias = self.bias
        return {
            "kind": "scorecard",
            "schema_version": SCHEMA_VERSION,
            "verdict": self.verdict,
            "nominal": NOMINAL,
            "coverage": self.coverage,
            "coverage_interval": list(self.coverage_interval),
            "bias": None if bias is None else bias[0],
            "bias_standard_error": None if bias is None or np.isnan(bias[1]) else bias[1],
            "scores": [score.to_dict() for score in self.scores],
            "waiting": list(self.waiting),
            "unreadable": dict(self.unreadable or {}),
        }


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


def binomial_interval(held: int, count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Clopper-Pearson interval of a share: never shorter than what its confidence promises."""
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = 0.0 if held == 0 else float(beta.ppf(tail, held, count - held + 1))
    high = 1.0 if held == count else float(beta.ppf(1 - tail, held + 1, count - held))
    return low, high


def keep_score(plan_file: str | Path, runs: RunSet, eval_set: str | None = None) -> tuple[Path, ...]:
    """Score every run that carried a plan out, and keep each score beside the plan.

    Args:
        plan_file: a saved plan, with the fits behind it.
        runs: evaluations; those of the plan's n and B_p count.
        eval_set: evaluation set of the comparison; None for that of the fits, or `validation`.

    Returns:
        The files written, one per run.

    Raises:
        RecordError: no run of this n and B_p, a run that the plan's fits already knew, or a plan without fits.
    """
    path = Path(plan_file)
    plan = Plan.load(path)
    if plan.fits is None or not plan.fits.curves:
        raise RecordError(
            f"{path} holds no reward prediction to score", "Plan with allocate or plan --fits, and keep --output."
        )
    n, problems = plan.group_size, plan.problems_per_batch
    mine = [run.run_id for run in runs.runs() if (run.group_size, run.problems_per_batch) == (n, problems)]
    if not mine:
        found = sorted({(run.group_size, run.problems_per_batch or 0) for run in runs.runs()})
        told = ", ".join(f"({a}, {b or '?'})" for a, b in found[:8])
        raise RecordError(
            f"no run has the plan's n = {n}, B_p = {problems}; these have (n, B_p): {told}",
            "Give the run that carried the plan out.",
        )
    chosen = eval_set or plan.fits.eval_set or DEFAULT_EVAL_SET
    fits = replace(plan.fits, eval_set=chosen)
    written: list[Path] = []
    for run_id in mine:
        one = runs.filter(run_id=run_id)
        _refuse_known(fits, one, plan.metric)
        compared = compare(fits, one.filter(metric=plan.metric))
        score = Score(
            plan=str(path),
            run_id=run_id,
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            metric=compared.metric,
            rollouts=compared.rollouts,
            planned_rollouts=float(plan.rollouts),
            predicted=compared.predicted,
            low=compared.low,
            high=compared.high,
            measured=compared.measured,
            largest_compute=compared.largest_compute,
            checkpoint=choose_checkpoint(one, run_id, plan.metric, chosen),
        )
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", run_id)
        written.append(files.write_json(path.with_name(f"{path.stem}.{name}.score.json"), score.to_dict()))
    return tuple(written)


def _refuse_known(fits: Fits, run: RunSet, metric: str) -> None:
    """A run that the fit was made from is no outcome: its prediction has seen it."""
    (one,) = run.series(metric, fits.eval_set)
    curve = fits.curves.get((one.group_size, one.problems_per_batch))
    end, value = one.rollouts_T[-1], one.value_T[-1]
    if curve is not None and bool(np.any((curve.compute_T == end) & (curve.reward_T == value))):
        raise RecordError(
            f"run {one.run_id!r} is one of those that the plan was made from: its prediction has seen it",
            "Give the run that carried the plan out alone.",
        )


def read_scorecard(folder: str | Path) -> Scorecard:
    """Every score and every campaign's comparison below a folder.

    Raises:
        RecordError: no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        told = f"{root} is a file; accepted: a folder" if root.exists() else f"no such folder: {root}"
        raise RecordError(told, "Give a folder that holds plans or campaigns.")
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
        return files.load_json(path, Score.from_dict, kind="score", schema_version=SCHEMA_VERSION)
    found = files.load_json(path, lambda raw: raw, kind="comparison", schema_version=COMPARISON_VERSION)
    plan_file = path.with_name(campaign.PLAN)
    planned = _plan_fields(plan_file)
    names = ("run_id", "metric", "rollouts", "predicted", "low", "high", "measured", "largest_compute")
    return Score(
        plan=str(plan_file),
        when=datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds"),
        planned_rollouts=None if planned is None else float(planned["rollouts"]),
        checkpoint=_checkpoint_of(path.parent, str(found["run_id"]), str(found["metric"])),
        **{name: found[name] for name in names},
    )


def _checkpoint_of(folder: Path, run_id: str, metric: str) -> ChosenCheckpoint | None:
    """The best checkpoint of a campaign's planned run, where its evaluations are still there."""
    journals = sorted(folder.rglob(f"{run_id}/{METRICS_FILE}"))
    if not journals:
        return None
    runs = RunSet.read(journals[0], on_truncated="drop")
    return choose_checkpoint(runs, runs.run_ids[0], metric)


def _waits(path: Path, done: set[Path]) -> bool:
    """Whether a file is a plan with a prediction and without an outcome."""
    if path.name.endswith(".score.json") or path.resolve() in done:
        return False
    planned = _plan_fields(path)
    return planned is not None and planned.get("predicted_reward") is not None


def _plan_fields(path: Path) -> dict[str, Any] | None:
    """A saved plan as plain JSON; None where the file is no plan that this release reads."""
    try:
        return files.read_json(path, kind="plan", schema_version=PLAN_VERSION)
    except IsoComputeError:
        return None
