"""Each run's configuration against the best known one at the same compute, and the cost of equal reward.

Configurations are compared, not single runs: a surface gives rewards averaged over runs, so the luck of one run is not
read as an effect of its n. Differences are paired over the surface's draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from isocompute_sdk.auditing.result import RunAudit, Standing
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import Configuration
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers import (
    Estimate,
    Place,
    difference,
    draws_at,
    estimate,
    estimate_of_cost,
    first_reach,
)
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.passport import LAST_BINS
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_sdk.tolerances import Tolerances

SURE = 2.0
"""A tie needs an interval of the difference that ends below this many ties."""
FORECAST = 3.0
"""A configuration is compared up to this many times the compute of its last evaluation; beyond, forecasts lost too much
in simulated sweeps (docs/allocation.md)."""
SEEN = 1.25
"""A configuration counts as measured up to this many times the compute of its last evaluation."""
ABOVE = 4.0
"""Equal rewards are searched up to this many times the largest compute."""
PER_OCTAVE = 8
CHANCE = 0.99
"""Coverage of the interval of one run outside which the run is off its curve."""


@dataclass(frozen=True, eq=False)
class Path:
    """Drawn rewards of the best known configuration at every compute of a grid."""

    compute_G: Array
    reward_DG: Array


@dataclass(frozen=True, eq=False)
class Field:
    """The fitted configurations of a group, against which its runs are judged."""

    fits: Fits
    surface: Surface
    level: float
    reach: Mapping[Configuration, tuple[float, float]]
    """First and last compute at which each configuration was evaluated after step 0."""
    paths: dict[float | None, Path] = field(default_factory=dict[float | None, Path])
    """Cache of `path`, by size of the problem set."""

    @classmethod
    def of(cls, fits: Fits, prepared: Sequence[PreparedRun], level: float) -> Field:
        """Build it from a group's fits and prepared runs; evaluations after a collapse do not count."""
        assert fits.surface is not None, "an audit fits a surface"
        last: dict[Configuration, float] = {}
        for run in prepared:
            key = (run.group_size, run.problems_per_batch)
            end = run.fault_compute if run.fault == "collapse" else run.last_compute
            last[key] = max(last.get(key, 0.0), end or 0.0)
        reach = {key: (curve.first_compute, last[key]) for key, curve in fits.curves.items()}
        return cls(fits, fits.surface, level, reach)

    @property
    def tie(self) -> float:
        """Rewards closer than this are equal."""
        return Tolerances(self.fits.bounds[1] - self.fits.bounds[0]).equal

    def known_at(self, compute: float) -> list[Configuration]:
        """Configurations whose evaluations reach this compute, or come within `FORECAST` of it; else all."""
        begun = max(compute, min(first for first, _ in self.reach.values()))
        known = [key for key, (first, last) in self.reach.items() if first <= begun and compute <= FORECAST * last]
        return known or list(self.reach)

    def best_at(self, compute: float, n_problems: float | None) -> Configuration:
        """The known configuration with the largest expected reward at this compute."""
        known = self.known_at(compute)
        reward_DK = self.draws(np.array([compute]), known, n_problems)[:, 0]
        return known[int(np.argmax(np.round(reward_DK.mean(axis=0), 12)))]

    def draws(self, compute_G: Array, keys: Sequence[Configuration], n_problems: float | None) -> Array:
        """Rewards of configurations, shape (D, G, K)."""
        sizes = np.array([n for n, _ in keys], dtype=float)
        problems = np.array([np.nan if bp is None else bp for _, bp in keys], dtype=float)
        shape = (len(compute_G), len(keys))
        at, n, bp = (np.broadcast_to(a, shape).ravel() for a in (compute_G[:, None], sizes, problems))
        return self.surface.draws(at, n, bp, n_problems).reshape(-1, *shape)

    def path(self, n_problems: float | None) -> Path:
        """The configuration with the largest expected reward at every compute.

        Not the best of each draw: nobody could have chosen that one.
        """
        if n_problems not in self.paths:
            keys = list(self.reach)
            low = min(first for first, _ in self.reach.values()) / 2
            high = ABOVE * max(last for _, last in self.reach.values())
            compute_G = np.geomspace(low, high, int(np.ceil(np.log2(high / low) * PER_OCTAVE)) + 1)
            reward_DGK = self.draws(compute_G, keys, n_problems)
            allowed_GK = np.array([[key in known for key in keys] for known in map(self.known_at, compute_G)])
            best = np.argmax(np.where(allowed_GK, np.round(reward_DGK.mean(axis=0), 12), -np.inf), axis=1)
            reward_DG = np.take_along_axis(reward_DGK, best[None, :, None], axis=2)[:, :, 0]
            self.paths[n_problems] = Path(compute_G, reward_DG)
        return self.paths[n_problems]


def place(key: Configuration, compute: float, n_problems: float | None) -> Place:
    """A configuration at one compute."""
    return Place(compute, key[0], None if key[1] is None else float(key[1]), n_problems)


def judge(known: Field, run: RunAudit, prepared: PreparedRun, n_problems: float | None) -> tuple[RunAudit, Array]:
    """Judge one run against its group.

    Args:
        known: the fitted group.
        run: the run before its judgement.
        prepared: the run as prepared for the fit.
        n_problems: its training problems, if the surface depends on them; else None.

    Returns:
        The run with its standing, and draws of the rollouts with which the best known configurations reach its reward.
    """
    own = (run.group_size, run.problems_per_batch)
    useful = prepared.fault_compute if prepared.fault is not None else None
    useful = run.rollouts if useful is None else useful
    here = place(own, useful, n_problems)
    best = known.best_at(run.rollouts, n_problems)
    there = place(best, run.rollouts, n_problems)
    behind = difference(known.surface, there, here, known.level)
    alone = len(known.reach) == 1 and prepared.fault is None
    equal_D, bounded = (
        (np.full(len(known.surface.shape_D), useful), True)
        if best == own
        else equal_cost(known.path(n_problems), draws_at(known.surface, here), known.level)
    )
    off = _off_curve(known, prepared, n_problems)
    standing = _standing(behind, known.tie, own == best and prepared.fault != "collapse", alone)
    judged = replace(
        run,
        standing="undecided" if off is not None and standing != "alone" else standing,
        off_curve=off,
        expected=float(draws_at(known.surface, here).mean()),
        best_group_size=best[0],
        best_problems_per_batch=best[1],
        best_reward=float(draws_at(known.surface, there).mean()),
        behind=behind,
        equal_reward=estimate_of_cost(equal_D, known.level),
        equal_reward_bounded=bounded,
        last_half=_last_half(known, own, useful, run.rollouts, n_problems),
        forecast=known.reach[best][1] * SEEN < run.rollouts,
        fault=prepared.fault,
        fault_rollouts=prepared.fault_compute,
    )
    return judged, equal_D


def equal_cost(path: Path, target_D: Array, level: float) -> tuple[Array, bool]:
    """Smallest compute at which the best known configurations reach each draw's target.

    Args:
        path: the best known configurations.
        target_D: reward to reach, by draw.
        level: coverage of the interval to be computed from the draws.

    Returns:
        Compute by draw, and whether that interval lies within the path's computes.
    """
    log_D, before_D, never_D = first_reach(np.log(path.compute_G), path.reward_DG, target_D)
    tail = (1 - level) / 2
    return np.exp(log_D), bool(np.mean(before_D) <= tail and np.mean(never_D) <= tail)


def total_cost(equal_RD: Sequence[Array], level: float) -> Estimate:
    """Rollouts of all runs together at equal reward."""
    return estimate_of_cost(np.sum(np.asarray(equal_RD), axis=0), level)


def _last_half(known: Field, own: Configuration, useful: float, spent: float, n_problems: float | None) -> Estimate:
    """Reward gained in the second half of the compute; zero if the fault came before."""
    if useful <= spent / 2:
        return Estimate(0.0, 0.0, 0.0)
    end, half = (draws_at(known.surface, place(own, c, n_problems)) for c in (useful, spent / 2))
    return estimate(end - half, known.level)


def _off_curve(known: Field, run: PreparedRun, n_problems: float | None) -> float | None:
    """Measured minus fitted reward over a run's last bins; None if chance explains it."""
    if not len(run.log_compute_J):
        return None
    last = slice(-LAST_BINS, None)
    weight_J = run.count_J[last] / run.count_J[last].sum()
    at = np.exp(run.log_compute_J[last])
    problems = None if run.problems_per_batch is None else float(run.problems_per_batch)
    surface = known.surface if n_problems is None else replace(known.surface, n_problems=n_problems)
    parts = surface.interval("run", CHANCE, at, float(run.group_size), problems)
    mean, low, high = (float(np.sum(weight_J * part)) for part in parts)
    off = float(np.sum(weight_J * run.reward_J[last])) - mean
    # The interval is for one evaluation, while several are averaged here: it is too wide, which is the safe side.
    return None if low - mean <= off <= high - mean else off


def _standing(behind: Estimate, tie: float, best: bool, alone: bool) -> Standing:
    if alone:
        return "alone"
    if best:
        return "best"
    if behind.low > 0 and behind.mean > tie:
        return "behind"
    return "level" if behind.mean <= tie and behind.high <= SURE * tie else "undecided"
