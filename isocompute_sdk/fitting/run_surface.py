"""`RunSurface`: the surface that predicts one run; `LiveRun`: that run while it goes on, and what is wrong with it.

The surface is that of the sweep seen by the run: a run has its own gain and its own midpoint, drawn for each draw of
the surface. A run that fell keeps its own onset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import Reached
from isocompute_sdk.fitting.least_squares import Indices, least_squares_batch
from isocompute_sdk.fitting.surface.data import (
    COLLAPSE_LEFT,
    OWN_NOISE,
    TOO_FAR,
    WILD,
    BestAtK,
    PreparedRun,
    SurfaceRun,
    prepare,
    rough_noise,
)
from isocompute_sdk.fitting.surface.posterior import (
    DEFAULT_DRAWS,
    RunFunction,
    bin_covariance,
    by_shape,
    fit_surface,
    run_reward,
    run_share,
    run_slopes,
)
from isocompute_sdk.fitting.surface.prior import OF_A_RATE
from isocompute_sdk.fitting.surface.surface import Declines, Surface, logistic
from isocompute_sdk.notes import Note

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSeries

NEAR = 3
"""Evaluations averaged to the level at a place of a run."""
FURTHEST = 16.0
"""Largest multiple of its compute to which a run is forecast."""
AHEAD = 12
"""Points ahead among which the best checkpoint is looked for."""
CLOSE = 1.001
"""Factor by which computes of one evaluation may differ."""


@dataclass(frozen=True)
class RunSurface:
    """One run and the surface that predicts it."""

    surface: Surface
    run: PreparedRun
    evaluated: SurfaceRun
    """Its evaluations as they are."""
    borrowed: tuple[str, ...] = ()
    """The other runs that it was fitted with."""

    @classmethod
    def fit(
        cls,
        one: SurfaceRun,
        others: Sequence[SurfaceRun],
        bounds: tuple[float, float],
        rng: np.random.Generator,
        known: Surface | None = None,
    ) -> RunSurface:
        """Fit the run together with the others of its sweep.

        Args:
            one: the run.
            others: runs of the same recipe.
            bounds: range of the metric.
            rng: randomness of the draws of a surface that is not known; by one surface a run is always drawn alike.
            known: the surface of all of these runs, if it was fitted before.

        Raises:
            FitError: no evaluation of the run is left, since it fell from its first one on.
        """
        runs = sorted([one, *others], key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
        prepared = prepare(runs, bounds[1] - bounds[0])
        mine = prepared[runs.index(one)]
        if not len(mine.log_compute_J):
            if others:
                # What is noise in the sweep may be a rise of this run.
                return cls.fit(one, (), bounds, rng)
            raise FitError(f"run {one.run_id!r} has no evaluation before it fell", "Look at its first evaluations.")
        surface = fit_surface(prepared, bounds, DEFAULT_DRAWS, rng) if known is None else known
        return cls(
            _for_run(surface, mine, np.random.default_rng(0)),
            mine,
            one,
            tuple(sorted(other.run_id for other in others)),
        )

    @classmethod
    def of_all(cls, runs: Sequence[SurfaceRun], bounds: tuple[float, float], surface: Surface) -> list[RunSurface]:
        """Each of the runs that a surface was fitted to, if it was evaluated before it fell."""
        pairs = zip(runs, prepare(runs, bounds[1] - bounds[0]), strict=True)
        return [
            cls(_for_run(surface, mine, np.random.default_rng(0)), mine, one)
            for one, mine in pairs
            if len(mine.log_compute_J)
        ]

    def draws(self, compute: Array, *, at: bool = True) -> Array:
        """Noise-free rewards of the run at each compute, or of its best checkpoint: shape (draws, Q)."""
        # Curves are over log(C): the base model stands at one rollout.
        spent, run = np.maximum(compute, 1.0), self.run
        return self.surface.draws(spent, run.group_size, run.problems_per_batch, run.n_problems, at=at)

    def missed(self, compute: float) -> float:
        """How far the mean of the last `NEAR` evaluations up to there lies above the curve; 0 where it fits them.

        A curve does not follow a sudden rise, nor a collapse: just before one its reward would be that of the way down.
        """
        compute_T, reward_T = self.evaluated.compute_T, self.evaluated.reward_T
        near = np.flatnonzero((compute_T > 0) & (compute_T <= compute * CLOSE))[-NEAR:]
        if not len(near):
            return 0.0
        *curve_T, there = self.draws(np.append(compute_T[near], compute)).mean(axis=0)
        # The median, since one evaluation may be high by chance.
        off = float(np.median(reward_T[near] - curve_T))
        trained_T, noise = reward_T[compute_T > 0], self.run.noise
        if off > 0 and len(trained_T) >= OWN_NOISE:
            # A dip that was made good lowers the curve and raises its noise, but not that of most evaluations.
            noise = min(noise, rough_noise([trained_T]))
        within = abs(off) <= TOO_FAR * noise / np.sqrt(len(near))
        return 0.0 if within else float(np.mean(reward_T[near]) - there)

    def level(self, compute: float) -> tuple[float, bool]:
        """Reward at a compute without the noise of one evaluation, and whether it is the curve's, which fits there."""
        missed = self.missed(compute)
        return float(self.draws(np.array([compute])).mean()) + missed, missed == 0.0

    def best(self, until: float = np.inf) -> Reached:
        """The run at its best evaluation: where its curve is highest, or of a run that fell the highest one.

        Args:
            until: compute up to which.
        """
        compute_T, reward_T = self.evaluated.compute_T, self.evaluated.reward_T
        trained_T = compute_T > 0
        seen_T = trained_T & (compute_T <= max(until, float(compute_T[trained_T].min())) * CLOSE)
        at_T, level_T, curve = compute_T[seen_T], reward_T[seen_T], self.without_fall()
        if not (fell := self.run.fault is not None):
            curve, level_T = self, self.draws(at_T).mean(axis=0)
            level_T[-1], _ = self.level(float(at_T[-1]))
            wild_T = reward_T[seen_T] < level_T - WILD * self.run.noise
            if not wild_T.all():
                # Nobody should keep a checkpoint on whose evaluation a curve does not count.
                level_T[wild_T] = -np.inf
            # Where the curve is above what was measured, that counts.
            while (level := self.level(float(at_T[top := int(np.argmax(level_T))]))[0]) < level_T[top] - 1e-9:
                level_T[top] = level
        at, run = float(at_T[np.argmax(level_T)]), self.run
        sizes = (run.group_size, run.problems_per_batch)
        reward, fitted = curve.level(at)
        return Reached(*sizes, at, reward, run.run_id, fell, fitted)

    def going_on(self, rollouts: float) -> float:
        """Reward of the best checkpoint from now on after so many more rollouts."""
        last = float(self.evaluated.compute_T[-1])
        ahead_DQ = self.draws(np.geomspace(last, min(last + rollouts, FURTHEST * last), AHEAD))
        return float(ahead_DQ.max(axis=1).mean()) + self.missed(last)

    def without_fall(self) -> RunSurface:
        """The same if rewards did not begin to fall."""
        return replace(self, surface=replace(self.surface, declines=None))


def _for_run(surface: Surface, run: PreparedRun, rng: np.random.Generator) -> Surface:
    """The surface with each draw moved by the run's own gain and midpoint, drawn as the surface itself is."""
    layout, nan = surface.layout, float("nan")
    place = (np.array([float(value or nan)]) for value in (run.problems_per_batch, run.n_problems))
    curve_D4 = surface.parameters_DP @ layout.design(np.log2([float(run.group_size)]), *place)[0].T
    whiten, shape_D = np.linalg.inv(np.linalg.cholesky(bin_covariance(run))), np.array(surface.shape_D)
    noise_DT = rng.standard_normal((len(curve_D4), len(run.reward_J) + 2))

    def of_run(function: RunFunction, effects_K2: Array, index: Indices) -> Array:
        scales = (layout.top, surface.run_share, surface.run_midpoint)
        return by_shape(function, shape_D[index], curve_D4[index], effects_K2, run.log_compute_J, *scales)

    def residual(effects_K2: Array, index: Indices) -> Array:
        off = (of_run(run_reward, effects_K2, index) - run.reward_J) @ whiten.T
        return np.concatenate([off, effects_K2], axis=1) - noise_DT[index]

    def jacobian(effects_K2: Array, index: Indices) -> Array:
        own = np.broadcast_to(np.eye(2), (len(index), 2, 2))
        return np.concatenate([of_run(run_slopes, effects_K2, index)[:, 4:] @ whiten.T, own], axis=2)

    drawn_D2 = least_squares_batch(residual, jacobian, np.zeros((len(curve_D4), 2))).parameters_NP
    won_D = logistic(curve_D4[:, 1])
    gain_D = 1.0 + run_share(surface.run_share, won_D) * drawn_D2[:, 0]
    moved_D = np.clip(won_D * gain_D, 1e-9, 1.0 - 1e-9)
    knots = len(layout.knots_K)
    parameters_DP = surface.parameters_DP.copy()
    parameters_DP[:, 1 : 1 + knots] += (np.log(moved_D / (1.0 - moved_D)) - curve_D4[:, 1])[:, None]
    parameters_DP[:, 1 + knots : 1 + 2 * knots] += (surface.run_midpoint * drawn_D2[:, 1])[:, None]
    moved = replace(surface, parameters_DP=parameters_DP, declines=None)
    if run.fault:
        return replace(moved, declines=_own_fall(run, len(parameters_DP), rng))
    return moved if surface.declines is None else replace(moved, declines=_not_yet(moved, surface.declines, run, rng))


def _own_fall(run: PreparedRun, draws: int, rng: np.random.Generator) -> Declines:
    """The fall that the run shows, at all n."""
    assert run.fault_compute is not None, "set with the fault"
    rate_D = (run.decline or 0.0) * np.exp(OF_A_RATE * rng.standard_normal(draws))
    onset_D = np.full(draws, float(np.log(run.fault_compute)))
    return Declines(onset_D, np.zeros(draws), rate_D, 1.0)


def _not_yet(without: Surface, declines: Declines, run: PreparedRun, rng: np.random.Generator) -> Declines | None:
    """The declines that the evaluations of a run that did not fall allow, each drawn as often as they do."""
    whiten, place = np.linalg.inv(np.linalg.cholesky(bin_covariance(run))), np.exp(run.log_compute_J)
    sizes = (run.group_size, run.problems_per_batch, run.n_problems)
    off_2D = [
        np.sum(((one.draws(place, *sizes, at=True) - run.reward_J) @ whiten.T) ** 2, axis=1)
        for one in (without, replace(without, declines=declines))
    ]
    chance_D = np.exp(np.minimum(off_2D[0] - off_2D[1], 0.0) / 2.0)
    if not chance_D.any():
        return None
    drawn_D = rng.choice(len(chance_D), len(chance_D), p=chance_D / chance_D.sum())
    return replace(
        declines,
        onset_D=declines.onset_D[drawn_D],
        step_D=declines.step_D[drawn_D],
        rate_D=declines.rate_D[drawn_D],
    )


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a run, and since when."""

    name: str
    """Code of the note about it."""
    kind: Literal["sick", "falling"]
    """`sick`: a change of the recipe answers it; `falling`: its reward falls, and the best checkpoint is kept."""
    rollouts: float | None
    """Compute at which it began; None for a setting."""


@dataclass(frozen=True)
class LiveRun:
    """A run that is going on, as `forecast_run` takes it."""

    series: tuple[RunSeries, ...]
    """The run and, behind it, the others of its sweep; alone without one."""
    metric: str
    eval_set: str | None = None
    troubles: tuple[Trouble, ...] = ()
    """What the health detectors found wrong, without what is only worth knowing."""
    findings: tuple[Note, ...] = ()
    """Their notes, to be shown."""
    saved: tuple[tuple[int, str], ...] = ()
    """(step, folder) of the checkpoints on disk."""
    notes: tuple[Note, ...] = ()
    best: RunSeries | None = None
    """best@k of the run on the same evaluation set; None if not recorded."""
    best_metric: str = ""
    """Its name."""
    flat: Note | None = None
    """That it does not rise, or that the runs beside it and it together do not; None if it rises."""
    noise_scales: Mapping[str, float] = field(default_factory=dict[str, float])
    """Noise by run id where it is another than that of the sweep's metric: of runs whose avg@j stands in for avg@k."""
    other: Reached | None = None
    """The best of the other runs of its sweep, if it stands above this run and did not fall since."""

    @property
    def one(self) -> RunSeries:
        """The run itself."""
        return self.series[0]

    @property
    def peak(self) -> float | None:
        """Compute at which it was best before it fell, by a finding; None if it did not fall."""
        fell = (one for one in self.troubles if one.kind == "falling" or one.name == "collapsed-run")
        return next((one.rollouts for one in fell), None)

    @property
    def lost(self) -> bool:
        """Whether the reward fell, by a finding, and its last values keep little of the gain, or of the start."""
        if self.peak is None:
            return False
        start, top = float(self.one.value_T[0]), float(self.one.value_T.max())
        left = float(np.mean(self.one.value_T[-NEAR:]))
        return left - start < COLLAPSE_LEFT * (top - start) or left < COLLAPSE_LEFT * start

    def surface(
        self,
        bounds: tuple[float, float],
        *,
        known: Surface | None = None,
        until: float | None = None,
        rng: np.random.Generator | int | None = None,
    ) -> RunSurface:
        """The surface that predicts the run."""
        best = None
        if self.best is not None:
            best = BestAtK(self.best_metric, self.best.rollouts_T, self.best.value_T)
        run = self._evaluated(self.one, best)
        if until is not None:
            kept = run.compute_T <= until * 1.0001
            run = replace(run, compute_T=run.compute_T[kept], reward_T=run.reward_T[kept])
        others = [self._evaluated(one) for one in self.series[1:]]
        return RunSurface.fit(run, others, bounds, np.random.default_rng(0 if rng is None else rng), known)

    def _evaluated(self, one: RunSeries, best: BestAtK | None = None) -> SurfaceRun:
        return SurfaceRun.of(one, noise_scale=self.noise_scales.get(one.run_id, 1.0), best=best)
