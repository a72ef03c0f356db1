"""Two group sizes whose difference the runs decide are not called a tie, however small it is."""

from __future__ import annotations

import numpy as np

import isocompute_sdk as iso
from isocompute_sdk import Planner, RunSet

SIZES = (8, 16, 32, 64)


def test_a_difference_that_is_decided_is_no_near_tie() -> None:
    rng = np.random.default_rng(0)
    compute = np.concatenate([[0.0], np.geomspace(2e4, 4e6, 60)])
    columns: dict[str, list[float]] = {"n": [], "seed": [], "C": [], "avg@4": []}
    for n in SIZES:
        reward = 0.4 + (0.2 + 0.0047 * np.log2(n / 8)) * -np.expm1(-compute / 3e4)
        for seed in (0, 1):
            columns["n"] += [n] * len(compute)
            columns["seed"] += [seed] * len(compute)
            columns["C"] += compute.tolist()
            columns["avg@4"] += (reward + rng.normal(0.0, 0.002, len(compute))).tolist()
    fits = iso.fit(RunSet.from_columns(columns, problems_per_batch=32), draws=100)
    planner = Planner(fits)
    plan = planner.allocate("1M", spend="all")
    kinds: dict[str, list[int]] = {}
    for other in plan.alternatives:
        if other.kind not in ("near-tie", "close"):
            continue
        kinds.setdefault(other.kind, []).append(other.group_size)
        drawn_D = fits.draws(other.rollouts, other.group_size, other.problems_per_batch)[:, 0]
        low, high = np.quantile(plan.reward_draws() - drawn_D, (0.1, 0.9))
        assert (low > 0 or high < 0) == (other.kind == "close"), other
        # The comparison says the same.
        found = planner.compare((other.group_size, 32, other.update_steps), "1M")
        assert ("as good as" in found.verdict) <= (other.kind == "near-tie")
    assert kinds["close"]
    assert kinds["near-tie"]
    (note,) = [one for one in plan.notes if one.code == "near-tie"]
    assert set(note.data["group_sizes"]) == {plan.group_size, *kinds["near-tie"]}
