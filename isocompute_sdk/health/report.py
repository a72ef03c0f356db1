"""`Finding`: what a detector saw in one run. `Health`: all of them, as notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isocompute_sdk.health.advice import ADVICE, DATA, STRENGTH, Try
from isocompute_sdk.health.contrast import contrast
from isocompute_sdk.health.levels import LASTING
from isocompute_sdk.health.traces import RunTraces, Trace
from isocompute_sdk.notes import Note, Severity

LISTED = 5
"""Runs that a message names."""


@dataclass(frozen=True)
class Finding:
    """What a detector saw in one run."""

    code: str
    """Code of the note, a key of `advice.ADVICE`."""
    severity: Severity
    seen: str
    """What was seen, with numbers."""
    step: float | None = None
    """Update step from which on it was there; None for a setting, or where steps are unknown."""
    rollouts: float | None = None
    """The same in rollouts."""
    noticed_rollouts: float | None = None
    """Compute at which the evidence was enough."""
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    """The numbers behind `seen`."""

    @property
    def where(self) -> str:
        """When it began, in words."""
        if self.rollouts is None:
            return "from the start"
        at = f"C = {self.rollouts:,.0f}"
        return at if self.step is None else f"step {self.step:,.0f} ({at})"

    def note(self, run_id: str) -> Note:
        """The finding about one run."""
        advice = ADVICE[self.code]
        return Note(
            self.code,
            self.severity,
            f"Run {run_id}: {advice.title}. Seen in your data: {self.seen}. To try: {_tries(advice.tries)}.",
            {"run_id": run_id, **self._data(), **_based(advice.tries)},
        )

    def _data(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "rollouts": self.rollouts,
            "noticed_rollouts": self.noticed_rollouts,
            "seen": self.seen,
            "values": dict(self.values),
        }


def at(trace: Trace, place: int) -> str:
    """A place of a trace in words: its step, or its compute where steps are unknown."""
    step = trace.step_T[place]
    return f"C = {trace.rollouts_T[place]:,.0f}" if np.isnan(step) else f"step {step:,.0f}"


def found_at(
    code: str,
    severity: Severity,
    trace: Trace,
    place: int,
    seen: str,
    values: Mapping[str, float],
    noticed: int | None = None,
) -> Finding:
    """A finding that begins at a place of a trace and is certain from `noticed` on (by default so many steps later)."""
    sure = min(place + LASTING - 1, len(trace) - 1) if noticed is None else noticed
    step = float(trace.step_T[place])
    return Finding(
        code,
        severity,
        seen,
        None if np.isnan(step) else step,
        float(trace.rollouts_T[place]),
        float(trace.rollouts_T[sure]),
        values,
    )


@dataclass(frozen=True)
class Health:
    """What the detectors say about a set of runs."""

    notes: tuple[Note, ...]
    """One note per code and severity over all runs, the gravest first."""
    by_run: Mapping[str, tuple[Note, ...]]
    """Notes of each run that has any, the gravest first."""
    runs: int
    """Runs that were looked at."""

    @property
    def healthy(self) -> bool:
        """Whether nothing of severity warning or above was seen."""
        return all(note.severity == "info" for note in self.notes)


def together(runs: Sequence[RunTraces], found: Mapping[str, Sequence[Finding]]) -> tuple[Note, ...]:
    """One note per code and severity; `found` by run id."""
    groups: dict[tuple[str, Severity], dict[str, Finding]] = {}
    for severity in ("refuse", "warning", "info"):
        for code in ADVICE:
            sick = {run: f for run, every in found.items() for f in every if (f.code, f.severity) == (code, severity)}
            if sick:
                groups[code, severity] = sick
    return tuple(_one(code, severity, sick, runs) for (code, severity), sick in groups.items())


def _one(code: str, severity: Severity, sick: Mapping[str, Finding], runs: Sequence[RunTraces]) -> Note:
    advice = ADVICE[code]
    told = contrast([run for run in runs if run.run_id in sick], [run for run in runs if run.run_id not in sick])
    tries = (*advice.tries, *(Try(text, DATA) for text in told))
    first = next(iter(sick))
    names = "; ".join(f"{run} {finding.where}" for run, finding in list(sick.items())[:LISTED])
    more = f"; and {len(sick) - LISTED} more" if len(sick) > LISTED else ""
    message = (
        f"{len(sick)} of {len(runs)} run(s): {advice.title}: {names}{more}. Seen in your data, {first}: "
        f"{sick[first].seen}. To try: {_tries(tries)}."
    )
    return Note(
        code,
        severity,
        message,
        {
            "runs": {run: {"step": finding.step, "rollouts": finding.rollouts} for run, finding in sick.items()},
            "of": len(runs),
            **_based(tries),
        },
    )


def _tries(tries: Sequence[Try]) -> str:
    return "; ".join(map(str, tries))


def _based(tries: Sequence[Try]) -> dict[str, Any]:
    """The strongest basis among the advice, and each piece with its own."""
    return {
        "basis": min((one.basis for one in tries), key=STRENGTH.index),
        "tries": [{"text": one.text, "basis": one.basis} for one in tries],
    }
