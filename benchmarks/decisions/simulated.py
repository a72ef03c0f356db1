"""Choices of n on simulated sweeps whose truth is known, by the harness of `isocompute backtest`.

    python benchmarks/decisions/simulated.py --sweeps 504 --seed 30001 --workers 2
    python benchmarks/decisions/simulated.py --weigh

Every scenario is a pilot sweep; each method chooses n for 1, 3, 10 and 30 times its largest run, among the levels and
the powers of two up to one octave above them that leave 5 update steps. Regret is what is lost against the best n of a
finer grid of the same range, as a share of the gain within reach at 10 times the pilot.

`--weigh` prints `WEIGHTS` again, from the corpus and simulated sweeps of their own seed. The rule: a sweep is small or
large in gain, noise and growth of the best n (`features`), 8 cells in all. A family of simulated sweeps weighs as much
as it explains of the corpus: the sum over cells of the corpus' share times the family's part of the cell. Every family
of the corpus counts alike. Nothing is fitted for that; the weights stay as they are when the model changes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import isocompute_sdk as iso
from isocompute_sdk.auditing.backtest import METHODS, Backtest, Method, Pilot, Row, best_smoothed, judge
from isocompute_simulator.families import FAMILIES
from isocompute_simulator.scenario import METRIC, REAL_FAMILIES, Scenario, draw_scenario

SEED = 30_001
"""Sweeps for work; a fresh seed for numbers that are reported."""
RATIOS = (1.0, 3.0, 10.0, 30.0)
EVERY_FAMILY = (*FAMILIES, *REAL_FAMILIES)
MIN_UPDATE_STEPS = 5
WEIGHING_SEED, PER_FAMILY = 70_001, 100
LARGE_GAIN, LARGE_NOISE = 0.2, 0.05
"""Reward gained over the base model, and standard deviation of one evaluation as a share of it, that count as large."""
EARLY = 1 / 8
"""The best n grows if at the whole compute it is larger than at this share of it."""
SHRINK = 1.0
"""Sweeps added to every cell of every family, so that none is impossible."""
WEIGHTS = {
    "easy": 0.056,
    "hard": 0.028,
    "unsaturated": 0.036,
    "insensitive": 0.101,
    "overfitting": 0.045,
    "rough": 0.058,
    "skills": 0.089,
    "memorising": 0.062,
    "declining": 0.058,
    "two-stage": 0.068,
    "dipping": 0.102,
    "tilted": 0.069,
    "outlying": 0.168,
    "large": 0.06,
}
"""Fixed in November 2026, before anything was tuned on them."""

Cell = tuple[bool, bool, bool]


def pilots(scenario: Scenario, name: str) -> Iterator[Pilot]:
    """One pilot per target; all share one fit."""
    bp, levels = scenario.problems_per_batch[0], scenario.levels
    curves = {n: (np.empty(0), np.empty(0)) for n in levels}
    for one in scenario.runs.series(METRIC):
        curve = one.rollouts_T, one.value_T
        if best_smoothed(curve, math.inf) > best_smoothed(curves[one.group_size], math.inf):
            curves[one.group_size] = curve
    about = iso.Provenance(
        title=name,
        source="isocompute_simulator",
        licence="as this package",
        model="simulation",
        data=scenario.family,
        algorithm="simulation",
        differs="nothing",
        read="drawn",
        family=scenario.family,
        group="simulated",
        metrics=(METRIC,),
    )
    first: Pilot | None = None
    for ratio in RATIOS:
        target = ratio * scenario.largest_rollouts
        octaves = range(1, 31)
        sizes = sorted({*levels, *(2**i for i in octaves if levels[0] <= 2**i <= 2 * levels[-1])})
        sizes = [n for n in sizes if n * bp * MIN_UPDATE_STEPS <= target] or [levels[0]]
        truth = dict(zip(sizes, scenario.true_reward(target, np.array(sizes)).tolist(), strict=True))
        best = max(scenario.best(target, levels[0], levels[-1], MIN_UPDATE_STEPS)[1], *truth.values())
        sweep = iso.RecordedSweep(name, scenario.runs, about.replace(group=f"{ratio:g}x"))
        pilot = Pilot(
            sweep, METRIC, 1 / ratio, None, target, scenario.runs, curves, truth, False, bp, best, scenario.reward_range
        )
        if first is not None and "fits" in vars(first):
            vars(pilot)["fits"] = first.fits
        first = first or pilot
        yield pilot


def examine(job: tuple[int, int], methods: Mapping[str, Method] = METHODS) -> tuple[Row, ...]:
    """Methods on one scenario; scenarios of one seed take the families in turn."""
    seed, index = job
    family = EVERY_FAMILY[index % len(EVERY_FAMILY)]
    scenario = draw_scenario(np.random.default_rng([seed, index]), family)
    return judge(pilots(scenario, f"{family} {index}"), methods).rows


def run(sweeps: int, seed: int, workers: int = 1, methods: Mapping[str, Method] = METHODS) -> Backtest:
    """All rows."""
    jobs, one = [(seed, index) for index in range(sweeps)], partial(examine, methods=methods)
    if workers == 1:
        found = [one(job) for job in jobs]
    else:
        # Processes start fresh: forked ones would inherit the state of a BLAS that has begun its threads.
        with get_context("spawn").Pool(workers) as pool:
            found = pool.map(one, jobs, chunksize=4)
    return Backtest(tuple(row for rows in found for row in rows), tuple(methods))


def by_family(found: Backtest) -> str:
    """Mean regrets and 80 % intervals that hold at every distance, as a Markdown table; `all`: weighed, with errors."""
    distances = tuple(dict.fromkeys(row.group for row in found.rows))
    names = " / ".join(distances)
    lines = [f"| family | weight | {' | '.join(f'{m}, {names}' for m in found.methods)} | 80 % holds, {names} |"]
    lines.append("|---" * (len(found.methods) + 3) + "|")
    families = [family for family in EVERY_FAMILY if any(row.family == family for row in found.rows)]
    rows: dict[tuple[str, str, str], list[float]] = {}
    for row in found.rows:
        if row.chosen:
            rows.setdefault((row.family, row.group, row.method), []).append(row.regret)
        if row.held is not None:
            rows.setdefault((row.family, row.group, "held"), []).append(float(row.held))
    weight = {family: WEIGHTS[family] / sum(WEIGHTS[f] for f in families) for family in families}
    columns = (*found.methods, "held")

    def mean(family: str, distance: str, column: str) -> tuple[float, float]:
        values = rows.get((family, distance, column), [math.nan])
        return float(np.mean(values)), float(np.var(values) / max(len(values) - 1, 1))

    for family in families:
        cells = (" / ".join(f"{mean(family, d, c)[0]:.3f}" for d in distances) for c in columns)
        lines.append(f"| {family} | {WEIGHTS[family]:.3f} | {' | '.join(cells)} |")
    cells = []
    for column in columns:
        each = [[mean(family, d, column) for family in families] for d in distances]
        values = [sum(w * m for w, (m, _) in zip(weight.values(), one, strict=True)) for one in each]
        errors = [math.sqrt(sum(w * w * v for w, (_, v) in zip(weight.values(), one, strict=True))) for one in each]
        both = zip(values, errors, strict=True)
        cells.append(" / ".join(f"{m:.2f}" if column == "held" else f"{m:.3f} ± {e:.3f}" for m, e in both))
    lines.append(f"| all | 1 | {' | '.join(cells)} |")
    return "\n".join(lines)


def features(runs: iso.RunSet, metric: str, evaluation_sd: float | None = None) -> tuple[float, float, float]:
    """Gain of the best n, standard deviation of one evaluation as a share of it, growth of the best n in octaves."""
    curves: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    noise: list[float] = []
    for one in runs.series(metric):
        curves.setdefault(one.group_size, []).append((one.rollouts_T, one.value_T))
        # Second differences are free of the trend; the median of their size is .6745 sqrt(6) standard deviations.
        noise.append(float(np.median(np.abs(np.diff(one.value_T, 2)))) / 1.652 if len(one.value_T) > 4 else math.nan)
    end = max(float(at[-1]) for runs_of in curves.values() for at, _ in runs_of)
    begun = min(float(at[0]) for runs_of in curves.values() for at, _ in runs_of)
    base = float(np.mean([value[0] for runs_of in curves.values() for at, value in runs_of if at[0] <= 2 * begun]))

    def best(rollouts: float) -> tuple[float, int]:
        return max((float(np.mean([best_smoothed(c, rollouts) for c in of_n])), n) for n, of_n in curves.items())

    reward, late = best(end)
    _, early = best(EARLY * end)
    gain = max(reward - base, 1e-6)
    return gain, (evaluation_sd or float(np.nanmedian(noise))) / gain, math.log2(late / early)


def cell(values: tuple[float, float, float]) -> Cell:
    """Whether gain, noise and growth are large."""
    return values[0] >= LARGE_GAIN, values[1] >= LARGE_NOISE, values[2] > 0


def weigh() -> dict[str, float]:
    """Weights of the families by the rule above."""
    corpus: dict[str, Counter[Cell]] = {}
    for sweep in iso.sweeps():
        about = sweep.provenance
        found = features(sweep.runs, about.metrics[0], about.evaluation_sd)
        sys.stdout.write(
            f"{sweep.name}: gain {found[0]:.3f}, noise {found[1]:.3f} of it, growth {found[2]:+.0f} octaves\n"
        )
        corpus.setdefault(about.family, Counter())[cell(found)] += 1
    drawn: dict[str, Counter[Cell]] = {}
    for number, family in enumerate(EVERY_FAMILY):
        scenarios = (
            draw_scenario(np.random.default_rng([WEIGHING_SEED, number, i]), family) for i in range(PER_FAMILY)
        )
        drawn[family] = Counter(cell(features(one.runs, METRIC)) for one in scenarios)
    sides = (False, True)
    every: list[Cell] = list(product(sides, sides, sides))
    weights = dict.fromkeys(EVERY_FAMILY, 0.0)
    for one in every:
        share = float(np.mean([counts[one] / counts.total() for counts in corpus.values()]))
        chance = {f: (counts[one] + SHRINK) / (PER_FAMILY + SHRINK * len(every)) for f, counts in drawn.items()}
        sys.stdout.write(f"gain, noise, growth large {one}: {share:.2f} of the corpus\n")
        for family in EVERY_FAMILY:
            weights[family] += share * chance[family] / sum(chance.values())
    return {family: round(weight, 3) for family, weight in weights.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--sweeps", type=int, default=112)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rows", type=Path, help="write every row here (Parquet)")
    parser.add_argument("--weigh", action="store_true", help="print the weights of the families")
    given = parser.parse_args(arguments)
    if given.weigh:
        sys.stdout.write(f"{weigh()}\n")
        return 0
    found = run(given.sweeps, given.seed, given.workers)
    sys.stdout.write(f"{given.sweeps} simulated sweeps, seed {given.seed}\n\n{found.table()}\n\n{by_family(found)}\n")
    if given.rows is not None:
        found.to_frame().write_parquet(given.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
