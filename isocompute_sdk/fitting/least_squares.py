"""Levenberg-Marquardt over a batch of small least-squares problems at once.

A sweep needs thousands of fits (draws, starts, shapes) with a handful of parameters each. One numpy call for all of
them costs little more than a call for one. scipy.optimize solves one problem per call and takes about 100 times as long
with bounds, 10 times without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.arrays import Array

Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
BatchFunction = Callable[[Array, Indices], Array]
"""(parameters of shape (K, P), which problems they belong to, shape (K,)) -> one array per problem."""
NormalEquations = Callable[[Array, Indices, Array], tuple[Array, Array]]
"""(parameters, problem numbers, residuals there (K, T)) -> J^T J (K, P, P) and J^T r (K, P)."""

DAMPING_START = 1e-3
DAMPING_RELIEF = 0.1
"""Smallest factor by which a step lowers the damping."""
DAMPING_LARGEST = 1e16
"""Damping at which a step is smaller than rounding; the problem is done."""


@dataclass(frozen=True)
class BatchedFit:
    """Results of N problems with P parameters."""

    parameters_NP: Array
    sse_N: Array
    """Sum of squared residuals."""
    converged_N: Mask
    """Whether the next step, or its predicted drop of the sum of squares, became negligible in time."""


@dataclass
class _Active:
    """The K problems being worked on; every field has leading axis K."""

    index: Indices
    parameters: Array
    low: Array
    high: Array
    residual: Array
    sse: Array
    damping: Array
    growth: Array
    tried: Indices
    normal: Array
    gradient: Array
    stale: Mask
    """Moved since `normal` and `gradient` were computed."""

    def keep(self, mask: Mask) -> _Active:
        return _Active(*(getattr(self, f.name)[mask] for f in fields(self)))

    def accept(self, better: Mask, trial: Array, residual: Array, sse: Array, ratio: Array) -> None:
        """Move where the sum of squares fell; `ratio` is the drop seen over the drop predicted."""
        self.parameters = np.where(better[:, None], trial, self.parameters)
        self.residual = np.where(better[:, None], residual, self.residual)
        self.sse = np.where(better, sse, self.sse)
        # Nielsen's rule: a good step lowers the damping smoothly, each failure in a row raises it faster.
        relief = np.clip(1.0 - (2.0 * np.minimum(ratio, 1.0) - 1.0) ** 3, DAMPING_RELIEF, 2.0)
        self.damping = np.maximum(self.damping * np.where(better, relief, self.growth), 1e-15)
        self.growth = np.where(better, 2.0, 2.0 * self.growth)
        self.stale = better
        self.tried = self.tried + 1


def least_squares_batch(
    residual: BatchFunction,
    jacobian: BatchFunction | None,
    start_NP: Array,
    *,
    normal_equations: NormalEquations | None = None,
    lower: npt.ArrayLike = -np.inf,
    upper: npt.ArrayLike = np.inf,
    max_iterations: int = 200,
    ftol: float = 1e-7,
    xtol: float = 1e-9,
) -> BatchedFit:
    """Minimise the sum of squared residuals of each of N problems (Levenberg-Marquardt, bounds by projection).

    Args:
        residual: (parameters (K, P), problem numbers (K,)) -> residuals (K, T).
        jacobian: the same arguments -> derivatives of the residuals, shape (K, P, T): one contiguous row per parameter.
        start_NP: start values; moved inside the bounds.
        normal_equations: replaces `jacobian` if the structure of the Jacobian makes them cheaper.
        lower: lower bounds, broadcast to (N, P).
        upper: upper bounds, broadcast to (N, P).
        max_iterations: most steps tried per problem, rejected ones included.
        ftol: relative drop of the sum of squares predicted for the next step below which a problem is done.
        xtol: relative size of a step below which a problem is done.

    A start with a residual that is not finite is returned unchanged, with an infinite sum of squares.
    """
    products = normal_equations if normal_equations is not None else _from_jacobian(jacobian)
    start = np.array(start_NP, dtype=float, ndmin=2)
    low = np.broadcast_to(np.asarray(lower, dtype=float), start.shape)
    high = np.broadcast_to(np.asarray(upper, dtype=float), start.shape)
    found = np.clip(start, low, high)
    sse = np.full(len(start), np.inf)
    converged = np.zeros(len(start), dtype=bool)
    with np.errstate(all="ignore"):
        active = _enter(residual, np.arange(len(start)), found, low, high)
        while len(active.index):
            _refresh(products, active)
            step, predicted = _step(active)
            done = _negligible(active, step, predicted, ftol, xtol)
            ended = done | (active.tried >= max_iterations)
            if ended.any():
                index = active.index[ended]
                found[index], sse[index] = active.parameters[ended], active.sse[ended]
                converged[index] = done[ended]
                active, step, predicted = active.keep(~ended), step[~ended], predicted[~ended]
            if len(active.index):
                _try(residual, active, step, predicted)
    return BatchedFit(found, sse, converged)


def _enter(residual: BatchFunction, index: Indices, found: Array, low: Array, high: Array) -> _Active:
    """Problems at their start; without those whose residual is not finite."""
    size = found.shape[1]
    values = residual(found[index], index)
    total = np.einsum("kt,kt->k", values, values)
    usable = np.isfinite(total)
    index, values, total = index[usable], values[usable], total[usable]
    count = len(index)
    return _Active(
        index=index,
        parameters=found[index],
        low=low[index],
        high=high[index],
        residual=values,
        sse=total,
        damping=np.full(count, DAMPING_START),
        growth=np.full(count, 2.0),
        tried=np.zeros(count, dtype=np.intp),
        normal=np.empty((count, size, size)),
        gradient=np.empty((count, size)),
        stale=np.ones(count, dtype=bool),
    )


def _negligible(active: _Active, step: Array, predicted: Array, ftol: float, xtol: float) -> Mask:
    """Problems whose next step would change nothing."""
    done = np.all(np.abs(step) <= xtol * (np.abs(active.parameters) + xtol), axis=1)
    done |= (active.damping > DAMPING_LARGEST) | (active.sse == 0)
    # With heavy damping every step is small.
    return done | ((np.abs(predicted) <= ftol * active.sse) & (active.damping <= 1.0))


def _try(residual: BatchFunction, active: _Active, step: Array, predicted: Array) -> None:
    """Take the step where it lowers the sum of squares."""
    trial = np.clip(active.parameters + step, active.low, active.high)
    tried = residual(trial, active.index)
    after = np.einsum("kt,kt->k", tried, tried)
    drop = active.sse - after
    active.accept(drop >= 0, trial, tried, after, drop / np.maximum(predicted, 1e-300))


def _refresh(products: NormalEquations, active: _Active) -> None:
    """J^T J and J^T r, computed anew for the problems that moved."""
    stale = active.stale
    if stale.any():
        active.normal[stale], active.gradient[stale] = products(
            active.parameters[stale], active.index[stale], active.residual[stale]
        )


def _from_jacobian(jacobian: BatchFunction | None) -> NormalEquations:
    assert jacobian is not None, "least squares need a Jacobian or normal equations"

    def products(parameters: Array, index: Indices, residual_KT: Array) -> tuple[Array, Array]:
        slopes_KPT = jacobian(parameters, index)
        gradient = np.vecdot(slopes_KPT, residual_KT[:, None])
        # Against a transposed copy: a matrix times its own transpose takes a slower path per problem.
        return slopes_KPT @ np.ascontiguousarray(slopes_KPT.transpose(0, 2, 1)), gradient

    return products


def _step(active: _Active) -> tuple[Array, Array]:
    """Damped Gauss-Newton step over the free parameters, and the drop that it predicts."""
    at, low, high, normal, gradient = active.parameters, active.low, active.high, active.normal, active.gradient
    blocked = ((at <= low) & (gradient > 0)) | ((at >= high) & (gradient < 0))
    diagonal = np.einsum("kpp->kp", normal)
    scale = np.maximum(diagonal, 1e-12 * diagonal.max(axis=1, keepdims=True) + 1e-300)
    step = _damped(active.damping, normal, gradient, scale, blocked)
    # Parameters whose step leaves the box move to their bound; the others are solved again.
    outside = ((at + step < low) | (at + step > high)) & ~blocked
    again = outside.any(axis=1)
    if again.any():
        to_bound = np.where(outside[again], np.clip(at + step, low, high)[again] - at[again], 0.0)
        shifted = gradient[again] + (normal[again] @ to_bound[:, :, None])[:, :, 0]
        rest = _damped(active.damping[again], normal[again], shifted, scale[again], (blocked | outside)[again])
        step[again] = np.clip(at[again] + to_bound + rest, low[again], high[again]) - at[again]
    curved = (normal @ step[:, :, None])[:, :, 0]
    return step, -np.einsum("kp,kp->k", step, 2.0 * gradient + curved)


def _damped(damping: Array, normal: Array, gradient: Array, scale: Array, blocked: Mask) -> Array:
    matrix, wanted = normal.copy(), -gradient
    if blocked.any():
        matrix[blocked] = 0.0
        matrix.transpose(0, 2, 1)[blocked] = 0.0
        wanted[blocked] = 0.0
    diagonal = np.einsum("kpp->kp", matrix)
    diagonal += damping[:, None] * scale
    diagonal[blocked] = 1.0
    try:
        return np.asarray(np.linalg.solve(matrix, wanted[:, :, None])[:, :, 0], dtype=float)
    except np.linalg.LinAlgError:
        return np.stack([np.linalg.lstsq(m, w, rcond=None)[0] for m, w in zip(matrix, wanted, strict=True)])


class Projection(NamedTuple):
    """The best grid point."""

    plateau: float
    rise: float
    """At least 0."""
    grid_index: int
    """Row of the grid."""


def project(missing_GT: Array, y_T: Array, bounds: tuple[float, float], floor: float | None = None) -> Projection:
    """Least squares of plateau and rise for every grid row, then the best row.

    Args:
        missing_GT: 1 - S on the grid, in [0, 1].
        y_T: data.
        bounds: plateau and floor (plateau - rise) are kept inside.
        floor: known value of plateau - rise; None to fit it.
    """
    ones_T = np.ones(len(y_T))
    sums = _Sums(
        w=float(len(y_T)),
        s1=ones_T @ missing_GT.T,
        s2=ones_T @ (missing_GT**2).T,
        y1=float(y_T.sum()),
        sy=y_T @ missing_GT.T,
    )
    plateau_G, rise_G = _free_floor(sums, bounds) if floor is None else _known_floor(sums, bounds, floor)
    best = int(np.argmin(_loss(sums, plateau_G, rise_G)))
    return Projection(float(plateau_G[best]), float(rise_G[best]), best)


class _Sums(NamedTuple):
    """Number of data, and by grid row the sums of missing, missing^2 and y * missing; y1 is the sum of y."""

    w: float
    s1: Array
    s2: Array
    y1: float
    sy: Array


def _loss(sums: _Sums, plateau: Array, rise: Array) -> Array:
    """Squared error up to the part that does not depend on plateau and rise."""
    w, s1, s2, y1, sy = sums
    return plateau**2 * w - 2 * plateau * rise * s1 + rise**2 * s2 - 2 * (plateau * y1 - rise * sy)


def _known_floor(sums: _Sums, bounds: tuple[float, float], floor: float) -> tuple[Array, Array]:
    w, s1, s2, y1, sy = sums
    rise = np.clip(_ratio((y1 - sy) - floor * (w - s1), w - 2 * s1 + s2, 1e-12), 0.0, bounds[1] - floor)
    return floor + rise, rise


def _free_floor(sums: _Sums, bounds: tuple[float, float]) -> tuple[Array, Array]:
    """Least squares over the triangle rise >= 0, plateau <= upper bound, plateau - rise >= lower bound.

    The loss is convex: its minimum lies inside the triangle, or is the best point of its three sides.
    """
    w, s1, s2, y1, sy = sums
    low, high = bounds
    rise = _ratio(y1 * s1 - w * sy, w * s2 - s1**2, 1e-10 * w**2)
    plateau = (y1 + rise * s1) / w
    inside = (rise >= 0.0) & (plateau <= high) & (plateau - rise >= low)
    least = np.where(inside, _loss(sums, plateau, rise), np.inf)
    flat = np.broadcast_to(np.clip(y1 / w, low, high), rise.shape), np.zeros(rise.shape)
    at_top = np.full(rise.shape, high), np.clip(_ratio(high * s1 - sy, s2, 1e-12), 0.0, high - low)
    for side in (flat, at_top, _known_floor(sums, bounds, low)):
        loss = _loss(sums, *side)
        better = ~inside & (loss < least)
        plateau, rise = np.where(better, side[0], plateau), np.where(better, side[1], rise)
        least = np.where(better, loss, least)
    return plateau, rise


def _ratio(numerator: Array, denominator: Array, smallest: float | Array) -> Array:
    usable = denominator > smallest
    return np.divide(numerator, denominator, out=np.zeros(np.broadcast(numerator, denominator).shape), where=usable)
