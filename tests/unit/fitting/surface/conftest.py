"""Sweeps as the surface receives them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from isocompute_sdk.fitting.surface.data import SurfaceRun

MakeRun = Callable[..., SurfaceRun]
MakeSweep = Callable[..., list[SurfaceRun]]


def expected(n: int, compute_T: np.ndarray) -> np.ndarray:
    """Larger n rises later and higher."""
    plateau, tau = 0.45 + 0.03 * np.log2(n), 2e4 * n**0.7
    return plateau - (plateau - 0.35) * np.exp(-compute_T / tau)


@pytest.fixture(scope="session")
def make_run() -> MakeRun:
    """One run of a given reward curve with independent noise."""

    def make(
        reward: Callable[[np.ndarray], np.ndarray],
        compute: np.ndarray,
        *,
        noise: float = 0.0,
        seed: int = 0,
        group_size: int = 8,
        problems_per_batch: int | None = 32,
        run_id: str = "run",
    ) -> SurfaceRun:
        compute_T = np.asarray(compute, dtype=float)
        values_T = reward(compute_T) + noise * np.random.default_rng(seed).standard_normal(len(compute_T))
        return SurfaceRun(run_id, group_size, problems_per_batch, compute_T, values_T)

    return make


@pytest.fixture(scope="session")
def make_sweep(make_run: MakeRun) -> MakeSweep:
    """Four group sizes, evaluated at step 0 and forty times after."""

    def make(
        levels: tuple[int, ...] = (4, 16, 64, 256),
        noise: float = 0.01,
        last: float = 1e6,
        seeds: int = 1,
        points: int = 40,
    ) -> list[SurfaceRun]:
        compute = np.concatenate([[0.0], np.geomspace(last / 500, last, points)])
        return [
            make_run(
                lambda c, n=n: expected(n, c),
                compute,
                noise=noise,
                seed=1000 * seed + n,
                group_size=n,
                run_id=f"n{n}-seed{seed}",
            )
            for n in levels
            for seed in range(seeds)
        ]

    return make
