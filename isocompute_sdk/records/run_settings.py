"""What the runs behind a fit were trained with: the recipe that their curves belong to."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Value = str | int | float
RULES = {"constant": 0.0, "sqrt": 0.5, "linear": 1.0}
"""Rules of a learning rate in the batch size, and their powers (paper, section 3: the square root)."""
RULE_TOLERANCE = 0.03
"""Relative scatter within which learning rates follow a rule."""


@dataclass(frozen=True)
class RunSettings:
    """Runs of one configuration that share every context field."""

    group_size: int
    problems_per_batch: int | None
    runs: int
    """How many runs."""
    values: Mapping[str, Value]
    """Context fields that are known."""

    @property
    def batch(self) -> int | None:
        """Rollouts per batch, n B_p; None if B_p is unknown."""
        return None if self.problems_per_batch is None else self.group_size * self.problems_per_batch


def settings_of(series: Iterable[Any]) -> tuple[RunSettings, ...]:
    """The settings of runs, by n, B_p and context, in a stable order.

    Args:
        series: `RunSeries` or anything with their `group_size`, `problems_per_batch` and `context`.
    """
    counted: Counter[tuple[int, int | None, tuple[tuple[str, Value], ...]]] = Counter()
    for one in series:
        known = tuple(sorted((name, value) for name, value in one.context.items() if value is not None))
        counted[one.group_size, one.problems_per_batch, known] += 1
    order = sorted(counted.items(), key=lambda item: (item[0][0], item[0][1] or 0, repr(item[0][2])))
    return tuple(RunSettings(n, bp, runs, dict(known)) for (n, bp, known), runs in order)


def values_of(settings: Sequence[RunSettings], name: str) -> tuple[Value, ...]:
    """Distinct known values of a context field, that of the most runs first."""
    counted: Counter[Value] = Counter()
    for one in settings:
        if name in one.values:
            counted[one.values[name]] += one.runs
    return tuple(sorted(counted, key=lambda value: (-counted[value], repr(value))))


@dataclass(frozen=True)
class LearningRates:
    """The learning rates of runs: rate * (B / batch)^power."""

    rule: str | None
    """`constant`, `sqrt` or `linear`; None if one batch was run, or if the rates follow no rule."""
    rate: float
    batch: int | None
    """Rollouts per batch at which `rate` was used; None if unknown."""
    agree: bool
    """False if the runs used several rates that follow no rule."""


def learning_rates_of(settings: Sequence[RunSettings], near: tuple[int, int] | None = None) -> LearningRates | None:
    """The rule and anchor of the runs' learning rates; None if no run records one above 0.

    Args:
        settings: the runs.
        near: (n, B_p) of a plan. Rates without a rule are taken from the runs nearest to it, in octaves.
    """
    known = [one for one in settings if float(one.values.get("learning_rate", 0.0)) > 0.0]
    if not known:
        return None
    rate_R = np.array([float(one.values["learning_rate"]) for one in known])
    batch_R = [one.batch for one in known]
    first = known[0]
    if len(set(rate_R.tolist())) == 1:
        rule = "constant" if len(set(batch_R)) > 1 or None in batch_R else None
        return LearningRates(rule, float(rate_R[0]), first.batch, agree=True)
    if None not in batch_R and len(set(batch_R)) > 1:
        batches_R = np.array(batch_R, dtype=float)
        for rule, power in RULES.items():
            ratio_R = np.log(rate_R / batches_R**power)
            if float(np.ptp(ratio_R)) <= RULE_TOLERANCE:
                middle = int(np.argsort(ratio_R, kind="stable")[len(ratio_R) // 2])
                return LearningRates(rule, float(rate_R[middle]), batch_R[middle], agree=True)
    nearest = min(known, key=lambda one: (_octaves(one, near), -one.runs, float(one.values["learning_rate"])))
    same = [one for one in known if _octaves(one, near) == _octaves(nearest, near)]
    rate = float(values_of(same, "learning_rate")[0])
    return LearningRates(None, rate, nearest.batch, agree=False)


def _octaves(one: RunSettings, near: tuple[int, int] | None) -> float:
    """Distance of a configuration from (n, B_p)."""
    if near is None:
        return 0.0
    found = abs(math.log2(one.group_size / near[0]))
    return found + (0.0 if one.problems_per_batch is None else abs(math.log2(one.problems_per_batch / near[1])))


def staleness_of(value: object) -> float | None:
    """How many updates old the weights behind a rollout may be, from the column `off_policy`; None if unbounded.

    `none` and `sync` are 0. Of any other text the first number counts, as in `staleness 2`; without one, as in
    `async`, the bound is unknown.
    """
    text = str(value).strip().lower()
    if text in ("none", "sync", "on-policy", "false"):
        return 0.0
    number = re.search(r"\d+(?:\.\d+)?", text)
    return None if number is None else float(number[0])
