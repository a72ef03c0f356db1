"""How much reward is lost by each way of piloting, at equal pilot cost, on simulated tasks whose truth is known.

    python benchmarks/decisions/pilot.py --scenarios 1200 --output results.jsonl  # appends; the same command continues
    python benchmarks/decisions/pilot.py --summary benchmarks/data/pilot.parquet            # the table in docs/pilot.md

Every design spends the same rollouts P on pilot runs of the same task, with the same noise wherever two make the same
run. The surface is fitted to what each measured, and the planner chooses n for budgets of 3 P and 10 P (and 30 P
and 100 P). A pilot run with the chosen n at the floor of B_p is continued: its rollouts count beside the budget, as in
campaigns. Regret is the best true reward that any n from 4 to 2,048 with at least 5 update steps reaches with the
budget alone, less that of the chosen n, as a share of the reward range (the gain over the base model within reach at
10 P). `fresh` is the same where the plan starts from the base model.

Designs: `designed` (isocompute: the first round of `design_pilot`), `paper-grid` (all pairs of n = 8 to 2,048 and six
B_p with n B_p at most 2,048 times the floor, equal rollouts), `four-rollouts` and `four-steps` (n = 8, 32, 128, 512 at
the floor of B_p), `halving` (eight n, the better half by present reward goes on, three rungs), `prior-only` (no pilot),
`only-16` (everything on n = 16).

A simulation: numbers say how designs compare on these families, not what a training run will return.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import isocompute_sdk as iso
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.surface.data import SurfaceRun, prepare
from isocompute_sdk.fitting.surface.posterior import fit_surface
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_simulator.families import FAMILIES, PROCESSES, draw_design, draw_process, draw_truth
from isocompute_simulator.observation import Noise, draw_noise
from isocompute_simulator.scenario import logged_run
from isocompute_simulator.truth import Task

TEST_SEED = 95_001
"""Scenarios for reported numbers."""
ALL_FAMILIES = (*FAMILIES, *PROCESSES)
DESIGNED_RATIOS = (3.0, 10.0)
RATIOS = (3.0, 10.0, 30.0, 100.0)
SIZES = (4, 2048)
MIN_UPDATE_STEPS = 5
EVALUATIONS = 24
PILOT_FACTOR = (1.0, 6.0)
"""Cost of the pilot over the run length for which the task was placed: from one such run to six."""
FOUR = (8, 32, 128, 512)
EIGHT = (4, 8, 16, 32, 64, 128, 256, 512)
DRAWS = 150

Cell = tuple[int, int, int]
"""n, B_p, seed."""


@dataclass
class World:
    """One task, its noise, and the runs that were made of it."""

    index: int
    seed: int
    family: str
    truth: Task
    noise: Noise
    floor: int
    """Smallest B_p."""
    pilot: float
    """Rollouts that every design spends."""
    reward_range: float = field(init=False)
    surfaces: dict[frozenset[tuple[Cell, int]], Surface] = field(init=False, default_factory=dict[Any, Any])
    """Fits of this task by the runs behind them: designs that have made the same runs share their fit."""

    def __post_init__(self) -> None:
        self.reward_range = max(self.best(10 * self.pilot) - self.truth.base_reward, 1e-6)

    @classmethod
    def draw(cls, index: int, seed: int) -> World:
        """Scenarios of one seed take the families in turn."""
        rng = np.random.default_rng([seed, index])
        family = ALL_FAMILIES[index % len(ALL_FAMILIES)]
        design = draw_design(rng)
        truth = draw_truth(family, design, rng) if family in FAMILIES else draw_process(family, design, rng)
        pilot = design.largest_rollouts * float(np.exp(rng.uniform(*np.log(PILOT_FACTOR))))
        return cls(index, seed, family, truth, draw_noise(rng), design.problems_per_batch[0], pilot)

    def sizes(self, target: float) -> npt.NDArray[np.int64]:
        """Group sizes among which the best is looked for."""
        octaves = np.arange(np.log2(SIZES[0]), np.log2(SIZES[1]) + 1e-9, 1 / 8)
        sizes = np.unique(np.rint(2.0**octaves).astype(np.int64))
        allowed = sizes[sizes * self.floor * MIN_UPDATE_STEPS <= target]
        return allowed if allowed.size else sizes[:1]

    def best(self, target: float) -> float:
        """Best true reward at a target."""
        return float(self.truth.best(target, self.sizes(target), self.floor).max())

    def measure(self, cell: Cell, steps: int) -> dict[str, list[Any]]:
        """One run as logged; its luck depends on the cell alone, whoever makes it and however long."""
        n, bp, run_seed = cell
        count = min(EVALUATIONS, steps)
        at = np.unique(np.rint(np.linspace(0, steps, count + 1)).astype(int))
        rng = np.random.default_rng([self.seed, self.index, n, bp, run_seed])
        return logged_run(self.truth, self.noise, at, n, bp, run_seed, rng)


class Pilot:
    """Runs made so far, with what they cost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.steps: dict[Cell, int] = {}

    def run(self, cell: Cell, steps: int) -> None:
        """Make a run, or continue it to so many steps."""
        if steps > self.steps.get(cell, 0):
            self.steps[cell] = steps

    @property
    def cost(self) -> float:
        """Rollouts spent."""
        return float(sum(n * bp * steps for (n, bp, _), steps in self.steps.items()))

    def continued(self, n: int) -> float:
        """Rollouts of the longest run from whose end a plan with this n at the floor of B_p goes on."""
        return max((n * m * bp for (k, bp, _), m in self.steps.items() if (k, bp) == (n, self.world.floor)), default=0)

    def present(self, cell: Cell) -> float:
        """Mean of the last quarter of a run's evaluations."""
        values = self.world.measure(cell, self.steps[cell])["value"]
        return float(np.mean(values[-max(1, len(values) // 4) :]))


def four_rollouts(world: World) -> Pilot:
    """Four n, each with a quarter of the pilot."""
    pilot = Pilot(world)
    for n in FOUR:
        pilot.run((n, world.floor, 0), max(1, int(world.pilot / 4 / (n * world.floor))))
    return pilot


def four_steps(world: World) -> Pilot:
    """Four n, each with as many update steps."""
    pilot = Pilot(world)
    steps = max(1, int(world.pilot / (sum(FOUR) * world.floor)))
    for n in FOUR:
        pilot.run((n, world.floor, 0), steps)
    return pilot


def halving(world: World) -> Pilot:
    """Successive halving: a third of the pilot on each rung, the better half by present reward goes on."""
    pilot, cells = Pilot(world), [(n, world.floor, 0) for n in EIGHT]
    reached = 0.0
    for _ in range(3):
        reached += world.pilot / 3 / len(cells)
        for cell in cells:
            pilot.run(cell, max(1, int(reached / (cell[0] * world.floor))))
        cells = sorted(cells, key=lambda cell: -pilot.present(cell))[: len(cells) // 2]
    return pilot


def paper_grid(world: World) -> Pilot:
    """Every pair of n and B_p with a batch of at most 2,048 times the floor, equal rollouts; at least one step."""
    pairs = [(2**i, world.floor * 2**j) for j in range(6) for i in range(3, 12) if 2**i * 2**j <= 2048]
    # Pairs whose batch does not fit an equal share are left out, and the others get theirs.
    while max(n * bp for n, bp in pairs) > world.pilot / len(pairs):
        pairs.remove(max(pairs, key=lambda pair: pair[0] * pair[1]))
    pilot = Pilot(world)
    for n, bp in pairs:
        pilot.run((n, bp, 0), int(world.pilot / len(pairs) / (n * bp)))
    return pilot


def designed(world: World, ratio: float) -> Pilot:
    """The first round of `design_pilot`, with the whole pilot: no later run depends on what it shows."""
    pilot, total = Pilot(world), world.pilot * (1 + ratio)
    first = iso.Planner(iso.published_prior(), recipe=iso.Recipe(min_problems_per_batch=world.floor)).design_pilot(
        total,
        min_update_steps=MIN_UPDATE_STEPS,
        shares=(world.pilot / total,),
        spend_all=True,
        rng=world.index,
    )
    for run in first.runs:
        pilot.run((run.group_size, run.problems_per_batch, run.seed), run.update_steps)
    return pilot


def surface_of(pilot: Pilot) -> Surface:
    """The surface of `fit(...)`; laws and backtest, which decide nothing here, would take most of the time."""
    known, key = pilot.world.surfaces, frozenset(pilot.steps.items())
    if key not in known:
        known[key] = _fit(pilot)
    return known[key]


def _fit(pilot: Pilot) -> Surface:
    runs: list[SurfaceRun] = []
    for cell in sorted(pilot.steps):
        n, bp, _ = cell
        logged = pilot.world.measure(cell, pilot.steps[cell])
        compute = np.array(logged["step"], dtype=float) * n * bp
        runs.append(SurfaceRun(logged["run_id"][0], n, bp, compute, np.array(logged["value"], dtype=float)))
    runs.sort(key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
    return fit_surface(prepare(runs), (0.0, 1.0), DRAWS, np.random.default_rng(0))


FIXED: dict[str, Callable[[World], Pilot]] = {
    "four-rollouts": four_rollouts,
    "four-steps": four_steps,
    "halving": halving,
    "paper-grid": paper_grid,
}


def planned(world: World, pilot: Pilot, ratios: Iterable[float]) -> dict[float, int]:
    """The n that the planner chooses at each target, at the floor of B_p: `GroupSizeOdds.best` of executable n.

    Each n spends what it would in a campaign: the budget, and the rollouts of the run that it continues.
    """
    surface = surface_of(pilot)
    levels = sorted({n for n, _, _ in pilot.steps})
    top = levels[-1] * (2 if len(levels) > 1 else 1)
    sizes = [2**i for i in range(1, 31) if levels[0] <= 2**i <= top]
    found: dict[float, int] = {}
    for ratio in ratios:
        steps = [int((ratio * world.pilot + pilot.continued(n)) / (n * world.floor)) for n in sizes]
        able = [(n, m * n * world.floor) for n, m in zip(sizes, steps, strict=True) if m >= MIN_UPDATE_STEPS]
        names, spent = [n for n, _ in able], [float(c) for _, c in able]
        found[ratio] = names[int(np.argmax(np.round(surface.predict(spent, names, float(world.floor)), 12)))]
    return found


def without_pilot(world: World, ratio: float) -> int:
    """The n of the prior over published laws."""
    planner = iso.Planner(iso.published_prior(), recipe=iso.Recipe(min_problems_per_batch=world.floor))
    return planner.allocate(
        (1 + ratio) * world.pilot, problems_per_batch=world.floor, min_update_steps=MIN_UPDATE_STEPS
    ).group_size


def examine(index: int, seed: int) -> list[dict[str, Any]]:
    """All designs on one scenario."""
    world = World.draw(index, seed)
    rows: list[dict[str, Any]] = []

    def note(design: str, ratio: float, n: int, pilot: Pilot | None, seconds: float) -> None:
        # Without a pilot its cost goes to the plan.
        fresh = ratio * world.pilot if pilot else (1 + ratio) * world.pilot
        whole = fresh + (pilot.continued(n) if pilot else 0.0)
        reference = world.best(ratio * world.pilot)
        reward, alone = (float(world.truth.best(target, n, world.floor)) for target in (whole, fresh))
        rows.append(
            {
                "scenario": index,
                "family": world.family,
                "design": design,
                "ratio": ratio,
                "group_size": int(n),
                "regret": (reference - reward) / world.reward_range,
                "fresh": (reference - alone) / world.reward_range,
                "cost": pilot.cost / world.pilot if pilot else 0.0,
                "seconds": round(seconds, 3),
                "runs": [[*c[:2], m * c[0] * c[1] / world.pilot] for c, m in pilot.steps.items()] if pilot else [],
            }
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in FIXED.items():
            begin = time.perf_counter()
            pilot = make(world)
            try:
                found = planned(world, pilot, RATIOS)
            except IsoComputeError:
                found = dict.fromkeys(RATIOS, 16)
            seconds = time.perf_counter() - begin
            for ratio, n in found.items():
                note(name, ratio, n, pilot, seconds)
        for ratio in DESIGNED_RATIOS:
            begin = time.perf_counter()
            pilot = designed(world, ratio)
            # The further targets are asked of the pilot that was designed for ten times its cost.
            asked = (ratio,) if ratio < max(DESIGNED_RATIOS) else tuple(r for r in RATIOS if r >= ratio)
            for one, n in planned(world, pilot, asked).items():
                note("designed", one, n, pilot, time.perf_counter() - begin)
        for ratio in RATIOS:
            note("prior-only", ratio, without_pilot(world, ratio), None, 0.0)
            note("only-16", ratio, 16, None, 0.0)
    return rows


def summarise(rows: Sequence[dict[str, Any]]) -> str:
    """Mean regrets by design and target, and paired differences of `designed` with 95 % intervals."""
    parts = [f"{len({row['scenario'] for row in rows})} scenarios", *_tables(rows, "regret")]
    return "\n".join([*parts, "", "plans that start from the base model", *_tables(rows, "fresh")])


def _tables(rows: Sequence[dict[str, Any]], measure: str) -> list[str]:
    """The tables of one measure."""
    designs = list(dict.fromkeys(row["design"] for row in rows))
    by = {(r["scenario"], r["design"], r["ratio"]): float(r[measure]) for r in rows}
    scenarios = sorted({r["scenario"] for r in rows})
    lines = ["", "| design | " + " | ".join(f"{r:g} x" for r in RATIOS) + " |"]
    lines.append("|---" * (1 + len(RATIOS)) + "|")
    for design in designs:
        means = [np.mean([by[s, design, r] for s in scenarios]) for r in RATIOS]
        lines.append(f"| {design} | " + " | ".join(f"{m:.4f}" for m in means) + " |")
    lines += [
        "",
        "| designed less | " + " | ".join(f"{r:g} x" for r in RATIOS) + " |",
        "|---" * (1 + len(RATIOS)) + "|",
    ]
    for design in designs:
        if design == "designed":
            continue
        cells: list[str] = []
        for r in RATIOS:
            own = np.array([by[s, "designed", r] for s in scenarios])
            other = np.array([by[s, design, r] for s in scenarios])
            off, error = float((own - other).mean()), 1.96 * float((own - other).std()) / np.sqrt(len(scenarios))
            cells.append(f"{off / max(other.mean(), 1e-9):+.0%} ({off - error:+.4f} to {off + error:+.4f})")
        lines.append(f"| {design} | " + " | ".join(cells) + " |")
    best = {
        r: min(np.mean([by[s, d, r] for s in scenarios]) for d in ("four-rollouts", "four-steps", "halving"))
        for r in RATIOS
    }
    lines.append("")
    lines.append("best of the three simple designs: " + ", ".join(f"{r:g} x {value:.4f}" for r, value in best.items()))
    return lines


def read(path: Path) -> list[dict[str, Any]]:
    """Rows of every complete scenario in a results file: JSON lines as written, or the table in benchmarks/data."""
    if not path.exists():
        return []
    if path.suffix == ".parquet":
        return pl.read_parquet(path).to_dicts()
    rows: list[dict[str, Any]] = []
    for line in path.read_text().splitlines():
        try:
            rows += json.loads(line)
        except ValueError:
            # The last line of a run that was killed.
            continue
    return rows


def write_table(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """The rows without runs and times as one small table, regrets and rewards to five digits."""
    kept = [{k: v for k, v in row.items() if k not in ("runs", "seconds")} for row in rows]
    table = pl.DataFrame(kept, infer_schema_length=None).with_columns(pl.selectors.float().round(5).cast(pl.Float32))
    table.sort("scenario", maintain_order=True).write_parquet(path, compression="zstd", compression_level=19)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run scenarios and append them to a file, or print what files hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=TEST_SEED)
    parser.add_argument("--output", type=Path, default=Path("pilot_results.jsonl"))
    parser.add_argument("--summary", type=Path, nargs="+")
    parser.add_argument("--table", type=Path, help="with --summary: write the rows here (Parquet)")
    given = parser.parse_args(arguments)
    if given.summary:
        rows = [row for path in given.summary for row in read(path)]
        if given.table:
            write_table(rows, given.table)
        print(summarise(rows))
        return 0
    done = {row["scenario"] for row in read(given.output)}
    for index in range(given.first, given.first + given.scenarios):
        if index in done:
            continue
        rows = examine(index, given.seed)
        with given.output.open("a") as out:
            out.write(json.dumps(rows) + "\n")
            out.flush()
            os.fsync(out.fileno())
    print(summarise(read(given.output)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
