"""`Truth`: the noise-free reward of a simulated task as a function of compute, group size and problems per batch.

    R(C, n, B_p) = R0 + A(x) S(h(x) (ln C - m(x) - b log2(B_p / B_p,min))) K(C, n, D),   x = log2 n

with S one of three saturating shapes in ln C, and K the share that is kept when training goes on for too long on D
problems. Both factors are log-concave in ln C, so that a curve rises to one peak; the best checkpoint holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
ShapeName = Literal["hill", "weibull", "gompertz"]
SHAPES: tuple[ShapeName, ...] = ("hill", "weibull", "gompertz")
OCTAVES_X: Array = np.arange(57, dtype=np.float64) / 4
"""log2 n at which a truth's amplitude, midpoint and steepness are given; in between they are interpolated."""
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


@dataclass(frozen=True, eq=False)
class Truth:
    """A noise-free task. Arrays with axis X stand on `OCTAVES_X`."""

    shape: ShapeName
    base_reward: float
    """Reward of the base model, R0."""
    amplitude_X: Array
    """Gain that training tends to, A, before any overfitting."""
    midpoint_X: Array
    """ln C at u = 0, m, at the smallest problems per batch."""
    steepness_X: Array
    """Steepness per unit of ln C, h."""
    problems_per_batch: int
    """B_p that `midpoint_X` belongs to."""
    problems_delay: float = 0.0
    """b: by how much ln C is delayed for each doubling of the problems per batch."""
    n_problems: int | None = None
    """Distinct training problems, D; None for so many that nothing overfits."""
    overfit_at: float = np.inf
    """ln C at which half of the gain is lost at D = 1,000 and small n; infinite where nothing overfits."""
    overfit_cap: float = 0.0
    """log2 n from which on overfitting begins earlier."""
    overfit_haste: float = 0.0
    """By how much ln C of the loss falls for each octave above the cap."""
    overfit_rate: float = 0.5
    """Steepness of the loss per unit of ln C."""

    def mean(
        self,
        rollouts: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
        *,
        delay: npt.ArrayLike = 0.0,
        n_problems: int | None = None,
    ) -> Array:
        """Reward of the checkpoint at C rollouts, averaged over runs.

        Args:
            rollouts: compute C, at least 0; broadcast with the others.
            group_size: n, 1 or more.
            problems_per_batch: B_p; None for the truth's own.
            delay: added to the midpoint, in ln C.
            n_problems: D in place of the truth's own.
        """
        at, x, lag = self._axes(rollouts, group_size, problems_per_batch, delay)
        return self._at(at, x, lag, n_problems)

    def best(
        self,
        rollouts: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
        *,
        delay: npt.ArrayLike = 0.0,
        n_problems: int | None = None,
    ) -> Array:
        """Running maximum of `mean`: reward of the best checkpoint up to C."""
        at, x, lag = self._axes(rollouts, group_size, problems_per_batch, delay)
        return self._at(np.minimum(at, self._peak(x, lag, n_problems)), x, lag, n_problems)

    def _axes(
        self, rollouts: npt.ArrayLike, group_size: npt.ArrayLike, bp: npt.ArrayLike | None, delay: npt.ArrayLike
    ) -> tuple[Array, Array, Array]:
        compute = np.asarray(rollouts, dtype=float)
        with np.errstate(divide="ignore"):
            at = np.log(compute)
        problems = np.log2(np.asarray(self.problems_per_batch if bp is None else bp, dtype=float))
        lag = self.problems_delay * (problems - np.log2(self.problems_per_batch)) + np.asarray(delay, dtype=float)
        x = np.log2(np.asarray(group_size, dtype=float))
        at, x, lag = np.broadcast_arrays(at, x, lag)
        return at, x, lag

    def _at(self, at: Array, x: Array, lag: Array, n_problems: int | None) -> Array:
        gain = np.interp(x, OCTAVES_X, self.amplitude_X) * rise(self.shape, self._u(at, x, lag))
        # ln 0 makes u minus infinite: `rise` is cut off there, while the base model has gained nothing at all.
        return np.where(np.isneginf(at), self.base_reward, self.base_reward + gain * self._kept(at, x, n_problems))

    def _u(self, at: Array, x: Array, lag: Array) -> Array:
        steepness = np.interp(x, OCTAVES_X, self.steepness_X)
        return steepness * (at - np.interp(x, OCTAVES_X, self.midpoint_X) - lag)

    def _loss_at(self, x: Array, n_problems: int | None) -> Array:
        """Logarithm of the C at which half of the gain is lost."""
        problems = self.n_problems if n_problems is None else n_problems
        if problems is None:
            return np.full(x.shape, np.inf)
        begin = self.overfit_at + np.log(problems / 1000.0)
        return begin - self.overfit_haste * np.maximum(x - self.overfit_cap, 0.0)

    def _kept(self, at: Array, x: Array, n_problems: int | None) -> Array:
        late = self.overfit_rate * (np.maximum(at, -100.0) - self._loss_at(x, n_problems))
        return 1.0 / (1.0 + np.exp(np.clip(late, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)))

    def _peak(self, x: Array, lag: Array, n_problems: int | None) -> Array:
        """Logarithm of the C at which the curve is highest: the root of a falling function, by bisection."""
        loss_at = self._loss_at(x, n_problems)
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
