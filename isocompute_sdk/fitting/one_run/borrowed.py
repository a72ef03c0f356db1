"""What the other runs of a sweep say about the curve of one: their surface at its n and B_p, as a prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.one_run.curve_posterior import DEFAULT_PRIOR, ONSETS, CurvePrior, OneRun, posterior
from isocompute_sdk.fitting.one_run.forecast import FEWEST, LiveRun, as_surface_run
from isocompute_sdk.fitting.surface.data import SurfaceRun, prepare, smoothed
from isocompute_sdk.fitting.surface.decline import NEVER
from isocompute_sdk.fitting.surface.surface import Surface, fit_surface

FEWEST_OTHERS = 2
"""Other runs that a surface is made from."""
BORROWED_DRAWS = 150
WIDER = 1.3
"""Factor on the standard deviations of the surface: it takes the run for one of its kind."""
MOST_PACES, PACE_DRAWS = 4, 200
"""Other runs whose pace is measured, those of the nearest n first, and draws of each."""
PACE_LEAST = 0.35
"""Least standard deviation of the logarithm of the pace."""
LEAST_SAID = 0.015
"""Gain, as a share of the range, that a curve must foresee for its pace to be measured."""
RATIOS = (0.2, 5.0)
NEAR = 1.5
"""Evaluations within this factor of a compute tell the reward there."""
LEAST = 0.1
"""Least standard deviation of a parameter, in logit or log units."""


def borrowed_prior(fits: Fits, live: LiveRun) -> tuple[CurvePrior | None, tuple[str, ...]]:
    """Prior from the surface of the other runs, and their names; None and no names without a surface of others.

    Args:
        fits: the sweep; its surface is fitted again without the run, so that its evaluations count once.
        live: the run.
    """
    one, others = live.one, live.series[1:]
    runs = [as_surface_run(other) for other in others if np.any(other.rollouts_T > 0)]
    if fits.surface is None or fits.compute != "log10_rollouts" or len(runs) < FEWEST_OTHERS:
        return None, ()
    runs = sorted(runs, key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
    surface = fit_surface(
        prepare(runs, fits.bounds[1] - fits.bounds[0]), fits.bounds, BORROWED_DRAWS, np.random.default_rng(0)
    )
    prior = _prior(surface, as_surface_run(one))
    pace = _pace(as_surface_run(one), runs, fits.bounds)
    # A pace measured on the others holds the rise that best@k announces; both together count it twice.
    lead = DEFAULT_PRIOR.lead if pace is DEFAULT_PRIOR.pace else (0.0, 0.0)
    return replace(prior, pace=pace, lead=lead), tuple(run.run_id for run in runs)


def _pace(run: SurfaceRun, others: Sequence[SurfaceRun], bounds: tuple[float, float]) -> tuple[float, float]:
    """Pace of the runs of the nearest n after they had this run's reward, over what their curves said there.

    A second rise that the others have shown is in it.
    """
    level = _level(run, float(np.max(run.compute_T)))
    nearest = sorted(others, key=lambda other: abs(np.log2(other.group_size / run.group_size)))
    pairs: list[tuple[float, float]] = []
    for other in nearest:
        order = np.argsort(other.compute_T, kind="stable")
        compute, reward = other.compute_T[order], smoothed(other.reward_T[order])
        reached = np.flatnonzero((compute > 0) & (reward >= level))
        if not reached.size or float(compute[-1]) < 2.0 * float(compute[reached[0]]):
            continue
        at = float(compute[reached[0]])
        before = compute <= at * 1.0001
        if np.count_nonzero(compute[before] > 0) < FEWEST:
            continue
        shown = replace(other, compute_T=compute[before], reward_T=other.reward_T[order][before])
        one = OneRun.of(shown, bounds)
        rng = np.random.default_rng(0)
        plain = posterior(one, replace(DEFAULT_PRIOR, pace=(0.0, 0.0)), rng)
        now_D, ahead_D = plain.draws(np.array([0.0, np.log(2.0)]), PACE_DRAWS, rng)[0].T
        said = float(ahead_D.mean() - now_D.mean())
        if said < LEAST_SAID * (bounds[1] - bounds[0]):
            continue
        gained = _level(other, 2.0 * at) - float(now_D.mean())
        pairs.append((gained, said))
        if len(pairs) == MOST_PACES:
            break
    if len(pairs) < FEWEST_OTHERS:
        return DEFAULT_PRIOR.pace
    gained_O, said_O = np.array(pairs).T
    # The ratio of sums: where little is foreseen, single ratios are noise.
    together = float(np.log(np.clip(gained_O.sum() / said_O.sum(), *RATIOS)))
    each_O = np.log(np.clip(gained_O / said_O, *RATIOS))
    sd = float(np.hypot(np.sqrt(np.average((each_O - together) ** 2, weights=said_O)), PACE_LEAST))
    return len(pairs) / (len(pairs) + 1.0) * together, sd


def _level(run: SurfaceRun, compute: float) -> float:
    """Reward at a compute: a line in log compute through the evaluations near it, or the mean of few."""
    near = (run.compute_T > 0) & (np.abs(np.log(np.maximum(run.compute_T, 1e-300) / compute)) <= np.log(NEAR))
    if np.count_nonzero(near) < 3:
        return float(np.interp(compute, np.sort(run.compute_T), run.reward_T[np.argsort(run.compute_T)]))
    return float(np.polyfit(np.log(run.compute_T[near] / compute), run.reward_T[near], 1)[1])


def _prior(surface: Surface, run: SurfaceRun) -> CurvePrior:
    nan = float("nan")
    problems = np.array([nan if run.problems_per_batch is None else float(run.problems_per_batch)])
    size = np.array([float(run.group_size)])
    design = surface.layout.design(np.log2(size), problems, np.array([nan]))[0]
    curve_D4 = surface.parameters_DP @ design.T
    share_D = curve_D4[:, 1]
    if surface.misfit is not None:
        share_D = share_D + surface.misfit.level_DK @ design[1, 1 : 1 + len(surface.layout.knots_K)]
    last = float(np.log(np.max(run.compute_T)))
    onset_D = np.log(surface.onset(run.group_size, run.problems_per_batch))
    falls_D = (onset_D < NEVER) & (onset_D - last < ONSETS[1])
    rate = DEFAULT_PRIOR.rate
    if surface.declines is not None and falls_D.any():
        of_falls = np.log(surface.declines.rate_D[falls_D])
        rate = (float(np.exp(of_falls.mean())), max(float(of_falls.std()), 0.3))
    return replace(
        DEFAULT_PRIOR,
        share=_moments(share_D, surface.run_share / 0.5),
        midpoint=_moments(curve_D4[:, 2] - last, surface.run_midpoint),
        slope=_moments(curve_D4[:, 3], 0.0),
        falls=float(np.clip(np.mean(falls_D), 0.02, 0.98)),
        rate=rate,
    )


def _moments(values: np.ndarray, more: float) -> tuple[float, float]:
    """Median and a wider standard deviation, robust against draws that ran off."""
    low, middle, high = np.quantile(values, [0.16, 0.5, 0.84])
    return float(middle), float(max(WIDER * np.hypot((high - low) / 2.0, more), LEAST))
