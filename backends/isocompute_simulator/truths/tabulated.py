"""`TabulatedTruth`: the noise-free reward of a task with computed curves instead of a formula.

    R(C, n, B_p, D) = R0 + G(x, ln C - b log2(B_p / B_p,min)) - A(x) d(x) max(0, ln C - onset(x, D)),   x = log2 n

G is a table; the second term is a late decline, which stops at R0 minus a tenth of the gain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocompute_simulator.truths.truth import OCTAVES_X, Array, Task

PER_UNIT = 12
"""Points of the table per unit of ln C."""
FLOOR = 0.1
"""A decline stops at R0 minus this share of the gain."""


@dataclass(frozen=True, eq=False)
class TabulatedTruth(Task):
    """A task given by tables over log2 n (`OCTAVES_X`) and ln C."""

    base_reward: float
    log_compute_T: Array
    """ln C of the table at the smallest problems per batch, evenly spaced."""
    gain_XT: Array
    """Gain over the base model before any decline; it may be negative for a while."""
    problems_per_batch: int
    problems_delay: float = 0.0
    n_problems: int | None = None
    onset_X: Array | None = None
    """ln C at which the decline begins with `onset_problems`; None without a decline."""
    onset_problems: int | None = None
    """D that `onset_X` belongs to; None if the onset does not depend on it."""
    decline_X: Array | None = None
    """Share of the largest gain that is lost per unit of ln C after the onset."""

    def _mean(self, at: Array, x: Array, lag: Array, n_problems: int | None) -> Array:
        return self._lookup(self._table(n_problems), at - lag, x)

    def _best(self, at: Array, x: Array, lag: Array, n_problems: int | None) -> Array:
        table_XT = self._table(n_problems)
        running_XT = np.maximum(np.maximum.accumulate(table_XT, axis=1), 0.0)
        # Interpolation of the running maximum alone would fall below the curve just behind its peak.
        return np.maximum(self._lookup(running_XT, at - lag, x), self._lookup(table_XT, at - lag, x))

    def _table(self, n_problems: int | None) -> Array:
        if self.onset_X is None or self.decline_X is None:
            return self.gain_XT
        onset_X = self.onset_X
        problems = self.n_problems if n_problems is None else n_problems
        if problems is not None and self.onset_problems is not None:
            # Decline begins after so many passes over the problems.
            onset_X = onset_X + np.log(problems / self.onset_problems)
        top_X = self.gain_XT.max(axis=1)
        late_XT = np.maximum(self.log_compute_T[None, :] - onset_X[:, None], 0.0)
        fallen_XT = self.gain_XT - (top_X * self.decline_X)[:, None] * late_XT
        return np.where(late_XT > 0, np.maximum(fallen_XT, -FLOOR * top_X[:, None]), self.gain_XT)

    def _lookup(self, table_XT: Array, at: Array, x: Array) -> Array:
        """Bilinear in (x, ln C); beyond the table its first and last values hold."""
        first, step = self.log_compute_T[0], self.log_compute_T[1] - self.log_compute_T[0]
        place = np.clip((np.maximum(at, first - 1.0) - first) / step, 0.0, len(self.log_compute_T) - 1.000001)
        column = place.astype(int)
        share = place - column
        row_at = np.clip(x / OCTAVES_X[1], 0.0, len(OCTAVES_X) - 1.000001)
        row = row_at.astype(int)
        across = row_at - row

        def along(one: npt.NDArray[np.intp]) -> Array:
            return table_XT[one, column] * (1.0 - share) + table_XT[one, column + 1] * share

        gain = along(row) * (1.0 - across) + along(row + 1) * across
        return self.base_reward + np.where(np.isneginf(at), 0.0, gain)


def log_grid(largest_rollouts: float) -> Array:
    """Ln C of a table: from e^-9 to e^9 times a pilot's compute."""
    centre = np.log(largest_rollouts)
    return np.asarray(np.arange(centre - 9.0, centre + 9.0, 1.0 / PER_UNIT), dtype=np.float64)
