"""How often the health detectors are wrong, and how often and how soon they see what is wrong.

Healthy and sick runs of the simulator: designs, truths and noise as in its scenarios, over all families that do not
overfit, and vitals as in vitals.py. `--logs` counts alarms on recorded runs as well.
`--bands` fits pilot sweeps and holds new healthy runs, three times as long, against the band of their plan.

    python benchmarks/health_alarms.py --runs 600 --bands 60 --logs isocompute-quickstart/runs
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from vitals import FAULTS, healthy_vitals

import isocompute_sdk as iso
from isocompute_sdk.health import rewards
from isocompute_sdk.health.detectors import findings
from isocompute_sdk.health.findings import Finding
from isocompute_sdk.health.traces import gather
from isocompute_simulator.families import FAMILIES, PlannedRun, SweepDesign, draw_design, draw_truth
from isocompute_simulator.observation import Noise, draw_noise, measured_curve
from isocompute_simulator.scenario import draw_scenario
from isocompute_simulator.truth import Array, Truth

SEED = 7
MAX_UPDATES = 600
MIN_UPDATES = 40
"""Runs shorter than that get no planted fault of the vitals."""
BEGIN = (0.3, 0.7)
"""Share of the run after which planted faults begin."""
LEVELS = (0.8, 0.9, 0.95, 0.98, 0.99)
FALLING = {"collapsed-run", "decayed-run", "overfitting-run"}
BEYOND = 3.0
FALLS_TRIED = 4
"""Falls depend on the size of the gain, large ones are few: so many times as many runs are tried."""


@dataclass(frozen=True)
class Simulated:
    """One run before anything is logged."""

    family: str
    truth: Truth
    noise: Noise
    design: SweepDesign
    run: PlannedRun

    @property
    def batch(self) -> float:
        """Rollouts per batch."""
        return float(self.run.group_size * self.run.problems_per_batch)

    def reward(self, updates_T: Array) -> Array:
        """Noise-free reward after so many updates."""
        return self.truth.mean(updates_T * self.batch, self.run.group_size, self.run.problems_per_batch)

    @property
    def gain_in_noise(self) -> float:
        """Gain at its end, in standard deviations of one evaluation."""
        ends = self.reward(np.array([0.0, self.run.update_steps]))
        return float(ends[1] - ends[0]) / self.noise.evaluation_sd


def draws(rng: np.random.Generator, count: int) -> Iterator[Simulated]:
    """Runs of sweeps on tasks that do not overfit, at most six of one sweep."""
    families = [family for family in FAMILIES if family != "overfitting"]
    given = 0
    while given < count:
        family = families[int(rng.integers(len(families)))]
        design = draw_design(rng)
        truth, noise = draw_truth(family, design, rng), draw_noise(rng)
        for run in design.runs[:6]:
            if given < count:
                yield Simulated(family, truth, noise, design, run)
                given += 1


def validation(one: Simulated, rng: np.random.Generator, **faults: float) -> pl.DataFrame:
    """Its evaluations; `faults` are rates of the noise, all 0 by default."""
    steps = np.array(one.design.evaluated_steps(one.run.update_steps))
    noise = replace(one.noise, **{"collapse_rate": 0.0, "decay_rate": 0.0, **faults})
    n, bp = one.run.group_size, one.run.problems_per_batch
    value = measured_curve(one.truth, noise, steps * one.batch, n, bp, rng)
    seen = ~np.isnan(value)
    return rows("avg@4", "validation", steps[seen], value[seen])


def logged_updates(one: Simulated) -> Array:
    """Updates that are logged: all of them, or evenly spaced ones of a long run."""
    return np.unique(np.linspace(1, one.run.update_steps, min(one.run.update_steps, MAX_UPDATES)).round())


def rows(metric: str, eval_set: str, steps: Array, values: Array) -> pl.DataFrame:
    """One metric in long form."""
    part = pl.DataFrame({"step": steps.astype(float), "value": np.asarray(values, dtype=float)})
    return part.with_columns(metric=pl.lit(metric), eval_set=pl.lit(eval_set))


def seen_in(one: Simulated, parts: list[pl.DataFrame]) -> tuple[Finding, ...]:
    """What the detectors see in what one run logged."""
    settings = {"group_size": one.run.group_size, "problems_per_batch": one.run.problems_per_batch}
    table = pl.concat(parts).with_columns(run_id=pl.lit("run"), **{k: pl.lit(v) for k, v in settings.items()})
    return findings(iso.RunSet.from_columns(table))["run"]


def vital_rows(one: Simulated, rng: np.random.Generator) -> tuple[Array, dict[str, Array]]:
    """Logged updates and their healthy vitals."""
    at = logged_updates(one)
    return at, healthy_vitals(
        np.clip(one.reward(at), 1e-3, 1 - 1e-3), one.run.group_size, one.run.problems_per_batch, rng
    )


def as_rows(at: Array, vitals: dict[str, Array]) -> list[pl.DataFrame]:
    """Vitals in long form."""
    return [rows(name, "train", at, values) for name, values in vitals.items()]


def healthy(count: int, rng: np.random.Generator) -> None:
    """False alarms, in total and by code."""
    warned, told, families = Counter[str](), Counter[str](), Counter[str]()
    any_warning = 0
    correlated: dict[bool, list[bool]] = {True: [], False: []}
    for one in draws(rng, count):
        found = seen_in(one, [validation(one, rng), *as_rows(*vital_rows(one, rng))])
        codes = {f.code for f in found if f.severity != "info"}
        warned.update(codes)
        told.update({f.code for f in found if f.severity == "info"})
        correlated[one.noise.correlation > 0].append(bool(codes & FALLING))
        any_warning += bool(codes)
        families[one.family] += bool(codes)
    print(f"\nhealthy simulated runs: {count}; with a warning: {any_warning} ({any_warning / count:.1%})")
    print(f"  by code: {dict(warned) or 'none'}; by family: {dict(+families) or 'none'}; info: {dict(told) or 'none'}")
    for known, falling in correlated.items():
        words = "correlated" if known else "independent"
        print(f"  a falling reward seen with {words} evaluation noise: {sum(falling)} of {len(falling)}")


def sick(count: int, rng: np.random.Generator) -> None:
    """Detection by fault."""
    print("\n| fault | runs | seen | median delay |")
    print("|---|---|---|---|")
    for code, fault in FAULTS.items():
        hits: list[float] = []
        tried = 0
        for one in draws(rng, count):
            at, vitals = vital_rows(one, rng)
            if len(at) < MIN_UPDATES:
                continue
            tried += 1
            begin = int(rng.uniform(*BEGIN) * len(at))
            found = seen_in(one, as_rows(at, fault(vitals, begin)))
            hits += [
                float(f.noticed_rollouts or 0) / one.batch - at[begin]
                for f in found
                if f.code == code and f.severity == "warning"
            ][:1]
        print(f"| {code} | {tried} | {len(hits) / tried:.0%} | {np.median(hits):.0f} updates |")
    falls(count, rng)


def falls(count: int, rng: np.random.Generator) -> None:
    """Detection of falling rewards, by the gain in units of noise and by the evaluations that came after."""
    for name, kept in (("collapse of reward to 5 %", 0.05), ("decay of reward to 50 %", 0.5)):
        hits: dict[tuple[str, str], list[float]] = {}
        for one in draws(rng, FALLS_TRIED * count):
            table = validation(one, rng)
            begin = rng.uniform(0.35, 0.9)
            at = table["step"].to_numpy() / one.run.update_steps
            # A collapse takes 4 % of the run, a decay all that is left of it.
            over = 0.04 if kept < 0.5 else 1.0 - begin
            gain = one.reward(table["step"].to_numpy()) - one.truth.base_reward
            lost = gain * (1.0 - kept) * np.clip((at - begin) / over, 0.0, 1.0)
            found = seen_in(one, [table.with_columns(value=pl.col("value") - lost)])
            noticed = [f.noticed_rollouts or 0.0 for f in found if f.code in ("collapsed-run", "decayed-run")]
            later = at[at > begin]
            size = "up to 10" if one.gain_in_noise < 10 else "over 10"
            looks = "under 6" if len(later) < 6 else "6 to 19" if len(later) < 20 else "20 or more"
            delay = float(np.sum(later <= noticed[0] / one.batch / one.run.update_steps)) if noticed else np.nan
            hits.setdefault((size, looks), []).append(delay)
        for (size, looks), delays in sorted(hits.items()):
            share = np.mean(~np.isnan(delays))
            delay = f"{np.nanmedian(delays):.0f} evaluations" if share > 0 else ""
            print(f"| {name}, gain of {size} sd, {looks} evaluations after | {len(delays)} | {share:.0%} | {delay} |")


def bands(count: int, rng: np.random.Generator) -> None:
    """New healthy runs of a plan's kind that leave the band predicted from the pilot, by its level."""
    outside = {level: Counter[str]() for level in LEVELS}
    for _ in range(count):
        scenario = draw_scenario(rng, str(rng.choice([family for family in FAMILIES if family != "overfitting"])))
        fits = iso.fit(scenario.runs, draws=100)
        n, bp = int(rng.choice(scenario.levels)), scenario.problems_per_batch[0]
        last = max(int(BEYOND * scenario.largest_rollouts / (n * bp)), 30)
        steps = np.unique(np.linspace(0, last, 41).round())
        noise = replace(scenario.noise, collapse_rate=0.0, decay_rate=0.0)
        value = measured_curve(scenario.truth, noise, steps * float(n * bp), n, bp, rng)
        seen = ~np.isnan(value)
        table = rows("avg@4", "validation", steps[seen], value[seen]).with_columns(n=pl.lit(n), bp=pl.lit(bp))
        (run,) = gather(iso.RunSet.from_columns(table))
        for level in LEVELS:
            rewards.LEVEL = level
            outside[level].update(found.severity for found in rewards.band_findings(run, fits))
    print(f"\nnew healthy runs of {BEYOND:g} times the pilot's compute: {count}, 40 looks each")
    print("| level of the band | below | above |")
    print("|---|---|---|")
    for level, found in outside.items():
        below, above = (found[severity] / count for severity in ("warning", "info"))
        print(f"| {level:.0%} | {below:.1%} | {above:.1%} |")


def recorded(paths: list[Path]) -> None:
    """Alarms on recorded runs."""
    total = warned = 0
    for path in paths:
        health = iso.check_health(iso.RunSet.read(path))
        total += health.runs
        for run, notes in health.by_run.items():
            codes = [note.code for note in notes if note.severity != "info"]
            warned += bool(codes)
            if codes:
                print(f"  {path} {run}: {', '.join(codes)}")
    print(f"\nrecorded runs: {total}; with a warning: {warned}")


def main() -> None:
    """Print all that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=600, help="healthy simulated runs; a third as many of each fault")
    parser.add_argument("--bands", type=int, default=0, help="pilot sweeps to fit and go beyond")
    parser.add_argument("--logs", type=Path, nargs="*", default=[], help="logs of recorded runs")
    asked = parser.parse_args()
    rng = np.random.default_rng(SEED)
    if asked.logs:
        recorded(asked.logs)
    if asked.runs:
        healthy(asked.runs, rng)
        sick(max(asked.runs // 3, 20), rng)
    if asked.bands:
        bands(asked.bands, rng)


if __name__ == "__main__":
    main()
