"""`method="surface"`: one joint surface fitted to all runs, with its curves, law, passport and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting import findings
from isocompute_sdk.fitting.arguments import MethodOptions
from isocompute_sdk.fitting.fits import Fits, SurfacePoints
from isocompute_sdk.fitting.frontier_laws import with_step_laws
from isocompute_sdk.fitting.surface.curves import surface_curves
from isocompute_sdk.fitting.surface.data import PreparedRun, SurfaceRun, prepare
from isocompute_sdk.fitting.surface.law import with_law
from isocompute_sdk.fitting.surface.passport import passport
from isocompute_sdk.fitting.surface.surface import fit_surface
from isocompute_sdk.notes import Note, unique

FEWEST_EVALUATIONS = 4
"""Fewest evaluations after step 0, over all runs, for a fit."""
DEFAULT_DRAWS = 200


@dataclass(frozen=True)
class SurfaceOptions(MethodOptions):
    """Options of the surface: those of every method."""


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
        metric: name of the metric.
        bounds: range of the metric; predictions stay inside.
        options: details of the method.
        draws: draws from the posterior, at least 1.
        rng: their randomness.

    Raises:
        FitError: too few evaluations, or no draws asked for.
    """
    if draws < 1:
        raise FitError(
            f"draws = {draws}; accepted by method='surface': 1 or more",
            f"Leave draws at {DEFAULT_DRAWS}.",
        )
    after = sum(int(np.sum(run.compute_T > 0)) for run in runs)
    if after < FEWEST_EVALUATIONS:
        raise FitError(
            f"{after} evaluation(s) of {metric!r} after step 0 in {len(runs)} run(s); a surface needs at least "
            f"{FEWEST_EVALUATIONS}",
            "Evaluate during training, at log-spaced steps.",
        )
    # The order of the runs must not change any bit.
    runs = sorted(runs, key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
    prepared = prepare(runs, bounds[1] - bounds[0])
    surface = fit_surface(prepared, bounds, draws, rng)
    known = passport(surface, prepared, bounds, rng)
    curves = surface_curves(surface, runs)
    found = Fits(
        metric=metric,
        method="surface",
        curves=curves,
        compute=options.compute,
        bounds=bounds,
        max_rollouts_per_batch=options.max_rollouts_per_batch,
        surface=surface,
        surface_points=tuple(SurfacePoints(*key, one.compute_T, one.reward_T) for key, one in curves.items()),
        passport=known,
    )
    found = with_law(found)
    if len(found.group_sizes) > 1:
        found = with_step_laws(found, options.rollouts_per_batch)
    notes = [
        *_about_runs(prepared),
        *known.notes(found.group_sizes),
        *found.notes,
        *findings.about_curves(found),
        *findings.about_laws(found),
    ]
    return replace(found, notes=unique(notes))


def _about_runs(runs: Sequence[PreparedRun]) -> list[Note]:
    """Repaired runs, and a missing evaluation of the base model."""
    notes: list[Note] = []
    collapsed, decayed = ([run for run in runs if run.fault == fault] for fault in ("collapse", "decay"))
    if collapsed:
        text = (
            f"{len(collapsed)} run(s) lost most of their gain and are used up to that point only: "
            f"{_faults(collapsed)}. Look at their entropy, KL and response length; a lower learning rate or a larger "
            "B_p may keep them stable."
        )
        notes.append(Note("collapsed-run", "warning", text, {"runs": [run.run_id for run in collapsed]}))
    if decayed:
        text = (
            f"{len(decayed)} run(s) fell again after a peak: {_faults(decayed)}. The fit keeps the peak, as the best "
            "checkpoint is kept. On a small problem set this is overfitting: compare training and validation reward."
        )
        notes.append(Note("decayed-run", "warning", text, {"runs": [run.run_id for run in decayed]}))
    if not any(len(run.base_reward) for run in runs):
        text = (
            "No run was evaluated at step 0: the base model's reward is inferred from the curves. Evaluate the base "
            "model once to fix it."
        )
        notes.append(Note("base-reward-unmeasured", "info", text))
    return notes


def _faults(runs: Sequence[PreparedRun]) -> str:
    return "; ".join(f"{run.run_id} after C = {run.fault_compute:,.3g}" for run in runs[:5])
