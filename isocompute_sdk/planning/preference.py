"""Which group size to prefer: by a surface's draws, by a law, or by least expected regret (prior)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.allocation import sigmoid
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers import GroupSizeOdds
from isocompute_sdk.planning.candidates import Candidate, Fixed

Mode = Literal["expected", "conservative"]

CONSERVATIVE_QUANTILE = 0.1
"""Conservative: the law's lower 10 % bound; for a prior, the n whose 90 % worst regret is least."""
_LOSS_OCTAVES = (0.0, 1.0, 2.0, 4.0, 6.0)
_LOSS_SHARE = (0.0, 0.03, 0.17, 0.28, 0.33)
"""Share of the reward gain lost when n is that many octaves off: fitted Easy curves of the paper's fig. 6 at 3 M
rollouts, n = 256, 128, 32, 8 against 512. Taken as symmetric, which is an assumption."""


def mismatch_loss(octaves: npt.ArrayLike) -> Array:
    """Share of the reward gain lost by an n this many octaves from the best one."""
    return np.interp(np.abs(np.asarray(octaves, dtype=float)), _LOSS_OCTAVES, _LOSS_SHARE)


class Preference(Protocol):
    """An order of candidates by what the fits predict."""

    @property
    def law(self) -> str:
        """Law to show beside the choice: `group_size` or `group_size_vs_steps`."""
        ...

    @property
    def mode(self) -> Mode:
        """Expected or conservative."""
        ...

    def best(self, candidates: Sequence[Candidate], fixed: Fixed | None = None) -> Candidate:
        """The preferred candidate; the smaller n of two equal ones."""
        ...

    def distance(self, n: int, at: Candidate) -> float:
        """Loss of n at that candidate's compute; lower is better."""
        ...

    def value(self, at: Candidate) -> float:
        """The raw x of the law for a candidate: compute, or steps."""
        ...

    def wanted(self, at: Candidate) -> float | None:
        """The best n at that candidate's compute without constraints; None for a prior."""
        ...

    def careful(self) -> Preference:
        """This preference in conservative mode."""
        ...


@dataclass(frozen=True)
class RewardPreference:
    """By the reward that a surface predicts for the compute that each candidate spends."""

    fits: Fits
    mode: Mode
    compute: Callable[[float], float]
    """Rollouts -> the compute of the fits (rollouts or tokens)."""
    law: str = "group_size"

    def best(self, candidates: Sequence[Candidate], fixed: Fixed | None = None) -> Candidate:
        """The candidate that `GroupSizeOdds.best` chooses."""
        ordered = sorted(candidates, key=lambda c: c.group_size)
        return ordered[self._odds(ordered).best(conservative=self.mode == "conservative")]

    def distance(self, n: int, at: Candidate) -> float:
        """Expected loss against the best n at that compute and B_p."""
        odds = self.fits.group_size_odds(self.value(at), problems_per_batch=at.problems_per_batch)
        reward = self.fits.expected_reward(self.value(at), n, at.problems_per_batch)
        return float(odds.reward.max() - reward)

    def value(self, at: Candidate) -> float:
        """Compute of a candidate on the axis of the fits."""
        return self.compute(at.rollouts)

    def wanted(self, at: Candidate) -> float | None:
        """The best n on the grid, or the octave above it if that is ahead by the margin."""
        smallest, largest = self.fits.group_size_range
        sizes = [s for s in (*self.fits.group_sizes, 2 * largest) if s >= smallest]
        odds = self.fits.group_size_odds(self.value(at), sizes, at.problems_per_batch)
        return float(sizes[odds.best()])

    def careful(self) -> RewardPreference:
        """This preference in conservative mode."""
        return replace(self, mode="conservative")

    def _odds(self, ordered: Sequence[Candidate]) -> GroupSizeOdds:
        sizes = [c.group_size for c in ordered]
        spent = [self.value(c) for c in ordered]
        return self.fits.group_size_odds(max(spent), sizes, ordered[0].problems_per_batch, compute_of_each=spent)


@dataclass(frozen=True)
class LawPreference:
    """By a law, or for a prior by expected regret; `distance` is in octaves, or in shares of the gain."""

    fits: Fits
    law: str
    """The deciding law: `group_size` or `group_size_vs_steps`."""
    mode: Mode
    compute: Callable[[float], float]
    """Rollouts -> the law's raw compute (rollouts or tokens)."""

    def best(self, candidates: Sequence[Candidate], fixed: Fixed | None = None) -> Candidate:
        """The preferred candidate; the smaller n of two equal ones.

        The law is evaluated at the largest compute of any candidate: at its own compute, an n that spends little
        would look right for that little. If B_p and M are fixed, n alone decides how much is spent: then it is the
        largest n that the law calls best at any compute.
        """
        at = max(candidates, key=lambda c: c.rollouts)
        if fixed is not None and fixed.problems_per_batch is not None and fixed.update_steps is not None:
            useful = [c for c in candidates if c.group_size <= self.fits.law(self.law).saturation * 2**0.5]
            return max(useful or candidates, key=lambda c: c.group_size)
        return min(candidates, key=lambda c: (round(self.distance(c.group_size, at), 9), c.group_size))

    def distance(self, n: int, at: Candidate) -> float:
        """Octaves from the law's n at that candidate's compute; for a prior, the expected regret."""
        value = self.value(at)
        octave = float(np.log2(n))
        if self.fits.method == "prior":
            regret = mismatch_loss(octave - self._drawn(value))
            return float(np.quantile(regret, 0.9)) if self.mode == "conservative" else float(np.mean(regret))
        return abs(octave - self._wanted(value))

    def value(self, at: Candidate) -> float:
        """The law's raw x for a candidate: compute, or steps."""
        return float(at.update_steps) if self.law == "group_size_vs_steps" else self.compute(at.rollouts)

    def wanted(self, at: Candidate) -> float | None:
        """The law's n; None for a prior, which has many."""
        return None if self.fits.method == "prior" else float(self.fits.law(self.law).predict(self.value(at)))

    def careful(self) -> LawPreference:
        """This preference in conservative mode."""
        return replace(self, mode="conservative")

    def _wanted(self, value: float) -> float:
        if self.mode == "conservative" and self.law in self.fits.law_draws:
            # Draws may lie above the law on the whole; careful never means more than expected.
            careful = float(np.quantile(self._drawn(value), CONSERVATIVE_QUANTILE))
            return min(careful, float(self.fits.law(self.law).log2(value)))
        return float(self.fits.law(self.law).log2(value))

    def _drawn(self, value: float) -> Array:
        draws = self.fits.law_draws[self.law]
        return sigmoid(self.fits.law(self.law).to_x(value), *(draws[:, i] for i in range(4)))
