"""Fits that planner tests share, each made once."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute_sdk import (
    Budget,
    Fits,
    Hardware,
    Plan,
    Planner,
    Throughput,
    fit,
    published,
    published_prior,
)
from tests.unit.sweeps import Make, saturating

PLATEAU = {8: 0.55, 32: 0.60, 128: 0.66, 512: 0.74}
FOUR = saturating(PLATEAU, {8: 1e5, 32: 3e5, 128: 1e6, 512: 3.5e6}, 0.40)


def reward(n: int, bp: int, c: float) -> float:
    """Four saturating curves from a common start; B_p costs a little."""
    return FOUR(n, bp, c) - 2e-4 * float(np.log2(bp / 32))


@pytest.fixture(scope="session")
def fitted(make_runs: Make) -> Fits:
    """A sweep at B_p = 32, seen to 20 M rollouts."""
    return fit(make_runs(reward, compute=np.geomspace(2e4, 2e7, 24)), points="all", draws=20, method="paper")


@pytest.fixture(scope="session")
def fitted_many(make_runs: Make) -> Fits:
    """A sweep over B_p as well, in which B_p = 1024 was run with small groups only."""
    levels = [(n, bp) for bp in (32, 128, 1024) for n in PLATEAU if n * bp <= 65_536]
    return fit(make_runs(reward, levels, np.geomspace(2e4, 2e7, 24)), points="all", draws=5, method="paper")


@pytest.fixture(scope="session")
def plans(make_runs: Make) -> dict[str, Plan]:
    """A plan from fits of every method, and one in money with a deadline."""
    runs = make_runs(model="Qwen/Qwen3-4B", n_problems=6000)
    surface, paper = (fit(runs, draws=4, method=method) for method in ("surface", "paper"))
    speed = Throughput(
        step_overhead_seconds=20, rollouts_per_second=93.3, tokens_per_rollout=800, gpus=16, usd_per_gpu_hour=2.5
    )
    money = Budget(usd=900, deadline_hours=24, spent={"pilot": 100})
    source = published("qwen2.5-7b-instruct/guru-math-easy")
    return {
        "surface": Planner(surface, Hardware(max_rollouts_per_batch=16_384)).allocate("3M"),
        "paper": Planner(paper).allocate("3M"),
        "prior": Planner(published_prior()).allocate("3M", n_problems=6000),
        "published": Planner(source, Hardware(max_rollouts_per_batch=65_536, gpus=8)).allocate("3M"),
        "timed": Planner(surface, Hardware(gpus=16), throughput=speed).allocate(money),
    }
