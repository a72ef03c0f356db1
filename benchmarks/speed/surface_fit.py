"""How long a surface takes: simulated sweeps of usual size, and a million rows; how it grows with the rows.

OMP_NUM_THREADS=2 python benchmarks/speed/surface_fit.py
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import isocompute_sdk as iso
from isocompute_simulator import draw_scenario

SEED = 20_001


def usual(count: int) -> list[float]:
    """Seconds of `fit` with 200 draws, passport and law included, on simulated sweeps."""
    found: list[float] = []
    for index in range(count):
        runs = draw_scenario(np.random.default_rng([SEED, index])).runs
        began = time.perf_counter()
        iso.fit(runs)
        found.append(time.perf_counter() - began)
    return found


def large(runs: int, evaluations: int) -> tuple[float, int]:
    """Seconds of a fit of runs x evaluations rows, and the rows."""
    rng = np.random.default_rng(SEED)
    sizes = 2 ** (3 + np.arange(runs) % 7)
    compute = np.geomspace(1e4, 2e6, evaluations)
    late = compute[None, :] / (6e4 * sizes[:, None] ** 0.4)
    reward = 0.4 + (0.1 + 0.015 * np.log2(sizes))[:, None] * -np.expm1(-late)
    reward += rng.normal(0, 0.012, reward.shape)
    table = iso.RunSet.from_columns(
        {
            "run_id": np.repeat([f"run{i}" for i in range(runs)], evaluations),
            "seed": np.repeat(np.arange(runs), evaluations),
            "n": np.repeat(sizes, evaluations),
            "C": np.tile(compute, runs),
            "avg@4": reward.ravel(),
        },
        problems_per_batch=32,
    )
    began = time.perf_counter()
    iso.fit(table)
    return time.perf_counter() - began, reward.size


def main() -> None:
    """Print a line per measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=60)
    args = parser.parse_args()
    seconds = usual(args.sweeps)
    print(f"{args.sweeps} simulated sweeps, 200 draws: median {np.median(seconds):.2f} s, largest {max(seconds):.2f} s")
    for runs, evaluations in ((10, 1000), (100, 1000), (1000, 1000)):
        took, rows = large(runs, evaluations)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{runs} runs x {evaluations} evaluations = {rows:,} rows: {took:.2f} s, peak memory so far {peak:,.0f} MiB"
        )


if __name__ == "__main__":
    main()
