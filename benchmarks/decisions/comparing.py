"""One data set, four questions: the tables of docs/comparing.md.

    python benchmarks/decisions/comparing.py

Small n against larger n at equal steps, rollouts, hours and batch, on a simulated sweep with a known truth and on the
digitised evaluations of fig. 6 of the IsoCompute Playbook (arXiv 2603.12151; Qwen2.5-7B-Instruct, Easy, B_p = 32).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

import isocompute_sdk as iso
from isocompute_sdk import Planner, RunSet, Throughput
from isocompute_sdk.laws import measured_easy
from isocompute_sdk.planning.comparing import EQUALS, PlanComparison

PROBLEMS_PER_BATCH = 32
SPEED = Throughput(step_overhead_seconds=20.0, rollouts_per_second=30.0, gpus=8)
"""A step of 64 rollouts takes 22 s, one of 512 takes 37 s."""
SIZES = (2, 4, 8, 16, 32)
LARGER_BATCH = 256
"""B_p of three more simulated runs, n = 2, 4 and 8."""
NOISE = 0.01
"""Standard deviation of one simulated evaluation."""
LARGEST = 2e6
SEED = 5
SIMULATED_STEPS = (100, 400, 1_900, 3_800)
"""Steps of n = 16. 1,900 are 10 epochs of 6,000 problems in batches of 32."""
DIGITISED_STEPS = (200, 500, 1_000, 1_900)
SIMULATED_ROLLOUTS = (3e4, 1e5, 3e5, 1e6, 2e6)
DIGITISED_ROLLOUTS = (2.5e5, 5e5, 1e6, 2e6, 4e6)


@dataclass(frozen=True)
class Row:
    """A small n compared with a larger one, which takes so many steps."""

    steps: int
    found: PlanComparison

    @property
    def differences(self) -> dict[str, iso.Estimate]:
        """Reward of the larger n less that of the smaller one, by what is equal."""
        return {name: self.found.at_equal[name].difference for name in EQUALS if name in self.found.at_equal}


def true_reward(
    rollouts: npt.ArrayLike, group_size: npt.ArrayLike, problems_per_batch: int = PROBLEMS_PER_BATCH
) -> npt.NDArray[np.float64]:
    """The simulated law: a larger n rises later, to a slightly higher plateau; a larger B_p a little later."""
    octaves = np.log2(np.asarray(group_size, dtype=float) / 2)
    scale = 3e4 * 2.0 ** (0.9 * octaves) * (problems_per_batch / PROBLEMS_PER_BATCH) ** 0.1
    rise = -np.expm1(-np.asarray(rollouts, dtype=float) / scale)
    return np.asarray(0.40 + (0.16 + 0.005 * octaves) * rise, dtype=float)


@cache
def simulated() -> Planner:
    """A planner on a noisy sweep of the simulated law."""
    rng = np.random.default_rng(SEED)
    compute = np.concatenate([[0.0], np.geomspace(4e3, LARGEST, 40)])
    columns: dict[str, list[float]] = {"n": [], "bp": [], "C": [], "avg@4": []}
    for n, problems in [(n, PROBLEMS_PER_BATCH) for n in SIZES] + [(n, LARGER_BATCH) for n in SIZES[:3]]:
        columns["n"] += [n] * len(compute)
        columns["bp"] += [problems] * len(compute)
        columns["C"] += compute.tolist()
        measured = true_reward(compute, n, problems) + rng.normal(0.0, NOISE, len(compute))
        columns["avg@4"] += measured.tolist()
    return Planner(iso.fit(RunSet.from_columns(columns)), throughput=SPEED)


@cache
def digitised() -> Planner:
    """A planner on the dots of the figure."""
    table, context = measured_easy()
    return Planner(iso.fit(RunSet.from_columns(table, metric="avg@4", **context)), throughput=SPEED)


@cache
def rows(planner: Planner, small: int, large: int, steps: tuple[int, ...]) -> list[Row]:
    """The small n against the large one, which takes these steps."""
    return [
        Row(
            m,
            planner.compare(
                (small, PROBLEMS_PER_BATCH),
                large * PROBLEMS_PER_BATCH * m,
                reference=(large, PROBLEMS_PER_BATCH, m),
                equal="steps",
            ),
        )
        for m in steps
    ]


def table(found: list[Row]) -> list[str]:
    """The rows as a Markdown table: reward of the larger n less that of the smaller one, with 80 % intervals."""
    plan = found[0].found.plan
    lines = [
        f"| steps of n = {plan.group_size} | its rollouts | equal steps | equal rollouts | equal hours | equal batch |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        cells = [
            "-" if name not in row.differences else _cell(row.differences[name])
            for name in ("steps", "rollouts", "time", "batch")
        ]
        lines.append(f"| {row.steps:,} | {row.found.plan.rollouts:,} | {' | '.join(cells)} |")
    return lines


def best_at_equal_rollouts(planner: Planner, computes: tuple[float, ...]) -> list[str]:
    """The n that was run with the largest predicted reward, by compute, as a Markdown table."""
    fits = planner.fits
    sizes = np.array(fits.group_sizes)
    rewards = [fits.predict(np.full(len(sizes), c), sizes).mean for c in computes]
    best = [int(sizes[int(np.argmax(reward))]) for reward in rewards]
    return [
        f"| rollouts of every n | {' | '.join(f'{c:,.0f}' for c in computes)} |",
        f"|{'---|' * (len(computes) + 1)}",
        f"| best n | {' | '.join(map(str, best))} |",
    ]


def _cell(difference: iso.Estimate) -> str:
    return f"{difference.mean:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"


def tables() -> list[list[str]]:
    """Every table of the page, in its order."""
    made, drawn = simulated(), digitised()
    return [
        table(rows(made, 2, 16, SIMULATED_STEPS)),
        best_at_equal_rollouts(made, SIMULATED_ROLLOUTS),
        table(rows(drawn, 8, 16, DIGITISED_STEPS)),
        table(rows(drawn, 8, 128, DIGITISED_STEPS)),
        best_at_equal_rollouts(drawn, DIGITISED_ROLLOUTS),
    ]


def main() -> None:
    """Print the tables."""
    argparse.ArgumentParser(description="The tables of docs/comparing.md.").parse_args()
    for lines in tables():
        print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()
