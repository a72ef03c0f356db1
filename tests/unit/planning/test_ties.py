"""Two group sizes whose difference the runs decide are not called a tie, however small it is."""

from __future__ import annotations

import re

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
        for seed in range(5):
            columns["n"] += [n] * len(compute)
            columns["seed"] += [seed] * len(compute)
            columns["C"] += compute.tolist()
            columns["avg@4"] += (reward + rng.normal(0.0, 0.002, len(compute))).tolist()
    fits = iso.fit(RunSet.from_columns(columns, problems_per_batch=32), draws=100)
    planner = Planner(fits)
    plan = planner.allocate("1M", spend="all", mode="conservative")
    kinds: dict[str, list[int]] = {}
    for other in plan.alternatives:
        if other.kind not in ("near-tie", "close"):
            continue
        kinds.setdefault(other.kind, []).append(other.group_size)
        drawn_D = fits.draws(other.rollouts, other.group_size, other.problems_per_batch)[:, 0]
        low, high = np.quantile(plan.reward_draws() - drawn_D, (0.1, 0.9))
        if other.group_size > max(SIZES):
            # An n that was never run is not called equal.
            assert other.kind == "close", other
            continue
        assert (low > 0 or high < 0) == (other.kind == "close"), other
        # The comparison says the same.
        found = planner.compare((other.group_size, 32, other.update_steps), "1M")
        assert ("as good as" in found.verdict) <= (other.kind == "near-tie")
    assert any(n in SIZES for n in kinds["close"])
    assert kinds["near-tie"]


def test_verdict_and_alternatives_name_the_same_ties() -> None:
    steps = {
        8: (0, 40, 74, 158, 293, 631, 1166, 2512),
        32: (0, 10, 18, 40, 74, 158, 293, 541),
        128: (0, 2, 5, 10, 18, 40, 74, 136),
    }
    rewards = {
        8: (0.427, 0.586, 0.635, 0.704, 0.762, 0.822, 0.856, 0.901),
        32: (0.427, 0.519, 0.556, 0.614, 0.691, 0.758, 0.818, 0.849),
        128: (0.427, 0.457, 0.513, 0.478, 0.544, 0.618, 0.693, 0.784),
    }
    columns = {
        "n": [n for n in steps for _ in steps[n]],
        "step": [step for n in steps for step in steps[n]],
        "avg@4": [reward for n in rewards for reward in rewards[n]],
    }
    plan = Planner(iso.fit(RunSet.from_columns(columns, problems_per_batch=16), draws=200)).allocate("900k")
    assert plan.verdict.kind == "tie"
    equal = {plan.group_size, *(a.group_size for a in plan.alternatives if a.kind == "near-tie")}
    assert len(equal) > 2
    listed = re.findall(r"\d+", plan.verdict.sentence.partition(" tie")[0])
    assert {int(n) for n in listed} == equal
