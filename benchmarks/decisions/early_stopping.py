"""How often `hopeless` stops the run that would have won, and how many of the pilot's rollouts it saves.

    python benchmarks/decisions/early_stopping.py --scenarios 300 --output stopping.jsonl  # the same command continues
    python benchmarks/decisions/early_stopping.py --summary stopping.jsonl

Tasks and pilots of `pilot.py`: n = 8, 32, 128, 512 (or eight n) at the floor of B_p, equal rollouts. All runs go on
side by side and are looked at after a third and two thirds of their length, as campaigns do. The winner is the n of the
pilot that is truly best at 3 P or 10 P. It trails if another n of the pilot is truly ahead at every compute up to 80 %
of the runs' length: judged at present compute, it would be stopped.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from pilot import EIGHT, FOUR, Pilot, World, carry_out, fitted

from isocompute_sdk.planning.experiment import hopeless
from isocompute_sdk.planning.experiment.early_stopping import CHANCE

LOOKS = (1 / 3, 2 / 3)
RATIOS = (3.0, 10.0)
TRAILING_SHARE = 0.8
CUTS = (0.05, 0.1, 0.2, 0.3, 0.4)
"""Chances below which a run would be stopped, to compare with the one in use."""


def examine(index: int, seed: int) -> list[dict[str, Any]]:
    """One scenario: for each target and cut, whether the winner was stopped, and the share of rollouts saved."""
    world = World.draw(index, seed)
    sizes = FOUR if index % 2 else EIGHT
    length = world.pilot / len(sizes)
    steps = {n: max(3, int(length / (n * world.floor))) for n in sizes}
    fits = {}
    for share in LOOKS:
        pilot = Pilot(world)
        for n in sizes:
            pilot.run((n, world.floor, 0), max(1, round(share * steps[n])))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fits[share] = fitted(pilot)
    rows: list[dict[str, Any]] = []
    for ratio in RATIOS:
        target = ratio * world.pilot
        true = [float(world.truth.best(target, n, world.floor)) for n in sizes]
        winner = sizes[int(np.argmax(true))]
        prospects = {
            share: {
                n: hopeless(fits[share], (n, world.floor, float(round(share * steps[n]) * n * world.floor)), target)
                for n in sizes
            }
            for share in LOOKS
        }
        for cut in CUTS:
            stopped: dict[int, float] = {}
            for share in LOOKS:
                for n in sizes:
                    one = prospects[share][n]
                    # Before the target nobody stops the last run.
                    if n not in stopped and one.judged and one.chance < cut and len(stopped) < len(sizes) - 1:
                        stopped[n] = share
            rows.append(
                {
                    "scenario": index,
                    "family": world.family,
                    "ratio": ratio,
                    "cut": cut,
                    "trails": _trails(world, sizes, winner, length),
                    "winner_stopped": winner in stopped,
                    "loss": max(true)
                    - max((t for t, n in zip(true, sizes, strict=True) if n not in stopped), default=0.0),
                    "saved": sum(1 - share for share in stopped.values()) / len(sizes),
                }
            )
    return rows


def _trails(world: World, sizes: Sequence[int], winner: int, length: float) -> bool:
    """Whether another n of the pilot is truly ahead of the winner all along the first 80 % of the runs."""
    at = np.linspace(0.1, TRAILING_SHARE, 15) * length
    reward = np.stack([world.truth.best(at, n, world.floor) for n in sizes])
    return bool(np.all(reward.max(axis=0) > reward[list(sizes).index(winner)] + 1e-6))


def summarise(rows: Sequence[dict[str, Any]]) -> str:
    """One line per target and cut, as Markdown; the cut in use is marked."""
    scenarios = len({row["scenario"] for row in rows})
    lines = [
        f"{scenarios} scenarios",
        "",
        "| target | stopped below | trailing winners | of them stopped | other winners stopped | lost reward | saved |",
        "|---|---|---|---|---|---|---|",
    ]
    for ratio in RATIOS:
        for cut in CUTS:
            some = [row for row in rows if row["ratio"] == ratio and row["cut"] == cut]
            late = [row["winner_stopped"] for row in some if row["trails"]]
            early = [row["winner_stopped"] for row in some if not row["trails"]]
            lines.append(
                f"| {ratio:g} x | {cut:g}{' (in use)' if cut == CHANCE else ''} | {len(late)} | {np.mean(late):.1%} | "
                f"{np.mean(early):.1%} | {np.mean([r['loss'] for r in some]):.4f} | "
                f"{np.mean([r['saved'] for r in some]):.1%} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Stop runs early on scenarios."""
    return carry_out(arguments, __doc__, "stopping_results.jsonl", examine, summarise)


if __name__ == "__main__":
    sys.exit(main())
