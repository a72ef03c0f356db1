"""`Fits` as JSON and back, to the last bit: curves of a surface are made again from it and their points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isocompute_sdk.fitting.allocation import AllocationLaw
from isocompute_sdk.fitting.fits import SCHEMA_VERSION, Fits
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.curves import curve_of
from isocompute_sdk.fitting.surface.passport import Passport
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_sdk.notes import Note


def form_of(fits: Fits, *, with_runs: bool = True) -> dict[str, Any]:
    """JSON form; see `Fits.to_dict`."""
    return {
        "kind": "fits",
        "schema_version": SCHEMA_VERSION,
        "metric": fits.metric,
        "method": fits.method,
        "compute": fits.compute,
        "eval_set": fits.eval_set,
        "model": fits.model,
        "n_problems": fits.n_problems,
        "bounds": list(fits.bounds),
        "source": fits.source,
        "rollouts_per_batch": fits.rollouts_per_batch,
        "max_rollouts_per_batch": fits.max_rollouts_per_batch,
        "grid": None if fits.grid is None else list(fits.grid),
        "laws": {name: law.to_dict() for name, law in fits.laws.items()},
        "unsupported": dict(fits.unsupported),
        "curves": [] if fits.surface is not None else [c.to_dict() for c in fits.curves.values()],
        "surface": None if fits.surface is None else fits.surface.to_dict(),
        "surface_points": None if fits.surface is None else [_points(c) for c in fits.curves.values()],
        "passport": None if fits.passport is None else fits.passport.to_dict(),
        "notes": [note.to_dict() for note in fits.notes],
        "curve_draws": [[*key, drawn.tolist()] for key, drawn in fits.curve_draws.items()],
        "law_draws": {name: drawn.tolist() for name, drawn in fits.law_draws.items()},
        "options": dict(fits.options),
        "runs": fits.runs if with_runs else None,
    }


def fits_from(raw: Mapping[str, Any]) -> Fits:
    """Inverse of `form_of`."""
    surface, passport, curves = None, None, [RewardCurve.from_dict(c) for c in raw["curves"]]
    if raw["surface"] is not None:
        surface, passport = Surface.from_dict(raw["surface"]), Passport.from_dict(raw["passport"])
        curves = [
            curve_of(surface, (n, bp), np.array(at, dtype=float), np.array(reward, dtype=float))
            for n, bp, at, reward in raw["surface_points"]
        ]
    return Fits(
        metric=raw["metric"],
        method=raw["method"],
        curves={(c.group_size, c.problems_per_batch): c for c in curves},
        surface=surface,
        passport=passport,
        laws={name: AllocationLaw.from_dict(law) for name, law in raw["laws"].items()},
        unsupported=raw["unsupported"],
        notes=tuple(Note.from_dict(note) for note in raw["notes"]),
        compute=raw["compute"],
        eval_set=raw["eval_set"],
        model=raw["model"],
        n_problems=raw["n_problems"],
        bounds=(raw["bounds"][0], raw["bounds"][1]),
        source=raw["source"],
        rollouts_per_batch=raw["rollouts_per_batch"],
        max_rollouts_per_batch=raw["max_rollouts_per_batch"],
        grid=None if raw["grid"] is None else (raw["grid"][0], raw["grid"][1]),
        curve_draws={(n, bp): np.array(drawn, dtype=float) for n, bp, drawn in raw["curve_draws"]},
        law_draws={name: np.array(drawn, dtype=float) for name, drawn in raw["law_draws"].items()},
        options=raw["options"],
        runs=raw["runs"],
    )


def _points(curve: RewardCurve) -> list[Any]:
    return [curve.group_size, curve.problems_per_batch, curve.compute_T.tolist(), curve.reward_T.tolist()]
