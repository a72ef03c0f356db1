"""What the other runs of a sweep say about the curve of one: their surface at its n and B_p, as a prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.one_run.forecast import LiveRun, as_surface_run
from isocompute_sdk.fitting.one_run.model import DEFAULT_PRIOR, ONSETS, CurvePrior
from isocompute_sdk.fitting.surface.data import SurfaceRun, prepare
from isocompute_sdk.fitting.surface.decline import NEVER
from isocompute_sdk.fitting.surface.surface import Surface, fit_surface

FEWEST_OTHERS = 2
"""Other runs that a surface is made from."""
BORROWED_DRAWS = 150
WIDER = 1.3
"""Factor on the standard deviations of the surface: it takes the run for one of its kind."""
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
    return _prior(surface, as_surface_run(one)), tuple(run.run_id for run in runs)


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
