"""What a surface is fitted to: every run cleaned of collapse and decay, and averaged into bins of log compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from isocompute_sdk.fitting.arrays import Array

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSeries

MAX_BINS = 20
"""Bins per run; more change nothing but the time a fit takes."""
MIN_BINS = 4
MIN_EVALUATIONS = 4
"""Evaluations after step 0 that a fit needs, of all runs together."""
ROWS = 2000
"""Bins of all runs together; large sweeps get fewer per run."""
COLLAPSE_LEFT = 0.35
"""A fall is a collapse when less than this share of the largest gain is left at its end, and it was sudden."""
SUDDEN_LOSS, SUDDEN_SHARE = 0.5, 0.15
"""Sudden: this share of the loss within this share of the evaluations."""
SMALLEST_FALL = 0.05
"""A fall loses more than this share of the largest gain."""
DEFAULT_NOISE, SMALLEST_NOISE = 0.02, 1e-4
"""Noise where no run has evaluations enough to show it, and the least that is believed, of a metric in [0, 1]."""
SCALE_SEEN = 10.0
"""Other metrics: shares of their range, or of this many times the range of the rewards seen where that is less."""
SMALLEST_SEEN = 1e-15
"""Share of the metric's range below which rewards differ by rounding only; squares of such noise would underflow."""
MEDIAN_TO_SD = 0.6745
"""Median of |x| of a standard normal x."""
LARGEST_CORRELATION = 0.85
CORRELATION_POINTS = 30
"""Evaluations that weigh as much as the belief in independent noise."""
OWN_NOISE = 20
"""Evaluations from which a run's own noise is looked at."""
SIGNIFICANT = 4.0
"""Standard errors that a fall must exceed before it is called one."""
WILD, KEPT = 4.0, 2.0
"""An evaluation this many standard deviations from the running median is an outlier, and is moved to that many."""
WINDOW = 5
"""Evaluations of a running median or mean."""
TOO_FAR = 3.0
"""Errors by which a mean of evaluations must differ from the curve's reward there to replace it."""

_RHO: Array = np.linspace(0.0, LARGEST_CORRELATION, 60)

Fault = Literal["collapse", "decay"]
FALLS: Mapping[str, Fault] = {"collapsed-run": "collapse", "decayed-run": "decay", "overfitting-run": "decay"}
"""Codes of notes about a reward that fell."""


@dataclass(frozen=True)
class BestAtK:
    """best@k beside the reward of a run."""

    metric: str
    compute_T: Array
    value_T: Array


@dataclass(frozen=True)
class SurfaceRun:
    """One run as the fit receives it."""

    run_id: str
    group_size: int
    """Rollouts per problem, n."""
    problems_per_batch: int | None
    """Problems per batch, B_p."""
    compute_T: Array
    """Compute (rollouts or tokens) at each evaluation, increasing; 0 is the base model."""
    reward_T: Array
    n_problems: int | None = None
    """Distinct training problems, D."""
    noise_scale: float = 1.0
    """Noise of its evaluations relative to the other runs': sqrt(k / j) for avg@j that stands in for avg@k."""
    best: BestAtK | None = None
    """best@k of the same evaluations; None if not recorded."""

    @classmethod
    def of(
        cls,
        series: RunSeries,
        compute_T: Array | None = None,
        noise_scale: float = 1.0,
        best: BestAtK | None = None,
    ) -> SurfaceRun:
        """A run of a `RunSet`; `compute_T` takes the place of its rollouts."""
        sizes, sets = (series.group_size, series.problems_per_batch), series.context.get("n_problems")
        at = series.rollouts_T if compute_T is None else compute_T
        return cls(series.run_id, *sizes, at, series.value_T, None if sets is None else int(sets), noise_scale, best)


@dataclass(frozen=True)
class PreparedRun:
    """One run as the surface sees it: J bins."""

    run_id: str
    group_size: int
    problems_per_batch: int | None
    n_problems: int | None
    log_compute_J: Array
    reward_J: Array
    count_J: Array
    """Evaluations in each bin."""
    first_J: Array
    """Position of each bin's first evaluation in its run."""
    base_reward: Array
    """Evaluations of the base model (compute 0), possibly none."""
    noise: float
    """Standard deviation of one evaluation."""
    correlation: float
    """Correlation of the noise of successive evaluations, pooled over the sweep."""
    fault: Fault | None
    """Why its end was cut off: it collapsed, or it declined after a peak."""
    fault_compute: float | None
    """Compute of the last evaluation that was kept."""
    last_compute: float
    """Compute of the last evaluation of all."""
    decline: float | None = None
    """Share of the largest gain lost per unit of log compute after the peak, for a run that fell."""
    outliers: int = 0
    """Evaluations that were moved towards their neighbours; without a first one on the way up from the base model."""
    best: BestAtK | None = None
    """best@k of the same evaluations, whole; None if not recorded."""


def prepare(runs: Sequence[SurfaceRun], span: float = 1.0) -> tuple[PreparedRun, ...]:
    """Clean and bin runs; a run without an evaluation after step 0 keeps its base reward only."""
    bins = int(np.clip(ROWS // max(len(runs), 1), MIN_BINS, MAX_BINS))
    scale = noise_scale([run.reward_T for run in runs], span)
    trained = [_trained(run) for run in runs]
    rough = rough_noise([reward for _, reward in trained], scale)
    pooled = pooled_noise([without_outliers(reward, rough) for _, reward in trained], scale)
    bases = np.concatenate([run.reward_T[run.compute_T == 0] for run in runs])
    # One wrong evaluation of the base model must not move the start of every curve.
    base = float(np.median(bases)) if bases.size > 2 else float(np.mean(bases)) if bases.size else None
    cuts = [_cut(run, *one, rough, pooled, base) for run, one in zip(runs, trained, strict=True)]
    if all(
        not len(reward) or (cut is not None and not cut.kept) for (_, reward), cut in zip(trained, cuts, strict=True)
    ):
        # All runs ended below the base model: what they measured is all there is.
        cuts = [None] * len(runs)
    # A fall is no noise, and beside it the peak looks like an outlier.
    kept = [reward if cut is None else reward[: cut.kept] for (_, reward), cut in zip(trained, cuts, strict=True)]
    cleaned = [without_outliers(reward, rough) for reward in kept]
    pooled = pooled_noise(cleaned, scale)
    return tuple(
        _prepare_one(run, compute, reward, clean, cut, bins, pooled, base)
        for run, (compute, _), reward, clean, cut in zip(runs, trained, kept, cleaned, cuts, strict=True)
    )


def noise_scale(rewards: Sequence[Array], span: float) -> float:
    """What `DEFAULT_NOISE` and `SMALLEST_NOISE` are shares of, for rewards of a metric whose range is `span` wide."""
    seen = float(np.ptp(np.concatenate(rewards)))
    return min(span, SCALE_SEEN * seen) if seen > SMALLEST_SEEN * span else span


def pooled_noise(series: Sequence[Array], scale: float = 1.0) -> tuple[float, float]:
    """Standard deviation of one evaluation and correlation of successive ones, from second differences of all series.

    y(t + L) - 2 y(t) + y(t - L) has variance 2 (1 - r) (3 - r) sigma^2 with r = rho^L, and holds no straight trend:
    the ratio of two lags gives rho, then lag 1 gives sigma. Correlated noise taken for independent looks like a curve.
    """
    usable = [values for values in series if len(values) > WINDOW]
    count = sum(len(values) for values in usable)
    if not usable:
        return DEFAULT_NOISE * scale, 0.0
    near, far = (_spread(np.concatenate([_second_differences(values, lag) for values in usable])) for lag in (1, 2))
    if near <= 0:
        return SMALLEST_NOISE * scale, 0.0
    ratio = (1.0 + _RHO) * (3.0 - _RHO**2) / (3.0 - _RHO)
    # Few points say little about a ratio: then the noise counts as independent.
    rho = float(np.interp((far / near) ** 2, ratio, _RHO)) * count / (count + CORRELATION_POINTS)
    return max(near / float(np.sqrt(_second_variance(rho))), SMALLEST_NOISE * scale), rho


def rough_noise(series: Sequence[Array], scale: float = 1.0) -> float:
    """Noise of one evaluation from the median size of second differences, which outliers hardly move."""
    usable = [_second_differences(values, 1) for values in series if len(values) > WINDOW]
    if not usable:
        return DEFAULT_NOISE * scale
    median = float(np.median(np.abs(np.concatenate(usable)))) / MEDIAN_TO_SD
    return max(median / float(np.sqrt(_second_variance(0.0))), SMALLEST_NOISE * scale)


def _second_differences(values: Array, lag: int) -> Array:
    return values[2 * lag :] - 2.0 * values[lag:-lag] + values[: -2 * lag]


def _second_variance(rho: float) -> float:
    """Variance of a second difference at lag 1 for noise of variance 1."""
    return 2.0 * (1.0 - rho) * (3.0 - rho)


def without_outliers(values: Array, noise: float) -> Array:
    """Values far from the running median of their neighbours, moved towards it.

    Short stretches first, by a wide median where both sides are known, then single values. The first and the last have
    neighbours on one side only: they are compared with the median of the next three. Wide medians and ends may also lie
    off by twice the trend there, and are moved only so far.
    """
    if len(values) < WINDOW:
        return values
    values = _without_stretches(values, noise)
    off, limit = values - running_median(values), np.full(len(values), WILD * noise)
    for end, inward in ((0, values), (-1, values[::-1])):
        near, further = float(np.median(inward[1:4])), float(np.median(inward[3:6]))
        off[end] = values[end] - near
        limit[end] += 2.0 * abs(further - near)
        if end == -1 and inward[1] < further - limit[end]:
            # Two that lie far off together are a fall, no outliers. At the start they would be a rise that few show.
            off[end] = min(off[end], values[end] - inward[1], key=abs)
    return np.where(np.abs(off) > limit, values - off + np.sign(off) * (limit - (WILD - KEPT) * noise), values)


def _without_stretches(values: Array, noise: float) -> Array:
    """The same for up to `WINDOW` - 1 wrong values in a row, by a median over twice as many."""
    wide = 2 * WINDOW - 1
    if len(values) < wide + 1:
        return values
    middle = np.median(np.lib.stride_tricks.sliding_window_view(values, wide), axis=1)
    ends = np.pad(middle, WINDOW - 1, mode="edge")
    trend = np.abs(ends[2 * (WINDOW - 1) :] - ends[: -2 * (WINDOW - 1)])
    inner = slice(WINDOW - 1, len(values) - WINDOW + 1)
    off = values[inner] - middle
    moved = values.copy()
    wild = np.abs(off) > 2.0 * (WILD * noise + trend)
    moved[inner] = np.where(wild, middle, values[inner])
    return moved


def _spread(values: Array) -> float:
    """Root mean square with outliers cut at three robust standard deviations."""
    robust = float(np.median(np.abs(values))) / MEDIAN_TO_SD
    limit = 3.0 * robust if robust > 0 else np.inf
    return float(np.sqrt(np.mean(np.clip(values, -limit, limit) ** 2)))


def _trained(run: SurfaceRun) -> tuple[Array, Array]:
    """Compute and reward, in units of the run's noise, of its evaluations after step 0, by compute."""
    order = np.argsort(run.compute_T, kind="stable")
    order = order[run.compute_T[order] > 0]
    return run.compute_T[order], run.reward_T[order] / run.noise_scale


def running_median(values: Array) -> Array:
    """Running median over `WINDOW`, the ends padded with their own values."""
    padded = np.concatenate([values[[0, 0]], values, values[[-1, -1]]])
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1), dtype=float)


def smoothed(values: Array) -> Array:
    """Running median over five, then running mean over five, ends shortened."""
    if len(values) < WINDOW:
        return values.copy()
    middle = running_median(values)
    padded = np.concatenate([middle[[0, 0]], middle, middle[[-1, -1]]])
    return np.mean(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1)


def _cut(
    run: SurfaceRun, compute: Array, reward: Array, rough: float, pooled: tuple[float, float], base: float | None
) -> Fall | None:
    """The fall at the end of a run, if it has one."""
    clean, (noise, rho) = without_outliers(reward, rough), pooled
    start = base / run.noise_scale if base is not None else (float(clean[0]) if len(clean) else 0.0)
    return fall_of(compute, clean, start, _own_noise(clean, noise, rho) * float(np.sqrt((1.0 + rho) / (1.0 - rho))))


def _prepare_one(
    run: SurfaceRun,
    compute: Array,
    reward: Array,
    clean: Array,
    cut: Fall | None,
    bins: int,
    pooled: tuple[float, float],
    base: float | None,
) -> PreparedRun:
    """A run from what is kept of its evaluations, rewards in units of its noise, as they are and without outliers."""
    kept, (noise, rho) = len(clean), pooled
    log_J, reward_J, count_J = _binned(compute[:kept], clean * run.noise_scale, bins)
    # The first of a steep rise is moved too, which makes fits better, but nothing is wrong with it.
    steep = base is not None and kept > 1 and base / run.noise_scale < reward[0] < reward[1]
    return PreparedRun(
        run_id=run.run_id,
        group_size=run.group_size,
        problems_per_batch=run.problems_per_batch,
        n_problems=run.n_problems,
        log_compute_J=log_J,
        reward_J=reward_J,
        count_J=count_J,
        first_J=np.cumsum(count_J) - count_J,
        base_reward=run.reward_T[run.compute_T == 0],
        noise=_own_noise(clean, noise, rho) * run.noise_scale,
        correlation=rho,
        fault=None if cut is None else cut.fault,
        fault_compute=None if cut is None else float(compute[max(kept - 1, 0)]),
        last_compute=float(compute[-1]) if len(compute) else 0.0,
        decline=None if cut is None else cut.rate,
        outliers=int(np.count_nonzero((clean != reward)[int(steep) :])),
        best=run.best,
    )


def _own_noise(clean: Array, pooled: float, rho: float) -> float:
    """Noise of a run: a few dozen evaluations measure it about as well as it differs from that of the others."""
    if len(clean) < OWN_NOISE:
        return pooled
    own = _spread(_second_differences(clean, 1)) / float(np.sqrt(_second_variance(rho)))
    return float(np.sqrt((pooled**2 + own**2) / 2.0))


@dataclass(frozen=True)
class Fall:
    """A fall after a peak."""

    fault: Fault
    kept: int
    """Evaluations up to the end of the peak."""
    rate: float
    """Share of the largest gain lost per unit of log compute."""


def fall_of(compute: Array, reward: Array, start: float, error: float) -> Fall | None:
    """The fall at the end of a run, None if there is none beyond the noise.

    The peak is the stretch around the largest smoothed reward that stays within its noise. A fall is a suffix behind
    it, of three evaluations or more, whose mean lies `SIGNIFICANT` standard errors below the peak's mean.

    Args:
        compute: compute of each evaluation, increasing.
        reward: rewards without outliers.
        start: reward of the base model.
        error: standard deviation of one evaluation, correlation counted in.
    """
    if len(reward) < WINDOW:
        return None
    curve = smoothed(reward)
    peak = int(np.argmax(curve))
    gain = float(curve[peak] - start)
    if gain <= 0:
        return _below_base(compute, reward, start, error)
    within = np.flatnonzero(curve < curve[peak] - 2.0 * error / np.sqrt(3.0))
    behind = within[within > peak]
    end = int(behind[0]) if behind.size else len(reward)
    before = np.flatnonzero(curve < curve[peak] - error / np.sqrt(3.0))
    before = before[before < peak]
    first = int(before[-1]) + 1 if before.size else 0
    after = len(reward) - end
    if after < 3:
        return None
    level = float(reward[first:end].mean())
    count_K = np.arange(1, after + 1)
    suffix_K = np.cumsum(reward[::-1][:after]) / count_K
    lost_K = level - suffix_K
    z_K = lost_K / (error * np.sqrt(1.0 / (end - first) + 1.0 / count_K))
    found = 2 + int(np.argmax(z_K[2:]))
    if z_K[found] < SIGNIFICANT or lost_K[found] < SMALLEST_FALL * gain:
        return None
    lost = level - float(curve[-1])
    window = max(2, round(SUDDEN_SHARE * len(curve)))
    steepest = float((curve[: -window or None] - curve[window:]).max()) if len(curve) > window else lost
    if float(curve[-1]) - start < COLLAPSE_LEFT * gain and steepest >= SUDDEN_LOSS * lost:
        # What falls belongs to the collapse from the last evaluation on that still stood near the peak.
        near = np.flatnonzero(curve >= curve[peak] - max(2 * error * np.sqrt(2.0 / 3.0), 0.1 * gain))
        return Fall("collapse", int(near[-1]) + 1, _rate(compute, int(near[-1]), lost / gain))
    return Fall("decay", end, _rate(compute, max(end - 1, 0), max(lost, float(lost_K[found])) / gain))


def _below_base(compute: Array, reward: Array, start: float, error: float) -> Fall | None:
    """The fall of a run that never stood above the base model: a collapse, if its last third lies below it."""
    last = max(3, len(reward) // 3)
    lost = start - float(reward[-last:].mean())
    if lost < SIGNIFICANT * error * np.sqrt(1.0 + 1.0 / last):
        return None
    return Fall("collapse", 0, _rate(compute, 0, 1.0))


def _rate(compute: Array, first: int, lost: float) -> float:
    """Share lost per unit of log compute from an evaluation to the last."""
    return lost / max(float(np.log(compute[-1] / compute[first])), 0.05)


def _binned(compute: Array, reward: Array, bins: int) -> tuple[Array, Array, Array]:
    """Means over bins of equal width in log compute, empty ones left out."""
    if not len(compute):
        return np.empty(0), np.empty(0), np.empty(0)
    log = np.log(compute)
    if len(log) <= bins or log[-1] == log[0]:
        return log, reward.copy(), np.ones(len(log))
    which = np.minimum(((log - log[0]) / (log[-1] - log[0]) * bins).astype(int), bins - 1)
    count = np.bincount(which, minlength=bins).astype(float)
    filled = count > 0
    mean_log = np.bincount(which, log, bins)[filled] / count[filled]
    mean_reward = np.bincount(which, reward, bins)[filled] / count[filled]
    return mean_log, mean_reward, count[filled]
