"""Six families of tasks: how the gain of training, and when it comes, depend on the group size.

Numbers are near those of the paper: rewards of the base model and plateaus of fig. 6, midpoints that come later for
larger n (section 4), a low plateau of n* on hard problems (fig. 7), overfitting on few problems (section 6).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isocompute_simulator.design import SweepDesign
from isocompute_simulator.truths.truth import OCTAVES_X, SHAPES, Array, Truth, rise_at

FAMILIES = ("easy", "hard", "unsaturated", "insensitive", "overfitting", "rough")
"""Names of the families."""


def draw_family(rng: np.random.Generator) -> str:
    """One of the families, all equally likely."""
    return FAMILIES[int(rng.integers(len(FAMILIES)))]


def draw_truth(family: str, design: SweepDesign, rng: np.random.Generator) -> Truth:
    """A task of a family, placed so that the sweep sees a third to all of the rise."""
    return _DRAW[family](design, rng)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _task(
    design: SweepDesign,
    rng: np.random.Generator,
    *,
    relative_X: Array,
    gain: tuple[float, float],
    slope: float,
    seen: tuple[float, float],
    steepness: tuple[float, float] = (0.85, 2.0),
    base: tuple[float, float] = (0.2, 0.5),
    rough_midpoint_X: Array | None = None,
    **overfit: float | int,
) -> Truth:
    """A task with amplitudes proportional to `relative_X` and midpoints that rise by `slope` per octave.

    Its gain is drawn from `gain`; the middle n reaches a share of it, drawn from `seen`, at the end of the sweep.
    """
    shape = SHAPES[int(rng.integers(3))]
    low, high = np.log2(design.levels[0]), np.log2(design.levels[-1])
    centre = 0.5 * (low + high)
    h = np.exp(rng.uniform(*np.log(steepness)))
    steepness_X = h * np.exp(rng.normal(0, 0.02) * (OCTAVES_X - centre))
    share = rng.uniform(*seen)
    # The delay keeps growing beyond the largest n, where runs have too few updates.
    midpoint_X = slope * (OCTAVES_X - centre) + 0.5 * rng.uniform(0, 0.06) * (OCTAVES_X - centre) ** 2
    midpoint_X = midpoint_X + np.log(design.largest_rollouts) - rise_at(shape, share) / h
    if rough_midpoint_X is not None:
        midpoint_X = midpoint_X + rough_midpoint_X
    allowed = (low <= OCTAVES_X) & (high + 1 >= OCTAVES_X)
    height = np.exp(rng.uniform(*np.log(gain))) / float(relative_X[allowed].max())
    return Truth(
        shape=shape,
        base_reward=float(rng.uniform(*base)),
        amplitude_X=height * relative_X,
        midpoint_X=midpoint_X,
        steepness_X=steepness_X,
        problems_per_batch=design.problems_per_batch[0],
        problems_delay=float(rng.normal(0.15, 0.15)),
        **overfit,  # pyright: ignore[reportArgumentType]
    )


def _saturating(design: SweepDesign, rng: np.random.Generator) -> Array:
    """Relative amplitude: a sigmoid of log2 n from a floor to 1."""
    low, high = np.log2(design.levels[0]), np.log2(design.levels[-1])
    floor = rng.uniform(0.3, 0.7)
    return floor + (1 - floor) * _sigmoid(rng.uniform(0.6, 1.3) * (OCTAVES_X - rng.uniform(low + 1, high + 0.5)))


def _easy(design: SweepDesign, rng: np.random.Generator) -> Truth:
    return _task(
        design,
        rng,
        relative_X=_saturating(design, rng),
        gain=(0.05, 0.4),
        slope=rng.uniform(0.3, 0.65),
        seen=(0.4, 0.98),
    )


def _hard(design: SweepDesign, rng: np.random.Generator) -> Truth:
    low, high = np.log2(design.levels[0]), np.log2(design.levels[-1])
    peak = rng.uniform(0.5 * (low + high), high + 0.3)
    fall = rng.uniform(0.15, 0.5) * np.maximum(OCTAVES_X - peak, 0) ** rng.uniform(1.0, 1.6)
    return _task(
        design,
        rng,
        relative_X=_saturating(design, rng) * np.exp(-fall),
        gain=(0.05, 0.2),
        slope=rng.uniform(0.2, 0.55),
        seen=(0.33, 0.9),
        base=(0.02, 0.25),
    )


def _unsaturated(design: SweepDesign, rng: np.random.Generator) -> Truth:
    low = np.log2(design.levels[0])
    return _task(
        design,
        rng,
        relative_X=1 + rng.uniform(0.25, 0.6) * np.maximum(OCTAVES_X - low, -1.5),
        gain=(0.1, 0.4),
        slope=rng.uniform(0.25, 0.55),
        seen=(0.15, 0.55),
        steepness=(0.5, 1.1),
    )


def _insensitive(design: SweepDesign, rng: np.random.Generator) -> Truth:
    trend = rng.normal(0, 0.004) * OCTAVES_X
    return _task(
        design,
        rng,
        relative_X=1 + trend,
        gain=(0.05, 0.4),
        slope=rng.uniform(0.0, 0.03),
        seen=(0.33, 0.98),
    )


def _overfitting(design: SweepDesign, rng: np.random.Generator) -> Truth:
    low, high = np.log2(design.levels[0]), np.log2(design.levels[-1])
    n_problems = int(rng.choice([200, 300, 500, 1000, 2000]))
    begin = np.log(design.largest_rollouts) + rng.uniform(1.0, 4.0)
    return _task(
        design,
        rng,
        relative_X=_saturating(design, rng),
        gain=(0.05, 0.4),
        slope=rng.uniform(0.25, 0.55),
        seen=(0.4, 0.98),
        n_problems=n_problems,
        overfit_at=float(begin - np.log(n_problems / 1000.0)),
        overfit_cap=float(rng.uniform(low + 1, high - 0.5)),
        overfit_haste=float(rng.uniform(0.5, 1.5)),
        overfit_rate=float(rng.uniform(0.6, 1.5)),
    )


def _rough(design: SweepDesign, rng: np.random.Generator) -> Truth:
    octaves = np.arange(0.0, 15.0)
    amplitude = np.interp(OCTAVES_X, octaves, rng.normal(0, rng.uniform(0.06, 0.14), octaves.size))
    midpoint = np.interp(OCTAVES_X, octaves, rng.normal(0, rng.uniform(0.1, 0.3), octaves.size))
    return _task(
        design,
        rng,
        relative_X=_saturating(design, rng) * np.exp(amplitude),
        gain=(0.05, 0.4),
        slope=rng.uniform(0.25, 0.55),
        seen=(0.4, 0.95),
        rough_midpoint_X=midpoint,
    )


_DRAW: dict[str, Callable[[SweepDesign, np.random.Generator], Truth]] = {
    "easy": _easy,
    "hard": _hard,
    "unsaturated": _unsaturated,
    "insensitive": _insensitive,
    "overfitting": _overfitting,
    "rough": _rough,
}
