"""What simulated runs measure: noise, run effects and faults of rewards, and made-up seconds of steps and evaluations.

`Clock`, a known law of seconds per step, shares no code with the SDK's cost model, so that it can test that model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from isocompute_simulator.truth import Array, Task

CORRELATED_SHARE = 0.4
"""Share of sweeps whose evaluation noise is AR(1) instead of independent."""
COLLAPSE_RATE = 0.04
"""Share of runs that lose nearly all of their gain at some point and do not recover."""
DECAY_RATE = 0.06
"""Share of runs whose reward falls slowly from some point on."""
MISSING_SWEEPS_SHARE, MISSING_RATE = 0.25, 0.1
"""Share of sweeps with gaps in their logs, and share of evaluations missing there."""

SHIFT = (0.06, 0.25)
"""Size of the shift of an odd run or evaluation."""
END_SHARE = 0.4
"""Share of sweeps with wrong evaluations in which they stand at 0 or 1."""


@dataclass(frozen=True)
class Noise:
    """How the measured runs of one sweep differ from the noise-free task."""

    evaluation_sd: float
    """Standard deviation of one evaluation."""
    correlation: float
    """Correlation of successive evaluations of a run; 0 for independent ones."""
    amplitude_sd: float
    """Standard deviation over runs of the logarithm of the gain."""
    delay_sd: float
    """Standard deviation over runs of the delay in ln C."""
    missing_rate: float
    """Share of evaluations that are missing."""
    collapse_rate: float = COLLAPSE_RATE
    decay_rate: float = DECAY_RATE
    outlier_rate: float = 0.0
    """Share of evaluations that are wrong: a broken grader or a failed evaluation."""
    outlying_run_rate: float = 0.0
    """Share of runs that were measured or trained differently: shifted as a whole."""
    unequal: float = 0.0
    """Standard deviation over runs of the logarithm of how much a run may differ from others."""


def draw_rough_noise(rng: np.random.Generator, *, outlying: bool = False) -> Noise:
    """Noise as in recorded sweeps: also wrong evaluations, odd runs, and run effects of unequal size.

    Args:
        rng: randomness.
        outlying: whether wrong evaluations and odd runs are certain, not occasional.
    """
    return replace(
        draw_noise(rng),
        outlier_rate=float(rng.uniform(0.01, 0.1)) if rng.random() < (0.7 if outlying else 0.15) else 0.0,
        outlying_run_rate=float(rng.uniform(0.05, 0.15)) if rng.random() < (0.7 if outlying else 0.15) else 0.0,
        unequal=float(rng.uniform(0.0, 0.8)),
    )


def draw_noise(rng: np.random.Generator) -> Noise:
    """Noise of a sweep: seeds differ by a few percent of the gain.

    The noise of one evaluation is that of 150 to 2,000 problems with four samples each.
    """
    return Noise(
        evaluation_sd=float(rng.uniform(0.005, 0.02)),
        correlation=float(rng.uniform(0.3, 0.8)) if rng.random() < CORRELATED_SHARE else 0.0,
        amplitude_sd=float(rng.uniform(0.03, 0.1)),
        delay_sd=float(rng.uniform(0.05, 0.3)),
        missing_rate=MISSING_RATE if rng.random() < MISSING_SWEEPS_SHARE else 0.0,
    )


def run_effects(noise: Noise, rng: np.random.Generator) -> tuple[Array, Array]:
    """Factor on the gain (mean 1) and delay in ln C (mean 0) of a new run."""
    factor = np.exp(rng.normal(0.0, noise.amplitude_sd) - 0.5 * noise.amplitude_sd**2)
    return np.asarray(factor), np.asarray(rng.normal(0.0, noise.delay_sd))


def evaluation_noise(noise: Noise, count: int, rng: np.random.Generator) -> Array:
    """Deviations of successive evaluations of one run, stationary."""
    white = rng.normal(0.0, noise.evaluation_sd, count)
    if noise.correlation == 0:
        return white
    red = np.empty(count)
    red[0] = white[0]
    fresh = np.sqrt(1 - noise.correlation**2)
    for i in range(1, count):
        red[i] = noise.correlation * red[i - 1] + fresh * white[i]
    return red


def measured_curve(
    truth: Task,
    noise: Noise,
    rollouts_T: Array,
    group_size: int,
    problems_per_batch: int,
    rng: np.random.Generator,
) -> Array:
    """What one run logs at each compute, faults included; NaN where an evaluation is missing."""
    unequal = float(np.exp(rng.normal(0.0, noise.unequal))) if noise.unequal else 1.0
    own = replace(noise, amplitude_sd=noise.amplitude_sd * unequal, delay_sd=noise.delay_sd * unequal)
    factor, delay = run_effects(own, rng)
    mean = truth.mean(rollouts_T, group_size, problems_per_batch, delay=delay)
    gain = (mean - truth.base_reward) * factor * _kept(noise, len(rollouts_T), rng)
    value = truth.base_reward + gain + evaluation_noise(noise, len(rollouts_T), rng)
    if noise.outlying_run_rate and rng.random() < noise.outlying_run_rate:
        value = value + rng.choice([-1.0, 1.0]) * rng.uniform(*SHIFT)
    if noise.outlier_rate:
        value = _with_outliers(value, noise.outlier_rate, rng)
    # The base model is always measured: it costs no training.
    missing = rng.random(len(value)) < noise.missing_rate
    missing[0] = False
    return np.where(missing, np.nan, np.clip(value, 0.0, 1.0))


def _with_outliers(value_T: Array, rate: float, rng: np.random.Generator) -> Array:
    """Some evaluations after the first at an end of the range, or off by a shift."""
    wrong = rng.random(len(value_T)) < rate
    wrong[0] = False
    ends = rng.choice([0.0, 1.0])
    shifted = value_T + rng.choice([-1.0, 1.0], len(value_T)) * rng.uniform(*SHIFT, len(value_T))
    return np.where(wrong, ends if rng.random() < END_SHARE else shifted, value_T)


def _kept(noise: Noise, count: int, rng: np.random.Generator) -> Array:
    """Share of the gain that is left at each evaluation: 1 in a healthy run."""
    fault = rng.random()
    at = np.linspace(0.0, 1.0, count)
    begin = rng.uniform(0.35, 0.9)
    after = np.maximum(at - begin, 0.0)
    if fault < noise.collapse_rate:
        return np.maximum(1.0 - after / 0.04, 0.05)
    if fault < noise.collapse_rate + noise.decay_rate:
        return 1.0 - rng.uniform(0.2, 0.6) * after / (1.0 - begin)
    return np.ones(count)


@dataclass(frozen=True)
class Clock:
    """Seconds of a step of B rollouts on G GPUs after C rollouts: overhead + L(C) (floor + B / (rate (G / G0)^e)).

    Responses are tokens L(C) long, L(C) = 1 + growth ln(1 + C / scale).
    """

    overhead: float = 20.0
    floor: float = 10.0
    """Seconds to generate the longest response, at the start."""
    rate: float = 60.0
    """Rollouts per second on `gpus` GPUs at the start."""
    gpus: int = 8
    exponent: float = 0.9
    tokens: float = 600.0
    """Tokens of a response at the start."""
    growth: float = 0.25
    scale: float = 1e5
    evaluation_rate: float = 150.0
    """Rollouts per second of an evaluation, on `gpus` GPUs at the start."""
    startup: float = 120.0
    step_noise: float = 0.1
    """Standard deviation of the logarithm of a step's seconds around its mean."""
    run_noise: float = 0.0
    """The same between runs, which may be on slower or faster machines."""

    def length(self, rollouts: float) -> float:
        """Mean response length after C rollouts, relative to the start."""
        return 1.0 + self.growth * math.log1p(rollouts / self.scale)

    def step_seconds(self, batch: float, rollouts: float = 0.0, gpus: int | None = None) -> float:
        """Mean seconds of a step."""
        speed = self.rate * ((gpus or self.gpus) / self.gpus) ** self.exponent
        return self.overhead + self.length(rollouts) * (self.floor + batch / speed)

    def evaluation_seconds(self, samples: float, rollouts: float = 0.0, gpus: int | None = None) -> float:
        """Mean seconds of an evaluation of `samples` samples."""
        speed = self.evaluation_rate * ((gpus or self.gpus) / self.gpus) ** self.exponent
        return self.length(rollouts) * (self.floor + samples / speed)
