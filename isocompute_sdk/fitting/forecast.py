"""`Forecast`: where one run that is going on will be, whether it has begun to fall, and what to do about it.

Its surface is that of the sweep seen by this run: a run has its own gain and its own midpoint. Given a draw of the
surface both are linear in the run's residuals, so that their posterior is a normal distribution with two dimensions. A
run that fell keeps its own onset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError, FitError
from isocompute_sdk.fitting.arguments import check_level
from isocompute_sdk.fitting.arrays import Array, Count, NotNegative, Number, Positive, Vector
from isocompute_sdk.fitting.measured_runs import best_level
from isocompute_sdk.fitting.surface.data import SMALLEST_FALL, BestAtK, PreparedRun, SurfaceRun, prepare, smoothed
from isocompute_sdk.fitting.surface.posterior import DEFAULT_DRAWS, bin_covariance, fit_surface, run_share
from isocompute_sdk.fitting.surface.prior import OF_A_RATE, UNNOTICED
from isocompute_sdk.fitting.surface.surface import (
    Declines,
    Surface,
    curve_and_slopes,
    logistic,
    mean_and_interval,
    with_departure,
)
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted
from isocompute_sdk.records.reward_metrics import no_rise, no_rise_note
from isocompute_sdk.tolerances import LEVEL, Tolerances

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSeries


@dataclass(frozen=True)
class RunSurface:
    """One run and the surface that predicts it."""

    surface: Surface
    run: PreparedRun

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
            rng: randomness of the draws.
            known: the surface of all of these runs, if it was fitted before.

        Raises:
            FitError: no evaluation of the run is left, since it fell from its first one on.
        """
        runs = sorted([one, *others], key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
        prepared = prepare(runs, bounds[1] - bounds[0])
        mine = prepared[runs.index(one)]
        if not len(mine.log_compute_J):
            raise FitError(f"run {one.run_id!r} has no evaluation before it fell", "Look at its first evaluations.")
        surface = fit_surface(prepared, bounds, DEFAULT_DRAWS, rng) if known is None else known
        return cls(_for_run(surface, mine, rng), mine)

    def draws(self, compute: Array, *, at: bool = True) -> Array:
        """Noise-free rewards of the run at each compute, or of its best checkpoint: shape (draws, Q)."""
        return self.surface.draws(compute, self.run.group_size, self.run.problems_per_batch, self.run.n_problems, at=at)

    def without_fall(self) -> RunSurface:
        """The same if rewards did not begin to fall."""
        return replace(self, surface=replace(self.surface, declines=None))


def _for_run(surface: Surface, run: PreparedRun, rng: np.random.Generator) -> Surface:
    """The surface with each draw moved by what the run's own gain and midpoint add."""
    layout, nan = surface.layout, float("nan")
    place = (np.array([float(value or nan)]) for value in (run.problems_per_batch, run.n_problems))
    design = layout.design(np.log2([float(run.group_size)]), *place)[0]
    curve_D4 = surface.parameters_DP @ design.T
    residual_DJ = np.empty((len(curve_D4), len(run.log_compute_J)))
    effect_DJ2 = np.empty((*residual_DJ.shape, 2))
    won_D = logistic(curve_D4[:, 1])
    share_D = run_share(surface.run_share, won_D)
    for name in dict.fromkeys(surface.shape_D):
        chosen = np.array(surface.shape_D) == name
        value, slopes = curve_and_slopes(name, curve_D4[chosen][:, None, :], run.log_compute_J, layout.top)
        residual_DJ[chosen] = run.reward_J - value
        effect_DJ2[chosen, :, 0] = share_D[chosen, None] * (value - curve_D4[chosen, :1])
        effect_DJ2[chosen, :, 1] = surface.run_midpoint * slopes[:, 2, :]
    inverse = np.linalg.inv(bin_covariance(run))
    weighted_D2J = effect_DJ2.transpose(0, 2, 1) @ inverse
    precision_D22 = np.eye(2) + weighted_D2J @ effect_DJ2
    mean_D2 = np.linalg.solve(precision_D22, weighted_D2J @ residual_DJ[..., None])[..., 0]
    factor = np.linalg.cholesky(np.linalg.inv(precision_D22))
    drawn_D2 = mean_D2 + (factor @ rng.standard_normal((*mean_D2.shape, 1)))[..., 0]
    moved_D = np.clip(won_D * (1.0 + share_D * drawn_D2[:, 0]), 1e-9, 1.0 - 1e-9)
    knots = len(layout.knots_K)
    parameters_DP = surface.parameters_DP.copy()
    parameters_DP[:, 1 : 1 + knots] += (np.log(moved_D / (1.0 - moved_D)) - curve_D4[:, 1])[:, None]
    parameters_DP[:, 1 + knots : 1 + 2 * knots] += (surface.run_midpoint * drawn_D2[:, 1])[:, None]
    declines = _own_fall(run, len(parameters_DP), rng) if run.fault else _not_yet(surface, run)
    return replace(surface, parameters_DP=parameters_DP, declines=declines)


def _own_fall(run: PreparedRun, draws: int, rng: np.random.Generator) -> Declines:
    """The fall that the run shows, at all n."""
    assert run.fault_compute is not None, "set with the fault"
    rate_D = (run.decline or 0.0) * np.exp(OF_A_RATE * rng.standard_normal(draws))
    onset_D = np.full(draws, float(np.log(run.fault_compute)))
    return Declines(onset_D, np.zeros(draws), rate_D, 1.0)


def _not_yet(surface: Surface, run: PreparedRun) -> Declines | None:
    """The surface's declines, none of which began long before the end of a run that did not fall."""
    if surface.declines is None:
        return None
    at_D = np.log(surface.onset(run.group_size, run.problems_per_batch))
    late_D = np.maximum(float(np.log(run.last_compute)) - UNNOTICED - at_D, 0.0)
    return replace(surface.declines, onset_D=surface.declines.onset_D + np.where(np.isfinite(at_D), late_D, 0.0))


Action = Literal["go-on", "stop-here", "change-something"]
Share = Annotated[float, Field(ge=0, le=1)]

MIN_EVALUATIONS = 6
"""Evaluations after step 0 that a forecast needs."""
FEW = 12
"""Evaluations below which a forecast is noted as resting on few."""
FACTORS = (2.0, 4.0)
"""Multiples of the run's compute that are shown, besides the one asked for."""
FURTHEST = 16.0
"""Largest multiple that may be asked for."""
BELIEVED = 4.0
"""Multiple beyond which the benchmark (docs/forecast.md) checked nothing."""
PER_DOUBLING = 5
"""Points of the forecast per doubling of compute."""
DOUBLINGS = 6
"""Doublings that are looked ahead for the point from which the run is flat."""
NEAR, TOO_FAR = 3, 3.0
"""Evaluations up to a checkpoint whose mean replaces the curve's reward there, if they differ by so many errors."""
PAST = 40
"""Points of the curve before the last evaluation."""


@dataclass(frozen=True)
class Checkpoint:
    """A point of the run to go back to."""

    rollouts: NotNegative
    """Compute C."""
    step: Number | None
    """Update steps done; None if unknown."""
    reward: Number | None
    """Reward there without the noise of one evaluation."""
    path: str | None = None
    """Folder on disk; None if none was found."""


@dataclass(frozen=True)
class RewardAhead:
    """Forecast at one multiple of the run's compute."""

    factor: Positive
    rollouts: Positive
    step: Number | None
    reward: Number
    """Noise-free reward at that compute."""
    low: Number
    high: Number
    best: Number
    """Reward of the best checkpoint up to there."""
    best_low: Number
    best_high: Number

    def __post_init__(self) -> None:
        if not (self.low <= self.high and self.best_low <= self.best_high):
            raise FieldError("low", self.low, f"at most high = {self.high}")


@dataclass(frozen=True)
class Flattening:
    """Compute from which another doubling adds less than `worth`."""

    rollouts: Positive | None
    """Median over the draws; None if it lies beyond the reach of the forecast."""
    worth: Positive
    now: Share
    """Probability that the run is flat already."""
    reach: Positive
    """Largest compute that was looked at."""


@dataclass(frozen=True)
class Card:
    """What to do."""

    action: Action
    reason: str
    keep: Checkpoint
    """Best checkpoint before any trouble; its `path` is the last one on disk up to there."""


@dataclass(frozen=True)
class ForecastCurve:
    """The curve for a picture."""

    rollouts: Vector
    mean: Vector
    low: Vector
    high: Vector


@dataclass(frozen=True)
class Forecast(Saved):
    """Forecast of one run from its own evaluations."""

    run_id: str
    metric: str
    eval_set: str | None
    group_size: Count
    problems_per_batch: Count | None
    rollouts: Positive
    """Compute of the last evaluation."""
    step: Number | None
    reward: Number
    """Noise-free reward there, with its interval."""
    low: Number
    high: Number
    level: Share
    """Coverage asked of all intervals."""
    ahead: tuple[RewardAhead, ...]
    flat: Flattening
    falling: Share
    """Probability that the reward has begun to fall."""
    onset: Checkpoint | None
    """Where a fall or another trouble began; None without one."""
    card: Card
    borrowed: tuple[str, ...]
    """Other runs of the sweep whose surface served as prior; empty for one run alone."""
    evaluated: Vector
    """Compute of the evaluations."""
    measured: Vector
    """Their rewards."""
    curve: ForecastCurve
    rises: bool = True
    """False where the reward does not rise beyond noise: then the numbers ahead are those of the prior."""
    notes: tuple[Note, ...] = ()

    def at(self, factor: float) -> RewardAhead:
        """The forecast at a multiple of the run's compute that was asked for.

        Raises:
            FitError: another multiple.
        """
        found = [one for one in self.ahead if abs(one.factor - factor) < 1e-9]
        if not found:
            raise FitError(
                f"factor = {factor:g}; forecast at {', '.join(f'{one.factor:g}' for one in self.ahead)}",
                "Ask again with to=.",
            )
        return found[0]

    def summary(self) -> str:
        """The forecast as text: card, rewards ahead, flattening, fall, what one run cannot say."""
        where = f"n = {self.group_size}"
        where += "" if self.problems_per_batch is None else f", B_p = {self.problems_per_batch}"
        best = best_level(np.asarray(self.evaluated), np.asarray(self.measured))
        title = f"{self.run_id} ({where}): fitted {self.metric} {self.reward:.3f} at {_place(self.rollouts, self.step)}"
        title += f", best measured {best:.3f}"
        basis = "to this run alone, so it knows no other n and no later rise or fall; --fits FILE adds its sweep"
        if self.borrowed:
            basis = f"with {len(self.borrowed)} other(s) of its sweep; plans show the mean over runs"
        lines = [title, f"  fitted {basis}", f"  {self.card.action}: {self.card.reason}"]
        if not self.rises:
            return "\n".join(lines)
        lines.append(f"  keep: {_kept(self.card.keep)}")
        for one in self.ahead:
            lines.append(
                f"  at {one.factor:g}x ({one.rollouts:,.0f} rollouts): {one.reward:.3f} "
                f"({self.level:.0%} interval {one.low:.3f} to {one.high:.3f}); best checkpoint {one.best:.3f} "
                f"({one.best_low:.3f} to {one.best_high:.3f})"
            )
        lines += [f"  {self._flat_words()}", f"  it has begun to fall with probability {self.falling:.2f}"]
        lines += [f"  [{note.severity}] {note.code}: {note.message}" for note in self.notes]
        return "\n".join(lines)

    def _flat_words(self) -> str:
        flat = self.flat
        words = f"the next doubling adds less than {flat.worth:g} with probability {flat.now:.2f}"
        if flat.now >= 0.5:
            return words
        if flat.rollouts is None:
            return f"{words}; this becomes more likely than not only beyond {flat.reach:,.0f} rollouts"
        return f"{words}; this becomes more likely than not from {flat.rollouts:,.0f} rollouts on"


FORECAST = Document("forecast", 1, Forecast, remedy="Forecast again: isocompute forecast LOGS --output FILE.")


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

    @property
    def one(self) -> RunSeries:
        """The run itself."""
        return self.series[0]

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
        run = SurfaceRun.of(self.one, best=best)
        if until is not None:
            kept = run.compute_T <= until * 1.0001
            run = replace(run, compute_T=run.compute_T[kept], reward_T=run.reward_T[kept])
        others = [SurfaceRun.of(one) for one in self.series[1:]]
        return RunSurface.fit(run, others, bounds, np.random.default_rng(0 if rng is None else rng), known)


def forecast_run(
    live: LiveRun,
    to: float = 4.0,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    level: float = 0.8,
    known: Surface | None = None,
    rng: np.random.Generator | int | None = None,
) -> Forecast:
    """Forecast one run by the surface of its sweep, or by its own."""
    level = check_level(level)
    if not 1.0 < to <= FURTHEST:
        raise FitError(f"to = {to:g}; accepted: above 1, at most {FURTHEST:g}", "--to 4x (to=4)")
    series = live.one
    after = int(np.count_nonzero(series.rollouts_T > 0))
    if after < MIN_EVALUATIONS:
        raise FitError(
            f"run {series.run_id!r} has {counted(after, 'evaluation')} of {live.metric!r} after step 0; a forecast "
            f"needs {MIN_EVALUATIONS} or more",
            "Wait for more, or evaluate more often.",
        )
    surface = live.surface(bounds, known=known, rng=rng)
    borrowed = tuple(sorted(one.run_id for one in live.series[1:]))
    factors = sorted({*(factor for factor in FACTORS if factor < to), float(to)})
    trained = series.rollouts_T[series.rollouts_T > 0]
    first, last = float(trained.min()), float(trained.max())
    past_Q = np.linspace(np.log(first / last), 0.0, PAST)
    ahead_Q = np.arange(1, PER_DOUBLING * DOUBLINGS + 1) * np.log(2.0) / PER_DOUBLING
    at_Q = np.unique(np.concatenate([past_Q, ahead_Q, np.log(factors)]))
    reward_DQ = surface.draws(last * np.exp(at_Q))
    worth = Tolerances(bounds[1] - bounds[0]).equal
    return _Answer(live, surface, last, level, worth, at_Q, reward_DQ).forecast(factors, borrowed, after)


@dataclass(frozen=True)
class _Answer:
    """Draws of one run's curve, and what follows from them."""

    live: LiveRun
    surface: RunSurface
    last: float
    """Compute of the last evaluation."""
    level: float
    worth: float
    at_Q: Array
    reward_DQ: Array

    def forecast(self, factors: Sequence[float], borrowed: tuple[str, ...], evaluations: int) -> Forecast:
        live, series = self.live, self.live.one
        now = int(np.searchsorted(self.at_Q, 0.0))
        best_DQ = np.maximum.accumulate(self.reward_DQ, axis=1)
        ahead = tuple(self._ahead(factor, best_DQ) for factor in factors)
        reward, low, high = (float(end[0]) for end in self._interval(self.reward_DQ[:, [now]], np.zeros(1)))
        lost_D = best_DQ[:, now] - self.reward_DQ[:, now]
        falling = float(np.mean(lost_D > SMALLEST_FALL * self.gain))
        curve_3Q = np.stack(self._interval(self.reward_DQ, self.at_Q))
        mean_Q, shown = curve_3Q[0], self.at_Q <= np.log(max(factors)) + 1e-9
        keep = self._keep(mean_Q, now)
        onset = self._onset(mean_Q, now, falling, keep)
        found = Forecast(
            run_id=series.run_id,
            metric=live.metric,
            eval_set=live.eval_set,
            group_size=series.group_size,
            problems_per_batch=series.problems_per_batch,
            rollouts=self.last,
            step=self._step(self.last),
            reward=reward,
            low=low,
            high=high,
            level=self.level,
            ahead=ahead,
            flat=self._flat(best_DQ, now),
            falling=falling,
            onset=onset,
            card=Card("go-on", "", keep),
            borrowed=borrowed,
            evaluated=series.rollouts_T,
            measured=series.value_T,
            curve=ForecastCurve(self.last * np.exp(self.at_Q[shown]), *curve_3Q[:, shown]),
            rises=not no_rise([series.value_T]),
            notes=(*live.notes, *_caveats(max(factors), evaluations), *live.findings),
        )
        gain_D = best_DQ[:, int(np.searchsorted(self.at_Q, np.log(max(factors)) - 1e-9))] - best_DQ[:, now]
        return replace(found, card=self._card(found, gain_D))

    @property
    def gain(self) -> float:
        """Largest smoothed gain over the base model that was measured, at least twice the noise."""
        series = self.live.one
        start = float(np.mean(self.surface.surface.parameters_DP[:, 0]))
        return max(float(np.max(smoothed(series.value_T))) - start, 2.0 * self.surface.run.noise)

    def _interval(self, drawn_DQ: Array, beyond_Q: Array) -> tuple[Array, Array, Array]:
        """Mean, lower and upper ends of drawn rewards, so far in ln C beyond the last evaluation."""
        surface = self.surface.surface
        ends = mean_and_interval(drawn_DQ, self.level)
        gain_Q = ends[0] - float(np.mean(surface.parameters_DP[:, 0]))
        wider = with_departure(ends, gain_Q, beyond_Q, self.level)
        low, high = np.clip(wider, surface.layout.floor, surface.layout.top)
        return ends[0], low, high

    def _ahead(self, factor: float, best_DQ: Array) -> RewardAhead:
        index = int(np.searchsorted(self.at_Q, np.log(factor) - 1e-9))
        drawn_D2 = np.stack([self.reward_DQ[:, index], best_DQ[:, index]], axis=1)
        at, best = np.stack(self._interval(drawn_D2, self.at_Q[[index, index]]), axis=1).tolist()
        return RewardAhead(factor, self.last * factor, self._step(self.last * factor), *at, *best)

    def _step(self, rollouts: float) -> float | None:
        """Update steps at a compute, in proportion beyond the last evaluation."""
        step_T, compute_T = self.live.one.step_T, self.live.one.rollouts_T
        if np.any(np.isnan(step_T)) or float(step_T[-1]) <= 0:
            return None
        if rollouts > compute_T[-1]:
            return float(round(step_T[-1] * rollouts / compute_T[-1]))
        return float(round(np.interp(rollouts, compute_T, step_T)))

    def _flat(self, best_DQ: Array, now: int) -> Flattening:
        """From the draws on the even grid ahead, of which `PER_DOUBLING` points are one doubling."""
        even = np.arange(PER_DOUBLING * DOUBLINGS + 1) * np.log(2.0) / PER_DOUBLING
        index = np.minimum(np.searchsorted(self.at_Q, even - 1e-9), len(self.at_Q) - 1)
        index[0] = now
        ahead_DE = best_DQ[:, index]
        flat_DE = ahead_DE[:, PER_DOUBLING:] - ahead_DE[:, :-PER_DOUBLING] < self.worth
        first_D = np.where(flat_DE.any(axis=1), np.argmax(flat_DE, axis=1), flat_DE.shape[1])
        reach = flat_DE.shape[1] - 1
        middle = int(np.quantile(first_D, 0.5, method="inverted_cdf"))
        return Flattening(
            rollouts=None if middle > reach else float(self.last * np.exp(even[middle])),
            worth=self.worth,
            now=float(np.mean(first_D == 0)),
            reach=float(self.last * np.exp(even[reach])),
        )

    def _onset(self, mean_Q: Array, now: int, falling: float, keep: Checkpoint) -> Checkpoint | None:
        """The earliest trouble: a finding's beginning, or the peak of a reward that falls; not before `keep`."""
        fell = self._began("falling")
        # The curve is smooth: before a sudden fall, which a finding dates, its peak lies too early.
        if falling >= LEVEL and not fell:
            fell.append(float(self.last * np.exp(self.at_Q[int(np.argmax(mean_Q[: now + 1]))])))
        # A reward that is still as good as the best has not fallen.
        began = [*self._began("sick"), *(max(one, keep.rollouts) for one in fell)]
        return self._checkpoint(min(began), mean_Q, now) if began else None

    def _began(self, kind: str) -> list[float]:
        """Compute at which troubles of this kind began."""
        return [one.rollouts for one in self.live.troubles if one.kind == kind and one.rollouts is not None]

    def _checkpoint(self, rollouts: float, mean_Q: Array, now: int) -> Checkpoint:
        at = np.log(max(rollouts, 1e-300) / self.last)
        reward = float(np.interp(at, self.at_Q[: now + 1], mean_Q[: now + 1]))
        near = np.flatnonzero((self.live.one.rollouts_T > 0) & (self.live.one.rollouts_T <= rollouts * 1.0001))[-NEAR:]
        measured = self.live.one.value_T[near]
        at_T = np.log(self.live.one.rollouts_T[near] / self.last)
        missed = measured - np.interp(at_T, self.at_Q[: now + 1], mean_Q[: now + 1])
        error = self.surface.run.noise / np.sqrt(max(len(measured), 1))
        # A curve does not follow a sudden collapse: its level just before would be that of the way down.
        if len(measured) and abs(float(np.mean(missed))) > TOO_FAR * error:
            reward = float(np.mean(measured))
        return Checkpoint(rollouts, self._step(rollouts), reward)

    def _keep(self, mean_Q: Array, now: int) -> Checkpoint:
        """The best point; with checkpoints on disk, the best of those. None from a sickness on, whatever its reward."""
        limit = min([self.last, *self._began("sick")])
        saved: list[Checkpoint] = []
        for step, path in self.live.saved:
            at = self._rollouts(step)
            if at is not None and 0 < at <= limit * 1.001:
                saved.append(replace(self._checkpoint(at, mean_Q, now), step=float(step), path=path))
        if saved:
            # Of checkpoints that differ by less than the worth of a change the last one is kept.
            top = max(one.reward or 0.0 for one in saved)
            return [one for one in saved if (one.reward or 0.0) >= top - self.worth / 2.0][-1]
        known = np.flatnonzero(self.last * np.exp(self.at_Q[: now + 1]) <= limit * 1.001)
        best = int(known[np.argmax(mean_Q[known])]) if known.size else 0
        return self._checkpoint(float(self.last * np.exp(self.at_Q[best])), mean_Q, now)

    def _rollouts(self, step: int) -> float | None:
        """Compute at an update step; None if steps are unknown."""
        step_T = self.live.one.step_T
        if np.any(np.isnan(step_T)) or step > step_T[-1]:
            return None
        return float(np.interp(step, step_T, self.live.one.rollouts_T))

    def _card(self, found: Forecast, gain_D: Array) -> Card:
        keep, last = found.card.keep, found.ahead[-1]
        if not found.rises:
            return Card("stop-here", no_rise_note(found.metric, 1).message, keep)
        sick = [one.name for one in self.live.troubles if one.kind == "sick"]
        fell = any(one.kind == "falling" for one in self.live.troubles)
        gains = float(np.mean(gain_D >= self.worth))
        if sick:
            advice = (
                f"{', '.join(dict.fromkeys(sick))}; isocompute forecast LOGS --remaining 2M shows what can be changed"
            )
            return Card("change-something", advice, keep)
        if (found.falling >= LEVEL or fell) and gains < 0.5:
            began = "" if found.onset is None else f" since {_place(found.onset.rollouts, found.onset.step)}"
            chance = f"a better checkpoint by {last.factor:g}x has probability {gains:.2f}"
            return Card("stop-here", f"the reward falls{began}; {chance}", keep)
        expected = f"at {last.factor:g}x the compute the best checkpoint is expected to reach {last.best:.3f}"
        missed = f"{expected}; stopping misses {self.worth:g} or more with probability {gains:.2f}"
        if found.flat.now >= LEVEL:
            words = f"flat: the next doubling gains under {self.worth:g} with probability {found.flat.now:.2f}"
            return Card("stop-here", f"{words}; {missed}", keep)
        if float(gain_D.mean()) < self.worth:
            return Card("stop-here", missed, keep)
        return Card("go-on", expected, keep)


def _place(rollouts: float, step: float | None) -> str:
    return f"{rollouts:,.0f} rollouts" if step is None else f"step {step:,.0f} ({rollouts:,.0f} rollouts)"


def _kept(keep: Checkpoint) -> str:
    where = _place(keep.rollouts, keep.step)
    reward = "" if keep.reward is None else f", {keep.reward:.3f} by its curve"
    return f"{where}{reward}" + (f", {keep.path}" if keep.path is not None else "; no checkpoint was found on disk")


def _caveats(furthest: float, evaluations: int) -> list[Note]:
    """Where forecasts were not checked."""
    notes: list[Note] = []
    doubts = list[str]()
    if evaluations < FEW:
        doubts.append(f"{evaluations} evaluations after step 0: the forecast is mostly its prior, evaluate more often")
    if furthest > BELIEVED:
        doubts.append(f"{furthest:.3g}x the compute: forecasts were checked up to {BELIEVED:g}x (docs/forecast.md)")
    if doubts:
        numbers = {"factor": furthest, "evaluations": evaluations}
        notes.append(Note("forecast-uncertain", "warning", f"{'; '.join(doubts)}.", numbers))
    return notes
