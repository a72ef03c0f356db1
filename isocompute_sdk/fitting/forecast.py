"""`Forecast`: where one run that is going on will be, whether it has begun to fall, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from shlex import quote
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError, FitError
from isocompute_sdk.fitting.arguments import check_level
from isocompute_sdk.fitting.arrays import Array, Count, NotNegative, Number, Positive, Vector
from isocompute_sdk.fitting.run_surface import FURTHEST, NEAR, LiveRun, RunSurface
from isocompute_sdk.fitting.surface.data import MIN_EVALUATIONS, SMALLEST_FALL, smoothed
from isocompute_sdk.fitting.surface.surface import Surface, mean_and_interval, with_departure
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import chance_text, counted, multiple, off, short, two_digits
from isocompute_sdk.tolerances import LEVEL, Tolerances

Action = Literal["go-on", "stop-here", "change-something"]
Share = Annotated[float, Field(ge=0, le=1)]

FEW = 12
"""Evaluations below which a forecast is noted as resting on few."""
FACTORS = (2.0, 4.0)
"""Multiples of the run's compute that are shown, besides the one asked for."""
AGAIN = 2.0
"""Multiple at which going on is judged: as much compute again as the run has had."""
BELIEVED = 4.0
"""Multiple beyond which the benchmark (docs/forecast.md) checked nothing."""
PER_DOUBLING = 5
"""Points of the forecast per doubling of compute."""
DOUBLINGS = 6
"""Doublings that are looked ahead for the point from which the run is flat."""
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
    fitted: bool = True
    """Whether `reward` is the curve's; False: the mean of the last evaluations up to there, which the curve misses."""

    @property
    def place(self) -> str:
        """Where it lies, in words."""
        compute = f"{self.rollouts:,.0f} rollouts"
        return compute if self.step is None else f"step {self.step:,.0f} ({compute})"


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
    """Reward of the best checkpoint from now up to there, or of the one to keep if it is on disk."""
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
    gain: Number
    """Mean over the draws of what the next doubling adds to the best checkpoint."""
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
    """Noise-free reward there, with its interval: by the curve, and as measured where the curve misses it."""
    low: Number
    high: Number
    level: Share
    """Coverage asked of all intervals."""
    ahead: tuple[RewardAhead, ...]
    flat: Flattening
    falling: Share
    """Probability that the reward has begun to fall; 1 where a detector saw it."""
    falling_ahead: Share
    """The same by the largest multiple."""
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
    """False where the reward, or that of its runs together, does not rise beyond noise: then the prior alone speaks."""
    lost: bool = False
    """True where a fall left little of the gain: then no curve says what is ahead."""
    missed: Number = 0.0
    """How far the last evaluations lie above the curve, if beyond noise; what is ahead starts from them."""
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

    @property
    def told(self) -> bool:
        """Whether a curve says what is ahead: the reward rises, and a fall has not taken it."""
        return self.rises and not self.lost

    @property
    def fell(self) -> bool:
        """Whether a fall was seen, so that nobody has to guess."""
        return self.falling == 1.0

    def __repr__(self) -> str:
        ahead = ", ".join(f"{one.reward:.3f} at {multiple(one.factor)}x" for one in self.ahead)
        return (
            f"Forecast({self.run_id}; {self.metric} {self.reward:.3f} now, {ahead}; {self.card.action}; "
            "summary() has the rest)"
        )

    def summary(self) -> str:
        """The forecast as text: card, rewards ahead, flattening, fall, what one run cannot say."""
        where = f"n = {self.group_size}"
        where += "" if self.problems_per_batch is None else f", B_p = {self.problems_per_batch}"
        highest, at = max(self.measured), self.evaluated[int(np.argmax(self.measured))]
        step = None if self.step is None else round(self.step * at / self.rollouts)
        told, of = self.told, "fitted" if self.told else "measured"
        of = f"mean of its last {NEAR} evaluations," if self.missed and told else of
        now = Checkpoint(self.rollouts, self.step, self.reward if told else float(self.measured[-1]))
        title = f"{self.run_id} ({where}): {of} {self.metric} {now.reward:.3f} at {now.place}"
        title += f", highest evaluation {highest:.3f} at {f'{at:,.0f} rollouts' if step is None else f'step {step:,}'}"
        basis = "to this run alone: other n are unknown, and a later rise or fall is as likely as usual"
        if self.borrowed:
            basis = f"with {counted(len(self.borrowed), 'other run')}; plans show the mean over runs"
        again = short(two_digits(self.rollouts))
        action, ask = f"{self.card.action}: {self.card.reason}", f"--run {quote(self.run_id)} --remaining {again}"
        if self.card.action == "change-something":
            action += f"; add {ask} to see what can be changed"
        elif self.card.action == "go-on" and self.borrowed:
            action += f"; {ask} compares it with a new run"
        lines = [title, *[f"  fitted {basis}"] * told, f"  {action}"]
        if self.rises or self.lost:
            keep, best = self.card.keep, "best so far" if self.onset is None else "best before the trouble"
            of = "fitted" if keep.fitted else f"mean of the {NEAR} evaluations up to it"
            kept = keep.place if keep.reward is None else f"{keep.place}, {keep.reward:.3f} {of}"
            none = f"{best}: {kept}; no checkpoint was found on disk"
            lines.append(f"  keep: {kept}, {keep.path}" if keep.path else f"  {none}")
        best = "best checkpoint" if self.card.keep.path else "best from now on"
        if told:
            lines += [
                f"  at {multiple(one.factor)}x ({one.rollouts:,.0f} rollouts): {one.reward:.3f} "
                f"({self.level:.0%} interval {one.low:.3f} to {one.high:.3f}); {best} {one.best:.3f} "
                f"({one.best_low:.3f} to {one.best_high:.3f})"
                for one in self.ahead
            ]
            lines += [
                *[f"  {self._flat_words()}"] * (self.card.action != "go-on" or self.missed < self.flat.worth),
            ]
        if told and not self.fell and (self.onset is None or self.card.action != "stop-here"):
            begun, ahead = chance_text(self.falling), chance_text(self.falling_ahead)
            far = multiple(self.ahead[-1].factor)
            lines.append(f"  probability that a fall has begun: {begun} by the last evaluation, {ahead} by {far}x")
        lines += [f"  {note.line}" for note in self.notes]
        return "\n".join(lines)

    def _flat_words(self) -> str:
        flat = self.flat
        words = (
            f"the next doubling adds {flat.gain:.3f} to the best checkpoint on average (less than {flat.worth:g} with "
            f"probability {chance_text(flat.now)})"
        )
        if flat.now >= 0.5:
            return words
        if flat.rollouts is None:
            return f"{words}. A doubling will probably add less only beyond {short(flat.reach)} rollouts"
        return (
            f"{words}. From {short(flat.rollouts)} rollouts on, a doubling will probably add less than {flat.worth:g}"
        )


FORECAST = Document(
    "forecast",
    1,
    Forecast,
    remedy="Forecast again: <isocompute forecast LOGS --output FILE | iso.forecast(fits, run_id)>.",
)


def forecast_run(
    live: LiveRun,
    to: float = 4.0,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    level: float = 0.8,
    known: Surface | None = None,
    judged_at: float = AGAIN,
    rng: np.random.Generator | int | None = None,
) -> Forecast:
    """Forecast one run by the surface of its sweep, or by its own.

    Args:
        live: the run.
        to: largest multiple of its compute that is shown.
        bounds: range of the metric.
        level: coverage of the intervals.
        known: the surface of its sweep, if it was fitted before.
        judged_at: multiple of its compute at which going on is judged.
        rng: generator or seed of the draws.
    """
    level = check_level(level)
    if not 1.0 < to <= FURTHEST:
        raise FitError(f"to = {to:g}; accepted: above 1, at most {FURTHEST:g}", "<--to 4x | to=4>")
    series = live.one
    after = int(np.count_nonzero(series.rollouts_T > 0))
    every = sum(int(np.count_nonzero(one.rollouts_T > 0)) for one in live.series)
    if not after or every < MIN_EVALUATIONS:
        beside = f", {every} with the other runs" if live.series[1:] else ""
        raise FitError(
            f"run {series.run_id!r} has {counted(after, 'evaluation')} of {live.metric!r} after step 0{beside}; a "
            f"forecast needs {MIN_EVALUATIONS} or more, one of them from this run",
            "Wait for more, or evaluate more often.",
        )
    surface = live.surface(bounds, known=known, rng=rng)
    factors = sorted({*(factor for factor in FACTORS if factor < to), float(to)})
    trained = series.rollouts_T[series.rollouts_T > 0]
    first, last = float(trained.min()), float(trained.max())
    past_Q = np.linspace(np.log(first / last), 0.0, PAST)
    ahead_Q = np.arange(1, PER_DOUBLING * DOUBLINGS + 1) * np.log(2.0) / PER_DOUBLING
    at_Q = np.unique(np.concatenate([past_Q, ahead_Q, np.log([*factors, judged_at])]))
    reward_DQ = surface.draws(last * np.exp(at_Q))
    worth = Tolerances(bounds[1] - bounds[0]).equal
    return _Answer(live, surface, last, level, worth, at_Q, reward_DQ, judged_at).forecast(factors, after)


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
    judged_at: float

    def forecast(self, factors: Sequence[float], evaluations: int) -> Forecast:
        live, series, now = self.live, self.live.one, self.now
        lost_DQ = np.maximum.accumulate(self.reward_DQ, axis=1) - self.reward_DQ
        places = [now, self._index(max(factors))]
        falling, falling_ahead = np.mean(lost_DQ[:, places] > SMALLEST_FALL * self.gain, axis=0)
        caveats: list[Note] = []
        if live.flat is None and not live.lost:
            caveats = _caveats(max(factors), evaluations, self.missed if abs(self.missed) >= self.worth / 2 else 0.0)
        curve_3Q, shown = np.stack(self._interval(self.shown_DQ, self.at_Q)), self.at_Q <= np.log(max(factors)) + 1e-9
        reward, low, high = curve_3Q[:, now].tolist()
        keep = self._keep()
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
            ahead=tuple(self._ahead(factor, keep) for factor in factors),
            flat=self._flat(self._best(keep)),
            falling=1.0 if live.peak is not None else float(falling),
            falling_ahead=1.0 if live.peak is not None else float(falling_ahead),
            onset=self._onset(float(falling), keep),
            card=Card("go-on", "", keep),
            borrowed=self.surface.borrowed,
            evaluated=series.rollouts_T,
            measured=series.value_T,
            curve=ForecastCurve(self.last * np.exp(self.at_Q[shown]), *curve_3Q[:, shown]),
            rises=live.flat is None,
            lost=live.lost,
            missed=self.missed,
            notes=(*live.notes, *caveats, *live.findings),
        )
        return replace(found, card=self._card(found))

    @cached_property
    def now(self) -> int:
        """Place of the last evaluation on the grid."""
        return int(np.searchsorted(self.at_Q, 0.0))

    @cached_property
    def mean_Q(self) -> Array:
        """The curve."""
        return self.reward_DQ.mean(axis=0)

    @cached_property
    def missed(self) -> float:
        """How far the run stands above its curve at its end; 0 within noise."""
        if self.live.lost:
            return float(self.live.one.value_T[-1] - self.mean_Q[self.now])
        if self.live.peak is not None and self.surface.run.fault is None:
            # The curve holds no fall where the noise of all runs hides it.
            return float(np.mean(self.live.one.value_T[-NEAR:]) - self.mean_Q[self.now])
        return self.surface.missed(self.last)

    @cached_property
    def shown_DQ(self) -> Array:
        """The draws; from now on they start from the level that was measured, where the curve misses it."""
        return self.reward_DQ + self.missed * (np.arange(len(self.at_Q)) >= self.now)

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
        mean, low, high = np.clip((ends[0], *wider), surface.layout.floor, surface.layout.top)
        return mean, low, high

    def _index(self, factor: float) -> int:
        return int(np.searchsorted(self.at_Q, np.log(factor) - 1e-9))

    def _kept(self, keep: Checkpoint) -> Array:
        """Rewards of a checkpoint, by draw."""
        before = int(np.searchsorted(self.at_Q[: self.now], np.log(keep.rollouts / self.last)))
        mean = float(self.mean_Q[before])
        return self.reward_DQ[:, before] - mean + (mean if keep.reward is None else keep.reward)

    def _best(self, keep: Checkpoint) -> Array:
        """The best so far and, from now on, up to each place: a fall leaves the best so far behind."""
        ahead_DQ = np.where(np.arange(len(self.at_Q)) < self.now, -np.inf, self.shown_DQ)
        return np.maximum(np.maximum.accumulate(ahead_DQ, axis=1), self._kept(keep)[:, None])

    def _ahead(self, factor: float, keep: Checkpoint) -> RewardAhead:
        index = self._index(factor)
        best_D, held_D = self.shown_DQ[:, self.now : index + 1].max(axis=1), self.shown_DQ[:, self.now]
        if keep.path is not None:
            best_D, held_D = (np.maximum(one_D, self._kept(keep)) for one_D in (best_D, held_D))
        drawn_D3 = np.stack([self.shown_DQ[:, index], best_D, held_D], axis=1)
        at, best, held = np.stack(self._interval(drawn_D3, self.at_Q[[index, index, self.now]]), axis=1).tolist()
        # What is reached stays, however far later rewards may leave the curve.
        best[1] = max(best[1], held[1])
        return RewardAhead(factor, self.last * factor, self._step(self.last * factor), *at, *best)

    def _step(self, rollouts: float) -> float | None:
        """Update steps at a compute, in proportion beyond the last evaluation."""
        step_T, compute_T = self.live.one.step_T, self.live.one.rollouts_T
        if np.any(np.isnan(step_T)) or float(step_T[-1]) <= 0:
            return None
        if rollouts > compute_T[-1]:
            return float(round(step_T[-1] * rollouts / compute_T[-1]))
        return float(round(np.interp(rollouts, compute_T, step_T)))

    def _flat(self, best_DQ: Array) -> Flattening:
        """From the draws on the even grid ahead, of which `PER_DOUBLING` points are one doubling."""
        even = np.arange(PER_DOUBLING * DOUBLINGS + 1) * np.log(2.0) / PER_DOUBLING
        index = np.minimum(np.searchsorted(self.at_Q, even - 1e-9), len(self.at_Q) - 1)
        index[0] = self.now
        ahead_DE = best_DQ[:, index]
        gain_DE = ahead_DE[:, PER_DOUBLING:] - ahead_DE[:, :-PER_DOUBLING]
        flat_DE = gain_DE < self.worth
        first_D = np.where(flat_DE.any(axis=1), np.argmax(flat_DE, axis=1), flat_DE.shape[1])
        reach = flat_DE.shape[1] - 1
        middle = int(np.quantile(first_D, 0.5, method="inverted_cdf"))
        return Flattening(
            rollouts=None if middle > reach else float(self.last * np.exp(even[middle])),
            worth=self.worth,
            now=float(np.mean(first_D == 0)),
            gain=float(gain_DE[:, 0].mean()),
            reach=float(self.last * np.exp(even[reach])),
        )

    def _onset(self, falling: float, keep: Checkpoint) -> Checkpoint | None:
        """The earliest trouble: a finding's beginning, or the peak of a reward that falls; not before `keep`."""
        fell = self._began("falling")
        # The curve is smooth: before a sudden fall, which a finding dates, its peak lies too early.
        if falling >= LEVEL and not fell and self.live.flat is None:
            fell.append(self.surface.best().compute)
        # A reward that is still as good as the best has not fallen.
        began = [*self._began("sick"), *(max(one, keep.rollouts) for one in fell)]
        return self._checkpoint(min(began)) if began else None

    def _began(self, kind: str) -> list[float]:
        """Compute at which troubles of this kind began."""
        return [one.rollouts for one in self.live.troubles if one.kind == kind and one.rollouts is not None]

    def _checkpoint(self, rollouts: float) -> Checkpoint:
        reward, fitted = self.surface.level(rollouts)
        return Checkpoint(rollouts, self._step(rollouts), reward, fitted=fitted)

    def _keep(self) -> Checkpoint:
        """The best point; with checkpoints on disk, the best of those. None from a sickness on, whatever its reward."""
        # Where a fall has taken the reward, nothing behind its peak is as good, whatever the curve says.
        lost = [self.live.peak] if self.live.lost and self.live.peak is not None else []
        limit = min([self.last, *self._began("sick"), *lost])
        saved: list[Checkpoint] = []
        for step, path in self.live.saved:
            at = self._rollouts(step)
            if at is not None and 0 < at <= limit * 1.001:
                saved.append(replace(self._checkpoint(at), step=float(step), path=path))
        if saved:
            # Of checkpoints that differ by less than the worth of a change the last one is kept.
            top = max(one.reward or 0.0 for one in saved)
            return [one for one in saved if (one.reward or 0.0) >= top - self.worth / 2.0][-1]
        best = self.surface.best(min(limit, np.inf if self.live.peak is None else self.live.peak))
        return Checkpoint(best.compute, self._step(best.compute), best.reward, fitted=best.fitted)

    def _rollouts(self, step: int) -> float | None:
        """Compute at an update step; None if steps are unknown."""
        step_T = self.live.one.step_T
        if np.any(np.isnan(step_T)) or step > step_T[-1]:
            return None
        return float(np.interp(step, step_T, self.live.one.rollouts_T))

    def _card(self, found: Forecast) -> Card:
        keep, by = found.card.keep, self._ahead(self.judged_at, found.card.keep)
        best, peak = found.onset, self.live.peak
        if peak is not None:
            # A later checkpoint that is about as good is the one to keep.
            best = self._checkpoint(max(peak, keep.rollouts))
        began = "" if best is None else f" since its best at {best.place}"
        if found.lost or self.live.flat is not None:
            gone = (
                f"the reward has fallen{began} and little of its gain is left: at most, return to its best checkpoint"
            )
            return Card("stop-here", gone if found.lost or self.live.flat is None else self.live.flat.message, keep)
        sick = [one.name for one in self.live.troubles if one.kind == "sick"]
        fell = any(one.kind == "falling" for one in self.live.troubles)
        if sick:
            return Card("change-something", ", ".join(dict.fromkeys(sick)), keep)
        best_DQ = self._best(keep)
        gains = float(np.mean(best_DQ[:, self._index(self.judged_at)] - best_DQ[:, self.now] >= self.worth))
        so_far = found.reward if keep.reward is None else max(found.reward, keep.reward)
        gain = round(round(by.best, 3) - round(so_far, 3), 6)
        far = multiple(by.factor)
        if (found.falling >= LEVEL or fell) and gains < 0.5:
            chance = f"the probability of a better checkpoint by {far}x is {chance_text(gains)}"
            falls = "has been falling" if fell else "has probably begun to fall"
            return Card("stop-here", f"the reward {falls}{began}; {chance}", keep)
        expected = f"at {far}x the compute the best checkpoint is expected to reach {by.best:.3f}"
        # Of recorded runs that stood above their curve every one that had room gained much more.
        above = gain > 0 and min(found.missed, self.surface.surface.layout.top - found.reward) >= self.worth
        flat = not above and found.flat.now >= LEVEL and gains < 0.5
        if flat or not (above or gain >= self.worth):
            missed = f"{expected}; stopping now gives up {self.worth:g} or more with probability {chance_text(gains)}"
            now = f"flat: the next doubling gains under {self.worth:g} with probability {chance_text(found.flat.now)}; "
            return Card("stop-here", f"{now * flat}{missed}", keep)
        other = self.live.other
        if other is not None and other.reward - by.best >= self.worth:
            return Card("stop-here", f"{expected}, below {other.run_id}, which reached {other.reward:.3f}", keep)
        if other is not None and other.reward > by.best:
            expected += f", not above {other.run_id}, which reached {other.reward:.3f}"
        faster = "the run rises faster than its curve; " * above
        return Card("go-on", f"{faster}{expected}{', or more' * above}", keep)


def _caveats(furthest: float, evaluations: int, missed: float) -> list[Note]:
    """Where forecasts were not checked."""
    doubts = list[str]()
    if evaluations < FEW:
        doubts.append(
            f"{counted(evaluations, 'evaluation')} after step 0: the forecast is mostly the prior; evaluate more often"
        )
    if furthest > BELIEVED:
        doubts.append(
            f"{multiple(furthest)}x the compute: forecasts were checked up to {BELIEVED:g}x (docs/forecast.md)"
        )
    if missed:
        doubts.append(f"the curve is {off(-missed)} at the last {NEAR} evaluations, where the forecast starts")
    numbers = {"factor": furthest, "evaluations": evaluations, "missed": missed}
    return [Note("forecast-uncertain", "warning", f"{'; '.join(doubts)}.", numbers)] if doubts else []
