"""`method="surface"`: one joint surface fitted to all runs, with its curves, law, passport and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arguments import MethodOptions
from isocompute_sdk.fitting.fit_parts import SurfacePoints
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.frontier_laws import about_curves, about_laws, with_law, with_step_laws
from isocompute_sdk.fitting.surface.data import MIN_EVALUATIONS, PreparedRun, SurfaceRun, prepare
from isocompute_sdk.fitting.surface.passport import Passport, backtest, passport
from isocompute_sdk.fitting.surface.posterior import DEFAULT_DRAWS, fit_surface
from isocompute_sdk.fitting.surface.prior import DEFAULT_PRIOR, Prior
from isocompute_sdk.fitting.surface.surface import surface_curves
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.phrases import counted
from isocompute_sdk.records.columns import PLAN_WITHOUT


@dataclass(frozen=True)
class SurfaceOptions(MethodOptions):
    """Options of the surface, besides those of every method."""

    without: str | None = None
    """Family of recorded sweeps (`sweeps()`) that the prior is not to have learned from, to judge its own by; None:
    all."""


def fit_joint(
    runs: Sequence[SurfaceRun],
    metric: str,
    bounds: tuple[float, float],
    options: SurfaceOptions,
    draws: int,
    rng: np.random.Generator,
) -> Fits:
    """Fit the joint surface to the runs of one context."""
    if draws < 1:
        raise FitError(
            f"draws = {draws}; accepted by method='surface': 1 or more",
            f"Leave draws at {DEFAULT_DRAWS}.",
        )
    after = sum(int(np.sum(run.compute_T > 0)) for run in runs)
    if after < MIN_EVALUATIONS:
        raise FitError(
            f"{counted(after, 'evaluation')} of {metric!r} after step 0 in {counted(len(runs), 'run')}; a surface "
            f"needs at least {MIN_EVALUATIONS}",
            "Evaluate during training, at log-spaced steps.",
        )
    # Neither the order nor the names of the runs may change any bit.
    runs = sorted(runs, key=_content)
    prepared = prepare(runs, bounds[1] - bounds[0])
    prior = DEFAULT_PRIOR if options.without is None else Prior.learned(options.without)
    surface = fit_surface(prepared, bounds, draws, rng, prior)
    test = backtest(prepared, bounds, rng, prior)
    curves = surface_curves(surface, runs)
    known = passport(surface, prepared, [*curves.values()], test)
    # Second differences take a steep rise between few evaluations for noise; what the curves leave over is no less.
    left = sum(len(one.compute_T) * one.rms**2 for one in curves.values())
    count = sum(len(one.compute_T) for one in curves.values())
    known = replace(known, noise=min(known.noise, float(np.sqrt(left / count))))
    found = Fits(
        metric=metric,
        method="surface",
        curves=curves,
        compute=options.compute,
        bounds=bounds,
        max_rollouts_per_batch=options.max_rollouts_per_batch,
        surface=surface,
        surface_points=tuple(SurfacePoints(*key, one.compute_T, one.reward_T, one.rms) for key, one in curves.items()),
        passport=known,
    )
    found = with_law(found)
    if len(found.group_sizes) > 1:
        found = with_step_laws(found, options.rollouts_per_batch)
    notes = [
        *_about_runs(prepared, known),
        *known.notes(found.group_sizes),
        *about_curves(found),
        *about_laws(found),
    ]
    return replace(found, notes=unique(notes))


def _content(run: SurfaceRun) -> tuple[object, ...]:
    """What orders runs: their size and evaluations, and the name only of equal ones."""
    return run.group_size, run.problems_per_batch or 0, run.compute_T.tolist(), run.reward_T.tolist(), run.run_id


def _about_runs(runs: Sequence[PreparedRun], known: Passport) -> list[Note]:
    """Repaired runs, and a missing evaluation of the base model. Health says which runs fell."""
    notes: list[Note] = []
    if odd := known.outlying_runs:
        named = ", ".join(f"{run} ({off:+.3f})" for run, off in list(odd.items())[:5])
        text = (
            f"{counted(len(odd), 'run')} differed from the others in reward: {named}. Each gets less weight. "
            f"Check for a different evaluation set, grader or checkpoint; to see whether they matter, {PLAN_WITHOUT}."
        )
        notes.append(Note("outlying-run", "warning", text, {"runs": dict(odd)}))
    if wild := known.outlying_evaluations:
        text = (
            f"Outliers, moved towards their neighbours: {counted(sum(wild.values()), 'evaluation')} in "
            f"{counted(len(wild), 'run')} (most in {max(wild, key=wild.__getitem__)}). Check the grader and failed "
            "evaluations."
        )
        severity = "warning" if "outlying-evaluations" in known.doubts else "info"
        notes.append(Note("outlying-evaluations", severity, text, {"runs": dict(wild)}))
    if not any(len(run.base_reward) for run in runs):
        text = (
            "No run was evaluated at step 0: the base model's reward is inferred from the curves. Evaluate the base "
            "model once to fix it."
        )
        notes.append(Note("base-reward-unmeasured", "info", text))
    return notes
