"""What `Planner.next_runs` says that a run saves, against what it saves on simulated tasks whose truth is known.

    python benchmarks/decisions/next_runs.py --scenarios 300 --output rows.jsonl  # appends; the same command continues
    python benchmarks/decisions/next_runs.py --summary rows.jsonl                 # the tables in docs/pilot.md

Runs that cost P rollouts are made: n = 8, 32, 128 and 512 with equal steps (`four`), n = 8, 16 and 32 with equal
rollouts (`narrow`), or the round of `design_pilot` (`designed`). With 3 P or 10 P left, one more run is asked for. The
run is made, the surface fitted again, and the plan made with what is left. The first two tables compare what is said
with what is saved, the last one what the plan is said to lose if nothing more is run with what it loses. --losses asks
for nothing else, which takes a second a scenario.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from pilot import MIN_UPDATE_STEPS, Pilot, World, carry_out, designed, fitted, four_steps, planned, scenario_parser

import isocompute_sdk as iso
from isocompute_sdk.planning.next_runs import NextRun, NextRuns

RATIOS = (3.0, 10.0)
NARROW = (8, 16, 32)
RESAMPLES = 1000
MATERIAL = 0.0005
"""Least mean of what draws say of which a share is shown."""


def narrow(world: World) -> Pilot:
    """Three small n, each with a third of the pilot."""
    pilot = Pilot(world)
    for n in NARROW:
        pilot.run((n, world.floor, 0), max(1, int(world.pilot / len(NARROW) / (n * world.floor))))
    return pilot


BASES: dict[str, Callable[[World], Pilot]] = {
    "four": four_steps,
    "narrow": narrow,
    "designed": lambda world: designed(world, max(RATIOS)),
}


def ask(pilot: Pilot, budget: float) -> NextRuns:
    """What the planner would run next with this much left."""
    floor = pilot.world.floor
    planner = iso.Planner(fitted(pilot), recipe=iso.Recipe(min_problems_per_batch=floor))
    return planner.next_runs(budget, problems_per_batch=floor, min_update_steps=MIN_UPDATE_STEPS)


def made(world: World, before: Pilot, run: NextRun, ratio: float, now: int) -> dict[str, float]:
    """Reward at the target after one more run, less that without; `free` if it had cost nothing."""
    pilot = Pilot(world)
    pilot.steps |= before.steps
    pilot.run((run.group_size, run.problems_per_batch, run.seed), run.update_steps)
    left = ratio - run.cost / world.pilot
    after = planned(world, pilot, (left,))[left]

    def reward(times: float, n: int) -> float:
        return float(world.truth.best(times * world.pilot, n, world.floor))

    # A run that the plan continues is no loss.
    target = ratio if after == run.group_size else left
    return {"saved": reward(target, after) - reward(ratio, now), "free": reward(ratio, after) - reward(ratio, now)}


def loss_of(world: World, pilot: Pilot, asked: NextRuns, target: float) -> dict[str, Any]:
    """What the draws say that the plan loses against n up to the octave above the runs, and what it loses."""
    ran = [n for n, _, _ in pilot.steps]
    reward = float(world.truth.best(target, asked.group_size_now, world.floor))
    sizes = world.sizes(target)
    near = sizes[(sizes >= min(ran)) & (sizes <= 2 * max(ran))]
    best = float(world.truth.best(target, near, world.floor).max()) if near.size else reward
    return {"said_near": asked.regret_now, "near": max(best - reward, 0.0)}


def examine(index: int, seed: int, *, losses: bool = False) -> list[dict[str, Any]]:
    """Both answers after each kind of runs on one scenario; with `losses` only what the plan loses."""
    world, rows = World.draw(index, seed), list[dict[str, Any]]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for base, make in BASES.items():
            pilot = make(world)
            for ratio in RATIOS:
                target = ratio * world.pilot
                found = ask(pilot, target)
                loss = loss_of(world, pilot, found, target)
                known: dict[str, Any] = {"scenario": index, "family": world.family, "base": base, "ratio": ratio}
                known |= loss
                if losses:
                    rows.append(known)
                    continue
                now = planned(world, pilot, (ratio,))[ratio]
                row: dict[str, Any] = {**known, "runs": len(found.runs)}
                for run in found.runs:
                    row |= {"above": run.group_size > max(n for n, _, _ in pilot.steps)}
                    row |= {"said": found.saving, "group_size": run.group_size, "share": run.share}
                    row |= made(world, pilot, run, ratio, now)
                rows.append(row)
    return rows


def summarise(rows: Sequence[dict[str, Any]]) -> str:
    """Shares that came true, then named and realised savings."""
    lines = _savings(rows) if any("runs" in row for row in rows) else []
    return "\n".join([*lines, *_losses(rows)])


def _savings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Shares of benefits that came true, and named and realised savings."""
    lines = ["| n of the run | target | runs | benefit by the draws | came true | share |", "|---" * 6 + "|"]
    rng = np.random.default_rng(0)
    for above in (False, True):
        for ratio in RATIOS:
            some = [r for r in rows if r["ratio"] == ratio and r.get("above") == above]
            if not some:
                continue
            free = np.array([r["free"] for r in some])
            said = np.array([r["said"] for r in some]) + free - np.array([r["saved"] for r in some])
            picked = rng.integers(len(some), size=(RESAMPLES, len(some)))
            low, high = np.quantile(free[picked].sum(axis=1) / said[picked].sum(axis=1), [0.025, 0.975])
            lines.append(
                f"| {'above' if above else 'inside'} | {ratio:g} x | {len(some)} | {said.mean():.4f} | "
                f"{free.mean():.4f} | {free.sum() / said.sum():.2f} ({low:.2f} to {high:.2f}) |"
            )
    lines += ["", "| after | target | asked | none worth it | said | saved | saved over all asked |", "|---" * 7 + "|"]
    for base in BASES:
        for ratio in RATIOS:
            every = [r for r in rows if (r["ratio"], r["base"]) == (ratio, base)]
            some = [r for r in every if r["runs"]]
            said = f"{np.mean([r['said'] for r in some]):.4f}" if some else "-"
            saved = _mean([r["saved"] for r in some]) if some else "-"
            over = _mean([r.get("saved", 0.0) for r in every]) if every else "-"
            lines.append(
                f"| {base} | {ratio:g} x | {len(every)} | {len(every) - len(some)} | {said} | {saved} | {over} |"
            )
    return [*lines, ""]


def _losses(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What plans are said to lose up to the octave above the runs, and what they lose."""
    lines = ["| after | target | plans | said | lost | share |", "|---" * 6 + "|"]
    several = [*((base, (ratio,)) for base in BASES for ratio in RATIOS), ("all", RATIOS)]
    for base, ratios in several:
        some = [r for r in rows if r["ratio"] in ratios and base in ("all", r["base"])]
        if some:
            near, said = [r["near"] for r in some], [r["said_near"] for r in some]
            where = "all" if len(ratios) > 1 else f"{ratios[0]:g} x"
            means = f"{np.mean(said):.4f} | {np.mean(near):.4f}"
            lines.append(f"| {base} | {where} | {len(some)} | {means} | {_share(near, said, some)} |")
    return lines


def _share(true: Sequence[float], said: Sequence[float], rows: Sequence[dict[str, Any]]) -> str:
    """One sum over the other, with a 95 % interval by resampling scenarios; nothing where nothing is said."""
    if np.mean(said) < MATERIAL:
        return "-"
    place_R = np.unique([row["scenario"] for row in rows], return_inverse=True)[1]
    sums = np.stack([np.bincount(place_R, one) for one in (true, said)])
    picked = np.random.default_rng(0).integers(sums.shape[1], size=(RESAMPLES, sums.shape[1]))
    shares = sums[0, picked].sum(axis=1) / sums[1, picked].sum(axis=1)
    return "{:.2f} ({:.2f} to {:.2f})".format(np.sum(true) / np.sum(said), *np.quantile(shares, [0.025, 0.975]))


def _mean(values: Sequence[float]) -> str:
    """Mean with its 95 % interval."""
    return f"{np.mean(values):.4f} ± {1.96 * float(np.std(values)) / np.sqrt(len(values)):.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare named and realised savings and losses."""
    parser = scenario_parser(__doc__, "next_runs.jsonl")
    parser.add_argument("--losses", action="store_true", help="examine only what plans lose if nothing more is run")
    given = parser.parse_args(arguments)
    return carry_out(given, partial(examine, losses=given.losses), summarise)


if __name__ == "__main__":
    sys.exit(main())
