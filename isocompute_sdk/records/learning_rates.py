"""Learning rates that follow one rule in the batch size belong to one recipe (paper, section 3: the square root)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from isocompute_sdk.notes import Note

TOLERANCE = 0.03
"""Relative scatter within which learning rates follow a rule."""
_RULES = ((0.5, "the square root of the batch"), (1.0, "the batch"))


class Configured(Protocol):
    """A run with its context, as `RunInfo` and `RunSeries` are."""

    @property
    def group_size(self) -> int:
        """Rollouts per problem, n."""
        ...

    @property
    def problems_per_batch(self) -> int | None:
        """B_p; None where it is unknown."""
        ...

    @property
    def context(self) -> Mapping[str, Any]:
        """Context fields of the run."""
        ...


def learning_rate_rule(runs: Sequence[Configured], least_batches: int = 2) -> str | None:
    """What the learning rates follow; None where they differ without a rule, "" where they do not differ.

    Args:
        runs: runs; those that do not state a learning rate are passed over.
        least_batches: batch sizes that have to agree on a rule: two can do so by chance.
    """
    known = [run for run in runs if run.context["learning_rate"] is not None]
    if len({run.context["learning_rate"] for run in known}) <= 1:
        return ""
    if any(run.problems_per_batch is None or not run.context["learning_rate"] for run in known):
        return None
    rate = np.array([run.context["learning_rate"] for run in known], dtype=float)
    batch = np.array([run.group_size * (run.problems_per_batch or 1) for run in known], dtype=float)
    if len(set(batch.tolist())) < least_batches:
        return None
    for power, words in _RULES:
        if float(np.ptp(np.log(rate / batch**power))) <= TOLERANCE:
            return words
    return None


def rule_note(rule: str) -> Note:
    """That runs of different learning rates stand together."""
    message = f"Learning rates differ and follow {rule}: the runs are compared all the same."
    return Note("learning-rates-of-one-rule", "info", message, {"rule": rule})
