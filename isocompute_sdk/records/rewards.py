"""Which of the measurements in a table is the reward that a question without a metric is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from isocompute_sdk.metrics import average_of
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET, TRAIN_SETS

TRAIN_REWARD = "train_reward"
_COUNTED = re.compile(r"(best|worst|pass|mean)@([1-9][0-9]*)")
_NO_REWARD = re.compile(
    r"(.*[/_.])?(epochs?|loss|.+_loss|entropy|.*kl|.*grad(ient)?_norm|lr|learning_rate|.*clip(ped)?(_.*|frac)?|"
    r".*(length|tokens?|seconds|time|runtime|memory|samples|rollouts|steps?|step_time|share)(_per_second)?|"
    r"importance_.*|frac_.*|.*std|batch_size|total_flos|trained_share)",
    re.IGNORECASE,
)
"""Names of diagnostics, counters and settings."""
_COMPONENT = re.compile(r"(.*/)?rewards/.+")
"""One reward function of several."""


def rank(metric: str, eval_set: str) -> int | None:
    """How likely a measurement is the reward that is asked about, 0 first; None for what is no reward at all.

    Averages on held-out problems come first, then other rewards there, then the training reward.
    """
    if eval_set in TRAIN_SETS:
        # A metric of evaluations that was measured on training problems.
        return 6 if metric == TRAIN_REWARD else 5 if average_of(metric) else None
    kinds = (metric == "avg@4", average_of(metric), metric in ("reward", "accuracy"), _COUNTED.fullmatch(metric))
    known = next((i for i, holds in enumerate(kinds) if holds), None)
    if known is not None:
        return known
    return None if _NO_REWARD.fullmatch(metric) or _COMPONENT.fullmatch(metric) else 4


def headline(measured: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """The reward among (metric, evaluation set) pairs, one for every value; None if no reward is among them.

    Of equally likely ones the most frequent counts, then `validation`, then the alphabet.
    """
    counts = Counter(measured)
    found = [one for one in counts if rank(*one) is not None]
    return min(found, key=lambda one: (rank(*one), -counts[one], one[1] != DEFAULT_EVAL_SET, one), default=None)
