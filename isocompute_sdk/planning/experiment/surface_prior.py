"""What is believed of reward curves before anything was run: a surface drawn from a prior alone.

Spread of the parameters: the prior of the fits (`fitting.surface.model.Prior`), with steps along n wide enough that
the best n at a million rollouts varies between models as much as the published plateaus do (16 to 512). Levels: the
published reward curves (Qwen2.5-7B on Guru-Math Easy and Hard, `laws/data`) are half-way at 1.5e5 to 1.5e6 rollouts at
B_p = 32, later for larger n; half of the draws follow them. The other half follow the budget instead: who has a budget
expects to see most of the rise with it. No number comes from the simulator.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from isocompute_sdk.fitting.surface.decline import NEVER, OF_THE_RECIPE, RATE, STEP, Declines
from isocompute_sdk.fitting.surface.misfit import sample_misfit
from isocompute_sdk.fitting.surface.model import Layout
from isocompute_sdk.fitting.surface.shapes import UNIT_SHAPES
from isocompute_sdk.fitting.surface.surface import DEFAULT_PRIOR, Surface

SIZES = (8, 1024)
"""Smallest and largest n of the belief."""
WIDE = replace(
    DEFAULT_PRIOR,
    share_step=(0.08, 0.35),
    share_bend=(-0.06, 0.1),
    midpoint_step=(0.35, 0.35),
    share_level_sd=0.8,
    midpoint_level_sd=0.3,
)
BASE = (0.03, 0.6)
"""Range of the base model's reward."""
PUBLISHED_HALF, PUBLISHED_SPREAD = math.log(3.5e5), 0.9
"""ln C at which published curves are half-way at n = 64 and B_p = 32, and its spread between sets."""
REFERENCE_SIZE, REFERENCE_PROBLEMS = 64, 32
BUDGET_HALF, BUDGET_SPREAD = -2.0, 1.0
"""The same relative to the logarithm of the budget."""
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
    layout = Layout(knots, float(knots.mean()), float(problems_per_batch), None, None, 1.0, 0.0)
    middle = float(knots[len(knots) // 2])
    base_D = rng.uniform(*BASE, DRAWS)
    share_gain_D = rng.uniform(0.08, 0.5, DRAWS)
    published = PUBLISHED_HALF + WIDE.midpoint_step[0] * (middle - math.log2(REFERENCE_SIZE))
    published += WIDE.problems_midpoint[0] * math.log2(problems_per_batch / REFERENCE_PROBLEMS)
    follows = rng.random(DRAWS) < 0.5
    midpoint_D = np.where(
        follows,
        published + PUBLISHED_SPREAD * rng.standard_normal(DRAWS),
        math.log(compute) + BUDGET_HALF + BUDGET_SPREAD * rng.standard_normal(DRAWS),
    )
    # W theta - w is standard normal: its solution with noise added to w is a draw.
    rows, wanted = layout.prior_rows(WIDE, 0.0, 0.0, (0.0, 1.0), rough=False)
    inverse = np.linalg.pinv(rows)
    theta_DP = (wanted + rng.standard_normal((DRAWS, len(wanted)))) @ inverse.T
    count = len(knots)
    theta_DP[:, 0] = base_D
    theta_DP[:, 1 : 1 + count] += np.log(share_gain_D / (1.0 - share_gain_D))[:, None]
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
        run_share=WIDE.run_share,
        run_midpoint=WIDE.run_midpoint,
        largest_compute=float(compute),
        declines=declines,
        misfit=sample_misfit(np.zeros(DRAWS), count, rng),
    )
