"""Families of monotone curves R(C) = plateau - rise * (1 - S(C)), one unit shape S each.

Every shape rises from 0 to 1 in the compute C (rollouts or tokens) and has at most two parameters. For given shape
parameters, plateau and rise follow from linear least squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isocompute_sdk.fitting.arrays import Array


@dataclass(frozen=True)
class ShapeParameter:
    """One parameter of a unit shape, searched between bounds that depend on the data."""

    name: str
    """Name in results; with the prefix `log10_` the parameter is a decimal logarithm of compute."""
    bounds: Callable[[float, float], tuple[float, float]]
    """(smallest, largest observed compute) -> (lower, upper) bound."""
    levels: int
    """Grid points between the bounds when start values are searched."""


@dataclass(frozen=True)
class Shape:
    """A unit shape S(C; parameters), its parameters and their start values."""

    name: str
    formula: str
    """The reward curve in the symbols of the paper."""
    parameters: tuple[ShapeParameter, ...]
    unit: Callable[[Array, Array], Array]
    """(compute of shape (T,), parameters of shape (G, P)) -> S of shape (G, T)."""
    floor_is_base_reward: bool = False
    """True: the floor (plateau - rise) is the measured step-0 reward, not a free parameter."""

    @property
    def n_free(self) -> int:
        """Free parameters of the whole curve, plateau and rise included."""
        return len(self.parameters) + (1 if self.floor_is_base_reward else 2)

    def grid(self, smallest: float, largest: float) -> Array:
        """Start values between the bounds, shape (G, P)."""
        axes = [np.linspace(*p.bounds(smallest, largest), p.levels) for p in self.parameters]
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)


def _log10(compute: Array) -> Array:
    # C = 0 is the base model; the floor keeps its logarithm finite.
    return np.log10(np.maximum(compute, 1e-12))


def _saturating_exponential(compute: Array, parameters: Array) -> Array:
    return -np.expm1(-compute[None, :] / 10.0 ** parameters[:, :1])


def _logistic(compute: Array, parameters: Array) -> Array:
    z = parameters[:, 1:2] * (_log10(compute)[None, :] - parameters[:, :1]) * np.log(10.0)
    return 1.0 / (1.0 + np.exp(-np.clip(z, -500.0, 500.0)))


def _midpoint_bounds(smallest: float, largest: float) -> tuple[float, float]:
    return float(np.log10(smallest)) - 1.0, float(np.log10(largest)) + 1.5


_SLOPE = ShapeParameter("slope", lambda smallest, largest: (0.2, 12.0), 24)

SATURATING_EXPONENTIAL = Shape(
    name="saturating_exponential",
    formula="R(C) = A - D exp(-C / tau)",
    parameters=(ShapeParameter("log10_tau", _midpoint_bounds, 120),),
    unit=_saturating_exponential,
)
"""The curves of the paper's fig. 6 (digitised: residuals below 1e-4 of reward)."""

LOGISTIC = Shape(
    name="logistic",
    formula="R(C) = F + (A - F) / (1 + exp(-s (ln C - ln C_mid))), F free",
    parameters=(ShapeParameter("log10_midpoint", _midpoint_bounds, 60), _SLOPE),
    unit=_logistic,
)
"""A sigmoid in log C with a free floor."""

HILL = Shape(
    name="hill",
    formula="R(C) = R0 + (A - R0) / (1 + (C_mid / C)^s), R0 = measured step-0 reward",
    parameters=(ShapeParameter("log10_midpoint", _midpoint_bounds, 60), _SLOPE),
    unit=_logistic,
    floor_is_base_reward=True,
)
"""ScaleRL's form (arXiv 2510.13786): `LOGISTIC` with the base model's reward as floor, so it needs an evaluation at
step 0."""

SHAPES: dict[str, Shape] = {s.name: s for s in (SATURATING_EXPONENTIAL, LOGISTIC, HILL)}
