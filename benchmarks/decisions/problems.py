"""What best@4 adds on sweeps of simulated problems, a simulator of other curves than the fitted ones.

    python benchmarks/decisions/problems.py
    python benchmarks/decisions/problems.py --alone

120 problems, each with its own pass rate and speed (`learned`), are trained with three to five n. A
rollout is worth n^-.6 steps, so that larger n come later. The runs end where the smallest n has made 10 to 90 % of its
gain; the surface predicts the best reward at 2, 3 and 8 times that compute. `--alone`: it sees avg@4 only.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import isocompute_sdk as iso

SEED, SWEEPS = 777, 60
SIZES = (4, 8, 16, 32, 64, 128)
COST = 0.6
"""Exponent of n in the compute of one step."""
SHOWN = 5.0
"""Log compute from the first evaluation to the last."""
END = 1e5
PROBLEMS_PER_BATCH = 16
FACTORS = (2.0, 3.0, 8.0)
METRIC = "avg@4"

Array = npt.NDArray[np.float64]


def learned(
    time: npt.NDArray[np.floating[Any]], size: float, start: Array, talent: Array, pull: float
) -> tuple[Array, Array]:
    """avg@1 and best@4 over log time of problems whose pass rates p grow at a speed like p (1 - p) (1 - (1 - p)^n).

    Args:
        time: in steps of .1.
        size: n.
        start: logit of each problem's p at first.
        talent: speed of each problem.
        pull: of the logits back to their start.
    """
    logit, passes = start.copy(), np.empty((len(time), len(start)))
    for i, now in enumerate(time):
        p = 1.0 / (1.0 + np.exp(-logit))
        signal = talent * (1.0 - (1.0 - p) ** size) * (1.0 - p) * np.sqrt(np.maximum(p, 1e-3))
        step = 0.1 * np.exp(now)
        logit = logit + np.clip(step * (signal - pull * (logit - start)) / (1.0 + step * (1.0 + pull)), -0.4, 0.4)
        passes[i] = 1.0 / (1.0 + np.exp(-logit))
    return passes.mean(axis=1), (1.0 - (1.0 - passes) ** 4).mean(axis=1)


@dataclass(frozen=True)
class Row:
    """One n, one target."""

    factor: float
    sweep: int
    share: float
    """Share of the gain of the smallest n that its run shows."""
    true: float
    predicted: float
    held: bool


def examine(sweep: int, *, alone: bool) -> Iterator[Row]:
    """Forecasts of one sweep."""
    rng = np.random.default_rng([SEED, sweep])
    start, talent = rng.normal(rng.normal(-1.5, 1.3), rng.uniform(1.0, 2.5), 120), np.exp(rng.normal(0.0, 0.4, 120))
    pull = rng.uniform(0.0, 0.1)
    sizes = sorted(int(n) for n in rng.choice(SIZES, size=int(rng.integers(3, 6)), replace=False))
    noise, time = rng.uniform(0.004, 0.012), np.arange(-7.0, 13.0, 0.1)
    curves = {n: (time + COST * np.log(n / SIZES[0]), *learned(time, float(n), start, talent, pull)) for n in sizes}
    at, mean, _ = curves[sizes[0]]
    share = float(rng.uniform(0.1, 0.9))
    end = float(at[int(np.argmax(mean - mean[0] >= share * (mean.max() - mean[0])))])
    columns: dict[str, list[float]] = {"n": [], "C": [], METRIC: [], "best@4": []}
    for n, (at, *rewards) in curves.items():
        log = np.linspace(end - SHOWN, end, int(rng.integers(20, 50)))
        columns["n"] += [n] * (len(log) + 1)
        columns["C"] += [0.0, *(END * np.exp(log - end))]
        for name, values in zip((METRIC, "best@4"), rewards, strict=True):
            first = values[0] + rng.normal(0.0, noise / 2.0)
            noisy = np.interp(log, at, values) + rng.normal(0.0, noise, len(log))
            columns[name] += np.clip([first, *noisy], 0.0, 1.0).tolist()
    runs = iso.RunSet.from_columns(columns, problems_per_batch=PROBLEMS_PER_BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = iso.fit(runs.filter(metric=METRIC) if alone else runs, METRIC)
    for factor in FACTORS:
        predicted = fits.predict(factor * END, sizes, PROBLEMS_PER_BATCH)
        for n, said, low, high in zip(sizes, predicted.mean, predicted.low, predicted.high, strict=True):
            at, mean, _ = curves[n]
            true = float(np.interp(end + np.log(factor), at, np.maximum.accumulate(mean)))
            yield Row(factor, sweep, share, true, float(said), bool(low <= true <= high))


def table(rows: Sequence[Row]) -> str:
    """A Markdown table by target and by how much of the rise was shown."""
    lines = ["| x | shown | forecasts | bias | rms error | 80 % holds | regret |", "|---|---|---|---|---|---|---|"]
    parts = (("all", 0.0, 1.0), ("up to .5", 0.0, 0.5), (".5 to .8", 0.5, 0.8), ("above .8", 0.8, 1.0))
    for factor in FACTORS:
        for name, low, high in parts:
            mine = [row for row in rows if row.factor == factor and low <= row.share < high]
            error = np.array([row.true - row.predicted for row in mine])
            lost = [_regret([row for row in mine if row.sweep == one]) for one in {row.sweep for row in mine}]
            lines.append(
                f"| {factor:g} | {name} | {len(mine)} | {error.mean():+.3f} | {np.sqrt(np.mean(error**2)):.3f} | "
                f"{np.mean([row.held for row in mine]):.2f} | {np.mean(lost):.4f} |"
            )
    return "\n".join(lines)


def _regret(rows: Sequence[Row]) -> float:
    """Best true reward less that of the n that is predicted best."""
    return max(row.true for row in rows) - max(rows, key=lambda row: row.predicted).true


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--alone", action="store_true", help="fits see avg@4 only, no best@4")
    options = parser.parse_args(arguments)
    rows = [row for sweep in range(SWEEPS) for row in examine(sweep, alone=options.alone)]
    sys.stdout.write(table(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
