"""Draws from the posterior of a surface: an ensemble of most probable fits, then randomise-then-optimise around each.

A run's own gain and midpoint are searched with the surface's parameters. Each draw is a refit to data and prior means
with noise added (Bardsley et al., SIAM J. Sci. Comput. 36, 2014), weighed by how well its member of the ensemble
explains the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.least_squares import BatchedFit, Indices, least_squares_batch
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.prior import (
    DEFAULT_PRIOR,
    OPEN,
    Onsets,
    Prior,
    best_rises,
    sample_declines,
    sample_second_rise,
)
from isocompute_sdk.fitting.surface.surface import (
    RISEN,
    UNIT_SHAPES,
    Layout,
    Surface,
    curve,
    curve_and_slopes,
    logistic,
)

OUTLYING = 2.0
"""Standard deviations of a run's mean residual beyond which the run counts less."""
MIN_TO_COMPARE = 4
"""Runs below which none can be told to be outlying."""
NAMED = 4.5
"""Standard deviations from which such a run is named."""
EMPTY_VARIANCE = 1e12
"""Variance of a bin that is not there."""
NEAR_TOP = 0.1
"""Share of the headroom left from which on runs differ less in their gain, down to not at all at the top of the metric.
Simulated curves end lower; real runs of TRL that measured .99 were predicted to end at .95 without it and without a
prior whose centre follows them there. With .3, intervals of recorded Easy (.91 in the end) hold .07 less."""
NOISE_FACTOR = (0.5, 6.0)
"""Range of the factor on the noise variance that the residuals may ask for."""
MAP_ITERATIONS, DRAW_ITERATIONS = 120, 30
DEFAULT_DRAWS = 200


def fit_surface(
    runs: Sequence[PreparedRun],
    bounds: tuple[float, float],
    draws: int,
    rng: np.random.Generator,
    prior: Prior = DEFAULT_PRIOR,
) -> Surface:
    """Fit every run of a sweep together."""
    usable = [run for run in runs if len(run.log_compute_J)]
    data = Data.of(runs, bounds)
    onsets = Onsets.of(usable, data.layout)
    posterior = sample_posterior(data, prior, draws, rng)
    surface = Surface(
        layout=posterior.layout,
        shape_D=tuple(posterior.members[i].shape for i in posterior.member_D),
        parameters_DP=posterior.parameters_DP,
        noise=float(np.sqrt(np.mean([run.noise**2 for run in usable]))),
        run_share=prior.run_share,
        run_midpoint=prior.run_midpoint,
        largest_compute=max(run.last_compute for run in usable),
        declines=sample_declines(onsets, usable, draws, rng),
        outlying={run.run_id: float(off) for run, off in zip(usable, posterior.odd_R, strict=True) if off},
    )
    rising_M = np.array([prior.kinds[member.kind].second_rise for member in posterior.members])
    found = best_rises(usable, data.layout.top - data.layout.floor)
    probability, metric = (float(posterior.weight_M @ rising_M), None) if found is None else found
    # A plateau that was seen mostly goes on.
    probability *= float(np.clip((1.0 - _seen(surface)) / (1.0 - OPEN), 0.0, 1.0))
    return replace(surface, second_rise=sample_second_rise(prior, probability, metric, draws, rng))


def _seen(surface: Surface) -> float:
    """Largest share, over n, of a rise up to `RISEN` times the runs that was seen."""
    sizes, base = 2.0**surface.layout.knots_K, float(np.mean(surface.parameters_DP[:, 0]))
    end_K = surface.predict(surface.largest_compute, sizes)
    limit_K = surface.predict(surface.largest_compute * RISEN, sizes)
    return float(np.max(np.clip((end_K - base) / np.maximum(limit_K - base, 1e-6), 0.0, 1.0)))


@dataclass(frozen=True)
class Member:
    """One model of the ensemble."""

    shape: str
    kind: int = 0
    """Place among the prior's kinds of sweep."""


@dataclass(frozen=True)
class Data:
    """Bins of all runs, padded to one length J."""

    log_compute_RJ: Array
    reward_RJ: Array
    noise_RJJ: Array
    """Covariance of the bins' noise."""
    real_RJ: npt.NDArray[np.bool_]
    """False for padding."""
    design_R4P: Array
    layout: Layout
    base: tuple[float, float]
    """Reward of the base model and its standard error."""
    gain: float
    """Largest gain over the base model that was seen, without the luck of single evaluations."""
    midpoint: float
    """Log compute at which the sweep's runs are half-way on the whole."""

    @classmethod
    def of(cls, runs: Sequence[PreparedRun], bounds: tuple[float, float]) -> Data:
        """Pad and stack the runs that have bins."""
        base = _base(runs, bounds)
        runs = [run for run in runs if len(run.log_compute_J)]
        layout = Layout.of(runs, bounds)
        width = max(len(run.log_compute_J) for run in runs)
        log_compute = np.zeros((len(runs), width))
        reward = np.zeros((len(runs), width))
        noise = np.zeros((len(runs), width, width))
        real = np.zeros((len(runs), width), dtype=bool)
        for i, run in enumerate(runs):
            count = len(run.log_compute_J)
            log_compute[i, :count] = run.log_compute_J
            log_compute[i, count:] = run.log_compute_J[-1]
            reward[i, :count] = run.reward_J
            reward[i, count:] = run.reward_J[-1]
            real[i, :count] = True
            noise[i, :count, :count] = bin_covariance(run)
            noise[i, range(count, width), range(count, width)] = EMPTY_VARIANCE
        nan = float("nan")
        design = layout.design(
            np.log2([run.group_size for run in runs]),
            np.array([run.problems_per_batch or nan for run in runs], dtype=float),
            np.array([run.n_problems or nan for run in runs], dtype=float),
        )
        return cls(
            log_compute,
            reward,
            noise,
            real,
            design,
            layout,
            base,
            _gain_seen(runs, base[0]),
            _halfway(runs, base[0]),
        )


@dataclass(frozen=True)
class Posterior:
    """Draws of the surface's parameters with the member that each belongs to."""

    parameters_DP: Array
    member_D: Indices
    members: tuple[Member, ...]
    weight_M: Array
    """Share of each member in the draws' distribution."""
    layout: Layout
    odd_R: Array
    """By how much each run that is named as outlying lies above the fit; 0 for the others."""


@dataclass(frozen=True)
class Ensemble:
    """The most probable surface of every member, and how well it explains the sweep."""

    members: tuple[Member, ...]
    problem: _Problem
    parameters_MQ: Array
    log_evidence_M: Array
    """Laplace approximation, up to a constant."""
    odd_R: Array
    """As `Posterior.odd_R`."""

    @classmethod
    def of(cls, data: Data, prior: Prior) -> Ensemble:
        """Find them."""
        members = tuple(Member(*chosen) for chosen in product(UNIT_SHAPES, range(len(prior.kinds))))
        first = tuple(Member(shape) for shape in UNIT_SHAPES)
        start = np.append(_start(data, data.gain, data.midpoint), np.zeros(2 * len(data.reward_RJ)))
        problem = _Problem.of(data, prior, first)
        found = problem.solve(np.repeat(start[None, :], len(first), axis=0), MAP_ITERATIONS)
        data, odd_R = _reweighted(data, problem, found)
        by_shape = {member.shape: row for member, row in zip(first, found.parameters_NP, strict=True)}
        starts = np.stack([by_shape[member.shape] for member in members])
        problem = _Problem.of(data, prior, members)
        found = problem.solve(starts, MAP_ITERATIONS)
        return cls(members, problem, found.parameters_NP, problem.log_evidence(found), odd_R)

    @property
    def weight_M(self) -> Array:
        """Share of each member after the sweep."""
        weight = np.exp(self.log_evidence_M - self.log_evidence_M.max())
        return weight / weight.sum()


def sample_posterior(data: Data, prior: Prior, draws: int, rng: np.random.Generator) -> Posterior:
    """The ensemble's most probable fits and `draws` draws."""
    found = Ensemble.of(data, prior)
    # Systematic rather than independent picks: the members' shares in the draws are as close to the weights as can be.
    position = (np.arange(draws) + rng.random()) / draws
    last = len(found.members) - 1
    member_D = np.minimum(np.searchsorted(np.cumsum(found.weight_M), position), last).astype(np.intp)
    noise_DT = rng.standard_normal((draws, found.problem.rows))
    drawn = found.problem.solve(found.parameters_MQ[member_D], DRAW_ITERATIONS, member_D, noise_DT)
    return Posterior(
        drawn.parameters_NP[:, : data.layout.size], member_D, found.members, found.weight_M, data.layout, found.odd_R
    )


@dataclass(frozen=True)
class _Problem:
    """Whitened least squares for every member. Parameters (Q): the surface's (P), then two effects of each run."""

    data: Data
    prior: Prior
    members: tuple[Member, ...]
    whiten_RJJ: Array
    prior_MSQ: Array
    wanted_MS: Array
    prior_normal_MQQ: Array
    """What the prior's rows add to the normal equations."""
    log_scale_M: Array
    """Log of the determinant of the prior's rows."""

    @classmethod
    def of(cls, data: Data, prior: Prior, members: tuple[Member, ...]) -> _Problem:
        whiten = np.asarray(np.linalg.inv(np.linalg.cholesky(data.noise_RJJ)), dtype=float)
        end, effects = float(data.log_compute_RJ.max()), 2 * len(data.reward_RJ)
        rows = [prior.rows(data.layout, end, data.base, member.kind) for member in members]
        spread = np.array([np.linalg.slogdet(w.T @ w)[1] for w, _ in rows]) / 2
        weights = np.stack([np.pad(w, (0, effects)) for w, _ in rows])
        weights[:, -effects:, -effects:] = np.eye(effects)
        wanted = np.stack([np.pad(v, (0, effects)) for _, v in rows])
        return cls(data, prior, members, whiten, weights, wanted, weights.transpose(0, 2, 1) @ weights, spread)

    @property
    def rows(self) -> int:
        return self.data.reward_RJ.size + self.wanted_MS.shape[1]

    def solve(
        self, start: Array, iterations: int, member_N: Indices | None = None, noise_NT: Array | None = None
    ) -> BatchedFit:
        """Minimise, for each start, its member's sum of squares with `noise_NT` added to what is wanted."""
        member = np.arange(len(start)) if member_N is None else member_N

        def residual(theta: Array, index: Indices) -> Array:
            values = self._residual(theta, member[index])
            return values if noise_NT is None else values - noise_NT[index]

        def products(theta: Array, index: Indices, values: Array) -> tuple[Array, Array]:
            return self._normal_equations(theta, member[index], values)

        return least_squares_batch(
            residual,
            None,
            start,
            normal_equations=products,
            lower=np.where(np.arange(start.shape[1]) == 0, self.data.layout.floor, -40.0),
            upper=np.where(np.arange(start.shape[1]) == 0, self.data.layout.top, 60.0),
            max_iterations=iterations,
            ftol=1e-5,
            xtol=1e-6,
        )

    def precision(self, theta_MQ: Array) -> Array:
        """Inverse covariance of each member's parameters around its fit, shape (M, Q, Q)."""
        index = np.arange(len(self.members))
        return self._normal_equations(theta_MQ, index, self._residual(theta_MQ, index))[0]

    def log_evidence(self, found: BatchedFit) -> Array:
        """Laplace approximation of each member's evidence, up to a constant."""
        spread_M = np.linalg.slogdet(self.precision(found.parameters_NP))[1]
        return -0.5 * found.sse_N + self.log_scale_M - 0.5 * spread_M

    def of_runs(self, function: RunFunction, theta: Array, member: Indices) -> Array:
        """`run_reward` of the runs, shape (K, R, J), or their `run_slopes` (K, R, 6, J)."""
        data, prior, size = self.data, self.prior, self.data.layout.size
        curves_KR4 = np.einsum("rcp,kp->krc", data.design_R4P, theta[:, :size])
        effects_KR2 = theta[:, size:].reshape(len(theta), -1, 2)
        shape_K = np.array([m.shape for m in self.members])[member]
        scales = (data.layout.top, prior.run_share, prior.run_midpoint)
        return by_shape(function, shape_K, curves_KR4, effects_KR2, data.log_compute_RJ, *scales)

    def _residual(self, theta: Array, member: Indices) -> Array:
        value = self.of_runs(run_reward, theta, member) - self.data.reward_RJ
        of_data = (self.whiten_RJJ @ value[..., None])[..., 0].reshape(len(theta), -1)
        of_prior = (self.prior_MSQ[member] @ theta[:, :, None])[:, :, 0] - self.wanted_MS[member]
        return np.concatenate([of_data, of_prior], axis=1)

    def _normal_equations(self, theta: Array, member: Indices, residual: Array) -> tuple[Array, Array]:
        data = self.data
        runs, size = data.design_R4P.shape[0], data.design_R4P.shape[2]
        # Only six numbers per run enter its curve: their products are formed first, then mapped to parameters.
        whitened = self.of_runs(run_slopes, theta, member) @ self.whiten_RJJ.transpose(0, 2, 1)
        inner = whitened @ np.ascontiguousarray(whitened.transpose(0, 1, 3, 2))
        of_data = residual[:, : data.reward_RJ.size].reshape(len(theta), *data.reward_RJ.shape)
        pull = (whitened @ of_data[..., None])[..., 0]
        normal = self.prior_normal_MQQ[member]
        gradient = (residual[:, None, data.reward_RJ.size :] @ self.prior_MSQ[member])[:, 0, :]
        stacked = data.design_R4P.reshape(-1, size)
        mapped = (inner[:, :, :, :4] @ data.design_R4P).reshape(len(theta), runs, 6, size)
        normal[:, :size, :size] += stacked.T @ mapped[:, :, :4].reshape(len(theta), -1, size)
        across = mapped[:, :, 4:].reshape(len(theta), 2 * runs, size)
        normal[:, size:, :size] += across
        normal[:, :size, size:] += across.transpose(0, 2, 1)
        own = size + np.arange(2 * runs).reshape(runs, 2)
        normal[:, own[:, :, None], own[:, None, :]] += inner[:, :, 4:, 4:]
        gradient[:, :size] += pull[:, :, :4].reshape(len(theta), -1) @ stacked
        gradient[:, size:] += pull[:, :, 4:].reshape(len(theta), -1)
        return normal, gradient


RunFunction = Callable[[str, Array, Array, Array, float, float, float], Array]
"""`run_reward` or `run_slopes`."""


def by_shape(
    function: RunFunction,
    shape_K: npt.NDArray[np.str_],
    curves_K4: Array,
    effects_K2: Array,
    log_compute_J: Array,
    top: float,
    share: float,
    midpoint: float,
) -> Array:
    """The function of runs whose curves are of different shapes."""
    names = list(dict.fromkeys(shape_K.tolist()))
    if len(names) == 1:
        return function(names[0], curves_K4, effects_K2, log_compute_J, top, share, midpoint)
    places = [np.flatnonzero(shape_K == name) for name in names]
    parts = [
        function(name, curves_K4[at], effects_K2[at], log_compute_J, top, share, midpoint)
        for name, at in zip(names, places, strict=True)
    ]
    found = np.empty((len(shape_K), *parts[0].shape[1:]))
    for at, part in zip(places, parts, strict=True):
        found[at] = part
    return found


def run_reward(
    shape: str, curves_4: Array, effects_2: Array, log_compute_J: Array, top: float, share: float, midpoint: float
) -> Array:
    """Rewards of runs that differ from the curves of their configurations, shape (..., J).

    Args:
        shape: one of `UNIT_SHAPES`.
        curves_4: R0, a, m and ln h of the configurations, shape (..., 4).
        effects_2: how many standard deviations a run gains more, and rises later, shape (..., 2).
        log_compute_J: where, shape (..., J).
        top: upper bound of the metric.
        share: standard deviation of the gain, relative, where much of the headroom is left.
        midpoint: standard deviation of m.
    """
    value = curve(shape, _moved(curves_4, effects_2, midpoint), log_compute_J, top)
    factor = 1.0 + run_share(share, logistic(curves_4[..., 1])[..., None]) * effects_2[..., :1]
    return curves_4[..., :1] + (value - curves_4[..., :1]) * factor


def run_slopes(
    shape: str, curves_4: Array, effects_2: Array, log_compute_J: Array, top: float, share: float, midpoint: float
) -> Array:
    """Derivatives of `run_reward` by R0, a, m, ln h and the two effects, shape (..., 6, J)."""
    value, slopes_4 = curve_and_slopes(shape, _moved(curves_4, effects_2, midpoint), log_compute_J, top)
    won = logistic(curves_4[..., 1])[..., None]
    share_1, more = run_share(share, won), effects_2[..., :1]
    gain, factor = value - curves_4[..., :1], 1.0 + share_1 * more
    slopes = np.empty((*value.shape[:-1], 6, value.shape[-1]))
    slopes[..., :4, :] = slopes_4 * factor[..., None]
    slopes[..., 0, :] += 1.0 - factor
    slopes[..., 1, :] -= (won > 1.0 - NEAR_TOP) * share / NEAR_TOP * won * (1.0 - won) * more * gain
    slopes[..., 4, :] = share_1 * gain
    slopes[..., 5, :] = midpoint * slopes[..., 2, :]
    return slopes


def _moved(curves_4: Array, effects_2: Array, midpoint: float) -> Array:
    """The curves with the midpoints of their runs, shape (..., 1, 4)."""
    own_4 = curves_4.copy()
    own_4[..., 2] += midpoint * effects_2[..., 1]
    return own_4[..., None, :]


def run_share(usual: float, won: Array) -> Array:
    """Run-to-run standard deviation of the gain, relative, where this share of the headroom is won in the end."""
    return usual * np.clip((1.0 - won) / NEAR_TOP, 0.0, 1.0)


def _reweighted(data: Data, problem: _Problem, found: BatchedFit) -> tuple[Data, Array]:
    """Noise as large as the residuals of the best shape ask for, outlying bins and runs discounted.

    Returns:
        The data, and the shift of each run that is named as outlying (0 for the others).
    """
    best = np.array([np.argmin(found.sse_N)])
    value_RJ = problem.of_runs(run_reward, found.parameters_NP[best], best)[0]
    # As if the runs' effects were noise, so that a run is judged by all that it is off.
    effects_R2J = problem.of_runs(run_slopes, found.parameters_NP[best], best)[0, :, 4:]
    effect_R2 = found.parameters_NP[best[0], data.design_R4P.shape[2] :].reshape(-1, 2)
    off_RJ = value_RJ - data.reward_RJ - np.einsum("rej,re->rj", effects_R2J, effect_R2)
    covariance = data.noise_RJJ + effects_R2J.transpose(0, 2, 1) @ effects_R2J
    whiten_RJJ = np.linalg.inv(np.linalg.cholesky(covariance))
    residual = (whiten_RJJ @ off_RJ[..., None])[..., 0]
    real = data.real_RJ
    spread = np.median(np.abs(residual[real])) / 0.6745
    factor = float(np.clip(spread**2, *NOISE_FACTOR))
    # A run's mean residual in whitened units: w = W 1, so that its variance is 1 / (w w).
    one_RJ = (whiten_RJJ @ real.astype(float)[:, :, None])[..., 0]
    weight_R = (one_RJ**2).sum(axis=1)
    shift_R = -(one_RJ * residual).sum(axis=1) / weight_R
    unusual_R = np.abs(shift_R) * np.sqrt(weight_R / max(factor, 1.0))
    if len(unusual_R) < MIN_TO_COMPARE:
        unusual_R = np.zeros(len(unusual_R))
    odd_R = unusual_R > OUTLYING
    common_R = np.where(odd_R, ((unusual_R / OUTLYING) ** 2 - 1.0) / weight_R, 0.0)
    noise = data.noise_RJJ * np.where(real[:, :, None] & real[:, None, :], factor, 1.0)
    noise = noise + common_R[:, None, None] * (real[:, :, None] & real[:, None, :])
    return replace(data, noise_RJJ=noise), np.where(unusual_R > NAMED, shift_R, 0.0)


def bin_covariance(run: PreparedRun) -> Array:
    """Covariance of the means over a run's bins for noise with correlation rho^lag between evaluations, exact."""
    count, first, rho = run.count_J, run.first_J, run.correlation
    if rho == 0:
        return np.diag(run.noise**2 / count)
    tail = 1.0 - rho**count
    within = (count * (1.0 + rho) / (1.0 - rho) - 2.0 * rho * tail / (1.0 - rho) ** 2) / count**2
    # From the last evaluation of the earlier bin to the first of the later one.
    gap = first[None, :] - (first + count - 1.0)[:, None]
    across = rho ** np.maximum(gap, 0.0) * np.outer(tail, tail) / (1.0 - rho) ** 2 / np.outer(count, count)
    upper = np.triu(across, 1)
    return run.noise**2 * (np.diag(within) + upper + upper.T)


def _halfway(runs: Sequence[PreparedRun], base: float) -> float:
    """Median over runs of the log compute at which half of the gain seen was reached."""
    found: list[float] = []
    for run in runs:
        top = float(np.max(run.reward_J))
        above = np.flatnonzero(run.reward_J >= (base + top) / 2)
        # A run that gained nothing is half-way nowhere in its data.
        found.append(float(run.log_compute_J[above[0] if top > base else -1]))
    return float(np.median(found))


def _gain_seen(runs: Sequence[PreparedRun], base: float) -> float:
    """Upper quartile over runs of what their last three bins gained."""
    ends = [np.average(run.reward_J[-3:], weights=run.count_J[-3:]) - base for run in runs]
    return max(float(np.quantile(ends, 0.75)), 0.0)


def _logit_share(data: Data, gain: float) -> float:
    """Logit of a gain as a share of the headroom, kept away from the ends where runs did not get there."""
    headroom = max(data.layout.top - data.base[0], 1e-6)
    share = float(np.clip(gain / headroom, 0.01, min(max(0.9, data.gain / headroom), 0.99)))
    return float(np.log(share / (1.0 - share)))


def _start(data: Data, gain: float, midpoint: float) -> Array:
    """Start values with this gain and midpoint; everything else at its prior mean or zero."""
    layout = data.layout
    count = len(layout.knots_K)
    theta = np.zeros(layout.size)
    theta[0] = np.clip(data.base[0], layout.floor, layout.top - 1e-3 * (layout.top - layout.floor))
    theta[1 : 1 + count] = _logit_share(data, gain)
    # A little more compute per octave: where runs overlap, the level of m is what the data pull first.
    theta[1 + count : 1 + 2 * count] = midpoint + 0.3 * (np.arange(count) - count / 2)
    return theta


def _base(runs: Sequence[PreparedRun], bounds: tuple[float, float]) -> tuple[float, float]:
    """Reward of the base model and its standard error; a wide guess where nobody measured it."""
    measured = [run for run in runs if len(run.base_reward)]
    if measured:
        values = np.concatenate([run.base_reward for run in measured])
        noise = float(np.mean([run.noise for run in measured]))
        return float(values.mean()), noise / float(np.sqrt(len(values)))
    first = [float(run.reward_J[0]) for run in runs if len(run.reward_J)]
    return min(first) - 0.02 * (bounds[1] - bounds[0]), 0.1 * (bounds[1] - bounds[0])
