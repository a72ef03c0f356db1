"""What lies beyond a rise: where rewards begin to fall, and a second rise beyond the data.

    ln C_on = u + g (log2 n - centre) + s log2(B_p / B_p,min) + ln(D / D_usual)

A run that fell shows its onset, one that did not shows that its onset lies later. A fall may also be a run's own
accident, and a whole recipe may have no decline at all: both have a prior probability.

    R -> R + w H(u) (top - R),    H(u) = (s(h (u - m)) - s(-h m)) / (1 - s(-h m)),    u = ln(C / C_seen) > 0

w is the share of the remaining room that a second rise wins in the end, m the distance at which half of it is won, s
the logistic function. Nothing in a sweep of one shape says that it comes, so that its probability is a prior's, equal
for all n; best@k beside avg@k changes it: a problem is solved now and then before it is solved each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Vector
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.model import Layout, Prior, logistic
from isocompute_sdk.metrics import LEADING

WITHIN, MIN_NEAR = 3.0, 5
"""Evaluations of best@k within this factor of the last compute tell its change, from so many on."""
MIN_ERROR = 0.002
"""Least standard error of that change per doubling, as a share of the metric's range."""
OPEN = 0.75
"""Share of the first rise up to which a second one has its full probability; it falls to 0 where all of it was seen."""


@dataclass(frozen=True)
class SecondRise:
    """Draws of the second rise."""

    share_D: Annotated[Vector, Field(alias="share")]
    """w; 0 in draws without one."""
    midpoint_D: Annotated[Vector, Field(alias="midpoint")]
    """m."""
    slope: float
    """h."""
    probability: Annotated[float, Field(ge=0, le=1)]
    metric: str | None = None
    """best@k that decided about the probability; None without one."""

    def __post_init__(self) -> None:
        if len(self.share_D) != len(self.midpoint_D):
            raise FieldError("midpoint", len(self.midpoint_D), f"{len(self.share_D)}, one for each draw")

    @classmethod
    def sample(
        cls, prior: Prior, probability: float, metric: str | None, draws: int, rng: np.random.Generator
    ) -> SecondRise:
        """Draws from the prior.

        Args:
            prior: size, place and steepness of the rise.
            probability: that there is one.
            metric: best@k that decided about it.
            draws: number of draws.
            rng: their randomness.
        """
        # Evenly over the draws, so that few of them hold the right share.
        rises_D = rng.permutation((np.arange(draws) + rng.random()) / draws < probability)
        share_D = logistic(prior.second_share[0] + prior.second_share[1] * rng.standard_normal(draws))
        midpoint_D = prior.second_midpoint[0] + prior.second_midpoint[1] * rng.standard_normal(draws)
        return cls(np.where(rises_D, share_D, 0.0), midpoint_D, prior.second_slope, probability, metric)

    def added(self, reward_DQ: Array, beyond_DQ: Array, top: float) -> Array:
        """Rewards with the second rise.

        Args:
            reward_DQ: rewards without it.
            beyond_DQ: u, at least 0.
            top: upper bound of the metric.
        """
        start_D1 = logistic(-self.slope * self.midpoint_D)[:, None]
        won_DQ = (logistic(self.slope * (beyond_DQ - self.midpoint_D[:, None])) - start_D1) / (1.0 - start_D1)
        return reward_DQ + self.share_D[:, None] * won_DQ * (top - reward_DQ)


def change_per_doubling(compute_T: Array, best_T: Array, last: float) -> tuple[float, float] | None:
    """Slope of best@k per doubling of compute up to `last`, and its standard error; None with too few evaluations."""
    near = (compute_T > 0) & (compute_T <= last * 1.0001) & (compute_T >= last / WITHIN)
    if np.count_nonzero(near) < MIN_NEAR:
        return None
    doublings = np.log2(compute_T[near] / last)
    (slope, _), residual, *_ = np.polyfit(doublings, best_T[near], 1, full=True)
    off = doublings - doublings.mean()
    variance = float(residual[0]) / (len(off) - 2) / float(off @ off) if len(residual) else 0.0
    return float(slope), float(np.sqrt(variance))


def best_rises(runs: Sequence[PreparedRun], span: float) -> tuple[float, str] | None:
    """Probability that best@k still rises, over all runs, and its name; None where no run tells it.

    Args:
        runs: prepared runs; after a fall their best@k does not count.
        span: width of the metric's range.
    """
    found: list[tuple[float, float]] = []
    names: list[str] = []
    for run in runs:
        if run.best is not None:
            end = run.last_compute if run.fault_compute is None else run.fault_compute
            change = change_per_doubling(run.best.compute_T, run.best.value_T, end)
            if change is not None:
                found.append(change)
                names.append(run.best.metric)
    if not found:
        return None
    slope_R, error_R = np.array(found).T
    weight_R = 1.0 / (error_R**2 + (MIN_ERROR * span) ** 2)
    spread = float(np.sqrt(weight_R @ (slope_R - weight_R @ slope_R / weight_R.sum()) ** 2 / weight_R.sum()))
    error = np.hypot(1.0 / np.sqrt(weight_R.sum()), spread / np.sqrt(len(found)))
    mean = float(weight_R @ slope_R / weight_R.sum())
    return NormalDist().cdf(mean / float(error)), min(names, key=LEADING.index)


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
    """Draws of onset and rate."""
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
