"""Exact metrics from records of single samples, used where they agree with what the framework logged of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.ingest.formats.log_format import Measure
from isocompute_sdk.metrics import k_metrics
from isocompute_sdk.notes import Note

TOLERANCE = 1e-4
"""Largest difference between a logged and an exact value, relative to the larger of it and 1: logs may keep 32 bits."""


@dataclass
class ExactMetrics:
    """Compares the records of one run with its log, and collects what does not fit."""

    different: list[tuple[int, str, str, float, float]] = field(
        default_factory=list[tuple[int, str, str, float, float]]
    )
    """Step, evaluation set, metric, exact value and logged value of all that disagree."""
    incomplete: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Step and set of evaluations whose records are not whole."""

    def of(
        self, step: int, eval_set: str, rewards_PN: NDArray[np.float64] | None, logged: Mapping[str, float]
    ) -> dict[Measure, float]:
        """Exact metrics of one evaluation; empty if records lack or the log disagrees."""
        if rewards_PN is None:
            self.incomplete.append((step, eval_set))
            return {}
        exact = k_metrics(rewards_PN)
        different = [
            (step, eval_set, name, exact[name], value)
            for name, value in logged.items()
            if not abs(exact[name] - value) <= TOLERANCE * max(1.0, abs(value))
        ]
        self.different += different
        return {} if different else {Measure(name, eval_set): value for name, value in exact.items()}

    def notes(self, run_id: str) -> tuple[Note, ...]:
        """Coded notes on both."""
        notes: list[Note] = []
        if self.different:
            step, eval_set, metric, exact, logged = self.different[0]
            message = (
                f"run {run_id!r}: {len(self.different)} logged values differ from the records of single samples, first "
                f"at update step {step}: {metric} on {eval_set} is {logged:.6g} in the log and {exact:.6g} by the "
                "records. The logged values are used there, and best@k and worst@k only where they are logged. Samples "
                "that the framework left out of its means, and lost records, do this."
            )
            first = {"step": step, "eval_set": eval_set, "metric": metric, "exact": exact, "logged": logged}
            data = {"run_id": run_id, "values": len(self.different), **first}
            notes.append(Note("records-disagree-with-log", "warning", message, data))
        if self.incomplete:
            step, eval_set = self.incomplete[0]
            message = (
                f"run {run_id!r}: {len(self.incomplete)} evaluations have no whole records of single samples (first "
                f"{eval_set} at update step {step}): their avg@k is the logged one, and worst@k is unknown."
            )
            data = {"run_id": run_id, "evaluations": len(self.incomplete)}
            notes.append(Note("records-incomplete", "info", message, data))
        return tuple(notes)
