"""`Finding`: what a detector saw in one run, and what to try. `Health`: the findings of runs, as notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from isocompute_sdk.fitting.surface.data import FALLS, Fault
from isocompute_sdk.health.traces import LASTING, RunTraces, Trace
from isocompute_sdk.notes import Note, Severity, by_severity
from isocompute_sdk.phrases import counted, listed

LISTED = 2
"""Runs that a message lists by name."""
FELL: Mapping[Fault, str] = {"collapse": "collapsed", "decay": "fell"}
"""What the reward of a run did, in the words of every command."""


def falls_in(notes: Iterable[Note]) -> dict[str, tuple[Fault, float]]:
    """How each run fell, and the compute at which it was best before, by run id."""
    return {
        run: (FALLS[note.code], float(best["rollouts"]))
        for note in notes
        if note.code in FALLS
        for run, best in note.data["runs"].items()
    }


def _paper(text: str, where: str) -> str:
    return f"{text} (measured in the paper, {where})"


def _guess(text: str) -> str:
    return f"{text} (a guess)"


@dataclass(frozen=True)
class Advice:
    """Title and advice of all findings with one code."""

    title: str
    """What is wrong, in a few words."""
    tries: tuple[str, ...]
    """What to try, each with what it rests on."""


_PAIR = _paper("on easy sets use both a KL term and an entropy bonus; on hard sets neither", "section 3")
_RATE = _paper("a learning rate of 1e-6 * sqrt(B / 1024), which beat constant and linear scaling", "section 3")
_LOWER_RATE = _guess("restart from an earlier checkpoint with half the learning rate")
_MORE_PROBLEMS = _paper("a larger B_p, which stabilises training, especially on hard sets", "section 4")

ADVICE: dict[str, Advice] = {
    "entropy-collapse": Advice("entropy has collapsed while most answers are still wrong", (_PAIR, _LOWER_RATE)),
    "entropy-explosion": Advice(
        "entropy grows and stays up",
        (_paper("no entropy bonus without its KL term, and neither on hard sets", "section 3"), _LOWER_RATE),
    ),
    "kl-drift": Advice("the policy drifts far from the base model", (_PAIR, _RATE, _LOWER_RATE)),
    "truncated-responses": Advice(
        "responses are truncated at the token limit",
        (
            _guess("a higher limit on response tokens (8,192 in the paper)"),
            _paper("no entropy bonus alone: on hard sets it made length explode", "section 3"),
        ),
    ),
    "nothing-learned": Advice(
        "the run has learned nothing",
        (
            _guess("check the reward function by hand on a few responses: does it find the answer in them?"),
            _guess("a larger n, or easier problems, if the rewards are 0; harder ones if they are 1"),
        ),
    ),
    "zero-variance-groups": Advice(
        "most groups have equal rewards and teach nothing",
        (
            _paper("do not filter them: with the filter the gain was smaller and less stable", "section 3"),
            _guess("a larger n, or problems of another difficulty; if all are solved, stop"),
        ),
    ),
    "gradient-norm-spikes": Advice("the gradient norm jumps", (_LOWER_RATE, _MORE_PROBLEMS)),
    "gradient-norm-growth": Advice("the gradient norm grows and stays up", (_RATE, _LOWER_RATE)),
    "collapsed-run": Advice(f"the reward {FELL['collapse']}", (_PAIR, _RATE, _MORE_PROBLEMS, _LOWER_RATE)),
    "decayed-run": Advice(
        f"the reward {FELL['decay']}",
        (_paper("keep the best checkpoint and stop; more training problems", "section 6"), _LOWER_RATE),
    ),
    "low-last-evaluation": Advice(
        "the last evaluation alone is far below those before it",
        (
            _guess("evaluate the last checkpoint again: if the reward is as low, the run collapsed"),
            _guess("plan without this evaluation to see whether it matters; check the grader"),
        ),
    ),
    "overfitting-run": Advice(
        "the reward falls on held-out problems but not on training problems",
        (
            _paper(
                "more training problems, or a smaller n: with 500 problems n = 512 overfits before n = 256",
                "section 6",
            ),
            _paper("keep the best checkpoint; leave later evaluations out of a fit", "section 6"),
        ),
    ),
    "off-policy-unstudied": Advice(
        "several updates per rollout batch",
        (_paper("one update per batch, as in the runs behind the published laws", "section 3"),),
    ),
    "sampler-mismatch": Advice(
        "sampler and trainer assign different probabilities to sampled tokens",
        (
            _paper("truncated importance sampling, which corrects the usual mismatch", "section 3"),
            _guess("check that weights reach the sampler, and both sides' temperature and precision"),
        ),
    ),
    "outside-predicted-band": Advice(
        "the planned run is outside its predicted band",
        (
            _guess(
                "compare its recipe, data and model with those of the runs behind the fit, then check its step metrics",
            ),
            _guess("refit with this run and replan the rest of the budget"),
        ),
    ),
    "filtered-rollouts": Advice(
        "some rollouts are sampled but not trained on",
        (
            _guess("compare runs by C, not by M: C counts generated rollouts"),
            _paper("do not filter: with the filter the gain was smaller and less stable", "section 3"),
        ),
    ),
}
"""Advice by note code. The thresholds, which are this project's own, stand with the detectors."""


@dataclass(frozen=True)
class Finding:
    """What a detector saw in one run."""

    code: str
    """Code of the note, a key of `ADVICE`."""
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
    level: str = ""
    """The quantity that began to be bad and its value there, in words; empty where that is more than one number."""

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
        level: str = "",
    ) -> Finding:
        """A finding that begins at index `place` of a trace."""
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
            level,
        )

    @property
    def fall(self) -> str:
        """What the reward did and where, of a finding in `FALLS`."""
        return f"the reward {FELL[FALLS[self.code]]}: {self.seen}"

    @property
    def trouble(self) -> str:
        """What is wrong and what was seen of it, in one line."""
        return f"{ADVICE[self.code].title} ({self.code}): {self.seen}"

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
        tries = "; ".join(advice.tries)
        return Note(
            self.code,
            self.severity,
            f"Run {run_id}: {advice.title}. Seen in your data: {self.seen}. To try: {tries}.",
            {
                "run_id": run_id,
                "step": self.step,
                "rollouts": self.rollouts,
                "noticed_rollouts": self.noticed_rollouts,
                "seen": self.seen,
                "values": dict(self.values),
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
        notes: list[Note] = []
        for severity, code in product(("refuse", "warning", "info"), ADVICE):
            sick = {run: f for run, all_ in found.items() for f in all_ if (f.code, f.severity) == (code, severity)}
            notes += [_pooled(code, severity, sick, len(runs))] if sick else []
        return cls(tuple(notes), notes_by_run(found), len(runs))

    def __repr__(self) -> str:
        found = ", ".join(f"{note.severity} {note.code}" for note in self.notes) or "nothing found"
        return f"Health({counted(self.runs, 'run')}: {found}; notes and by_run have the texts)"

    @property
    def healthy(self) -> bool:
        """Whether no note is a warning or worse. Quantities that were not logged were not checked."""
        return all(note.severity == "info" for note in self.notes)


def notes_by_run(found: Mapping[str, Sequence[Finding]]) -> dict[str, tuple[Note, ...]]:
    """Notes of each run that has findings, most severe first."""
    return {run: tuple(by_severity(one.note(run) for one in some)) for run, some in found.items() if some}


def _pooled(code: str, severity: Severity, sick: Mapping[str, Finding], of: int) -> Note:
    """One note on all runs with a finding of one code and severity: which, and the first advice."""
    advice = ADVICE[code]
    at = "best at " if code in FALLS else ""
    places = [f"{run} {at}{finding.where}" for run, finding in sick.items()]
    level = next(iter(sick.values())).level
    places[0] += f", {level}" if level else ""
    names = listed(places, LISTED, ";")
    message = f"{len(sick)} of {counted(of, 'run')}: {advice.title}: {names}. To try: {advice.tries[0]}."
    return Note(
        code,
        severity,
        message,
        {
            "runs": {run: {"step": finding.step, "rollouts": finding.rollouts} for run, finding in sick.items()},
            "of": of,
        },
    )
