"""Forecasts on recorded runs of the built-in task: a part of each run is shown, the rest is predicted and compared.

    python benchmarks/decisions/recorded.py
    python benchmarks/decisions/recorded.py --tuning
    python benchmarks/decisions/recorded.py --alone
    python benchmarks/decisions/recorded.py --trl

The runs are those of `benchmarks/data/recorded/`, made by `benchmarks/record_runs.py`. A pilot is everything up to C0
rollouts of some levels of n and some seeds; the surface is fitted to it and asked for the reward
at 2, 3 and 8 times C0. Measured: the mean over all recorded seeds of the best smoothed evaluation up to there. Three
questions:

1. Forecast: measured less predicted reward of the best checkpoint, for every n of the pilot, and whether the 80 %
   interval holds.
2. Choice: reward of the best recorded n less that of the one a plan for that budget takes (the recorded n nearest to
   it), beside the n of the best pilot run.
3. Rise: the largest share of a curve's rise that the passport says was seen, beside the share of what the longest
   recorded run of that n gained; that run still rises, so the true share is lower.

`--tuning`: on the ten other sets of `other_tasks.csv` and `few_problems.csv`, on which what best@k adds was chosen.
`--alone`: fits see avg@4 only.
`--trl`: on runs of three small tasks by another engine, made by `benchmarks/record_trl.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import isocompute_sdk as iso
from isocompute_sdk import RunSet, plots

DATA = Path(__file__).parents[1] / "data" / "recorded"
SETS = ("easy", "hard")
TUNING = {"other_tasks": "other tasks", "few_problems": "few problems"}
"""Tables of other sets, one task each by the name of its runs up to n, with the name that they share here."""
METRIC = "avg@4"
PROBLEMS_PER_BATCH = 16
FACTORS = (2.0, 3.0, 8.0)
ORIGINS = (18_750.0, 37_500.0, 75_000.0, 150_000.0, 200_000.0, 300_000.0, 375_000.0)
"""C0. The last ones leave 3x and 8x only for the runs to 3M."""
LEVELS = ((4, 8, 16, 32, 64, 128, 256), (4, 16, 64, 256), (8, 32, 128), (4, 16, 64))
TRL_ORIGINS = (5_000.0, 10_000.0, 20_000.0, 40_000.0)
"""The same for the runs of `trl_tasks.csv`."""
SEEDS = ((0,), (1,), (0, 1))
LEAST_STEPS = 8
"""Update steps at C0 that an n needs to be part of a pilot."""
WINDOW = 1.3
"""Evaluations within this factor of a compute are averaged."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Recorded:
    """All recorded runs of one problem set."""

    name: str
    runs: RunSet
    curves: dict[int, list[tuple[Array, Array]]]
    """n -> rollouts and reward of each seed."""
    metric: str = METRIC
    problems_per_batch: int = PROBLEMS_PER_BATCH
    origins: tuple[float, ...] = ORIGINS

    @classmethod
    def read(cls, name: str, folder: Path = DATA) -> Recorded:
        """Every table of one set."""
        return cls.of(name, RunSet.read(str(folder / f"{name}_*.csv")))

    @classmethod
    def tuning(cls, folder: Path = DATA) -> Iterator[Recorded]:
        """Every task of the tables of other sets."""
        for table, name in TUNING.items():
            runs = RunSet.read(str(folder / f"{table}.csv"))
            for task in dict.fromkeys(run_id.rsplit("-n", 1)[0] for run_id in runs.run_ids):
                yield cls.of(name, runs.filter(pl.col("run_id").str.starts_with(f"{task}-n")))

    @classmethod
    def trl(cls, folder: Path = DATA) -> Iterator[Recorded]:
        """Every task that TRL trained."""
        runs = RunSet.read(str(folder / "trl_tasks.csv"))
        for task in dict.fromkeys(run_id.rsplit("-n", 1)[0] for run_id in runs.run_ids):
            mine = runs.filter(pl.col("run_id").str.starts_with(f"{task}-n"))
            yield replace(cls.of(task, mine, "avg@16"), problems_per_batch=8, origins=TRL_ORIGINS)

    @classmethod
    def of(cls, name: str, runs: RunSet, metric: str = METRIC) -> Recorded:
        """The runs with their curves."""
        curves: dict[int, list[tuple[Array, Array]]] = {}
        for one in sorted(runs.series(metric), key=lambda one: (one.group_size, one.seed or 0)):
            curves.setdefault(one.group_size, []).append((one.rollouts_T, one.value_T))
        return cls(name, runs, curves, metric)

    def pilot(self, origin: float, levels: Sequence[int], seeds: Sequence[int]) -> RunSet:
        """What a pilot of that size saw."""
        return self.runs.filter(
            (pl.col("rollouts") <= origin) & pl.col("group_size").is_in(levels) & pl.col("seed").is_in(seeds)
        )

    def best(self, n: int, rollouts: float) -> float | None:
        """Best smoothed reward up to a compute, averaged over the seeds that reach it; None if none does."""
        found = [best_smoothed(at, reward, rollouts) for at, reward in self.curves[n] if at[-1] >= 0.98 * rollouts]
        return float(np.mean(found)) if found else None

    def base(self) -> float:
        """Reward of the base model."""
        return float(np.mean([reward[0] for runs in self.curves.values() for _, reward in runs]))


def best_smoothed(at: Array, reward: Array, rollouts: float) -> float:
    """Largest mean of the evaluations around each one, up to a compute."""
    usable = (at > 0) & (at <= rollouts * 1.02)
    log, value = np.log(at[usable]), reward[usable]
    near = np.abs(log[:, None] - log[None, :]) <= np.log(WINDOW)
    return float(np.max(near @ value / near.sum(axis=1)))


@dataclass(frozen=True)
class Forecast:
    """One n, one target."""

    set: str
    origin: float
    factor: float
    levels: int
    seeds: int
    n: int
    measured: float
    error: float
    """Measured less predicted."""
    held: bool


@dataclass(frozen=True)
class Decision:
    """One plan."""

    set: str
    origin: float
    factor: float
    levels: int
    seeds: int
    chosen: int
    planned: int
    regret: float
    regret_of_best_pilot: float
    verdict: str
    claimed: float
    """Largest share of a rise that the passport says was seen."""
    claimed_low: float
    """Lower end of its 80 % interval."""
    measured: float
    """Largest share of what was gained in the end."""
    warned: bool
    """Whether `rise-not-seen` is among the notes."""


def examine(
    recorded: Recorded, origin: float, levels: Sequence[int], seeds: Sequence[int], *, alone: bool = False
) -> list[Forecast | Decision]:
    """Everything asked of one pilot; `alone`: the fit sees no other metric."""
    shown = [n for n in levels if n in recorded.curves and origin / (n * recorded.problems_per_batch) >= LEAST_STEPS]
    if len(shown) < 3 or any(len(recorded.curves[n]) <= max(seeds) for n in shown):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pilot = recorded.pilot(origin, shown, seeds)
        fits = iso.fit(pilot.filter(metric=recorded.metric) if alone else pilot, recorded.metric)
        planner = iso.Planner(fits, recipe=iso.Recipe.preset("hard"))
        found: list[Forecast | Decision] = []
        for factor in FACTORS:
            target = factor * origin
            true = {n: reward for n in recorded.curves if (reward := recorded.best(n, target)) is not None}
            known = [n for n in shown if n in true]
            if len(known) < 3:
                continue
            predicted = fits.predict(target, known, recorded.problems_per_batch, level=0.8)
            place: dict[str, Any] = {
                "set": recorded.name,
                "origin": origin,
                "factor": factor,
                "levels": len(shown),
                "seeds": len(seeds),
            }
            for n, mean, low, high in zip(known, predicted.mean, predicted.low, predicted.high, strict=True):
                held = bool(low <= true[n] <= high)
                found.append(Forecast(**place, n=n, measured=true[n], error=true[n] - float(mean), held=held))
            if len(known) == len(shown):
                found.append(_decide(recorded, fits, planner, target, true, shown, seeds, place))
    return found


def _decide(
    recorded: Recorded,
    fits: iso.Fits,
    planner: iso.Planner,
    target: float,
    true: dict[int, float],
    shown: Sequence[int],
    seeds: Sequence[int],
    place: dict[str, Any],
) -> Decision:
    plan = planner.allocate(target, problems_per_batch=recorded.problems_per_batch, spend="all")
    origin = float(place["origin"])
    chosen = min(true, key=lambda n: abs(np.log2(n / plan.group_size)))
    pilots = {
        n: max(best_smoothed(at, reward, origin) for at, reward in recorded.curves[n][: max(seeds) + 1]) for n in shown
    }
    best_pilot = max(pilots, key=lambda n: pilots[n])
    gained = [_share_seen(recorded, n, origin) for n in shown]
    passport = fits.passport
    if passport is None or passport.most_rise_seen is None:
        raise SystemExit("a surface without a passport")
    return Decision(
        **place,
        chosen=chosen,
        planned=plan.group_size,
        regret=max(true.values()) - true[chosen],
        regret_of_best_pilot=max(true.values()) - true[best_pilot],
        verdict=plan.verdict.kind,
        claimed=passport.rise_seen[1],
        claimed_low=passport.most_rise_seen[0],
        measured=max(gained),
        warned=any(note.code == "rise-not-seen" for note in fits.notes),
    )


def _share_seen(recorded: Recorded, n: int, origin: float) -> float:
    """Share of the gain of n's longest runs that was made by `origin`; above the true share, as they still rise."""
    end = max(float(at[-1]) for at, _ in recorded.curves[n])
    seen, whole = recorded.best(n, origin), recorded.best(n, end)
    base = recorded.base()
    return 1.0 if seen is None or whole is None or whole <= base else (seen - base) / (whole - base)


def run(sets: Iterable[Recorded], *, every: bool = False, alone: bool = False) -> Iterator[Forecast | Decision]:
    """Pilots of all n with one seed; `every`: also of fewer n and of both seeds; `alone`: as of `examine`."""
    for recorded in sets:
        for origin in recorded.origins:
            for levels in LEVELS if every else LEVELS[:1]:
                for seeds in SEEDS if every else SEEDS[:2]:
                    yield from examine(recorded, origin, levels, seeds, alone=alone)


def forecast_table(rows: Sequence[Forecast]) -> str:
    """A Markdown table: bias and share of intervals that hold, by set, factor and n."""
    lines = ["| set | x | n | forecasts | bias | mean absolute error | 80 % holds |", "|---|---|---|---|---|---|---|"]
    for name in dict.fromkeys(r.set for r in rows):
        for factor in FACTORS:
            part = [r for r in rows if r.set == name and r.factor == factor]
            for n in [*sorted({r.n for r in part}), None]:
                mine = [r for r in part if n in (None, r.n)]
                if mine:
                    error = np.array([r.error for r in mine])
                    lines.append(
                        f"| {name} | {factor:g} | {n or 'all'} | {len(mine)} | {error.mean():+.3f} | "
                        f"{np.abs(error).mean():.3f} | {np.mean([r.held for r in mine]):.2f} |"
                    )
    return "\n".join(lines)


def decision_table(rows: Sequence[Decision]) -> str:
    """A Markdown table: what plans lost, and the share of the rise that was said to be seen, by set and origin."""
    lines = [
        "| set | C0 | x | plans | regret | best pilot run's | chosen n | verdicts | rise seen: said (low) | measured | "
        "warned |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(r.set for r in rows):
        for factor in FACTORS:
            for origin in (*sorted({r.origin for r in rows if r.set == name}), None):
                mine = [r for r in rows if r.set == name and r.factor == factor and origin in (None, r.origin)]
                if mine:
                    lines.append(_decision_line(name, origin, factor, mine))
    return "\n".join(lines)


def _decision_line(name: str, origin: float | None, factor: float, rows: Sequence[Decision]) -> str:
    def mean(field: str) -> float:
        return float(np.mean([getattr(row, field) for row in rows]))

    def counts(field: str) -> str:
        values = [getattr(row, field) for row in rows]
        return ", ".join(f"{value}: {values.count(value)}" for value in sorted(set(values)))

    cells = [
        name,
        "all" if origin is None else f"{origin:,.0f}",
        f"{factor:g}",
        str(len(rows)),
        f"{mean('regret'):.3f}",
        f"{mean('regret_of_best_pilot'):.3f}",
        counts("chosen"),
        counts("verdict"),
        f"{mean('claimed'):.2f} ({mean('claimed_low'):.2f})",
        f"{mean('measured'):.2f}",
        f"{mean('warned'):.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def figure(path: Path, folder: Path = DATA) -> None:
    """Draw the recorded evaluations, one panel for each set."""
    sets = {f"{name.capitalize()}, B_p = {PROBLEMS_PER_BATCH}": Recorded.read(name, folder).runs for name in SETS}
    plots.save_figure(plots.figure_of(plots.side_by_side(sets, METRIC)), path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--tuning", action="store_true", help="the other tasks and few problems instead")
    parser.add_argument("--trl", action="store_true", help="the runs by TRL instead")
    parser.add_argument("--alone", action="store_true", help="fits see avg@4 only, no best@4")
    parser.add_argument("--every", action="store_true", help="also pilots of fewer n, and of both seeds")
    parser.add_argument("--json", type=Path, help="write every row here")
    parser.add_argument("--figure", type=Path, help="only draw the recorded curves into this file")
    options = parser.parse_args(arguments)
    if options.figure is not None:
        figure(options.figure, options.data)
        return 0
    read = (Recorded.read(name, options.data) for name in options.sets)
    sets = Recorded.trl(options.data) if options.trl else Recorded.tuning(options.data) if options.tuning else read
    rows = list(run(sets, every=options.every, alone=options.alone))
    forecasts = [row for row in rows if isinstance(row, Forecast)]
    decisions = [row for row in rows if isinstance(row, Decision)]
    sys.stdout.write(f"{forecast_table(forecasts)}\n\n{decision_table(decisions)}\n")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
