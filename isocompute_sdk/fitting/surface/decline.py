"""Where rewards stop rising and begin to fall, as a function of n: learned over all runs of a sweep.

    ln C_on = u + g (log2 n - centre) + s log2(B_p / B_p,min) + ln(D / D_usual)

A run that fell shows its onset, one that did not shows that its onset lies later. A fall may also be a run's own
accident, and a whole recipe may have no decline at all: both have a prior probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Vector
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.model import Layout

OF_THE_RECIPE = 0.2
"""Prior probability that the recipe declines at all within reach."""
ACCIDENT = 0.1
"""Probability that a run falls, or does not, by accident."""
STEP = (0.2, 0.3)
"""Change of the onset's ln C per octave of n. Digitised: 0 on Qwen3-4B Easy from n = 64 to 128, .28 for D = 6,000 from
8 to 512; negative with D = 500 (finding 5 of the paper)."""
OF_A_RUN = 0.35
"""Standard deviation of ln C of one run's onset around its n's."""
EARLIEST, LATEST = 1.0, 3.0
"""How far, in ln C, the onset may lie before the end of the shortest run and after the end of the longest."""
UNNOTICED = 0.3
"""A decline shows this long, in ln C, after it began."""
PER_PROBLEMS_OCTAVE = 0.25
"""s: change of the onset's ln C per octave of B_p."""
RATE = (0.45, 0.6)
"""Share of the gain lost per unit of ln C: median and standard deviation of its logarithm. Digitised falls lose .28 to
.73 (Qwen3-4B Easy, D = 6,000)."""
OF_A_RATE = 0.5
"""Standard deviation of the logarithm of one run's measured rate."""
NEVER = 1e3
"""ln C of an onset that no run reaches."""
U_POINTS, G_POINTS = 41, 13


@dataclass(frozen=True)
class Declines:
    """Draws of the onset and the rate of the decline."""

    onset_D: Annotated[Vector, Field(alias="onset")]
    """ln C of the onset at the layout's centre and smallest B_p; `NEVER` in draws without a decline."""
    step_D: Annotated[Vector, Field(alias="step")]
    """Its change per octave of n."""
    rate_D: Annotated[Vector, Field(alias="rate")]
    """Share of the gain lost per unit of ln C after it."""
    probability: Annotated[float, Field(ge=0, le=1)]
    """Posterior probability that the recipe declines."""

    def __post_init__(self) -> None:
        if not len(self.onset_D) == len(self.step_D) == len(self.rate_D):
            lengths = (len(self.onset_D), len(self.step_D), len(self.rate_D))
            raise FieldError("onset", lengths, "as many onsets as steps and rates")


def shift(problems_Q: Array, set_Q: Array, layout: Layout) -> Array:
    """Change of the onset's ln C with B_p and D; NaN for either stands for the reference."""
    by_problems = PER_PROBLEMS_OCTAVE * np.nan_to_num(np.log2(problems_Q / layout.problems_reference))
    if layout.set_reference is None:
        return by_problems
    return by_problems + np.nan_to_num(np.log(set_Q / layout.set_reference))


@dataclass(frozen=True)
class Onsets:
    """Posterior over the grid of (u, g), given which runs fell, and where."""

    u_U: Array
    g_G: Array
    weight_UG: Array
    probability: float
    """Posterior probability that the recipe declines."""

    @classmethod
    def of(cls, runs: Sequence[PreparedRun], layout: Layout) -> Onsets:
        """From prepared runs with at least one bin."""
        from scipy.special import erf

        nan = float("nan")
        fell_R = np.array([run.fault == "decay" for run in runs])
        seen_R = np.log([run.fault_compute or run.last_compute for run in runs])
        x_R = np.log2([run.group_size for run in runs]) - layout.centre
        place_R = seen_R - shift(
            np.array([run.problems_per_batch or nan for run in runs], dtype=float),
            np.array([run.n_problems or nan for run in runs], dtype=float),
            layout,
        )
        low, high = float(place_R.min()) - EARLIEST, float(place_R.max()) + LATEST
        u_U = np.linspace(low, high, U_POINTS)
        g_G = STEP[0] + STEP[1] * np.linspace(-2.5, 2.5, G_POINTS)
        off_RUG = (place_R[:, None, None] - u_U[None, :, None] - x_R[:, None, None] * g_G[None, None, :]) / OF_A_RUN
        density = np.exp(-0.5 * off_RUG**2) / (OF_A_RUN * np.sqrt(2.0 * np.pi))
        later = 0.5 - 0.5 * erf((off_RUG - UNNOTICED / OF_A_RUN) / np.sqrt(2.0))
        by_chance = 1.0 / (high - low)
        model = np.where(fell_R[:, None, None], density, later)
        stray_R = np.where(fell_R, by_chance, 1.0)
        with_RUG = (1.0 - ACCIDENT) * model + ACCIDENT * stray_R[:, None, None]
        prior_G = np.exp(-0.5 * ((g_G - STEP[0]) / STEP[1]) ** 2)
        log_UG = np.log(with_RUG).sum(axis=0) + np.log(prior_G / prior_G.sum())[None, :] - np.log(U_POINTS)
        without = float(np.log(np.where(fell_R, ACCIDENT * by_chance, 1.0 - ACCIDENT)).sum())
        top = max(float(log_UG.max()), without)
        weight_UG = np.exp(log_UG - top)
        declines = OF_THE_RECIPE * float(weight_UG.sum())
        probability = declines / (declines + (1.0 - OF_THE_RECIPE) * float(np.exp(without - top)))
        return cls(u_U, g_G, weight_UG, probability)


def sample_declines(found: Onsets, runs: Sequence[PreparedRun], draws: int, rng: np.random.Generator) -> Declines:
    """Draws of onset and rate.

    Args:
        found: where declines begin.
        runs: those that it was found from.
        draws: number of draws.
        rng: their randomness.
    """
    u_U, weight_UG = found.u_U, found.weight_UG
    picked = rng.choice(weight_UG.size, size=draws, p=weight_UG.ravel() / weight_UG.sum())
    u_index, g_index = np.unravel_index(picked, weight_UG.shape)
    onset_D = u_U[u_index] + rng.uniform(-0.5, 0.5, draws) * (u_U[1] - u_U[0])
    measured = np.log([run.decline for run in runs if run.fault == "decay" and run.decline is not None])
    precision = 1.0 / RATE[1] ** 2 + len(measured) / OF_A_RATE**2
    centre = (np.log(RATE[0]) / RATE[1] ** 2 + float(measured.sum()) / OF_A_RATE**2) / precision
    return Declines(
        np.where(rng.random(draws) < found.probability, onset_D, NEVER),
        found.g_G[g_index],
        np.exp(centre + rng.normal(0.0, 1.0, draws) * np.sqrt(1.0 / precision + 0.3**2)),
        found.probability,
    )
