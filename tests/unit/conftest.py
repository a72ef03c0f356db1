"""Synthetic sweeps with a known answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from isocompute_sdk.records import RunSet

COMPUTE = tuple(np.geomspace(2e4, 4e6, 25))
Reward = Callable[[int, int, float], float]


def easy_like(n: int, bp: int, compute: float) -> float:
    """Larger n rises later and higher; B_p costs a little."""
    return 0.35 + (0.08 + 0.04 * np.log2(n)) * -np.expm1(-compute / (2e4 * n)) - 1e-3 * np.log2(bp / 32)


@pytest.fixture(scope="session")
def make_runs() -> Callable[..., RunSet]:
    """A sweep whose rewards are a function of (n, B_p, C)."""

    def make(
        reward: Reward = easy_like,
        levels: Iterable[tuple[int, int]] = ((8, 32), (32, 32), (128, 32), (512, 32)),
        compute: Sequence[float] | np.ndarray = COMPUTE,
        metric: str = "avg@4",
        **constants: object,
    ) -> RunSet:
        rows = [(n, bp, float(c), float(reward(n, bp, float(c)))) for n, bp in levels for c in compute]
        columns = {name: [row[i] for row in rows] for i, name in enumerate(("n", "bp", "C", "reward"))}
        return RunSet.from_columns(columns, metric=metric, **constants)

    return make
