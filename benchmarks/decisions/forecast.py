"""Forecasts of single runs of the corpus from their first half or quarter, beside carrying the last reward forward.

    python benchmarks/decisions/forecast.py
    python benchmarks/decisions/forecast.py --sweeps FOLDER

Each run is forecast alone, by the surface that is fitted to it: the answer of a plan for the same run. Measured is the
mean of the evaluations within a factor of 1.3 of the target. Digitised curves get the noise of one evaluation.
"""

from __future__ import annotations

import argparse
import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import isocompute_sdk as iso
from isocompute_sdk.auditing.pilots import WINDOW
from isocompute_sdk.fitting.one_run.forecast import FEWEST
from isocompute_sdk.laws.sweeps import sweeps

CUTS = (0.5, 0.25)


@dataclass(frozen=True)
class Row:
    """One run at one cut."""

    group: str
    cut: float
    error: float
    """Measured less predicted."""
    held: bool
    score: float
    """Width of the 80 % interval and ten times the miss."""
    carried: float
    """Measured less the last reward."""


def near(compute: np.ndarray, reward: np.ndarray, at: float) -> float:
    """Mean reward within `WINDOW` of a compute."""
    chosen = (compute > 0) & (np.abs(np.log(np.maximum(compute, 1.0) / at)) <= np.log(WINDOW))
    return float(reward[chosen].mean())


def rows(folder: Path | None) -> Iterator[Row]:
    """Every run of the corpus, or of a folder in its form, at every cut."""
    for sweep in sweeps(folder):
        about = sweep.provenance
        for run in sweep.runs.series(about.metrics[0]):
            rng = np.random.default_rng(zlib.crc32(f"{sweep.name} {run.run_id}".encode()))
            noise = (about.evaluation_sd or 0.0) * rng.standard_normal(len(run.value_T))
            compute, reward = run.rollouts_T, np.clip(run.value_T + noise, 0.0, 1.0)
            for cut in CUTS:
                shown = compute <= cut * compute[-1] * 1.0001
                if np.count_nonzero(compute[shown] > 0) < FEWEST:
                    continue
                table = {"C": compute[shown], "avg@4": reward[shown]}
                one = iso.RunSet.from_columns(
                    table,
                    run_id=run.run_id,
                    group_size=run.group_size,
                    problems_per_batch=run.problems_per_batch or 1,
                )
                end = float(compute[shown][-1])
                ahead = iso.forecast(one, to=float(compute[-1]) / end).ahead[-1]
                measured = near(compute, run.value_T, float(compute[-1]))
                missed = max(ahead.low - measured, 0.0, measured - ahead.high)
                yield Row(
                    about.group,
                    cut,
                    measured - ahead.reward,
                    missed == 0.0,
                    ahead.high - ahead.low + 10.0 * missed,
                    measured - near(compute[shown], reward[shown], end),
                )


def table(found: Sequence[Row]) -> str:
    """A Markdown table by target and group."""
    lines = ["| x | group | runs | rms error | bias | 80 % holds | score | carried forward |", "|---|" + "---|" * 7]
    for cut in CUTS:
        for group in (*dict.fromkeys(row.group for row in found), "all"):
            mine = [row for row in found if row.cut == cut and group in (row.group, "all")]
            if mine:
                error, carried = (np.array([getattr(row, name) for row in mine]) for name in ("error", "carried"))
                lines.append(
                    f"| {1 / cut:g} | {group} | {len(mine)} | {np.sqrt(np.mean(error**2)):.3f} | {error.mean():+.3f} | "
                    f"{sum(row.held for row in mine)} | {np.mean([row.score for row in mine]):.3f} | "
                    f"{np.sqrt(np.mean(carried**2)):.3f} |"
                )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--sweeps", type=Path, help="folder of sweeps in the corpus' form")
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.stdout.write(table(list(rows(options.sweeps))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
