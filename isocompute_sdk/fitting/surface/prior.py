"""What is believed before a sweep: rises and plateaus, a second rise beyond the data, and where rewards begin to fall.

A run that fell shows its onset, one that did not shows that its onset lies later. A fall may also be a run's own
accident, and a whole recipe may have no decline at all: both have a prior probability. Nothing in a sweep of one shape
says that a second rise comes, so that its probability is a prior's, equal for all n; best@k beside avg@k changes it: a
problem is solved now and then before it is solved each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.surface import LEARNED, NEVER, Declines, Layout, SecondRise, logistic, shift
from isocompute_sdk.metrics import LEADING

SECOND_RISE = (0.25, 0.1)
"""`Kind.second_rise` of each kind."""


@dataclass(frozen=True)
class Kind:
    """A kind of sweep, by what a larger n does to the plateau."""

    share_step: tuple[float, float]
    """Change of a."""
    second_rise: float
    """Probability of a rise that begins again beyond the data, where no best@k tells it."""


@dataclass(frozen=True)
class Prior:
    """Means and standard deviations of what a sweep alone may not determine. Per octave of n unless said otherwise.

    What has no default is learned from the recorded sweeps; the defaults come from the paper's figures.
    """

    share_level_sd: float
    """Of the level of a, around half of the headroom. A pilot too short to show a rise says next to nothing about its
    size."""
    kinds: tuple[Kind, ...]
    """Larger n wins late; n hardly moves. As probable before a sweep, weighed by its evidence after it."""
    share_bend_sd: float
    """Second difference of a."""
    midpoint_level_sd: float
    """Of the level of m, around the largest compute of the runs."""
    midpoint_step: tuple[float, float]
    """Change of m: larger groups need more compute."""
    midpoint_bend_sd: float
    slope_sd: float = 0.45
    """ln h; h = 1 is the saturating exponential of the paper's fig. 6 for the Weibull shape. Not learned: the sweeps'
    own, .78 +- .73, predicts pilots worse (docs/methods.md)."""
    slope_step_sd: float = 0.06
    problems_share_sd: float = 0.08
    """Change of a per octave of B_p."""
    problems_midpoint: tuple[float, float] = (0.3, 0.3)
    """Change of m per octave of B_p: larger batches take fewer steps for the same compute."""
    problem_set_share: tuple[float, float] = (0.1, 0.3)
    """Change of a per octave of D."""
    problem_set_tilt: tuple[float, float] = (0.02, 0.1)
    """Change of that per octave of n: a small problem set caps n."""
    second_share: tuple[float, float] = (0.4, 1.0)
    """Logit of the share of the room left that it wins."""
    second_midpoint: tuple[float, float] = (2.0, 1.2)
    """How far, in ln C, half of it lies beyond the largest compute that was seen."""
    second_slope: float = 0.8
    """Its steepness h."""
    run_share: float = 0.06
    """Run-to-run standard deviation of the gain, relative."""
    run_midpoint: float = 0.15
    """Run-to-run standard deviation of m."""

    @classmethod
    def learned(cls, without: str | None = None) -> Prior:
        """What the recorded sweeps say.

        Args:
            without: family of sweeps that is left out, to judge its own; None for none.
        """
        families = LEARNED["families"]
        if without is not None and without not in families:
            raise FitError(f"without = {without!r}; accepted: {', '.join(families)}", "Leave it out.")
        return cls.of(LEARNED["prior"] if without is None else families[without]["prior_without"])

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> Prior:
        """From the numbers of `LEARNED_FILE`."""
        kinds = tuple(
            Kind((step[0], step[1]), second) for step, second in zip(numbers["kinds"], SECOND_RISE, strict=True)
        )
        found: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in numbers.items()}
        found["kinds"] = kinds
        return cls(**found)

    def rows(self, layout: Layout, midpoint: float, base: tuple[float, float], kind: int = 0) -> tuple[Array, Array]:
        """Least-squares rows: (weights (S, P), wanted (S,)), so that W theta - w is standard normal."""
        count, size = len(layout.knots_K), layout.size
        rows: list[Array] = []
        wanted: list[float] = []

        def add(entries: dict[int, float], mean: float, sd: float) -> None:
            row = np.zeros(size)
            for index, value in entries.items():
                row[index] = value / sd
            rows.append(row)
            wanted.append(mean / sd)

        add({0: 1.0}, *base)
        middle = count // 2
        for first, level, step, bend in (
            (1, (0.0, self.share_level_sd), self.kinds[kind].share_step, (0.0, self.share_bend_sd)),
            (1 + count, (midpoint, self.midpoint_level_sd), self.midpoint_step, (0.0, self.midpoint_bend_sd)),
        ):
            add({first + middle: 1.0}, *level)
            for k in range(count - 1):
                add({first + k: -1.0, first + k + 1: 1.0}, *step)
            for k in range(count - 2):
                add({first + k: 1.0, first + k + 1: -2.0, first + k + 2: 1.0}, *bend)
        after = 1 + 2 * count
        add({after: 1.0}, 0.0, self.slope_sd)
        add({after + 1: 1.0}, 0.0, self.slope_step_sd)
        add({after + 2: 1.0}, 0.0, self.problems_share_sd)
        add({after + 3: 1.0}, *self.problems_midpoint)
        if layout.set_reference is not None:
            add({after + 4: 1.0}, *self.problem_set_share)
            add({after + 5: 1.0}, *self.problem_set_tilt)
        return np.array(rows), np.array(wanted)


DEFAULT_PRIOR = Prior.learned()


WITHIN, MIN_NEAR = 3.0, 5
"""Evaluations of best@k within this factor of the last compute tell its change, from so many on."""
MIN_ERROR = 0.002
"""Least standard error of that change per doubling, as a share of the metric's range."""
OPEN = 0.75
"""Share of the first rise up to which a second one has its full probability; it falls to 0 where all of it was seen."""


def sample_second_rise(
    prior: Prior, probability: float, metric: str | None, draws: int, rng: np.random.Generator
) -> SecondRise:
    """Draws of the second rise.

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
    return SecondRise(np.where(rises_D, share_D, 0.0), midpoint_D, prior.second_slope, probability, metric)


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
RATE = (0.45, 0.6)
"""Share of the gain lost per unit of ln C: median and standard deviation of its logarithm. Digitised falls lose .28 to
.73 (Qwen3-4B Easy, D = 6,000)."""
OF_A_RATE = 0.5
"""Standard deviation of the logarithm of one run's measured rate."""
U_POINTS, G_POINTS = 41, 13


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
        later = np.vectorize(NormalDist().cdf)(UNNOTICED / OF_A_RUN - off_RUG)
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
