"""What tests of fits and plans make runs from, and how they look at notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Protocol

import numpy as np

from isocompute_sdk import Note, RunSet, sweeps
from isocompute_simulator.families import FAMILIES
from isocompute_simulator.scenario import draw_scenario

Make = Callable[..., RunSet]
Reward = Callable[[int, int, float], float]


class Noted(Protocol):
    @property
    def notes(self) -> Iterable[Note]: ...


def codes(noted: Noted) -> set[str]:
    return {note.code for note in noted.notes}


def later_and_higher(
    height: float = 0.1, per_octave: float = 0.03, tau: float = 6e3, power: float = 1.0, base: float = 0.35
) -> Reward:
    """Larger n rises later and higher, to a plateau."""
    return lambda n, bp, c: float(base + (height + per_octave * np.log2(n)) * -np.expm1(-c / (tau * n**power)))


def saturating(plateau: Mapping[int, float], tau: Mapping[int, float], base: float) -> Reward:
    """A curve of its own for every n, all from one start."""
    return lambda n, bp, c: plateau[n] - (plateau[n] - base) * float(np.exp(-c / tau[n]))


def noisy(reward: Reward, spread: float, seed: int = 0) -> Reward:
    """The same with independent noise, in the order in which it is asked."""
    rng = np.random.default_rng(seed)
    return lambda n, bp, c: reward(n, bp, c) + spread * float(rng.standard_normal())


corpus = cache(sweeps)
"""The real sweeps that ship, read once."""


def recorded(name: str) -> RunSet:
    """A real sweep that ships."""
    (found,) = (one.runs for one in corpus() if one.name == name)
    return found


def simulated(seed: int, first: int = 0) -> RunSet:
    """A sweep of a simulated task; `first` is the seed of its numbers for seed 0."""
    return draw_scenario(np.random.default_rng(first + seed), FAMILIES[seed % len(FAMILIES)]).runs
