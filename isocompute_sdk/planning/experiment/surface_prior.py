"""What is believed of reward curves before anything was run: a surface drawn from a prior alone.

Steps along n are those of the one prior of the fits (`fitting.surface.model.Prior`), and half of the draws have its
level of the midpoint, relative to the budget: who has a budget expects to see most of the rise with it. The other half
are half-way where published reward curves are (Qwen2.5-7B on Guru-Math Easy and Hard, `laws/data`: 1.5e5 to 1.5e6
rollouts at B_p = 32), later for larger n. No number comes from the simulator.
"""

from __future__ import annotations

import math

import numpy as np

from isocompute_sdk.fitting.surface.decline import NEVER, OF_THE_RECIPE, RATE, STEP, Declines
from isocompute_sdk.fitting.surface.model import Layout
from isocompute_sdk.fitting.surface.shapes import UNIT_SHAPES
from isocompute_sdk.fitting.surface.surface import DEFAULT_PRIOR, Surface

SIZES = (8, 1024)
"""Smallest and largest n of the belief."""
BASE = (0.03, 0.6)
"""Range of the base model's reward."""
PUBLISHED_HALF = math.log(3.5e5)
"""ln C at which published curves are half-way at n = 64 and B_p = 32."""
REFERENCE_SIZE, REFERENCE_PROBLEMS = 64, 32
NOISE = 0.012
"""Standard deviation of one evaluation: .010 to .012 on the published Easy curves."""
DRAWS = 250


def prior_surface(compute: float, problems_per_batch: int, rng: np.random.Generator) -> Surface:
    """Draws of the surface before any run.

    Args:
        compute: the budget, in rollouts.
        problems_per_batch: B_p at which it is laid out, normally the recipe's floor.
        rng: randomness.
    """
    knots = np.arange(math.log2(SIZES[0]), math.log2(SIZES[1]) + 1.0, dtype=np.float64)
    layout = Layout(knots, float(knots.mean()), float(problems_per_batch), None, 1.0, 0.0)
    middle = float(knots[len(knots) // 2])
    base_D = rng.uniform(*BASE, DRAWS)
    published = PUBLISHED_HALF + DEFAULT_PRIOR.midpoint_step[0] * (middle - math.log2(REFERENCE_SIZE))
    published += DEFAULT_PRIOR.problems_midpoint[0] * math.log2(problems_per_batch / REFERENCE_PROBLEMS)
    midpoint_D = np.where(rng.random(DRAWS) < 0.5, published, math.log(compute))
    # W theta - w is standard normal: its solution with noise added to w is a draw.
    theta_DP = np.empty((DRAWS, layout.size))
    for kind in range(kinds := len(DEFAULT_PRIOR.kinds)):
        rows, wanted = layout.prior_rows(DEFAULT_PRIOR, 0.0, (0.0, 1.0), kind)
        mine_DP = theta_DP[kind::kinds]
        mine_DP[:] = (wanted + rng.standard_normal((len(mine_DP), len(wanted)))) @ np.linalg.pinv(rows).T
    count = len(knots)
    theta_DP[:, 0] = base_D
    theta_DP[:, 1 + count : 1 + 2 * count] += midpoint_D[:, None]
    shapes = tuple(UNIT_SHAPES)
    onset_D = midpoint_D + rng.uniform(1.5, 5.0, DRAWS)
    declines = Declines(
        np.where(rng.random(DRAWS) < OF_THE_RECIPE, onset_D, NEVER),
        STEP[0] + STEP[1] * rng.standard_normal(DRAWS),
        RATE[0] * np.exp(RATE[1] * rng.standard_normal(DRAWS)),
        OF_THE_RECIPE,
    )
    return Surface(
        layout=layout,
        shape_D=tuple(shapes[i % len(shapes)] for i in range(DRAWS)),
        parameters_DP=theta_DP,
        noise=NOISE,
        run_share=DEFAULT_PRIOR.run_share,
        run_midpoint=DEFAULT_PRIOR.run_midpoint,
        largest_compute=float(compute),
        declines=declines,
    )
