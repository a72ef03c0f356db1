"""`Surface`: the fitted joint model, ready to be asked for rewards, best group sizes and what is lost by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Matrix, NotNegative, Positive
from isocompute_sdk.fitting.surface.data import PreparedRun
from isocompute_sdk.fitting.surface.model import CURVE_PARAMETERS, OCTAVES_ABOVE, Layout, Prior, curve
from isocompute_sdk.fitting.surface.posterior import Data, sample_posterior
from isocompute_sdk.fitting.surface.shapes import UNIT_SHAPES

DEFAULT_PRIOR = Prior()
SPREAD_ABOVE, LARGEST_REACH = 0.15, 2.5
"""By how much draws above the mean are moved further up, as a share of their distance to it, per unit of log compute
beyond the data, and up to how many units: where little of a rise was seen it may still go on far. Chosen on simulated
sweeps (tuning seeds of benchmarks/allocation.py)."""
LARGEST_PARAMETER = 300.0
"""Largest size of a parameter but R0: beyond it e^m overflows."""
RUN_SHIFT = 0.25
"""Steepest slope of a curve per unit of log compute as a share of its gain: what a shift of the midpoint can cost."""


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

    def __post_init__(self) -> None:
        unknown = set(self.shape_D) - set(UNIT_SHAPES)
        if unknown or not self.shape_D:
            raise FieldError("shapes", sorted(unknown), f"one of {', '.join(UNIT_SHAPES)} for each draw")
        shape = (len(self.shape_D), self.layout.size)
        if self.parameters_DP.shape != shape:
            raise FieldError("parameters", self.parameters_DP.shape, f"shape {shape}, draws by parameters")
        largest = float(np.max(np.abs(self.parameters_DP[:, 1:])))
        if largest > LARGEST_PARAMETER:
            raise FieldError("parameters", largest, f"at most {LARGEST_PARAMETER:g} in size, after R0")

    def draws(
        self,
        compute: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
        n_problems: npt.ArrayLike | None = None,
    ) -> Array:
        """Noise-free reward of the best checkpoint up to C, averaged over runs: shape (draws, Q).

        Args:
            compute: positive, shape (Q,) or broadcastable to it.
            group_size: n.
            problems_per_batch: B_p; None for the smallest that was run.
            n_problems: D; None for the one that most runs have.
        """
        nan = float("nan")
        at, sizes, problems, sets = (
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
        design = self.layout.design(np.log2(sizes), problems, sets)
        flat_DQ = self.parameters_DP @ design.reshape(-1, design.shape[2]).T
        curves_DQ4 = flat_DQ.reshape(len(flat_DQ), len(at), CURVE_PARAMETERS)
        out = np.empty(curves_DQ4.shape[:2])
        names = np.array(self.shape_D)
        log_compute = np.log(at)
        for name in dict.fromkeys(names.tolist()):
            chosen = names == name
            out[chosen] = curve(name, curves_DQ4[chosen], log_compute, self.layout.top)
        return np.clip(out, self.layout.floor, self.layout.top)

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
        kind: Literal["mean", "run"],
        level: float,
        compute: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
    ) -> tuple[Array, Array, Array]:
        """Mean, low and high of `draws`; for `run` of one new run's measured value.

        Beyond the data the upper part is widened (`SPREAD_ABOVE`).
        """
        drawn_DQ = self.draws(compute, group_size, problems_per_batch)
        mean_Q = drawn_DQ.mean(axis=0)
        beyond_Q = np.broadcast_to(np.asarray(compute, dtype=float).ravel(), mean_Q.shape) / self.largest_compute
        reach_Q = np.clip(np.log(beyond_Q), 0.0, LARGEST_REACH)
        widened_DQ = drawn_DQ + SPREAD_ABOVE * reach_Q * np.maximum(drawn_DQ - mean_Q, 0.0)
        low, high = np.quantile(widened_DQ, [(1 - level) / 2, (1 + level) / 2], axis=0)
        # Of skewed draws the mean may lie outside their quantiles.
        low, high = np.minimum(low, mean_Q), np.maximum(high, mean_Q)
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
    posterior = sample_posterior(Data.of(usable, _layout(usable, bounds), _base(runs, bounds)), prior, draws, rng)
    scales = np.array([member.run_scale for member in posterior.members])
    scale = float(np.sqrt(np.sum(posterior.weight_M * scales**2)))
    return Surface(
        layout=posterior.layout,
        shape_D=tuple(posterior.members[i].shape for i in posterior.member_D),
        parameters_DP=posterior.parameters_DP,
        noise=float(np.sqrt(np.mean([run.noise**2 for run in usable]))),
        run_share=scale * prior.run_share,
        run_midpoint=scale * prior.run_midpoint,
        largest_compute=max(run.last_compute for run in usable),
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
