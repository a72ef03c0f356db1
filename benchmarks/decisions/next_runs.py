"""What `Planner.next_runs` says that a run saves, against what it saves on simulated tasks whose truth is known.

    python benchmarks/decisions/next_runs.py --scenarios 300 --output rows.jsonl  # appends; the same command continues
    python benchmarks/decisions/next_runs.py --summary rows.jsonl                 # the tables in docs/pilot.md

Runs that cost P rollouts are made: n = 8, 32, 128 and 512 with equal steps (`four`), n = 8, 16 and 32 with equal
rollouts (`narrow`), or the round of `design_pilot` (`designed`). With 3 P or 10 P left, one more run is asked for,
twice: by what the draws say (`draws`), and by the share of it that comes true (`named`, what users get). The run is
made, the surface fitted again, and the plan made with what is left. The first table gives the constants of
`planning.experiment.search.COMES_TRUE`, which may only be chosen on tuning seeds (--seed 30001), for n above all that
were run and for others; the second is a test of them on other seeds.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pilot import MIN_UPDATE_STEPS, Pilot, World, carry_out, designed, fitted, four_steps, planned

import isocompute_sdk as iso
from isocompute_sdk.planning.experiment.asking import Question, ask
from isocompute_sdk.planning.experiment.next_runs import NextRun

RATIOS = (3.0, 10.0)
NARROW = (8, 16, 32)
RESAMPLES = 1000


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


def question(pilot: Pilot, budget: float) -> Question:
    """What the planner asks about further runs with this much left."""
    floor = pilot.world.floor
    planner = iso.Planner(fitted(pilot), recipe=iso.Recipe(min_problems_per_batch=floor))
    options = {"problems_per_batch": floor, "min_update_steps": MIN_UPDATE_STEPS}
    return planner._question(iso.Budget(rollouts=budget), options)  # pyright: ignore[reportPrivateUsage]


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


def examine(index: int, seed: int) -> list[dict[str, Any]]:
    """Both answers after both kinds of runs on one scenario."""
    world, rows = World.draw(index, seed), list[dict[str, Any]]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for base, make in BASES.items():
            pilot = make(world)
            for ratio in RATIOS:
                asked = question(pilot, ratio * world.pilot)
                now = planned(world, pilot, (ratio,))[ratio]
                lost = world.best(ratio * world.pilot) - float(world.truth.best(ratio * world.pilot, now, world.floor))
                done: dict[tuple[int, int, int], dict[str, float]] = {}
                for rule, share in (("draws", 1.0), ("named", None)):
                    found = ask(asked, 1, np.random.default_rng(index), share=share)
                    row: dict[str, Any] = {"scenario": index, "family": world.family, "base": base, "ratio": ratio}
                    row |= {"rule": rule, "regret": found.regret_now, "lost": lost, "runs": len(found.runs)}
                    for run in found.runs:
                        known = (run.group_size, run.update_steps, run.seed)
                        if known not in done:
                            done[known] = made(world, pilot, run, ratio, now)
                        row |= {"above": run.group_size > max(n for n, _, _ in pilot.steps)}
                        row |= {"said": found.saving, "group_size": run.group_size, "share": run.share, **done[known]}
                    rows.append(row)
    return rows


def summarise(rows: Sequence[dict[str, Any]]) -> str:
    """Shares that came true, then named and realised savings."""
    lines = ["| n of the run | target | runs | benefit by the draws | came true | share |", "|---" * 6 + "|"]
    rng = np.random.default_rng(0)
    for above in (False, True):
        for ratio in RATIOS:
            some = [r for r in rows if r["rule"] == "draws" and r["ratio"] == ratio and r.get("above") == above]
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
    lines += ["", "| after | target | rule | asked | none worth it | said | saved | saved over all asked |"]
    lines.append("|---" * 8 + "|")
    for base in BASES:
        for ratio in RATIOS:
            for rule in ("draws", "named"):
                every = [r for r in rows if (r["rule"], r["ratio"], r["base"]) == (rule, ratio, base)]
                some = [r for r in every if r["runs"]]
                said = f"{np.mean([r['said'] for r in some]):.4f}" if some else "-"
                saved = _mean([r["saved"] for r in some]) if some else "-"
                over = _mean([r.get("saved", 0.0) for r in every]) if every else "-"
                lines.append(
                    f"| {base} | {ratio:g} x | {rule} | {len(every)} | {len(every) - len(some)} | {said} | {saved} | "
                    f"{over} |"
                )
    lines += ["", "| after | target | expected regret | true regret |", "|---|---|---|---|"]
    for base in BASES:
        for ratio in RATIOS:
            some = [r for r in rows if (r["rule"], r["ratio"], r["base"]) == ("draws", ratio, base)]
            if some:
                lines.append(
                    f"| {base} | {ratio:g} x | {np.mean([r['regret'] for r in some]):.4f} | "
                    f"{_mean([r['lost'] for r in some])} |"
                )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> str:
    """Mean with its 95 % interval."""
    return f"{np.mean(values):.4f} ± {1.96 * float(np.std(values)) / np.sqrt(len(values)):.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare named and realised savings."""
    return carry_out(arguments, __doc__, "next_runs.jsonl", examine, summarise)


if __name__ == "__main__":
    sys.exit(main())
