"""`method="surface"`: runs in, `Fits` with a joint surface, its curves, law, passport and notes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting import findings
from isocompute_sdk.fitting.allocation import LawVariable
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper import check_batches, with_step_laws
from isocompute_sdk.fitting.surface import findings as surface_findings
from isocompute_sdk.fitting.surface.curves import surface_curves
from isocompute_sdk.fitting.surface.data import SurfaceRun, prepare
from isocompute_sdk.fitting.surface.law import with_law
from isocompute_sdk.fitting.surface.passport import passport
from isocompute_sdk.fitting.surface.surface import fit_surface
from isocompute_sdk.notes import unique

FEWEST_EVALUATIONS = 4
"""Evaluations after step 0, over all runs, below which nothing can be said."""
DEFAULT_DRAWS = 200


@dataclass(frozen=True)
class SurfaceOptions:
    """How a surface is fitted."""

    compute: LawVariable = "log10_rollouts"
    max_rollouts_per_batch: int | None = None
    """B_max of the sweep, to see where the batch limit, not the reward, ends the growth of n*."""
    rollouts_per_batch: int | None = None
    """Fixed batch B for the laws in steps; None for the one with most configurations."""

    def __post_init__(self) -> None:
        check_batches(self)


def fit_joint(
    runs: Sequence[SurfaceRun],
    metric: str,
    bounds: tuple[float, float],
    options: SurfaceOptions,
    draws: int,
    rng: np.random.Generator,
) -> Fits:
    """Fit the joint surface to the runs of one context.

    Args:
        runs: all runs of a sweep.
        metric: its name, for messages.
        bounds: range of the metric; no prediction leaves it.
        options: details of the method.
        draws: draws from the posterior, at least 1.
        rng: their randomness.

    Raises:
        FitError: too few evaluations, or no draws asked for.
    """
    if draws < 1:
        raise FitError(
            f"draws = {draws}; accepted by method='surface': 1 or more, since its predictions are means over them",
            f"Leave draws at {DEFAULT_DRAWS}.",
        )
    after = sum(int(np.sum(run.compute_T > 0)) for run in runs)
    if after < FEWEST_EVALUATIONS:
        raise FitError(
            f"{after} evaluation(s) of {metric!r} after step 0 in {len(runs)} run(s); a surface needs at least "
            f"{FEWEST_EVALUATIONS}",
            "Evaluate during training, at log-spaced steps.",
        )
    # The order in which runs were read must not matter, to the last bit.
    runs = sorted(runs, key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
    prepared = prepare(runs, bounds[1] - bounds[0])
    surface = fit_surface(prepared, bounds, draws, rng)
    found = Fits(
        metric=metric,
        method="surface",
        curves=surface_curves(surface, runs),
        compute=options.compute,
        bounds=bounds,
        max_rollouts_per_batch=options.max_rollouts_per_batch,
        surface=surface,
        passport=passport(surface, prepared, bounds, rng),
    )
    found = with_law(found)
    if len(found.group_sizes) > 1:
        found = with_step_laws(found, options.rollouts_per_batch)
    notes = [
        *surface_findings.about_runs(prepared),
        *surface_findings.about_fit(found),
        *found.notes,
        *findings.about_curves(found),
        *findings.about_laws(found),
    ]
    return replace(found, notes=unique(notes))
