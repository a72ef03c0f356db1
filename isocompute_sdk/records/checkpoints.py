"""The best checkpoint of a run, reported on evaluations that did not choose it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocompute_sdk.records.columns import DEFAULT_EVAL_SET
from isocompute_sdk.records.runset import RunSet

TRAIN = "train"
PREFERRED = ("test", "held_out", "holdout")
"""Evaluation sets that are reported on before others."""


@dataclass(frozen=True)
class ChosenCheckpoint:
    """Where a run was best on one evaluation set, and what it scored there on another."""

    run_id: str
    metric: str
    chosen_on: str
    """Evaluation set whose maximum chose the checkpoint."""
    rollouts: float
    """Compute of the checkpoint."""
    maximum: float
    """The metric there on `chosen_on`: the largest of many noisy numbers, biased upward."""
    reported_on: str | None = None
    """Another evaluation set, measured at the same compute; None without one."""
    reported: float | None = None
    """The metric of the chosen checkpoint on it."""

    @property
    def sentence(self) -> str:
        """Both numbers, and which of them is unbiased."""
        best = f"{self.metric} {self.maximum:.3f} on {self.chosen_on} at {self.rollouts:,.0f} rollouts"
        if self.reported is None:
            return f"best checkpoint: {best}, a maximum and so biased upward; no other set was evaluated there"
        return f"best checkpoint, chosen on {self.chosen_on} ({self.maximum:.3f}): {self.reported:.3f} on " + (
            f"{self.reported_on} at {self.rollouts:,.0f} rollouts"
        )


def choose_checkpoint(runs: RunSet, run_id: str, metric: str, chosen_on: str = DEFAULT_EVAL_SET) -> ChosenCheckpoint:
    """The checkpoint with the largest value on `chosen_on`, reported on `test` or another held-out set.

    Raises:
        RecordError: the run has no such metric on `chosen_on`.
    """
    mine = runs.filter(run_id=run_id, metric=metric)
    (series,) = mine.series(metric, chosen_on)
    best = int(np.argmax(series.value_T))
    at = float(series.rollouts_T[best])
    others = [name for name in mine.eval_sets if name not in (chosen_on, TRAIN)]
    ordered = sorted(others, key=lambda name: (name not in PREFERRED, name))
    for name in ordered:
        (other,) = mine.series(metric, name)
        same = np.flatnonzero(other.rollouts_T == at)
        if same.size:
            value = float(other.value_T[same[0]])
            return ChosenCheckpoint(run_id, metric, chosen_on, at, float(series.value_T[best]), name, value)
    return ChosenCheckpoint(run_id, metric, chosen_on, at, float(series.value_T[best]))
