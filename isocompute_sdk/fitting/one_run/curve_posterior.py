"""The curve of one run and its posterior: everything that a forecast assumes stands here.

    y(C) = R0 + G f(C) + g(ln C) + noise,    G = (top - R0) sigma(a),    f(C) = S(h (min(ln C, o) - m)) fall(ln C - o)

S is one of `surface.shapes.UNIT_SHAPES`, o the log compute from which the reward falls (never, in most draws), g a
Gaussian process: real curves are no member of three families. R0 and g are integrated out exactly; (a, m, ln h, o and
the rate of the fall) are drawn by adaptive importance sampling from the prior. Compute is relative to the last
evaluation, since nothing else about its scale transfers between runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.data import (
    SurfaceRun,
    end_of_dip,
    noise_scale,
    pooled_noise,
    rough_noise,
    smoothed,
    without_outliers,
)
from isocompute_sdk.fitting.surface.leading import change_per_doubling
from isocompute_sdk.fitting.surface.model import LARGEST_SLOPE, logistic
from isocompute_sdk.fitting.surface.shapes import UNIT_SHAPES

Indices = npt.NDArray[np.intp]

SHAPES = tuple(UNIT_SHAPES)
NEVER = 50.0
"""Onset of a fall, in ln C after the last evaluation, of a run that does not fall."""
LEAST_LEFT = -0.1
"""Share of the gain that a fall leaves at least; below 0 it ends under the base model."""
LEAST_ANGLE = 0.1
"""Least distance of a level from 0 and from 1, as arcsine of its root, at which noise is measured: reward .01."""
MOST_POINTS = 60
"""Evaluations of a run beyond which neighbours are averaged."""
PARTICLES, ROUNDS = 1500, 4
KEPT_PARENTS = 200
"""Particles around which those of the next round are drawn."""
LEAST_EFFECTIVE = 200.0
"""Effective particles to which the weights are tempered before a next round."""
PRIOR_SHARE = 0.15
"""Share of the particles that each round draws from the prior."""
WIDTH = 0.45
"""Width of the kernel around a parent, in posterior standard deviations."""
UNMEASURED_BASE = 0.1
"""Standard deviation, as a share of the metric's range, of a base reward that was not measured."""
LEADING_SD = 0.05
"""Usual change of best@k per doubling, as a share of the metric's range."""
MOST_DOUBLINGS = 2.0
"""Doublings up to which the gain that best@k announces was seen to grow with their square."""
LINE_WITHIN, FEWEST_ON_LINE = 4.0, 4
"""Evaluations within this factor of the last compute make the straight line, at least so many."""
LINE_SD = 0.4
"""Usual slope of the logit of reward per unit of ln C."""
LINE_REACH = 2.0 * float(np.log(2.0))
"""ln C after the last evaluation at which the line ends: it knows no plateau, and nobody checked it beyond."""
LEAST_SHARE = 0.003
"""Least distance from 0 and 1 of a share whose logit is taken."""
GAP_WITHIN, GAP_FROM = 2.0, 0.02
"""The gap to the training reward is that of the evaluations within this factor of the last compute, less that of the
training steps up to this share of it."""
FEWEST_TRAINED = 3
"""Training rewards, and evaluations beside them, from which a gap is told."""
ONSETS = (-2.5, 1.8)
"""Range of ln C, after the last evaluation, in which a fall may begin."""


@dataclass(frozen=True)
class CurvePrior:
    """What other runs taught about the curve of one; means and standard deviations.

    The values are those that `benchmarks/decisions/forecast.py --learn` prints for all of its sets: digitised figures,
    recorded runs, simulated families. Sizes and length of g were set by hand on the same curves.
    """

    share: tuple[float, float] = (0.1, 1.61)
    """a: logit of the gain as a share of the headroom."""
    midpoint: tuple[float, float] = (-0.15, 1.93)
    """m less ln C of the last evaluation."""
    slope: tuple[float, float] = (-0.09, 0.36)
    """ln h."""
    falls: float = 0.15
    """Probability that a fall begins within `ONSETS`."""
    rate: tuple[float, float] = (0.66, 0.6)
    """Share of the gain lost per unit of ln C: median, and standard deviation of its logarithm."""
    misfit: tuple[float, ...] = (0.01, 0.03, 0.08)
    """Sizes of g per unit of ln C away from the last evaluation, as shares of the gain seen, equally likely."""
    nearby: float = 0.01
    """Size of g at the last evaluation."""
    start: float = 0.4
    """How far the curve that a run follows now may begin from the base model, as a share of the gain seen."""
    length: float = 0.8
    """Length of g in ln C."""
    pace: tuple[float, float] = (-0.524, 0.85)
    """Logarithm of what a run really gains or loses after its last evaluation, over what its curve says: mean and
    standard deviation at one doubling of compute. Both grow with the distance, as those of a random walk."""
    straight: float = 0.75
    """Weight of the straight line through the last evaluations in what lies ahead; the rest is the curve's."""
    lead: tuple[float, float] = (0.81, 0.5)
    """Gain beyond the curve over what best@k has announced, see `announced`."""
    overfit: tuple[float, float, float] = (0.2, 0.021, 0.018)
    """Gap to the training reward, as a share of the range, from which a part of a foreseen rise is lost, all of it at
    twice the gap; what is then lost per doubling of compute where no best@k tells it, and its standard deviation."""


DEFAULT_PRIOR = CurvePrior()


@dataclass(frozen=True)
class OneRun:
    """One run as its forecast sees it; T points, step 0 left out."""

    log_compute_T: Array
    """ln C less that of the last evaluation."""
    reward_T: Array
    count_T: Array
    """Evaluations averaged into each point."""
    noise_T: Array
    """Standard deviation of one evaluation around each point."""
    base: tuple[float, float]
    """Reward of the base model and its standard deviation."""
    correlation: float
    """Of the noise of successive evaluations."""
    gain: float
    """Largest smoothed gain over the base model, at least twice the noise."""
    last_compute: float
    bounds: tuple[float, float]
    outliers: int = 0
    leading: float = 0.0
    """Change of best@k per doubling of compute at the last evaluation, see `leading_change`, times the share of the
    range that is left above the reward, for a rise, or below it, for a fall."""
    straight: tuple[float, float] = (0.5, 0.0)
    """Reward at the last evaluation as a share of the range, and slope of its logit in ln C, see `straight_line`."""
    gap: float = 0.0
    """How far training rewards have left these behind, as a share of the range, see `gap_to_training`."""

    @classmethod
    def of(
        cls,
        run: SurfaceRun,
        bounds: tuple[float, float],
        best: tuple[Array, Array] | None = None,
        train: tuple[Array, Array] | None = None,
    ) -> OneRun:
        """Clean a run: outliers moved, an early dip dropped, neighbours averaged where there are very many.

        Args:
            run: the evaluations.
            bounds: range of the metric.
            best: compute and best@k of the evaluations; None if not recorded.
            train: compute and training reward of the steps; None if not recorded.

        Noise is measured after the arcsine transform, which makes that of a mean of 0/1 rewards the same at every
        level: a run from .03 to .5 would else take its late noise from its early one.
        """
        order = np.argsort(run.compute_T, kind="stable")
        compute, reward = run.compute_T[order], run.reward_T[order]
        base, compute, reward = reward[compute == 0], compute[compute > 0], reward[compute > 0]
        span = bounds[1] - bounds[0]
        angle = np.arcsin(np.sqrt(np.clip((reward - bounds[0]) / span, 0.0, 1.0)))
        scale = noise_scale([angle], 1.0)
        clean = without_outliers(angle, rough_noise([angle], scale))
        moved = clean != angle
        noise, correlation = pooled_noise([clean], scale)
        level = np.clip(smoothed(clean), LEAST_ANGLE, np.pi / 2.0 - LEAST_ANGLE)
        sd_T = noise * span * np.sin(2.0 * level)
        clean = np.where(moved, bounds[0] + span * np.sin(clean) ** 2, reward)
        error = float(np.median(sd_T)) * float(np.sqrt((1.0 + correlation) / (1.0 - correlation)))
        start = float(np.mean(base)) if base.size else float(clean[0])
        first = end_of_dip(clean, start, error) if base.size else 0
        if base.size:
            known = (start, float(sd_T[0]) / float(np.sqrt(base.size)))
        else:
            known = (float(np.min(smoothed(clean))) - 0.02 * span, UNMEASURED_BASE * span)
        gain = max(float(np.max(smoothed(clean))) - start, 2.0 * float(sd_T[-1]))
        log, columns, count = _averaged(np.log(compute[first:] / compute[-1]), clean[first:], sd_T[first:])
        last = float(compute[-1])
        leading = 0.0 if best is None else leading_change(*best, last, span)
        reached = (float(smoothed(clean)[-1]) - bounds[0]) / span
        return cls(
            log,
            columns[0],
            count,
            columns[1],
            known,
            correlation,
            gain,
            last,
            bounds,
            int(moved.sum()),
            leading * (1.0 - reached if leading > 0 else reached),
            straight_line(log, (columns[0] - bounds[0]) / span, count),
            0.0 if train is None else gap_to_training(*train, run, bounds),
        )


def leading_change(compute_T: Array, best_T: Array, last: float, span: float) -> float:
    """Change of best@k per doubling of compute around `last`, shrunk by its error; 0 where too few were recorded."""
    change = change_per_doubling(compute_T, best_T, last)
    if change is None:
        return 0.0
    slope, error = change
    usual = (LEADING_SD * span) ** 2
    return slope * usual / (usual + error**2)


def announced(leading: float, doublings_Q: Array) -> Array:
    """Gain or loss that one unit of `CurvePrior.lead` adds: a rise grows with the squared distance, a fall goes on."""
    return leading * doublings_Q * (np.minimum(doublings_Q, MOST_DOUBLINGS) if leading > 0 else 1.0)


def straight_line(log_compute_T: Array, share_T: Array, count_T: Array) -> tuple[float, float]:
    """Share at the last evaluation, and slope of its logit in ln C, shrunk by its error.

    Args:
        log_compute_T: ln C less that of the last evaluation.
        share_T: reward as a share of the range.
        count_T: evaluations averaged into each point.
    """
    near = log_compute_T >= -np.log(LINE_WITHIN) - 1e-9
    if np.count_nonzero(near) < FEWEST_ON_LINE:
        near = np.arange(len(log_compute_T)) >= len(log_compute_T) - FEWEST_ON_LINE
    share_T = np.clip(share_T[near], LEAST_SHARE, 1.0 - LEAST_SHARE)
    value_T, weight_T = np.log(share_T / (1.0 - share_T)), count_T[near]
    off_T = log_compute_T[near] - np.average(log_compute_T[near], weights=weight_T)
    below = float(weight_T @ off_T**2)
    if len(share_T) < FEWEST_ON_LINE or below <= 0.0:
        return float(share_T[-1]), 0.0
    mean = float(np.average(value_T, weights=weight_T))
    slope = float(weight_T @ (off_T * value_T)) / below
    left = float(weight_T @ (value_T - mean - slope * off_T) ** 2) / (len(share_T) - 2)
    slope *= LINE_SD**2 / (LINE_SD**2 + left / below)
    return float(logistic(np.array(mean + slope * off_T[-1]))), slope


def gap_to_training(compute_T: Array, train_T: Array, run: SurfaceRun, bounds: tuple[float, float]) -> float:
    """Training reward less reward at the end of a run, less the same at its start, as a share of the range.

    0 if it is negative, if too little was recorded, or if training rewards lie outside the range: they are others then.
    """
    last = float(np.max(run.compute_T))
    known = (compute_T > 0) & (compute_T <= last * 1.0001) & np.isfinite(train_T)
    compute_T, train_T = compute_T[known], train_T[known]
    late_T = compute_T >= last / GAP_WITHIN
    evaluated_T = (run.compute_T > 0) & (run.compute_T >= last / GAP_WITHIN)
    if len(train_T) <= FEWEST_TRAINED or min(np.sum(late_T), np.sum(evaluated_T)) < FEWEST_TRAINED:
        return 0.0
    if train_T.min() < bounds[0] or train_T.max() > bounds[1]:
        return 0.0
    early_T = compute_T <= max(GAP_FROM * last, float(np.sort(compute_T)[FEWEST_TRAINED]))
    order = np.argsort(run.compute_T, kind="stable")
    before = np.interp(compute_T[early_T], run.compute_T[order], run.reward_T[order])
    start = float(np.mean(train_T[early_T] - before))
    end = float(np.mean(train_T[late_T]) - np.mean(run.reward_T[evaluated_T]))
    return max(end - start, 0.0) / (bounds[1] - bounds[0])


def _averaged(log: Array, *columns: Array) -> tuple[Array, list[Array], Array]:
    """Means over at most `MOST_POINTS` bins, half of them even in log compute and half in compute."""
    if len(log) <= MOST_POINTS:
        return log, list(columns), np.ones(len(log))
    linear = np.exp(log)
    along = (log - log[0]) / max(log[-1] - log[0], 1e-12) + (linear - linear[0]) / max(linear[-1] - linear[0], 1e-12)
    which = np.minimum((along / 2.0 * MOST_POINTS).astype(int), MOST_POINTS - 1)
    count = np.bincount(which, minlength=MOST_POINTS).astype(float)
    filled = count > 0
    means = [np.bincount(which, part, MOST_POINTS)[filled] / count[filled] for part in (log, *columns)]
    return means[0], means[1:], count[filled]


@dataclass(frozen=True)
class Particles:
    """Parameters of possible curves, shape (N,) each."""

    shape_N: Indices
    values_N5: Array
    """a, m, ln h, o, ln rate; m and o relative to the last evaluation."""

    def take(self, index: Indices) -> Particles:
        """Some of them."""
        return Particles(self.shape_N[index], self.values_N5[index])


def unit_curve(particles: Particles, log_compute_Q: Array) -> Array:
    """f(C): share of the final gain at each compute, shape (N, Q)."""
    _, m, slope, onset, rate = particles.values_N5.T
    h = np.exp(np.clip(slope, -LARGEST_SLOPE, LARGEST_SLOPE))
    z_NQ = h[:, None] * (np.minimum(log_compute_Q[None, :], onset[:, None]) - m[:, None])
    out_NQ = np.empty(z_NQ.shape)
    for i, name in enumerate(SHAPES):
        chosen = particles.shape_N == i
        out_NQ[chosen] = UNIT_SHAPES[name](z_NQ[chosen])[0]
    late_NQ = np.maximum(log_compute_Q[None, :] - onset[:, None], 0.0)
    return out_NQ * np.maximum(1.0 - np.exp(rate)[:, None] * late_NQ, LEAST_LEFT)


@dataclass(frozen=True)
class _Process:
    """The Gaussian part R0 + g for one size of the misfit."""

    run: OneRun
    prior: CurvePrior
    misfit: float
    """What the standard deviation of g grows by per unit of ln C away from the last evaluation, as a share of the gain
    seen: the curve that a run follows now need not be the one on which it began, or will end."""

    def covariance(self, first: Array, second: Array) -> Array:
        """Covariance between two sets of computes."""
        run, prior = self.run, self.prior
        apart = np.abs(first[:, None] - second[None, :]) * np.sqrt(3.0) / prior.length
        size = [run.gain * (prior.nearby + self.misfit * np.abs(at)) for at in (first, second)]
        return np.outer(*size) * (1.0 + apart) * np.exp(-apart) + run.base[1] ** 2 + (prior.start * run.gain) ** 2


@dataclass(frozen=True)
class Conditional:
    """The linear Gaussian part under each of K assumptions."""

    run: OneRun
    processes: tuple[_Process, ...]
    inverse_factor_KTT: Array
    log_det_K: Array

    @classmethod
    def of(cls, run: OneRun, prior: CurvePrior) -> Conditional:
        """Factor the covariance of the rewards under each assumption."""
        processes = tuple(_Process(run, prior, one) for one in prior.misfit)
        noise = _noise_covariance(run)
        at = run.log_compute_T
        factors = [np.linalg.cholesky(one.covariance(at, at) + noise) for one in processes]
        inverse = np.asarray(np.stack([np.linalg.inv(factor) for factor in factors]), dtype=np.float64)
        log_det = np.array([2.0 * np.log(np.diag(factor)).sum() for factor in factors])
        return cls(run, processes, inverse, log_det)

    def log_likelihoods(self, particles: Particles) -> Array:
        """Log likelihood under each assumption, shape (N, K)."""
        residual_NT = self.residual(particles)
        white_KNT = residual_NT[None] @ self.inverse_factor_KTT.transpose(0, 2, 1)
        return -0.5 * self.log_det_K[None, :] - 0.5 * np.einsum("knt,knt->nk", white_KNT, white_KNT)

    def drawn_curve(self, particles: Particles, log_compute_Q: Array, rng: np.random.Generator) -> Array:
        """Gain over the base model without R0 and g, shape (N, Q): the curve up to the last evaluation, then what
        curve, line, best@k and training rewards foresee, at a random pace.
        """
        run = self.run
        room_N1 = self.amplitude(particles)[:, None]
        seen_NQ = room_N1 * unit_curve(particles, np.minimum(log_compute_Q, 0.0))
        ahead_NQ = room_N1 * unit_curve(particles, log_compute_Q) - seen_NQ
        weight = self.processes[0].prior.straight
        ahead_NQ = (1.0 - weight) * ahead_NQ + weight * self.line(log_compute_Q)
        most, lost, lost_sd = self.processes[0].prior.overfit
        kept = float(np.clip(2.0 - run.gap / most, 0.0, 1.0))
        ahead_NQ = np.where(ahead_NQ > 0, kept * ahead_NQ, ahead_NQ)
        centre, sd = self.processes[0].prior.pace
        doublings_Q = np.maximum(log_compute_Q, 0.0) / np.log(2.0)
        # A random walk of the logarithm: its variance grows with the distance.
        pace_NQ = np.exp(centre * doublings_Q + sd * np.outer(rng.standard_normal(len(room_N1)), np.sqrt(doublings_Q)))
        left_NQ = np.maximum(run.bounds[1] - run.base[0] - seen_NQ, 1e-9)
        # A faster rise closes more of the room that is left, and never more than all of it.
        open_NQ = np.clip(1.0 - ahead_NQ / left_NQ, 0.0, 1.0)
        risen_NQ = left_NQ * (1.0 - open_NQ**pace_NQ)
        # The limit must not lower the mean of a pace that varies.
        usual_Q = np.exp((centre + sd**2 / 2.0) * doublings_Q)
        risen_NQ += np.mean(left_NQ * (1.0 - open_NQ**usual_Q) - risen_NQ, axis=0)
        fallen_NQ = np.maximum(pace_NQ * ahead_NQ, np.minimum(LEAST_LEFT * room_N1 - seen_NQ, 0.0))
        out = seen_NQ + np.where(ahead_NQ > 0, risen_NQ, fallen_NQ)
        if run.leading != 0.0:
            centre, sd = self.processes[0].prior.lead
            lead_N = centre + sd * rng.standard_normal(len(room_N1))
            more_NQ = lead_N[:, None] * announced(run.leading, doublings_Q)
            left_NQ = np.maximum(run.bounds[1] - run.base[0] - out, 1e-9)
            out += np.where(more_NQ > 0, -left_NQ * np.expm1(-np.maximum(more_NQ, 0.0) / left_NQ), more_NQ)
        elif kept < 1.0:
            lost_N = (1.0 - kept) * (lost + lost_sd * rng.standard_normal(len(room_N1)))
            out -= lost_N[:, None] * doublings_Q * (run.bounds[1] - run.bounds[0])
        return out

    def line(self, log_compute_Q: Array) -> Array:
        """What the straight line gains after the last evaluation, shape (Q,)."""
        level, slope = self.run.straight
        logit = np.log(level / (1.0 - level)) + slope * np.clip(log_compute_Q, 0.0, LINE_REACH)
        return (logistic(logit) - level) * (self.run.bounds[1] - self.run.bounds[0])

    def residual(self, particles: Particles) -> Array:
        """What the curve leaves of the rewards to R0 + g - E[R0] and noise, shape (N, T)."""
        run = self.run
        curve = self.amplitude(particles)[:, None] * unit_curve(particles, run.log_compute_T)
        return run.reward_T - run.base[0] - curve

    def amplitude(self, particles: Particles) -> Array:
        """G, shape (N,)."""
        return logistic(particles.values_N5[:, 0]) * (self.run.bounds[1] - self.run.base[0])

    def draw(self, particles: Particles, log_compute_Q: Array, rng: np.random.Generator) -> Array:
        """One draw of the noise-free reward for each particle, shape (N, Q)."""
        run = self.run
        log_NK = self.log_likelihoods(particles)
        odds_NK = np.exp(log_NK - log_NK.max(axis=1, keepdims=True))
        above_NK = np.cumsum(odds_NK, axis=1) >= rng.random((len(odds_NK), 1)) * odds_NK.sum(axis=1, keepdims=True)
        which_N = np.argmax(above_NK, axis=1)
        residual_NT = self.residual(particles)
        out = run.base[0] + self.drawn_curve(particles, log_compute_Q, rng)
        for k in np.unique(which_N):
            chosen, process, inverse = which_N == k, self.processes[k], self.inverse_factor_KTT[k]
            half_QT = process.covariance(log_compute_Q, run.log_compute_T) @ inverse.T
            left_QQ = process.covariance(log_compute_Q, log_compute_Q) - half_QT @ half_QT.T
            values, vectors = np.linalg.eigh((left_QQ + left_QQ.T) / 2.0)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            out[chosen] += (residual_NT[chosen] @ inverse.T) @ half_QT.T
            out[chosen] += rng.standard_normal((int(chosen.sum()), len(values))) @ root.T
        return np.clip(out, *run.bounds)


def _noise_covariance(run: OneRun) -> Array:
    lag = np.abs(np.subtract.outer(np.arange(len(run.reward_T)), np.arange(len(run.reward_T))))
    # Averaged neighbours are further apart than one evaluation, and their noise is smaller by their number.
    correlation = run.correlation ** (lag * max(float(np.mean(run.count_T)), 1.0))
    inflation = np.where(run.count_T > 1, (1.0 + run.correlation) / (1.0 - run.correlation), 1.0)
    sd = run.noise_T * np.sqrt(inflation / run.count_T)
    return correlation * np.outer(sd, sd)


def draw_prior(prior: CurvePrior, count: int, rng: np.random.Generator) -> Particles:
    """Particles from the prior."""
    normal = rng.standard_normal((count, 4))
    falls = rng.random(count) < prior.falls
    onset = np.where(falls, rng.uniform(*ONSETS, count), NEVER)
    values = [centre + sd * normal[:, i] for i, (centre, sd) in enumerate((prior.share, prior.midpoint, prior.slope))]
    rate = np.log(prior.rate[0]) + prior.rate[1] * normal[:, 3]
    return Particles(rng.integers(len(SHAPES), size=count), np.stack([*values, onset, rate], axis=1))


def _log_prior(prior: CurvePrior, particles: Particles) -> Array:
    """Log density, up to a constant; a fall's onset has a density, its absence a probability."""
    means = np.array([prior.share[0], prior.midpoint[0], prior.slope[0], np.log(prior.rate[0])])
    sds = np.array([prior.share[1], prior.midpoint[1], prior.slope[1], prior.rate[1]])
    usual = particles.values_N5[:, [0, 1, 2, 4]]
    out = -0.5 * (((usual - means) / sds) ** 2).sum(axis=1) - np.log(sds).sum() - 2.0 * np.log(2.0 * np.pi)
    onset = particles.values_N5[:, 3]
    inside = (onset >= ONSETS[0]) & (onset <= ONSETS[1])
    falling = np.where(inside, np.log(max(prior.falls, 1e-12) / (ONSETS[1] - ONSETS[0])), -np.inf)
    return out + np.where(onset >= NEVER, np.log1p(-prior.falls), falling)


@dataclass(frozen=True)
class Posterior:
    """Weighted particles of one run."""

    given: Conditional
    particles: Particles
    weight_N: Array

    def draws(self, log_compute_Q: Array, count: int, rng: np.random.Generator) -> tuple[Array, Particles]:
        """Noise-free rewards at ln C relative to the last evaluation, shape (count, Q), with their parameters."""
        at = (np.arange(count) + rng.random()) / count
        index = np.minimum(np.searchsorted(np.cumsum(self.weight_N), at), len(self.weight_N) - 1)
        chosen = self.particles.take(index)
        return self.given.draw(chosen, log_compute_Q, rng), chosen


def posterior(run: OneRun, prior: CurvePrior, rng: np.random.Generator) -> Posterior:
    """Adaptive importance sampling: each round draws around the best particles of the round before, and from the
    prior.
    """
    given = Conditional.of(run, prior)
    particles = draw_prior(prior, 2 * PARTICLES, rng)
    log_weight = log_sum(given.log_likelihoods(particles))
    for _ in range(ROUNDS):
        tempered = _tempered(log_weight)
        particles, log_proposal = _next_round(prior, particles, tempered, rng)
        log_weight = log_sum(given.log_likelihoods(particles)) + _log_prior(prior, particles) - log_proposal
    weight = np.exp(log_weight - log_weight.max())
    # Truncated importance sampling (Ionides 2008): a few particles in a tail must not decide a forecast.
    weight = np.minimum(weight, np.sqrt(len(weight)) * weight.mean())
    return Posterior(given, particles, weight / weight.sum())


def log_sum(values_NK: Array) -> Array:
    """Log of the sum of exponentials over the last axis."""
    top = values_NK.max(axis=1)
    return top + np.log(np.exp(values_NK - top[:, None]).sum(axis=1))


def _tempered(log_weight: Array) -> Array:
    """Normalised weights to the largest power at most 1 that keeps `LEAST_EFFECTIVE` particles."""
    low, high = 0.0, 1.0
    best = np.full(len(log_weight), 1.0 / len(log_weight))
    for power in [1.0, *[None] * 12]:
        tried = (low + high) / 2.0 if power is None else power
        weight = np.exp(tried * (log_weight - log_weight.max()))
        weight /= weight.sum()
        if 1.0 / np.sum(weight**2) >= LEAST_EFFECTIVE:
            best, low = weight, tried
            if power is not None:
                return best
        else:
            high = tried
    return best


def _next_round(
    prior: CurvePrior, particles: Particles, weight: Array, rng: np.random.Generator
) -> tuple[Particles, Array]:
    """New particles and the log density that they were drawn from."""
    parents = particles.take(rng.choice(len(weight), KEPT_PARENTS, p=weight))
    usual = [0, 1, 2, 4]
    centre = weight @ particles.values_N5[:, usual]
    off = particles.values_N5[:, usual] - centre
    covariance = (off * weight[:, None]).T @ off + 1e-6 * np.eye(4)
    factor = np.linalg.cholesky(covariance) * WIDTH
    falls = particles.values_N5[:, 3] < NEVER
    onset_sd = 0.05
    if np.sum(weight[falls]) > 0:
        onset, share = particles.values_N5[falls, 3], weight[falls] / np.sum(weight[falls])
        onset_sd = max(WIDTH * float(np.sqrt(share @ (onset - share @ onset) ** 2)), 0.03)
    fresh = rng.random(PARTICLES) < PRIOR_SHARE
    index = rng.integers(KEPT_PARENTS, size=PARTICLES)
    drawn = parents.take(index)
    values = drawn.values_N5.copy()
    values[:, usual] += rng.standard_normal((PARTICLES, 4)) @ factor.T
    has_fall = values[:, 3] < NEVER
    values[has_fall, 3] += onset_sd * rng.standard_normal(int(has_fall.sum()))
    from_prior = draw_prior(prior, PARTICLES, rng)
    new = Particles(
        np.where(fresh, from_prior.shape_N, drawn.shape_N),
        np.where(fresh[:, None], from_prior.values_N5, values),
    )
    # Density of the mixture: kernels of parents with the same shape, scale and kind, and the prior.
    inverse = np.linalg.inv(factor)
    a = new.values_N5[:, usual] @ inverse.T
    b = parents.values_N5[:, usual] @ inverse.T
    square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * a @ b.T
    log_kernel = -0.5 * np.maximum(square, 0.0) - np.log(np.diag(factor)).sum() - 2.0 * np.log(2.0 * np.pi)
    falling_new, falling_old = new.values_N5[:, 3] < NEVER, parents.values_N5[:, 3] < NEVER
    both = falling_new[:, None] & falling_old[None, :]
    onset_off = (new.values_N5[:, 3][:, None] - parents.values_N5[:, 3][None, :]) / onset_sd
    log_kernel += np.where(both, -0.5 * onset_off**2 - np.log(onset_sd * np.sqrt(2.0 * np.pi)), 0.0)
    same = new.shape_N[:, None] == parents.shape_N[None, :]
    same &= falling_new[:, None] == falling_old[None, :]
    density = np.where(same, np.exp(np.maximum(log_kernel, -700.0)), 0.0).mean(axis=1)
    of_prior = np.exp(_log_prior(prior, new)) / len(SHAPES)
    return new, np.log((1.0 - PRIOR_SHARE) * density + PRIOR_SHARE * of_prior + 1e-300)
