"""Constants of the surface chosen with one family of sweeps, or one panel, left out, and how they do on it.

Two constants decide most of what the surface answers beyond the data: the size of the lack of fit, which sets how wide
intervals are, and the charge for leaving the middle of the good n, which sets n. Each is chosen on the other groups
(intervals that hold nearest to .80; least mean regret), and judged on the one left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from isocompute_sdk.fitting.surface.misfit import Misfit

import isocompute_sdk as iso
from isocompute_sdk.fitting.surface.answers.odds import PER_SQUARED_OCTAVE

FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)
"""Factors on the size of the lack of fit; 1 ships."""
CHARGES = (0.0, 0.25, 0.5, 1.0)
"""Shares of the doubt charged per squared octave; `PER_SQUARED_OCTAVE` ships."""
LEVEL = 0.8


@dataclass(frozen=True)
class Tried:
    """One decision with every constant."""

    group: str
    """The family or panel."""
    distance: float
    """Target over the largest compute, or share of the panel that was shown."""
    regret: dict[float, float]
    """Charge -> reward lost, on the scale of the benchmark."""
    held: dict[float, bool]
    """Factor -> whether the 80 % interval holds the truth at the n that ships."""


def chosen_by_charge(fits: iso.Fits, target: float, sizes: Sequence[int], problems_per_batch: int) -> dict[float, int]:
    """The n of each charge."""
    odds = fits.group_size_odds(target, sizes, problems_per_batch)
    scores = {charge: odds.reward - charge * odds.doubt * odds.squared_octaves for charge in CHARGES}
    return {charge: int(odds.group_size[np.argmax(np.round(score, 12))]) for charge, score in scores.items()}


def held_by_factor(fits: iso.Fits, target: float, n: int, problems_per_batch: int, true: float) -> dict[float, bool]:
    """Whether the interval holds with each size of the lack of fit."""
    surface = fits.surface
    assert surface is not None, "only surfaces draw a lack of fit"
    assert surface.misfit is not None, "only surfaces draw a lack of fit"
    held: dict[float, bool] = {}
    for factor in FACTORS:
        misfit = Misfit(factor * surface.misfit.level_DK, factor * surface.misfit.tilt_DK)
        one = replace(fits, surface=replace(surface, misfit=misfit))
        found = one.predict(target, n, problems_per_batch, level=LEVEL)
        held[factor] = bool(found.low <= true <= found.high)
    return held


def records(tried: Sequence[Tried]) -> list[dict[str, Any]]:
    """One record per group left out."""
    found: list[dict[str, Any]] = []
    for group in dict.fromkeys(one.group for one in tried):
        rest, mine = [t for t in tried if t.group != group], [t for t in tried if t.group == group]
        charge = min(CHARGES, key=lambda c: float(np.mean([t.regret[c] for t in rest])))
        factor = min(FACTORS, key=lambda f: abs(float(np.mean([t.held[f] for t in rest])) - LEVEL))
        found.append(
            {
                "left out": group,
                "decisions": len(mine),
                "charge": charge,
                "regret": float(np.mean([t.regret[charge] for t in mine])),
                "with the charge that ships": float(np.mean([t.regret[PER_SQUARED_OCTAVE] for t in mine])),
                "factor": factor,
                "80 % holds": float(np.mean([t.held[factor] for t in mine])),
                "with factor 1": float(np.mean([t.held[1.0] for t in mine])),
            }
        )
    return found
