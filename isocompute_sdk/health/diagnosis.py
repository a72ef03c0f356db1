"""`Finding`: what a detector saw in one run. `Health`: the findings of a set of runs, as notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isocompute_sdk.health.advice import ADVICE, DATA, STRENGTH, Try
from isocompute_sdk.health.levels import LASTING
from isocompute_sdk.health.traces import RunTraces, Trace
from isocompute_sdk.notes import Note, Severity, by_severity
from isocompute_sdk.phrases import listed

LISTED = 5
"""Runs that a message lists by name."""
FEWEST = 2
"""Runs needed on either side of a comparison of settings; one against one says nothing."""
SETTINGS = {
    "problems_per_batch": "B_p",
    "group_size": "n",
    "learning_rate": "learning rate",
    "kl_coef": "KL coefficient",
    "entropy_coef": "entropy coefficient",
    "updates_per_batch": "updates per batch",
    "n_problems": "training problems",
}
"""Settings in which affected and unaffected runs are compared: field -> name in messages."""


@dataclass(frozen=True)
class Finding:
    """What a detector saw in one run."""

    code: str
    """Code of the note, a key of `advice.ADVICE`."""
    severity: Severity
    seen: str
    """The observation with its numbers."""
    step: float | None = None
    """Update step at which it began. None: a setting, or steps are unknown."""
    rollouts: float | None = None
    """Compute C in rollouts at which it began. None for a setting."""
    noticed_rollouts: float | None = None
    """Compute at which the evidence sufficed."""
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    """The numbers in `seen`."""

    @classmethod
    def at(
        cls,
        code: str,
        severity: Severity,
        trace: Trace,
        place: int,
        seen: str,
        values: Mapping[str, float],
        noticed: int | None = None,
    ) -> Finding:
        """A finding that begins at index `place` of a trace.

        Args:
            code: code of the note.
            severity: severity of the note.
            trace: the quantity that was bad.
            place: index at which it began.
            seen: the observation with its numbers.
            values: these numbers.
            noticed: index at which the evidence sufficed. None: `LASTING` values from `place` on.
        """
        sure = min(place + LASTING - 1, len(trace) - 1) if noticed is None else noticed
        step = float(trace.step_T[place])
        return cls(
            code,
            severity,
            seen,
            None if np.isnan(step) else step,
            float(trace.rollouts_T[place]),
            float(trace.rollouts_T[sure]),
            values,
        )

    @property
    def where(self) -> str:
        """When it began, in words."""
        if self.rollouts is None:
            return "from the start"
        at = f"C = {self.rollouts:,.0f}"
        return at if self.step is None else f"step {self.step:,.0f} ({at})"

    def note(self, run_id: str) -> Note:
        """The finding as a note on one run."""
        advice = ADVICE[self.code]
        return Note(
            self.code,
            self.severity,
            f"Run {run_id}: {advice.title}. Seen in your data: {self.seen}. To try: {_joined(advice.tries)}.",
            {
                "run_id": run_id,
                "step": self.step,
                "rollouts": self.rollouts,
                "noticed_rollouts": self.noticed_rollouts,
                "seen": self.seen,
                "values": dict(self.values),
                **_based(advice.tries),
            },
        )


@dataclass(frozen=True)
class Health:
    """What the detectors found in a set of runs."""

    notes: tuple[Note, ...]
    """One note per code and severity over all runs, most severe first."""
    by_run: Mapping[str, tuple[Note, ...]]
    """Notes of each run that has any, most severe first."""
    runs: int
    """Number of runs checked."""

    @classmethod
    def of(cls, runs: Sequence[RunTraces], found: Mapping[str, Sequence[Finding]]) -> Health:
        """Findings as notes.

        Args:
            runs: all runs that were checked.
            found: findings by run id.
        """
        groups: dict[tuple[str, Severity], dict[str, Finding]] = {}
        for severity in ("refuse", "warning", "info"):
            for code in ADVICE:
                sick = {run: f for run, all_ in found.items() for f in all_ if (f.code, f.severity) == (code, severity)}
                if sick:
                    groups[code, severity] = sick
        notes = tuple(_pooled(code, severity, sick, runs) for (code, severity), sick in groups.items())
        return cls(notes, notes_by_run(found), len(runs))

    @property
    def healthy(self) -> bool:
        """Whether no note is a warning or worse. Quantities that were not logged were not checked."""
        return all(note.severity == "info" for note in self.notes)


def notes_by_run(found: Mapping[str, Sequence[Finding]]) -> dict[str, tuple[Note, ...]]:
    """Notes of each run that has findings, most severe first."""
    return {run: tuple(by_severity(one.note(run) for one in some)) for run, some in found.items() if some}


def contrast(sick: Sequence[RunTraces], healthy: Sequence[RunTraces]) -> list[str]:
    """One sentence for each setting whose values separate affected from unaffected runs: advice from the data."""
    if min(len(sick), len(healthy)) < FEWEST:
        return []
    sentences: list[str] = []
    for name, words in SETTINGS.items():
        bad, good = ([_setting(run, name) for run in runs] for runs in (sick, healthy))
        known_bad, known_good = ([v for v in values if v is not None] for values in (bad, good))
        if len(known_bad) < len(bad) or len(known_good) < len(good):
            continue
        if max(known_bad) < min(known_good):
            sentences.append(f"{words} of {min(known_good):g} or more: none of the {len(good)} runs there is affected")
        elif min(known_bad) > max(known_good):
            sentences.append(f"{words} of {max(known_good):g} or less: none of the {len(good)} runs there is affected")
    return sentences


def _setting(run: RunTraces, name: str) -> float | None:
    if name == "group_size":
        return run.group_size
    return run.problems_per_batch if name == "problems_per_batch" else run.context.get(name)


def _pooled(code: str, severity: Severity, sick: Mapping[str, Finding], runs: Sequence[RunTraces]) -> Note:
    """One note on all runs with a finding of one code and severity."""
    advice = ADVICE[code]
    separating = contrast([run for run in runs if run.run_id in sick], [run for run in runs if run.run_id not in sick])
    tries = (*advice.tries, *(Try(text, DATA) for text in separating))
    first = next(iter(sick))
    names = listed([f"{run} {finding.where}" for run, finding in sick.items()], LISTED, ";")
    message = (
        f"{len(sick)} of {len(runs)} run(s): {advice.title}: {names}. Seen in your data, {first}: "
        f"{sick[first].seen}. To try: {_joined(tries)}."
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


def _joined(tries: Sequence[Try]) -> str:
    return "; ".join(map(str, tries))


def _based(tries: Sequence[Try]) -> dict[str, Any]:
    """The strongest basis among the advice, and each piece with its own."""
    return {
        "basis": min((one.basis for one in tries), key=STRENGTH.index),
        "tries": [{"text": one.text, "basis": one.basis} for one in tries],
    }
