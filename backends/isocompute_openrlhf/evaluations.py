"""Evaluations of one attempt: exact values from the records of single samples, checked against what was logged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from isocompute_openrlhf.attempts import Attempt
from isocompute_openrlhf.samples import Samples
from isocompute_sdk.metrics import k_metrics
from isocompute_sdk.notes import Note

LOGGED_SET = re.compile(r"eval_(.+)_pass1")
LOGGED_BESIDE = {"response_length_mean": "response_length", "truncated_rate": "truncated_share"}
TOLERANCE = 1e-4
"""Largest difference between a logged and an exact value, relative to the larger of it and 1: the log keeps 32 bits."""


@dataclass(frozen=True)
class Difference:
    """A logged value that the records contradict."""

    step: int
    eval_set: str
    metric: str
    exact: float
    logged: float


@dataclass
class Agreement:
    """How the records of one run compare with its log."""

    different: list[Difference] = field(default_factory=list[Difference])
    """Every logged value that disagrees."""
    without_records: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Step and set of evaluations whose records are incomplete."""
    compared: int = 0

    def notes(self) -> tuple[Note, ...]:
        """Coded notes on both."""
        notes: list[Note] = []
        if self.different:
            one = self.different[0]
            message = (
                f"{len(self.different)} of {self.compared} logged values differ from the records of single samples, "
                f"first at update step {one.step}: {one.metric} on {one.eval_set} is {one.logged:.6g} in the log and "
                f"{one.exact:.6g} by the records. The logged ones are used, and worst@k is left out there. Prompts "
                "that were cut on the left are missing from OpenRLHF's means (eval_unknown in its log); lost records "
                "do the same to ours."
            )
            data = {"values": len(self.different), "compared": self.compared, **asdict(one)}
            notes.append(Note("records-disagree-with-log", "warning", message, data))
        if self.without_records:
            step, name = self.without_records[0]
            message = (
                f"{len(self.without_records)} evaluations have no complete records of single samples (first {name} at "
                f"update step {step}): their avg@k and best@k are the logged ones, and worst@k is unknown."
            )
            notes.append(Note("records-incomplete", "info", message, {"evaluations": len(self.without_records)}))
        return tuple(notes)


def evaluations(
    attempt: Attempt,
    last: int,
    samples: Samples | None,
    problems: Mapping[str, Sequence[str]],
    every_steps: int,
    k: int,
    agreement: Agreement,
) -> dict[int, dict[str, dict[str, float]]]:
    """Metrics of every evaluation of an attempt up to step `last`: step -> evaluation set -> metric -> value.

    Args:
        attempt: what was logged.
        last: the last step that counts.
        samples: records of single samples; None where there are none.
        problems: evaluation set -> ids of its problems.
        every_steps: update steps between evaluations.
        k: samples per problem.
        agreement: takes down how records and log compare.
    """
    exact: dict[tuple[int, str], NDArray[np.float64]] = {}
    first = (attempt.from_step // every_steps + 1) * every_steps
    for name, ids in problems.items():
        blocks = samples.evaluations(name, attempt.number, ids, k) if samples is not None else []
        exact |= {(first + index * every_steps, name): block for index, block in enumerate(blocks)}
    logged = {
        (step, match[1]): values
        for step, values in attempt.logged.evaluation.items()
        for key in values
        if (match := LOGGED_SET.fullmatch(key)) and match[1] != "unknown"
    }
    found: dict[int, dict[str, dict[str, float]]] = {}
    for step, name in sorted({*exact, *logged}):
        if step <= last:
            found.setdefault(step, {})[name] = _merged(
                step, name, exact.get((step, name)), logged.get((step, name)), k, agreement
            )
    return found


def _merged(
    step: int,
    name: str,
    exact: NDArray[np.float64] | None,
    logged: Mapping[str, float] | None,
    k: int,
    agreement: Agreement,
) -> dict[str, float]:
    """One evaluation of one set."""
    told: dict[str, float] = {}
    beside: dict[str, float] = {}
    if logged is not None:
        told = {f"avg@{k}": logged[f"eval_{name}_pass1"]}
        if (best := logged.get(f"eval_{name}_pass{k}")) is not None and k > 1:
            told[f"best@{k}"] = best
        beside = {new: v for old, new in LOGGED_BESIDE.items() if (v := logged.get(f"eval_{name}_{old}")) is not None}
    if exact is None:
        agreement.without_records.append((step, name))
        return {**told, **beside}
    metrics = k_metrics(exact)
    agreement.compared += len(told)
    different = [
        Difference(step, name, metric, metrics[metric], value)
        for metric, value in told.items()
        if not abs(metrics[metric] - value) <= TOLERANCE * max(1.0, abs(value))
    ]
    agreement.different += different
    return {**told, **beside} if different else {**metrics, **beside}
