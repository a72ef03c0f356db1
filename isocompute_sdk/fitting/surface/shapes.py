"""Unit shapes of a reward curve in log compute, each 0 at no compute, 1/2 at z = 0 and 1 in the limit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isocompute_sdk.fitting.arrays import Array

LN2 = float(np.log(2.0))
LARGEST = 60.0
"""Beyond this |z| every shape is flat to the last digit."""


def hill(z: Array) -> tuple[Array, Array]:
    """1 / (1 + e^-z), the form of ScaleRL (arXiv 2510.13786), and its derivative."""
    value = 1.0 / (1.0 + np.exp(-np.clip(z, -LARGEST, LARGEST)))
    return value, value * (1.0 - value)


def weibull(z: Array) -> tuple[Array, Array]:
    """1 - exp(-ln 2 e^z), a saturating exponential for slope 1 (what fig. 6 of the paper draws), and its derivative."""
    power = LN2 * np.exp(np.clip(z, -LARGEST, 6.0))
    left = np.exp(-power)
    return 1.0 - left, power * left


def gompertz(z: Array) -> tuple[Array, Array]:
    """exp(-ln 2 e^-z), late to start and slow to end, and its derivative."""
    power = LN2 * np.exp(-np.clip(z, -6.0, LARGEST))
    value = np.exp(-power)
    return value, power * value


UNIT_SHAPES: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "hill": hill,
    "weibull": weibull,
    "gompertz": gompertz,
}
"""The ensemble; a sweep weighs its members by how well they explain it."""
