"""The paper's workflow once more, written from its description alone with scipy, to compare `method="paper"` with.

Steps (arXiv 2603.12151, section 4; docstrings name the step):
1. record-breaking points of each run, from rewards in bins;
2. a monotone sigmoid of reward against compute for each n, R0 + (A - R0) / (1 + (C_mid / C)^s);
3. frontier: the n whose curve is highest, on a grid of log C over the compute that was seen;
4. log2 n* = L / (1 + exp(-k (log10 C - log10 C_mid))) + b, least squares on the frontier.

It shares no code with `isocompute_sdk.fitting.paper`.
`python benchmarks/decisions/allocation.py --methods paper paper-by-scipy` compares the two.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeWarning, curve_fit

Array = npt.NDArray[np.float64]
Run = tuple[int, Array, Array]
"""Group size, rollouts and reward of one run, by increasing rollouts."""

BIN = 0.005
"""Width of a reward bin."""
GRID = 200
"""Points of the frontier."""
MAX_RATE = 50.0
"""Largest k, at which the paper's own fits stop."""


def group_size_law(runs: Sequence[Run]) -> Callable[[float], float]:
    """n*(C), from the evaluations of several runs.

    Raises:
        ValueError: fewer than two group sizes with a curve.
    """
    pooled: dict[int, list[tuple[Array, Array]]] = defaultdict(list)
    for n, compute, reward in runs:
        kept = records(reward)
        pooled[n].append((compute[kept], reward[kept]))
    curves: dict[int, Callable[[Array], Array]] = {}
    for n, parts in sorted(pooled.items()):
        compute, reward = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = sigmoid(compute, reward)
        if found is not None:
            curves[n] = found
    if len(curves) < 2:
        raise ValueError(f"{len(curves)} group size(s) with a curve")
    seen = np.concatenate([compute[compute > 0] for _, compute, _ in runs])
    at = np.geomspace(seen.min(), seen.max(), GRID)
    sizes = np.array(list(curves))
    best = sizes[np.argmax([curve(at) for curve in curves.values()], axis=0)]
    return law(at, best.astype(float))


def records(reward: Array) -> npt.NDArray[np.intp]:
    """Step 1: indices of the evaluations that enter a higher bin than any before."""
    bins = np.floor(reward / BIN)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(bins)[:-1]])
    return np.flatnonzero(bins > before)


def sigmoid(compute: Array, reward: Array) -> Callable[[Array], Array] | None:
    """Step 2: a rising sigmoid through the points of one n; None if there are fewer than two."""
    if len(compute) < 2:
        return None
    low, high = float(reward.min()), float(reward.max())
    positive = compute[compute > 0]
    if high <= low or not len(positive):
        return None

    def curve(at: Array, floor: float, gain: float, log_mid: float, slope: float) -> Array:
        ratio = np.log(np.maximum(at, 1e-9)) - log_mid
        return floor + gain / (1 + np.exp(-np.clip(slope * ratio, -60, 60)))

    start = (low, high - low, float(np.log(np.median(positive))), 1.0)
    bounds = ([0, 0, np.log(positive.min()) - 3, 0.2], [1, 1, np.log(positive.max()) + 3, 5.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)
        try:
            values, _ = curve_fit(curve, compute, reward, start, bounds=bounds, max_nfev=2_000)
        except (RuntimeError, ValueError):
            return None
    return lambda at: curve(at, *values)


def law(compute: Array, group_size: Array) -> Callable[[float], float]:
    """Step 4: the sigmoid of n* through a frontier; a constant where the frontier has a single n."""
    x, y = np.log10(compute), np.log2(group_size)
    if np.ptp(y) == 0:
        return lambda at: float(2.0 ** y[0])

    def rising(at: Array, height: float, rate: float, middle: float, base: float) -> Array:
        return height / (1 + np.exp(-np.clip(rate * (at - middle), -60, 60))) + base

    start = (float(np.ptp(y)), 5.0, float(np.mean(x)), float(y.min()))
    bounds = ([0, 0.1, x.min() - 1, y.min() - 2], [15, MAX_RATE, x.max() + 1, y.max() + 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)
        try:
            values, _ = curve_fit(rising, x, y, start, bounds=bounds, max_nfev=5_000)
        except RuntimeError:
            values = (0.0, 1.0, 0.0, float(y[-1]))
    return lambda at: float(2.0 ** rising(np.array([np.log10(at)]), *values)[0])
