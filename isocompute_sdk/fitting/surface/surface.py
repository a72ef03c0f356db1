"""`Surface`: the fitted joint model, ready to be asked for rewards, best group sizes and what is lost by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Matrix, NotNegative, Positive
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.decline import NEVER, Declines, Onsets, sample_declines, shift
from isocompute_sdk.fitting.surface.ends import Ends
from isocompute_sdk.fitting.surface.leading import Leading, factors
from isocompute_sdk.fitting.surface.misfit import LARGEST_REACH, Misfit, sample_misfit, unseen_factor
from isocompute_sdk.fitting.surface.model import CURVE_PARAMETERS, OCTAVES_ABOVE, Layout, Prior, curve, logistic
from isocompute_sdk.fitting.surface.posterior import FIRST_DRIFT, Data, Posterior, sample_posterior
from isocompute_sdk.fitting.surface.shapes import UNIT_SHAPES

DEFAULT_PRIOR = Prior()
LATE = 0.25
"""Probability of a rise that begins again beyond the data. Of 80 % intervals on six recorded sets of the built-in task
.41 held at 8x before it, .61 with it. It raises upper ends and lowers the share of the rise that was seen. Means and
choices leave it out: rewards of simulated and digitised curves became too high, and the regret of choices grew."""
BESIDE_LATE = 0.92
"""Share of their distance to the mean that the other draws keep in intervals beside those of a second rise: their prior
is wide enough for both. Intervals of tuning sweeps held .90 without it at 10x, .88 with .9."""
SPREAD_ABOVE, SPREAD_REACH = 0.08, 2.5
"""Without a late rise: by how much draws above the mean are moved further up in intervals, as a share of their distance
to it, per unit of log compute beyond the data, and up to how many units."""
OLD_SPREAD_ABOVE = 0.15
"""The same in fits saved before a lack of fit was drawn."""
BELOW: tuple[tuple[float, ...], tuple[float, ...]] = (1.0, 1.5, 5.0, 10.0), (1.0, 0.9, 0.9, 1.25)
ABOVE: tuple[tuple[float, ...], tuple[float, ...]] = (4.0, 12.0), (0.7, 1.25)
"""Gain over the noise of one evaluation, and what the distances of lower and upper ends of intervals to the mean are
multiplied by there, beyond the data. Where the ratio is small, noise and prior make draws wide enough for any lack of
fit; where it is large, little but the lack of fit is left, and draws are too sure. Of 80 % intervals on tuning sweeps
.92 held without it at ratios below 2, .83 from 8 to 20 and .72 above. A gain of less than the noise may be none: there
lower ends stay."""
WHOLE_REACH = 5.0
"""Multiple of the largest compute from which the factor applies in full; within the data it is 1."""
LEAST_LEFT = -0.1
"""Share of the gain that a decline leaves at least; below 0 it ends under the base model."""
LARGEST_PARAMETER = 300.0
"""Largest size of a parameter but R0: beyond it e^m overflows."""
RISEN = 1e3
"""Multiple of the largest compute at which a rise counts as complete."""
RUN_SHIFT = 0.25
"""Steepest slope of a curve per unit of log compute as a share of its gain: what a shift of the midpoint can cost."""


KEPT_PLACES, KEPT_ANSWERS = 32, 256
"""Answers of `draws` that are kept: those of so many places at most, and so many of them."""
INSIDE_FADE = 0.7
"""Units of ln C before the end of the data over which draws with a drift give way to their fits inside the data."""


@dataclass(frozen=True, eq=False)
class Inside:
    """Fits of the draws that hold inside the data, where those with a drift follow the end of the data only."""

    shape_D: Annotated[tuple[str, ...], Field(alias="shapes")]
    parameters_DP: Annotated[Matrix, Field(alias="parameters")]


@dataclass(frozen=True, eq=False)
class Surface:
    """R(C, n, B_p, D) as draws from its posterior."""

    layout: Layout
    shape_D: Annotated[tuple[str, ...], Field(alias="shapes")]
    """Unit shape of each draw."""
    parameters_DP: Annotated[Matrix, Field(alias="parameters")]
    noise: NotNegative
    """Standard deviation of one evaluation."""
    run_share: NotNegative
    """Run-to-run standard deviation of the gain, relative, averaged over the ensemble."""
    run_midpoint: NotNegative
    """Run-to-run standard deviation of the half-way log compute."""
    largest_compute: Positive
    """Largest compute at which any run was evaluated."""
    n_problems: Positive | None = None
    """Distinct training problems D that predictions are for; None for what the runs had. Only where they vary it."""
    declines: Declines | None = None
    """Where rewards begin to fall; None in fits saved before that was learned."""
    misfit: Misfit | None = None
    """Lack of fit; None in fits saved before it was drawn."""
    outlying: Mapping[str, float] = field(default_factory=dict[str, float])
    """Runs that do not agree with the others, with by how much they lie above the fit."""
    inside: Inside | None = None
    """Fits inside the data; None where no draw has a drift."""
    late: Surface | None = None
    """The same runs with a rise that begins again, which intervals and the share of the rise that was seen allow for;
    fewer draws the surer runs that fell make a decline, None where it is certain and in fits saved before."""
    leading: Leading | None = None
    """By how much means count that rise; None without best@k, and in fits saved before it was read."""
    ends: Ends | None = None
    """Ends of runs above the fit; None where it follows them, and in fits saved before that was looked at."""

    def __post_init__(self) -> None:
        unknown = set(self.shape_D) - set(UNIT_SHAPES)
        if unknown or not self.shape_D:
            raise FieldError("shapes", sorted(unknown), f"one of {', '.join(UNIT_SHAPES)} for each draw")
        shape = (len(self.shape_D), self.layout.size)
        if self.parameters_DP.shape != shape:
            raise FieldError("parameters", self.parameters_DP.shape, f"shape {shape}, draws by parameters")
        draws, knots = len(self.shape_D), len(self.layout.knots_K)
        if self.declines is not None and len(self.declines.onset_D) != draws:
            raise FieldError("declines", len(self.declines.onset_D), f"{draws}, one for each draw")
        if self.misfit is not None and self.misfit.level_DK.shape != (draws, knots):
            raise FieldError("misfit", self.misfit.level_DK.shape, f"shape {(draws, knots)}, draws by knots")
        if self.inside is not None and self.inside.parameters_DP.shape != shape:
            raise FieldError("inside", self.inside.parameters_DP.shape, f"shape {shape}, draws by parameters")
        if self.leading is not None and self.leading.rising_K.shape != (knots,):
            raise FieldError("leading", self.leading.rising_K.shape, f"shape {(knots,)}, one for each knot")
        if self.ends is not None and self.ends.share_K.shape != (knots,):
            raise FieldError("ends", self.ends.share_K.shape, f"shape {(knots,)}, one for each knot")
        largest = float(np.max(np.abs(self.parameters_DP[:, 1:])))
        if largest > LARGEST_PARAMETER:
            raise FieldError("parameters", largest, f"at most {LARGEST_PARAMETER:g} in size, after R0")

    def with_misfit_scaled(self, factor: float) -> Surface:
        """The same with a lack of fit this many times as large."""
        misfit = None if self.misfit is None else self.misfit.scaled(factor)
        late = None if self.late is None else self.late.with_misfit_scaled(factor)
        return replace(self, misfit=misfit, late=late)

    def draws_with_late(
        self,
        compute: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
        *,
        at: bool = False,
    ) -> Array:
        """`draws`, and below them those of a late rise."""
        drawn_DQ = self._answer(compute, group_size, problems_per_batch, None, at)
        if self.late is None or self.leading is not None:
            return drawn_DQ.copy()
        late_LQ = self.late.draws(compute, group_size, problems_per_batch, self.n_problems, at=at)
        return np.concatenate([drawn_DQ, late_LQ])

    @property
    def base_with_late_D(self) -> Array:
        """Reward of the base model in each draw of `draws_with_late`."""
        late = () if self.late is None else (self.late.parameters_DP[:, 0],)
        return np.concatenate([self.parameters_DP[:, 0], *late])

    def draws(
        self,
        compute: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
        n_problems: npt.ArrayLike | None = None,
        *,
        at: bool = False,
    ) -> Array:
        """Noise-free reward of the best checkpoint up to C, averaged over runs: read-only, shape (draws, Q).

        Args:
            compute: positive, shape (Q,) or broadcastable to it.
            group_size: n.
            problems_per_batch: B_p; None for the smallest that was run.
            n_problems: D; None for the one that most runs have.
            at: the reward at C itself instead, after a decline lower than the best.
        """
        return self._answer(compute, group_size, problems_per_batch, n_problems, at)[: len(self.shape_D)]

    def _answer(
        self,
        compute: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None,
        n_problems: npt.ArrayLike | None,
        at: bool,
    ) -> Array:
        """`draws`; with best@k also those of the late rise, below."""
        nan = float("nan")
        spent, sizes, problems, sets = (
            np.atleast_1d(np.asarray(a, dtype=float)).ravel()
            for a in np.broadcast_arrays(
                np.asarray(compute, dtype=float),
                np.asarray(group_size, dtype=float),
                nan if problems_per_batch is None else np.asarray(problems_per_batch, dtype=float),
                (nan if self.n_problems is None else self.n_problems)
                if n_problems is None
                else np.asarray(n_problems, dtype=float),
            )
        )
        # A planner asks for the reward of one place many times: for its choice, its verdict, its alternatives.
        place = (at, *(axis.tobytes() for axis in (spent, sizes, problems, sets)))
        reward_DQ = self._asked.pop(place, None)
        if reward_DQ is None:
            reward_DQ = self._draws(spent, sizes, problems, sets, at)
            if self.leading is not None and self.late is not None:
                late_LQ = self.late.draws(spent, sizes, problems, sets, at=at)
                reward_DQ = self._led(self.leading, spent, sizes, reward_DQ, late_LQ)
            reward_DQ.flags.writeable = False
        if len(spent) <= KEPT_PLACES:
            self._asked[place] = reward_DQ
        if len(self._asked) > KEPT_ANSWERS:
            del self._asked[next(iter(self._asked))]
        return reward_DQ

    @cached_property
    def _asked(self) -> dict[tuple[bool | bytes, ...], Array]:
        """The last answers of `draws`, the oldest first."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: everything but the answers kept."""
        return {name: value for name, value in vars(self).items() if name != "_asked"}

    @property
    def _beside(self) -> float:
        """Draws of a late rise over as many as there are where no run fell."""
        late = 0 if self.late is None else len(self.late.shape_D)
        return min(late / len(self.shape_D) * (1.0 - LATE) / LATE, 1.0)

    def _led(self, leading: Leading, spent: Array, sizes: Array, reward_DQ: Array, late_LQ: Array) -> Array:
        """Draws and those of a late rise with what best@k adds to both."""
        hats_QK = self.layout.hats(np.log2(sizes))
        doublings_Q = np.log2(spent / self.largest_compute)
        share_Q = leading.share(hats_QK, doublings_Q, reward_DQ.mean(axis=0), late_LQ.mean(axis=0), self.layout.top)
        factor_D = self._beside * np.concatenate([factors(len(reward_DQ)), factors(len(late_LQ))])
        both_DQ = np.concatenate([reward_DQ, late_LQ])
        return both_DQ + np.minimum(factor_D[:, None] * share_Q, 1.0) * (self.layout.top - both_DQ)

    def _draws(self, spent: Array, sizes: Array, problems: Array, sets: Array, at: bool) -> Array:
        design = self.layout.design(np.log2(sizes), problems, sets)
        curves_DQ4 = _curves(self.parameters_DP, design)
        log_DQ = np.broadcast_to(np.log(spent), curves_DQ4.shape[:2])
        late_DQ = np.zeros(log_DQ.shape)
        if self.declines is not None:
            onset_DQ = self._onset(self.declines, sizes, problems, sets)
            late_DQ = np.maximum(log_DQ - onset_DQ, 0.0)
            log_DQ = np.minimum(log_DQ, onset_DQ)
        hats_QK = self.layout.hats(np.log2(sizes))
        reward_DQ = self._risen(self.shape_D, curves_DQ4, log_DQ, hats_QK)
        if self.inside is not None:
            before_DQ = np.maximum(float(np.log(self.largest_compute)) - log_DQ, 0.0)
            if np.any(before_DQ > 0):
                of_end_DQ = np.exp(-0.5 * (before_DQ / INSIDE_FADE) ** 2)
                inside_DQ = self._risen(
                    self.inside.shape_D, _curves(self.inside.parameters_DP, design), log_DQ, hats_QK
                )
                reward_DQ = of_end_DQ * reward_DQ + (1.0 - of_end_DQ) * inside_DQ
        if self.ends is not None:
            before_Q = float(np.log(self.largest_compute)) - np.log(spent)
            reward_DQ = self.ends.follow(reward_DQ, hats_QK, before_Q, self.layout.top)
        if at and self.declines is not None:
            base_D1 = curves_DQ4[:, :, 0]
            left_DQ = np.maximum(1.0 - self.declines.rate_D[:, None] * late_DQ, LEAST_LEFT)
            reward_DQ = base_D1 + (reward_DQ - base_D1) * left_DQ
        return np.clip(reward_DQ, self.layout.floor, self.layout.top)

    def onset(self, group_size: float, problems_per_batch: float | None = None) -> Array:
        """Compute from which rewards fall at this n, shape (draws,); infinite in draws without a decline.

        Args:
            group_size: n.
            problems_per_batch: B_p; None for the smallest that was run.
        """
        if self.declines is None:
            return np.full(len(self.shape_D), np.inf)
        nan = float("nan")
        problems = nan if problems_per_batch is None else float(problems_per_batch)
        sets = nan if self.n_problems is None else self.n_problems
        size_Q, problems_Q, set_Q = (np.array([float(value)]) for value in (group_size, problems, sets))
        onset_D = self._onset(self.declines, size_Q, problems_Q, set_Q)[:, 0]
        return np.exp(np.where(onset_D < NEVER / 2, onset_D, np.inf))

    def _onset(self, declines: Declines, sizes_Q: Array, problems_Q: Array, sets_Q: Array) -> Array:
        """Logarithm of the onset's compute, shape (D, Q)."""
        octaves_Q = np.log2(sizes_Q) - self.layout.centre
        onset_DQ = declines.onset_D[:, None] + declines.step_D[:, None] * octaves_Q
        return onset_DQ + shift(problems_Q, sets_Q, self.layout)

    def _risen(self, shape_D: tuple[str, ...], curves_DQ4: Array, log_DQ: Array, hats_QK: Array) -> Array:
        """Rewards of rising curves, lack of fit included."""

        def reward(curves: Array, log_compute_DQ: Array) -> Array:
            out_DQ = np.empty(log_compute_DQ.shape)
            for name, chosen in _draws_by_shape(shape_D):
                out_DQ[chosen] = curve(name, curves[chosen], log_compute_DQ[chosen], self.layout.top)
            return out_DQ

        if self.misfit is None:
            return reward(curves_DQ4, log_DQ)
        curves_DQ4 = curves_DQ4.copy()
        curves_DQ4[..., 1] += self.misfit.level_DK @ hats_QK.T
        end = float(np.log(self.largest_compute))
        reach_DQ = np.clip(log_DQ - end, 0.0, LARGEST_REACH)
        if not np.any(reach_DQ > 0):
            return reward(curves_DQ4, log_DQ)
        base_DQ, share_DQ = curves_DQ4[..., 0], logistic(curves_DQ4[..., 1])
        seen_DQ = (reward(curves_DQ4, np.full(log_DQ.shape, end)) - base_DQ) / np.maximum(
            (self.layout.top - base_DQ) * share_DQ, 1e-9
        )
        at_end_DQ = reward(curves_DQ4, np.minimum(log_DQ, end))
        curves_DQ4[..., 1] += (self.misfit.tilt_DK @ hats_QK.T) * reach_DQ * unseen_factor(seen_DQ)
        # A tilt downwards delays the rise: the best checkpoint of the data stays.
        return np.maximum(reward(curves_DQ4, log_DQ), at_end_DQ)

    def predict(
        self,
        compute: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
        n_problems: npt.ArrayLike | None = None,
    ) -> Array:
        """Mean of `draws`, shape (Q,)."""
        return self.draws(compute, group_size, problems_per_batch, n_problems).mean(axis=0)

    def interval(
        self,
        kind: Literal["mean", "at", "run"],
        level: float,
        compute: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
    ) -> tuple[Array, Array, Array]:
        """Mean and low of `draws`, high of `draws_with_late`; for `run` of one new run's measured value."""
        drawn_DQ = self.draws_with_late(compute, group_size, problems_per_batch, at=kind == "at")
        usual = slice(0, len(self.shape_D))
        mean_Q = drawn_DQ[usual].mean(axis=0)
        # Runs that fell leave fewer draws of a late rise; the other draws then keep more of their distance.
        beside = self._beside
        drawn_DQ[usual] -= (1.0 - BESIDE_LATE) * beside * (drawn_DQ[usual] - mean_Q)
        beyond_Q = np.broadcast_to(np.asarray(compute, dtype=float).ravel(), mean_Q.shape) / self.largest_compute
        reach_Q = np.clip(np.log(beyond_Q), 0.0, SPREAD_REACH)
        spread = OLD_SPREAD_ABOVE if self.misfit is None else (1.0 - beside) * SPREAD_ABOVE
        drawn_DQ = drawn_DQ + spread * reach_Q * np.maximum(drawn_DQ - mean_Q, 0.0)
        low = np.quantile(drawn_DQ[usual], (1 - level) / 2, axis=0)
        high = np.quantile(drawn_DQ, (1 + level) / 2, axis=0)
        below_Q, above_Q = self._widths(beyond_Q, group_size, problems_per_batch)
        # Of skewed draws the mean may lie outside their quantiles.
        low = mean_Q - below_Q * np.maximum(mean_Q - low, 0.0)
        high = mean_Q + above_Q * np.maximum(high - mean_Q, 0.0)
        if kind == "run":
            gain = np.maximum(mean_Q - float(np.mean(self.parameters_DP[:, 0])), 0.0)
            spread = np.hypot(self.noise, np.hypot(self.run_share, RUN_SHIFT * self.run_midpoint) * gain)
            noise = NormalDist().inv_cdf((1 + level) / 2) * spread
            low, high = mean_Q - np.hypot(mean_Q - low, noise), mean_Q + np.hypot(high - mean_Q, noise)
        return (
            mean_Q,
            np.clip(low, self.layout.floor, self.layout.top),
            np.clip(high, self.layout.floor, self.layout.top),
        )

    def _widths(
        self, beyond_Q: Array, group_size: npt.ArrayLike, problems_per_batch: npt.ArrayLike | None
    ) -> tuple[Array, Array]:
        """Factors on the distance of lower and upper ends to the mean, by how clearly the gain was seen at this n."""
        if self.misfit is None:
            return np.ones_like(beyond_Q), np.ones_like(beyond_Q)
        end_Q = self.predict(self.largest_compute, group_size, problems_per_batch)
        gain_Q = np.maximum(end_Q - float(np.mean(self.parameters_DP[:, 0])), 1e-9)
        signal_Q = np.log(gain_Q / max(self.noise, 1e-9))
        share_Q = np.clip(np.log(beyond_Q) / np.log(WHOLE_REACH), 0.0, 1.0)
        below_Q, above_Q = (
            1.0 + share_Q * (np.interp(signal_Q, np.log(signals), factors) - 1.0) for signals, factors in (BELOW, ABOVE)
        )
        return below_Q, above_Q


@lru_cache(maxsize=8)
def _draws_by_shape(shape_D: tuple[str, ...]) -> tuple[tuple[str, npt.NDArray[np.intp]], ...]:
    """Places of the draws of each shape."""
    names = np.array(shape_D)
    return tuple((name, np.flatnonzero(names == name)) for name in dict.fromkeys(shape_D))


def _curves(parameters_DP: Array, design_Q4P: Array) -> Array:
    """(R0, a, m, ln h) of each draw and place, shape (D, Q, 4)."""
    flat_DQ = parameters_DP @ design_Q4P.reshape(-1, design_Q4P.shape[2]).T
    return flat_DQ.reshape(len(flat_DQ), len(design_Q4P), CURVE_PARAMETERS)


def fit_surface(
    runs: Sequence[PreparedRun],
    bounds: tuple[float, float],
    draws: int,
    rng: np.random.Generator,
    prior: Prior = DEFAULT_PRIOR,
) -> Surface:
    """Fit every run of a sweep together.

    Args:
        runs: prepared runs, at least one with an evaluation after step 0.
        bounds: range of the metric.
        draws: draws from the posterior, at least 1.
        rng: their randomness.
        prior: what is assumed.
    """
    usable = [run for run in runs if len(run.log_compute_J)]
    layout = _layout(usable, bounds)
    onsets = Onsets.of(usable, layout)
    # A decline of the recipe is shown by runs that fell only, which may be those runs' accidents.
    declines = onsets.probability if any(run.fault == "decay" for run in usable) else 0.0
    late = round(draws * LATE / (1.0 - LATE) * (1.0 - declines))
    posterior = sample_posterior(Data.of(usable, layout, _base(runs, bounds)), prior, draws, rng, late)
    drift_D = np.array([posterior.members[i].drift for i in posterior.member_D])
    scales = np.array([member.run_scale for member in posterior.members])
    scale = float(np.sqrt(np.sum(posterior.weight_M * scales**2)))
    inside = None
    if posterior.inside_DP is not None and posterior.inside_member_D is not None:
        shapes = tuple(posterior.members[i].shape for i in posterior.inside_member_D)
        inside = Inside(shapes, posterior.inside_DP)
    surface = Surface(
        layout=posterior.layout,
        shape_D=tuple(posterior.members[i].shape for i in posterior.member_D),
        parameters_DP=posterior.parameters_DP,
        noise=float(np.sqrt(np.mean([run.noise**2 for run in usable]))),
        run_share=scale * prior.run_share,
        run_midpoint=scale * prior.run_midpoint,
        largest_compute=max(run.last_compute for run in usable),
        declines=sample_declines(onsets, usable, draws, rng),
        misfit=sample_misfit(drift_D, len(layout.knots_K), rng),
        outlying={run.run_id: float(off) for run, off in zip(usable, posterior.odd_R, strict=True) if off},
        inside=inside,
    )
    surface = replace(surface, ends=Ends.of(surface, usable, prior))
    late = _late(surface, posterior, onsets, usable, rng)
    surface = replace(surface, late=late)
    if late is None or all(run.best is None for run in usable):
        return surface
    return replace(surface, leading=Leading.of(usable, layout, _seen(surface)))


def _seen(surface: Surface) -> float:
    """Largest share, over n, of a rise up to `RISEN` times the runs that was seen, a late rise counted in."""
    sizes, base = 2.0**surface.layout.knots_K, float(np.mean(surface.parameters_DP[:, 0]))
    end_K = surface.draws_with_late(surface.largest_compute, sizes).mean(axis=0)
    limit_K = surface.draws_with_late(surface.largest_compute * RISEN, sizes).mean(axis=0)
    return float(np.max(np.clip((end_K - base) / np.maximum(limit_K - base, 1e-6), 0.0, 1.0)))


def _late(
    surface: Surface, posterior: Posterior, onsets: Onsets, runs: Sequence[PreparedRun], rng: np.random.Generator
) -> Surface | None:
    """The surface of a late rise; inside the data it follows the draws of the usual one."""
    if posterior.late_LP is None:
        return None
    count, layout = len(posterior.late_LP), surface.layout
    same = Inside(surface.shape_D, surface.parameters_DP) if surface.inside is None else surface.inside
    which_L = np.arange(count) * len(surface.shape_D) // count
    return replace(
        surface,
        shape_D=("hill",) * count,
        parameters_DP=posterior.late_LP,
        declines=sample_declines(onsets, runs, count, rng),
        misfit=sample_misfit(np.full(count, FIRST_DRIFT), len(layout.knots_K), rng),
        inside=Inside(tuple(same.shape_D[i] for i in which_L), same.parameters_DP[which_L]),
    )


def _layout(runs: Sequence[PreparedRun], bounds: tuple[float, float]) -> Layout:
    octaves = np.log2([run.group_size for run in runs])
    low, high = float(np.floor(octaves.min())), float(np.ceil(octaves.max())) + OCTAVES_ABOVE
    problems = [run.problems_per_batch for run in runs if run.problems_per_batch is not None]
    sets = [run.n_problems for run in runs if run.n_problems is not None]
    return Layout(
        knots_K=np.asarray(np.arange(low, high + 1.0), dtype=np.float64),
        centre=float(np.mean([octaves.min(), octaves.max()])),
        problems_reference=float(min(problems, default=1)),
        set_reference=float(np.median(sets)) if len(set(sets)) > 1 else None,
        usual_set=float(np.median(sets)) if sets else None,
        top=bounds[1],
        floor=bounds[0],
    )


def _base(runs: Sequence[PreparedRun], bounds: tuple[float, float]) -> tuple[float, float]:
    """Reward of the base model and its standard error; a wide guess where nobody measured it."""
    measured = [run for run in runs if len(run.base_reward)]
    if measured:
        values = np.concatenate([run.base_reward for run in measured])
        noise = float(np.mean([run.noise for run in measured]))
        return float(values.mean()), noise / float(np.sqrt(len(values)))
    first = [float(run.reward_J[0]) for run in runs if len(run.reward_J)]
    return min(first) - 0.02 * (bounds[1] - bounds[0]), 0.1 * (bounds[1] - bounds[0])
