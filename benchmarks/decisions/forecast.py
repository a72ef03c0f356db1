"""Forecasts of runs from their first half, on every run of the corpus, beside the last value and a line.

    python benchmarks/decisions/forecast.py
    python benchmarks/decisions/forecast.py --share 0.25

Every run of the corpus is shown up to a share of its compute and forecast at its end: together with the other runs of
its sweep, cut alike, and alone. The truth is the mean of the evaluations within a factor of 1.3 of it. Drawn curves get
the noise of an evaluation. Line: in log compute, through the second half of what was shown; last value: the mean of the
last three evaluations.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import isocompute_sdk as iso
from isocompute_sdk.auditing.backtest import WINDOW, as_runs, seen

MIN_EVALUATIONS = 8
"""Evaluations after step 0 that the shown part needs."""


@dataclass(frozen=True)
class Row:
    """One run."""

    group: str
    family: str
    run: str
    error: float
    """Forecast less measured, at the end of the run."""
    held: bool
    alone: float
    """Error of the forecast of the run alone."""
    last: float
    """Error of the last value."""
    line: float
    flat: float
    """Probability, as forecast, that the next doubling adds less than what counts as equal."""
    rose: bool
    """Whether the end of the run, as measured, lay that much above the forecast's start."""


def examine(sweep: iso.RecordedSweep, share: float) -> Iterator[Row]:
    """Every run of a sweep that is long enough."""
    about = sweep.provenance
    for metric in about.metrics:
        # The truth looks at both sides of its compute.
        ends = {one.run_id: float(one.rollouts_T[-1]) / math.sqrt(WINDOW) for one in sweep.runs.series(metric)}
        shown = {
            one.run_id: seen(
                (one.rollouts_T, one.value_T),
                share * ends[one.run_id],
                about.evaluation_sd,
                f"{sweep.name} {one.run_id}",
            )
            for one in sweep.runs.series(metric)
        }
        first, *others = (
            as_runs(sweep, metric, {one.group_size: (one.run_id, shown[one.run_id])}, share * ends[one.run_id])
            for one in sweep.runs.series(metric)
            if len(shown[one.run_id][0])
        )
        cut, together = first.concat(*others), None
        for one in sweep.runs.series(metric):
            end, (at, value) = ends[one.run_id], shown[one.run_id]
            after = at > 0
            if after.sum() < MIN_EVALUATIONS:
                continue
            near = (one.rollouts_T > 0) & (np.abs(np.log(np.maximum(one.rollouts_T, 1) / end)) <= math.log(WINDOW))
            true = float(one.value_T[near].mean())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                together = iso.fit(cut, metric) if together is None else together
                ratio = end / float(at[-1])
                found = iso.forecast(together, one.run_id, to=ratio)
                alone = iso.forecast(cut.filter(run_id=one.run_id), metric=metric, to=ratio).at(ratio).reward
            ahead = found.at(ratio)
            log, late = np.log(at[after]), value[after]
            half = slice(len(log) // 2, None)
            line = float(np.polyval(np.polyfit(log[half], late[half], 1), math.log(end)))
            last = float(late[-3:].mean())
            held = ahead.low <= true <= ahead.high
            errors = (ahead.reward - true, held, alone - true, last - true, line - true)
            rose = true - found.reward >= found.flat.worth
            yield Row(about.group, about.family, one.run_id, *errors, found.flat.now, rose)


def table(rows: Sequence[Row]) -> str:
    """Errors and intervals by group and of all, as a Markdown table."""
    lines = ["| group | runs | rms error | bias | 80 % intervals hold | alone | last value | line |", "|---" * 8 + "|"]
    for group in (*dict.fromkeys(row.group for row in rows), "all"):
        mine = [row for row in rows if group in (row.group, "all")]
        names = ("error", "alone", "last", "line")
        rms = {name: float(np.sqrt(np.mean([getattr(r, name) ** 2 for r in mine]))) for name in names}
        bias, held = float(np.mean([row.error for row in mine])), sum(row.held for row in mine)
        cells = [group, str(len(mine)), f"{rms['error']:.4f}", f"{bias:+.4f}", f"{held} of {len(mine)}"]
        lines.append(f"| {' | '.join(cells)} | {rms['alone']:.4f} | {rms['last']:.4f} | {rms['line']:.4f} |")
    return "\n".join(lines)


def brier(rows: Sequence[Row]) -> float:
    """Brier score of the probability that the next doubling adds something; with `--share 0.5` a run ends there."""
    return float(np.mean([(1.0 - row.flat - row.rose) ** 2 for row in rows]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--share", type=float, default=0.5, help="share of a run that is shown")
    parser.add_argument("--sweeps", type=Path, help="folder of sweeps in place of the corpus")
    parser.add_argument("--csv", type=Path, help="write every run here")
    given = parser.parse_args(arguments)
    rows = [row for sweep in iso.sweeps(given.sweeps) for row in examine(sweep, given.share)]
    sys.stdout.write(f"{table(rows)}\nBrier score: {brier(rows):.3f}\n")
    if given.csv is not None:
        pl.DataFrame(rows).write_csv(given.csv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
