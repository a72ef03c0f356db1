"""Which group size a law prefers: the nearest to its n, or for a prior the one of least expected regret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.allocation import sigmoid
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning.candidates import Candidate, Fixed
from isocompute_sdk.planning.pricing import Pricing

Mode = Literal["expected", "conservative"]

CONSERVATIVE_QUANTILE = 0.1
"""Conservative, by a prior: the n whose 90 % worst regret is least."""
_LOSS_OCTAVES = (0.0, 1.0, 2.0, 4.0, 6.0)
_LOSS_SHARE = (0.0, 0.03, 0.17, 0.28, 0.33)
"""Share of the reward gain lost when n is that many octaves off: fitted Easy curves of the paper's fig. 6 at 3 M
rollouts, n = 256, 128, 32, 8 against 512. Taken as symmetric, which is an assumption."""


def mismatch_loss(octaves: npt.ArrayLike) -> Array:
    """Share of the reward gain lost by an n this many octaves from the best one."""
    return np.interp(np.abs(np.asarray(octaves, dtype=float)), _LOSS_OCTAVES, _LOSS_SHARE)


@dataclass(frozen=True)
class LawPreference:
    """By a law, or for a prior by expected regret; `distance` is in octaves, or in shares of the gain."""

    fits: Fits
    law: str
    """The deciding law: `group_size` or `group_size_vs_steps`."""
    mode: Mode
    pricing: Pricing

    def best(self, candidates: Sequence[Candidate], fixed: Fixed | None = None) -> Candidate:
        """The candidate nearest to the law, the smaller n of two equal ones.

        The law is evaluated at the largest compute of any candidate: at its own compute, an n that spends little
        would look right for that little. If B_p and M are fixed, n alone decides how much is spent: then it is the
        largest n that the law calls best at any compute.

        Args:
            candidates: at least one.
            fixed: what the caller fixed.
        """
        at = max(candidates, key=lambda c: c.rollouts)
        if fixed is not None and fixed.problems_per_batch is not None and fixed.update_steps is not None:
            useful = [c for c in candidates if c.group_size <= self.fits.law(self.law).saturation * 2**0.5]
            return max(useful or candidates, key=lambda c: c.group_size)
        return min(candidates, key=lambda c: (round(self.distance(c.group_size, at), 9), c.group_size))

    def distance(self, n: int, at: Candidate) -> float:
        """Octaves from the law's n at that candidate's compute; for a prior, the expected regret."""
        value, octave, law = self.value(at), float(np.log2(n)), self.fits.law(self.law)
        if self.fits.method != "prior":
            return abs(octave - float(law.log2(value)))
        draws_D4 = self.fits.law_draws[self.law]
        regret_D = mismatch_loss(octave - sigmoid(law.to_x(value), *(draws_D4[:, i] for i in range(4))))
        careful = self.mode == "conservative"
        return float(np.quantile(regret_D, 1.0 - CONSERVATIVE_QUANTILE)) if careful else float(np.mean(regret_D))

    def value(self, at: Candidate) -> float:
        """The law's raw x for a candidate: compute, or steps."""
        in_steps = self.law == "group_size_vs_steps"
        return float(at.update_steps) if in_steps else self.pricing.compute(at.rollouts, self.fits.compute)

    def wanted(self, at: Candidate) -> float | None:
        """The law's n; None for a prior, which has many."""
        return None if self.fits.method == "prior" else float(self.fits.law(self.law).predict(self.value(at)))
