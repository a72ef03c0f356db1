"""`Truth`: the noise-free reward of a simulated task as a function of compute, group size and problems per batch.

    R(C, n, B_p) = R0 + A(x) S(h(x) (ln C - m(x) - b log2(B_p / B_p,min))) K(C, n, D),   x = log2 n

S is one of three saturating shapes in ln C; K is the share of the gain that remains after overfitting on D problems.
Both are log-concave in ln C, so a curve has one peak, where the best checkpoint is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ShapeName = Literal["hill", "weibull", "gompertz"]
SHAPES: tuple[ShapeName, ...] = ("hill", "weibull", "gompertz")
OCTAVES_X: Array = np.arange(57, dtype=np.float64) / 4
"""log2 n at which tasks are given; values in between are interpolated."""
_LARGEST_EXPONENT = 40.0
_BISECTIONS = 50


def rise(shape: ShapeName, u: npt.ArrayLike) -> Array:
    """Share of the gain at u = h (ln C - m), from 0 to 1.

    Hill 1 / (1 + e^-u); Weibull 1 - exp(-e^u); Gompertz exp(-e^-u), as growth curves are named.
    """
    at = np.clip(np.asarray(u, dtype=float), -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    if shape == "hill":
        return 1.0 / (1.0 + np.exp(-at))
    if shape == "weibull":
        return -np.expm1(-np.exp(at))
    return np.exp(-np.exp(-at))


def rise_at(shape: ShapeName, share: float) -> float:
    """The u at which `rise` reaches `share`, 0 < share < 1."""
    if shape == "hill":
        return float(np.log(share / (1.0 - share)))
    if shape == "weibull":
        return float(np.log(-np.log1p(-share)))
    return float(-np.log(-np.log(share)))


def log_slope(shape: ShapeName, u: npt.ArrayLike) -> Array:
    """Derivative of ln S at u, positive and decreasing."""
    at = np.clip(np.asarray(u, dtype=float), -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    if shape == "hill":
        return 1.0 / (1.0 + np.exp(at))
    if shape == "weibull":
        growth = np.exp(np.minimum(at, 6.0))
        return growth / np.expm1(growth)
    return np.exp(-at)


class Task(ABC):
    """The noise-free reward of a task by compute, group size and problems per batch."""

    base_reward: float
    """Reward of the base model, R0."""
    problems_per_batch: int
    """B_p at which the curves are given."""
    problems_delay: float
    """b: delay in ln C for each doubling of the problems per batch."""
    n_problems: int | None
    """Distinct training problems, D; None if the number does not matter."""

    def mean(
        self,
        rollouts: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
        *,
        delay: npt.ArrayLike = 0.0,
    ) -> Array:
        """Reward of the checkpoint at C rollouts, averaged over runs.

        Args:
            rollouts: compute C, at least 0; broadcast with the others.
            group_size: n, 1 or more.
            problems_per_batch: B_p; None for the task's own.
            delay: further delay in ln C.
        """
        return self._mean(*self._axes(rollouts, group_size, problems_per_batch, delay))

    def best(
        self, rollouts: npt.ArrayLike, group_size: npt.ArrayLike, problems_per_batch: npt.ArrayLike | None = None
    ) -> Array:
        """Running maximum of `mean`: reward of the best checkpoint up to C; arguments as for `mean`."""
        return self._best(*self._axes(rollouts, group_size, problems_per_batch, 0.0))

    @abstractmethod
    def _mean(self, at: Array, x: Array, lag: Array) -> Array:
        """`mean` at ln C = `at` and log2 n = `x`, delayed by `lag` in ln C."""

    @abstractmethod
    def _best(self, at: Array, x: Array, lag: Array) -> Array:
        """`best`; arguments as for `_mean`."""

    def _axes(
        self, rollouts: npt.ArrayLike, group_size: npt.ArrayLike, bp: npt.ArrayLike | None, delay: npt.ArrayLike
    ) -> tuple[Array, Array, Array]:
        with np.errstate(divide="ignore"):
            at = np.log(np.asarray(rollouts, dtype=float))
        problems = np.log2(np.asarray(self.problems_per_batch if bp is None else bp, dtype=float))
        lag = self.problems_delay * (problems - np.log2(self.problems_per_batch)) + np.asarray(delay, dtype=float)
        at, x, lag = np.broadcast_arrays(at, np.log2(np.asarray(group_size, dtype=float)), lag)
        return at, x, lag


@dataclass(frozen=True, eq=False)
class Truth(Task):
    """A task given by a formula. Arrays with axis X are values at `OCTAVES_X`."""

    shape: ShapeName
    base_reward: float
    amplitude_X: Array
    """Gain in the limit of training without overfitting, A."""
    midpoint_X: Array
    """ln C at u = 0, m, at the smallest problems per batch."""
    steepness_X: Array
    """Steepness per unit of ln C, h."""
    problems_per_batch: int
    problems_delay: float = 0.0
    n_problems: int | None = None
    overfit_at: float = np.inf
    """ln C at which half of the gain is lost at D = 1,000 and small n; infinite without overfitting."""
    overfit_cap: float = 0.0
    """log2 n above which overfitting begins earlier."""
    overfit_haste: float = 0.0
    """Decrease of that ln C per octave of n above the cap."""
    overfit_rate: float = 0.5
    """Steepness of the loss per unit of ln C."""

    def _best(self, at: Array, x: Array, lag: Array) -> Array:
        return self._mean(np.minimum(at, self._peak(x, lag)), x, lag)

    def _mean(self, at: Array, x: Array, lag: Array) -> Array:
        gain = np.interp(x, OCTAVES_X, self.amplitude_X) * rise(self.shape, self._u(at, x, lag))
        # ln 0 is minus infinity, where `rise` is clipped; the base model has gained exactly nothing.
        return np.where(np.isneginf(at), self.base_reward, self.base_reward + gain * self._kept(at, x))

    def _u(self, at: Array, x: Array, lag: Array) -> Array:
        steepness = np.interp(x, OCTAVES_X, self.steepness_X)
        return steepness * (at - np.interp(x, OCTAVES_X, self.midpoint_X) - lag)

    def _loss_at(self, x: Array) -> Array:
        """Logarithm of the C at which half of the gain is lost."""
        if self.n_problems is None:
            return np.full(x.shape, np.inf)
        begin = self.overfit_at + np.log(self.n_problems / 1000.0)
        return begin - self.overfit_haste * np.maximum(x - self.overfit_cap, 0.0)

    def _kept(self, at: Array, x: Array) -> Array:
        late = self.overfit_rate * (np.maximum(at, -100.0) - self._loss_at(x))
        return 1.0 / (1.0 + np.exp(np.clip(late, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)))

    def _peak(self, x: Array, lag: Array) -> Array:
        """Logarithm of the C at which the curve is highest: the root of a falling function, by bisection."""
        loss_at = self._loss_at(x)
        if not np.any(np.isfinite(loss_at)):
            return loss_at
        steepness = np.interp(x, OCTAVES_X, self.steepness_X)
        low, high = np.full(x.shape, -20.0), np.full(x.shape, 60.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            late = np.clip(self.overfit_rate * (middle - loss_at), -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
            falling = self.overfit_rate / (1.0 + np.exp(-late))
            rising = steepness * log_slope(self.shape, self._u(middle, x, lag))
            low, high = np.where(rising > falling, middle, low), np.where(rising > falling, high, middle)
        return 0.5 * (low + high)


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

    def _mean(self, at: Array, x: Array, lag: Array) -> Array:
        return self._lookup(self._table(), at - lag, x)

    def _best(self, at: Array, x: Array, lag: Array) -> Array:
        table_XT = self._table()
        running_XT = np.maximum(np.maximum.accumulate(table_XT, axis=1), 0.0)
        # Interpolation of the running maximum alone would fall below the curve just behind its peak.
        return np.maximum(self._lookup(running_XT, at - lag, x), self._lookup(table_XT, at - lag, x))

    def _table(self) -> Array:
        if self.onset_X is None or self.decline_X is None:
            return self.gain_XT
        onset_X = self.onset_X
        if self.n_problems is not None and self.onset_problems is not None:
            # Decline begins after so many passes over the problems.
            onset_X = onset_X + np.log(self.n_problems / self.onset_problems)
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
