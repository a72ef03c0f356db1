"""What counts as equal, near and far. Written down here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

EQUAL = 0.01
"""Share of a metric's range within which two rewards count as equal: one evaluation of 300 problems x 4 differs by as
much from the next."""

LEVEL = 0.8
"""Coverage of intervals unless asked otherwise, and probability from which something counts as sure."""
NEAR, FAR = 3.0, 10.0
"""Multiples of the largest compute that was run up to which a prediction is near the runs, and beyond which it is far:
tests hide the data beyond the first, questions and pictures reach to the second."""
MIN_UPDATES = 20
"""Fewest updates of a run that is planned or judged: twice the warm-up of the paper's recipe."""
MIN_LEVELS = 3
"""Levels of n below which the prior decides between and beyond them."""


@dataclass(frozen=True)
class Tolerances:
    """Amounts of reward on the scale of one metric."""

    span: float = 1.0
    """Width of the metric's range."""

    @cached_property
    def equal(self) -> float:
        """Rewards this close are equal; a gain below it is not worth a run."""
        return EQUAL * self.span

    @cached_property
    def small(self) -> float:
        """Half of that: what may be given up for something else that is wanted, such as a smaller batch."""
        return 0.5 * self.equal

    @cached_property
    def nothing(self) -> float:
        """A twentieth of it: noise of averages over draws."""
        return 0.05 * self.equal

    def shown(self, rewards: np.ndarray) -> np.ndarray:
        """Rewards as people see them: three decimals of the range."""
        return np.round(rewards / self.span, 3)
