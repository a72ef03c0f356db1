"""How often `prospects` stops the run that would have won, and how many of the pilot's rollouts that saves.

    python benchmarks/decisions/early_stopping.py --scenarios 600 --output stopping.jsonl  # the same command continues
    python benchmarks/decisions/early_stopping.py --summary stopping.jsonl

Tasks of `pilot.py`, eight or four n at the floor of B_p, equal rollouts. All runs go on side by side and are looked at
as in campaigns; every fit sees stopped runs as far as they went. The winner is the n of the pilot that is truly best at
3 P or 10 P. It trails if another n of the pilot is truly ahead at every compute up to 80 % of the runs' length: judged
at present compute, it would be stopped. It is lost if no n that goes on comes within .005 of its true reward: many
winners are that close to another n, and stopping one of two equals costs nothing. The regret of the plan is that of
`pilot.py`: at the target, after the whole pilot and after the one with stopped runs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pilot import EIGHT, FOUR, MIN_UPDATE_STEPS, Pilot, World, carry_out, fitted, scenario_parser

import isocompute_sdk as iso
from isocompute_sdk.fitting.surface.answers import group_size_odds
from isocompute_sdk.planning import trials
from isocompute_sdk.planning.trials import LOOKS, prospects

RATIOS = (3.0, 10.0)
TRAILING_SHARE = 0.8
TIED = 0.005
"""True reward within which another n makes up for a stopped winner."""
CUTS = (0.03, 0.05, 0.07, 0.1)
"""Probabilities below which a run is stopped, to compare with the one in use."""


def examine(index: int, seed: int) -> list[dict[str, Any]]:
    """One scenario: for each target and cut, whether the winner was stopped or lost, and what was saved."""
    world = World.draw(index, seed)
    # Of each family every other scenario has four n.
    sizes = FOUR if (index // 12 + index) % 2 else EIGHT
    length = world.pilot / len(sizes)
    whole = {n: max(3, int(length / (n * world.floor))) for n in sizes}
    known: dict[tuple[int, ...], iso.Fits] = {}

    def fit(steps: dict[int, int]) -> iso.Fits:
        key = tuple(steps[n] for n in sizes)
        if key not in known:
            pilot = Pilot(world)
            for n in sizes:
                pilot.run((n, world.floor, 0), steps[n])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                known[key] = fitted(pilot)
        return known[key]

    rows: list[dict[str, Any]] = []
    for ratio in RATIOS:
        target = ratio * world.pilot
        true = {n: float(world.truth.best(target, n, world.floor)) for n in sizes}
        winner = max(sizes, key=lambda n: true[n])
        for cut in CUTS:
            stopped = _stopped(fit, whole, world.floor, target, cut)
            left = [true[n] for n in sizes if n not in stopped]
            rows.append(
                {
                    "scenario": index,
                    "family": world.family,
                    "ratio": ratio,
                    "cut": cut,
                    "trails": _trails(world, sizes, winner, length),
                    "winner_stopped": winner in stopped,
                    "loss": true[winner] - max(left),
                    "saved": sum(1 - m / whole[n] for n, m in stopped.items()) / len(sizes),
                    "regret_whole": world.regret(target, _planned(fit(whole), sizes, world.floor, target)),
                    "regret": world.regret(target, _planned(fit(whole | stopped), sizes, world.floor, target)),
                }
            )
    return rows


def _stopped(
    fit: Callable[[dict[int, int]], iso.Fits], whole: dict[int, int], floor: int, target: float, cut: float
) -> dict[int, int]:
    """Steps at which the hopeless runs end."""
    stopped = dict[int, int]()
    for share in LOOKS:
        going = [n for n in whole if n not in stopped]
        steps = {n: stopped.get(n, max(1, round(share * whole[n]))) for n in whole}
        trials.CHANCE = cut
        found = prospects(fit(steps), [(n, floor, float(steps[n] * n * floor)) for n in going], target)
        stopped |= {n: steps[n] for n, one in zip(going, found, strict=True) if one.hopeless}
    return stopped


def _planned(fits: iso.Fits, sizes: Sequence[int], floor: int, target: float) -> int:
    """The n that the planner chooses, as in `pilot.py`."""
    able = [n for n in (2**i for i in range(1, 31)) if sizes[0] <= n <= 2 * sizes[-1]]
    able = [n for n in able if n * floor * MIN_UPDATE_STEPS <= target]
    spent = [float(int(target / (n * floor)) * n * floor) for n in able]
    assert fits.surface is not None, "pilot.py fits surfaces"
    return able[group_size_odds(fits.surface, max(spent), able, float(floor), sizes[-1], spent).best()]


def _trails(world: World, sizes: Sequence[int], winner: int, length: float) -> bool:
    """Whether another n of the pilot is truly ahead of the winner all along the first 80 % of the runs."""
    at = np.linspace(0.1, TRAILING_SHARE, 15) * length
    reward = np.stack([world.truth.best(at, n, world.floor) for n in sizes])
    return bool(np.all(reward.max(axis=0) > reward[list(sizes).index(winner)] + 1e-6))


def summarise(rows: Sequence[dict[str, Any]]) -> str:
    """One line per target and cut, as Markdown; the cut in use is marked."""
    scenarios = len({row["scenario"] for row in rows})
    columns = "| target | stopped below | trailing winners | lost | stopped | other winners lost | lost reward | saved "
    columns += "| regret, whole pilot | with stopped runs |"
    lines = [f"{scenarios} scenarios", "", columns, "|---" * 10 + "|"]
    for ratio in RATIOS:
        for cut in CUTS:
            some = [row for row in rows if row["ratio"] == ratio and row["cut"] == cut]
            late, early = ([row for row in some if row["trails"] == trails] for trails in (True, False))

            def mean(key: str, rows: Sequence[dict[str, Any]] = some) -> float:
                return float(np.mean([row[key] for row in rows]))

            lost = [np.mean([row["loss"] > TIED for row in group]) for group in (late, early)]
            lines.append(
                f"| {ratio:g} x | {cut:g}{' (in use)' if cut == IN_USE else ''} | {len(late)} | {lost[0]:.1%} | "
                f"{mean('winner_stopped', late):.1%} | {lost[1]:.1%} | {mean('loss'):.4f} | {mean('saved'):.1%} | "
                f"{mean('regret_whole'):.4f} | {mean('regret'):.4f} |"
            )
    return "\n".join(lines)


IN_USE = trials.CHANCE


def main(arguments: Sequence[str] | None = None) -> int:
    """Stop runs early on scenarios."""
    return carry_out(scenario_parser(__doc__, "stopping_results.jsonl").parse_args(arguments), examine, summarise)


if __name__ == "__main__":
    sys.exit(main())
