"""What a surface is fitted to: every run cleaned of collapse and decay, and averaged into bins of log compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isocompute_sdk.fitting.arrays import Array

MOST_BINS = 20
"""Bins per run; more change nothing but the time a fit takes."""
FEWEST_BINS = 4
ROWS = 2000
"""Bins of all runs together; large sweeps get fewer per run."""
COLLAPSE_LEFT = 0.35
"""A run has collapsed when less than this share of its largest gain is left at its end."""
DECAY_LOST = 0.12
"""A run has decayed when more than this share of its largest gain is lost at its end."""
DEFAULT_NOISE, SMALLEST_NOISE = 0.02, 1e-4
"""Noise where no run has evaluations enough to show it, and the least that is believed, of a metric in [0, 1]."""
SCALE_SEEN = 10.0
"""Other metrics: shares of their range, or of this many times the range of the rewards seen where that is less."""
MEDIAN_TO_SD = 0.6745
"""Median of |x| of a standard normal x."""
LARGEST_CORRELATION = 0.85
CORRELATION_POINTS = 30
"""Evaluations that weigh as much as the belief in independent noise."""
OWN_NOISE = 20
"""Evaluations from which a run's own noise is looked at."""
SIGNIFICANT = 4.0
"""Standard errors that a fall must exceed before it is called one."""

Fault = Literal["collapse", "decay"]


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
    """What was repaired."""
    fault_compute: float | None
    """Compute after which it was."""
    last_compute: float


def prepare(runs: Sequence[SurfaceRun], span: float = 1.0) -> tuple[PreparedRun, ...]:
    """Clean and bin runs; a run without an evaluation after step 0 keeps its base reward only.

    Args:
        runs: all runs of a sweep.
        span: width of the metric's range.
    """
    bins = int(np.clip(ROWS // max(len(runs), 1), FEWEST_BINS, MOST_BINS))
    scale = noise_scale([run.reward_T for run in runs], span)
    pooled = pooled_noise([_trained(run) for run in runs], scale)
    bases = np.concatenate([run.reward_T[run.compute_T == 0] for run in runs])
    base = float(np.mean(bases)) if bases.size else None
    return tuple(_prepare_one(run, bins, pooled, base) for run in runs)


def noise_scale(rewards: Sequence[Array], span: float) -> float:
    """What `DEFAULT_NOISE` and `SMALLEST_NOISE` are shares of, for rewards of a metric whose range is `span` wide."""
    seen = float(np.ptp(np.concatenate(rewards)))
    return min(span, SCALE_SEEN * seen) if seen > 0 else span


def pooled_noise(series: Sequence[Array], scale: float = 1.0) -> tuple[float, float]:
    """Standard deviation of one evaluation and correlation of successive ones, from differences over all series.

    Evaluations `lag` apart differ by sqrt(2 (1 - rho^lag)) sigma: the ratio of two lags gives rho, then either gives
    sigma. Correlated noise has small successive differences; taken for independent it looks like a plateau.
    """
    usable = [values for values in series if len(values) > 3]
    count = sum(len(values) for values in usable)
    if not usable:
        return DEFAULT_NOISE * scale, 0.0
    near, far = (_spread(np.concatenate([_differences(values, lag) for values in usable])) for lag in (1, 2))
    if near <= 0:
        return SMALLEST_NOISE * scale, 0.0
    # Few points say little about a ratio: then the noise counts as independent.
    rho = float(np.clip((far / near) ** 2 - 1.0, 0.0, LARGEST_CORRELATION)) * count / (count + CORRELATION_POINTS)
    return max(near / float(np.sqrt(2.0 * (1.0 - rho))), SMALLEST_NOISE * scale), rho


def _differences(values: Array, lag: int) -> Array:
    """Differences of values `lag` apart without their mean, which is the trend's."""
    step = values[lag:] - values[:-lag]
    return step - np.mean(step)


def _spread(values: Array) -> float:
    """Root mean square with outliers cut at three robust standard deviations."""
    robust = float(np.median(np.abs(values))) / MEDIAN_TO_SD
    limit = 3.0 * robust if robust > 0 else np.inf
    return float(np.sqrt(np.mean(np.clip(values, -limit, limit) ** 2)))


def _trained(run: SurfaceRun) -> Array:
    order = np.argsort(run.compute_T, kind="stable")
    return run.reward_T[order][run.compute_T[order] > 0] / run.noise_scale


def smoothed(values: Array) -> Array:
    """Running median over five, then running mean over five, ends shortened."""
    if len(values) < 5:
        return values.copy()
    padded = np.concatenate([values[[0, 0]], values, values[[-1, -1]]])
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    padded = np.concatenate([middle[[0, 0]], middle, middle[[-1, -1]]])
    return np.mean(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)


def _prepare_one(run: SurfaceRun, bins: int, pooled: tuple[float, float], base: float | None) -> PreparedRun:
    order = np.argsort(run.compute_T, kind="stable")
    compute, reward = run.compute_T[order], run.reward_T[order]
    trained = compute > 0
    at_base, compute, reward = reward[~trained], compute[trained], reward[trained]
    noise, rho = pooled[0] * run.noise_scale, pooled[1]
    if len(reward) >= OWN_NOISE:
        own = _spread(_differences(reward, 1)) / float(np.sqrt(2.0 * (1.0 - rho)))
        # A run of a few dozen evaluations measures its own noise about as well as it differs from the others'.
        noise = float(np.sqrt((noise**2 + own**2) / 2.0))
    last = float(compute[-1]) if len(compute) else 0.0
    start = base if base is not None else (float(reward[0]) if len(reward) else 0.0)
    compute, reward, fault = _repaired(compute, reward, start, noise * np.sqrt((1.0 + rho) / (1.0 - rho)))
    log_J, reward_J, count_J = _binned(compute, reward, bins)
    return PreparedRun(
        run_id=run.run_id,
        group_size=run.group_size,
        problems_per_batch=run.problems_per_batch,
        n_problems=run.n_problems,
        log_compute_J=log_J,
        reward_J=reward_J,
        count_J=count_J,
        first_J=np.cumsum(count_J) - count_J,
        base_reward=at_base,
        noise=noise,
        correlation=rho,
        fault=fault[0] if fault else None,
        fault_compute=fault[1] if fault else None,
        last_compute=last,
    )


def _repaired(
    compute: Array, reward: Array, start: float, noise: float
) -> tuple[Array, Array, tuple[Fault, float] | None]:
    """Drop the tail of a collapsed run; hold the peak of a decayed one, since its best checkpoint is kept."""
    if len(reward) < 5:
        return compute, reward, None
    curve = smoothed(reward)
    peak = int(np.argmax(curve))
    gain = float(curve[peak] - start)
    lost = float(curve[peak] - curve[-1])
    error = noise * np.sqrt(2.0 / 3.0)
    if gain <= 0 or lost < SIGNIFICANT * error:
        return compute, reward, None
    where = float(compute[peak])
    if curve[-1] - start < COLLAPSE_LEFT * gain:
        # What falls belongs to the collapse from the last evaluation on that still stood near the peak.
        near = np.flatnonzero(curve >= curve[peak] - max(2 * error, 0.1 * gain))
        return compute[: near[-1] + 1], reward[: near[-1] + 1], ("collapse", float(compute[near[-1]]))
    if lost > DECAY_LOST * gain and peak < len(reward) - 2:
        level = float(np.mean(reward[max(peak - 2, 0) : peak + 3]))
        held = np.where(np.arange(len(reward)) > peak, level, reward)
        return compute, held, ("decay", where)
    return compute, reward, None


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
