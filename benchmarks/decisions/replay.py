"""Replay on the paper's real points: what would each method have chosen for 4M rollouts, and what came of it?

The digitised evaluations of fig. 6 left (Easy, B_p = 32) are cut at a pilot's compute; every method decides n for a
budget of 4M rollouts; the reward is what the figure then shows for that n: the mean of its dots between 3M and 4M.
n = 8 was not run that far; its last dots stand in, which flatters nobody (they are the lowest).

    python benchmarks/decisions/replay.py
"""

from __future__ import annotations

import argparse

import numpy as np

import isocompute_sdk as iso
from isocompute_sdk import Fits, PlanError, RunSet
from isocompute_sdk.laws import measured_easy

BUDGET = 4_000_000
PILOTS = (300_000, 750_000, 1_500_000)
SEEN_BETWEEN = (3_000_000, 4_100_000)
LAST_DOTS = 10
PUBLISHED = "qwen2.5-7b-instruct/guru-math-easy"


def dots(largest: float = np.inf) -> RunSet:
    """The figure's evaluations up to a compute, as runs."""
    table, context = measured_easy()
    keep = table["C"] <= largest
    return RunSet.from_columns({name: values[keep] for name, values in table.items()}, metric="avg@4", **context)


def shown(n: int) -> float:
    """Mean reward that the figure shows for an n at the budget."""
    table, _ = measured_easy()
    mine = table["n"] == n
    late = mine & (table["C"] >= SEEN_BETWEEN[0]) & (table["C"] <= SEEN_BETWEEN[1])
    if late.any():
        return float(table["reward"][late].mean())
    order = np.argsort(table["C"][mine])
    return float(table["reward"][mine][order][-LAST_DOTS:].mean())


def best_pilot_run(pilot: RunSet) -> int:
    """N of the run whose last evaluations are best, no model."""
    ends = {s.group_size: float(np.mean(s.value_T[np.argsort(s.rollouts_T)][-5:])) for s in pilot.series("avg@4")}
    return max(ends, key=lambda n: ends[n])


def planned(fits: Fits) -> int | None:
    """N of the plan for the budget; None where there is none."""
    recipe = iso.Recipe.preset("easy")
    try:
        return iso.Planner(fits, recipe=recipe).allocate(BUDGET, problems_per_batch=32, spend="all").group_size
    except PlanError:
        return None


def law_on_grid(fits: Fits, levels: list[int]) -> int:
    """The level nearest to what a law says."""
    wanted = float(fits.law().log2(BUDGET))
    return min(levels, key=lambda n: abs(np.log2(n) - wanted))


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    levels = sorted({s.group_size for s in dots().series("avg@4")})
    best = max(levels, key=shown)
    print(f"reward at 3M to 4M by n: {', '.join(f'{n}: {shown(n):.3f}' for n in levels)}; best {best}")
    print("| decided at C <= | surface | paper's workflow | best pilot run | published law | n = 16 |")
    print("|---|---|---|---|---|---|")
    for largest in PILOTS:
        pilot = dots(largest)
        surface = planned(iso.fit(pilot))
        paper = planned(iso.fit(pilot, method="paper", draws=0))
        answers = [surface, paper, best_pilot_run(pilot), law_on_grid(iso.published(PUBLISHED), levels), 16]
        cells = [
            "no answer" if n is None else f"n = {n}: {shown(n):.3f} ({shown(n) - shown(best):+.3f})" for n in answers
        ]
        print(f"| {largest / 1e6:g}M | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
