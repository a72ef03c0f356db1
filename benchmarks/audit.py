"""Do an audit's intervals hold, and are its verdicts right? On simulated sweeps with known truth.

    python benchmarks/audit.py --seed 70001 --sweeps 120

For every run that is held against another configuration: whether the true difference to that configuration, and the
true cost of equal reward along the same configurations, lie in their 80 % intervals; and how often `behind` and
`about equal` are said wrongly.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

import isocompute_sdk as iso
from isocompute_sdk.auditing.audit_runs import Field
from isocompute_sdk.auditing.result import STANDINGS
from isocompute_sdk.tolerances import EQUAL
from isocompute_simulator.scenario import draw_scenario


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=70001)
    parser.add_argument("--sweeps", type=int, default=120)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    held: dict[str, list[tuple[bool, bool]]] = {}
    said: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for _ in range(arguments.sweeps):
        scenario = draw_scenario(rng)
        found = iso.audit(scenario.runs)
        for group in found.groups:
            if group.fits is None:
                continue
            path = Field.of(group.fits, group.runs).path(None)
            along = [scenario.true_reward(c, *key) for c, key in zip(path.compute_G, path.best_G, strict=True)]
            best_G = np.maximum.accumulate(np.array(along, dtype=float))
            for run in group.runs:
                if run.behind is None or run.equal_reward is None or run.standing in ("best", "alone"):
                    continue
                own = float(scenario.true_reward(run.useful, run.group_size, run.problems_per_batch))
                other = float(scenario.true_reward(run.rollouts, run.best_group_size or 2, run.best_problems_per_batch))
                cost = float(np.exp(np.interp(own, best_G, np.log(path.compute_G), right=np.inf)))
                low, high = run.equal_reward.low, run.equal_reward.high
                gap = run.behind.low <= other - own <= run.behind.high
                held.setdefault(scenario.family, []).append((gap, low <= cost <= high))
                said[run.standing] += 1
                wrong[run.standing] += run.standing == "behind" and other <= own
                wrong[run.standing] += run.standing == "level" and abs(other - own) > 2 * EQUAL
    print("| family | runs | behind: 80 % interval holds | equal reward: 80 % interval holds |\n|---|---|---|---|")
    for family, outcomes in [("all", [o for found in held.values() for o in found]), *sorted(held.items())]:
        gap, cost = np.mean(np.array(outcomes, dtype=float), axis=0)
        print(f"| {family} | {len(outcomes)} | {gap:.2f} | {cost:.2f} |")
    print("\n| said | times | wrongly |\n|---|---|---|")
    for word, times in said.most_common():
        print(f"| {STANDINGS[word]} | {times} | {wrong[word]} |")


if __name__ == "__main__":
    main()
