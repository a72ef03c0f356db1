"""Thousands of small sigmoid fits: the library's batched Levenberg-Marquardt against loops over scipy's curve_fit.

Two recipes with four parameters and 60 points each: `clean` problems show both plateaus; in `hard` ones midpoints lie
anywhere up to beyond the data and steps are as steep as the bounds allow, so that about a fifth end on a bound. Every
solver gets the same data, starts and bounds (curve_fit's lm has none), in one process and one thread. The loops are
timed on a part of the problems, interleaved with the batch, and scaled.

    OMP_NUM_THREADS=1 python benchmarks/speed/batched_fits.py --fits 9000 --peer-fits 300 --rounds 3
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import numpy.typing as npt
from scipy.optimize import OptimizeWarning, curve_fit

from isocompute_sdk.fitting.least_squares import least_squares_batch

Array = npt.NDArray[np.float64]
POINTS = 60
NOISE = 0.3
LOWER, UPPER = np.array([0.0, 0.1, 3.0, -2.0]), np.array([15.0, 50.0, 8.0, 10.0])
"""Bounds of L, k, midpoint and b."""
SEED = 20_261_121


def sigmoid(x: Array, L: float, k: float, midpoint: float, b: float) -> Array:
    """L / (1 + exp(-k (x - midpoint))) + b."""
    return b + L / (1.0 + np.exp(-k * (x - midpoint)))


def problems(recipe: str, count: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """X of shape (T,), y of shape (N, T) and starts from quantiles, shape (N, 4)."""
    x = np.linspace(4.0, 7.0, POINTS)
    L, b = rng.uniform(2, 7, count), rng.uniform(2, 3, count)
    if recipe == "clean":
        k, midpoint = rng.uniform(2, 9, count), rng.uniform(4.8, 6.2, count)
    else:
        k, midpoint = rng.uniform(1, 40, count), rng.uniform(4.0, 7.6, count)
    with np.errstate(over="ignore"):
        y = sigmoid(x, L[:, None], k[:, None], midpoint[:, None], b[:, None]) + rng.normal(0, NOISE, (count, POINTS))
    low, high = np.quantile(y, [0.05, 0.95], axis=1)
    half = x[np.argmin(np.abs(y - 0.5 * (low + high)[:, None]), axis=1)]
    start = np.stack([np.maximum(high - low, 0.1), np.full(count, 4.0), half, low], axis=1)
    return x, y, np.clip(start, LOWER + 1e-6, UPPER - 1e-6)


def batch(x: Array, y: Array, start: Array) -> tuple[Array, Array]:
    """All problems at once: sums of squares, and whether a parameter stands on a bound."""

    def residual(p: Array, index: npt.NDArray[np.intp]) -> Array:
        z = x - p[:, 2, None]
        z *= -p[:, 1, None]
        np.exp(z, out=z)
        z += 1.0
        np.divide(p[:, 0, None], z, out=z)
        z += p[:, 3, None]
        z -= y[index]
        return z

    def jacobian(p: Array, index: npt.NDArray[np.intp]) -> Array:
        # Worked out in contiguous arrays, and put into the rows at the end.
        out = np.empty((len(p), 4, len(x)))
        distance = x - p[:, 2, None]
        unit = distance * -p[:, 1, None]
        np.exp(unit, out=unit)
        unit += 1.0
        np.reciprocal(unit, out=unit)
        out[:, 0] = unit
        slope = 1.0 - unit
        slope *= unit
        slope *= p[:, 0, None]
        np.multiply(distance, slope, out=out[:, 1])
        np.multiply(slope, -p[:, 1, None], out=out[:, 2])
        out[:, 3] = 1.0
        return out

    found = least_squares_batch(residual, jacobian, start, lower=LOWER, upper=UPPER)
    return found.sse_N, found.at_bound_NP.any(axis=1)


def loop(x: Array, y: Array, start: Array, method: str) -> Array:
    """One curve_fit per problem; infinite where it gives up."""
    bounds = (LOWER, UPPER) if method == "trf" else (-np.inf, np.inf)
    sse = np.full(len(y), np.inf)
    for i in range(len(y)):
        try:
            found, _ = curve_fit(sigmoid, x, y[i], p0=start[i], method=method, bounds=bounds)
        except RuntimeError:
            continue
        sse[i] = np.sum((sigmoid(x, *found) - y[i]) ** 2)
    return sse


def main() -> None:
    """Print seconds, ratios and agreement for both recipes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=9000)
    parser.add_argument("--peer-fits", type=int, default=300, help="problems timed in each loop, then scaled")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore", OptimizeWarning)
    warnings.simplefilter("ignore", RuntimeWarning)
    print(f"{args.fits} fits of 4 parameters to {POINTS} points; loops timed on {args.peer_fits} of them and scaled")
    for recipe in ("clean", "hard"):
        x, y, start = problems(recipe, args.fits, np.random.default_rng(SEED))
        part = slice(0, args.peer_fits)
        scale = args.fits / args.peer_fits
        seconds: dict[str, list[float]] = {"batch": [], "trf": [], "lm": []}
        agree: dict[str, float] = {}
        at_bound = 0.0
        for _ in range(args.rounds):
            began = time.perf_counter()
            ours, bound = batch(x, y, start)
            seconds["batch"].append(time.perf_counter() - began)
            at_bound = float(bound.mean())
            for method in ("trf", "lm"):
                began = time.perf_counter()
                theirs = loop(x, y[part], start[part], method)
                seconds[method].append((time.perf_counter() - began) * scale)
                agree[method] = float(np.mean(ours[part] <= theirs * (1 + 1e-6)))
        best = {name: float(np.median(values)) for name, values in seconds.items()}
        print(f"{recipe}: {at_bound:.0%} of the fits on a bound; batch {best['batch']:.2f} s")
        for method in ("trf", "lm"):
            bounded = " (no bounds, so its sums of squares may be lower)" if method == "lm" else ""
            print(
                f"  curve_fit {method}: {best[method]:.1f} s = {best[method] / best['batch']:.0f} x the batch; "
                f"{agree[method]:.1%} of ours at most 1e-6 above{bounded}"
            )


if __name__ == "__main__":
    main()
