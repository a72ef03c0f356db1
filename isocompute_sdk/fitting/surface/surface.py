"""`Surface`: the fitted joint model, ready to be asked for rewards, best group sizes and what is lost by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from isocompute_sdk.fitting.shapes import Array
from isocompute_sdk.fitting.surface.data import PreparedRun, SurfaceRun, prepare
from isocompute_sdk.fitting.surface.model import OCTAVES_ABOVE, Layout, Prior, curve
from isocompute_sdk.fitting.surface.posterior import Data, Member, Posterior, sample_posterior

DEFAULT_PRIOR = Prior()


@dataclass(frozen=True, eq=False)
class Surface:
    """R(C, n, B_p, D) as draws from its posterior."""

    layout: Layout
    members: tuple[Member, ...]
    member_D: npt.NDArray[np.intp]
    parameters_DP: Array
    noise: float
    """Standard deviation of one evaluation."""
    run_share: float
    """Run-to-run standard deviation of the gain, relative, averaged over the ensemble."""
    run_midpoint: float
    """Run-to-run standard deviation of the half-way log compute."""

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
                nan if n_problems is None else np.asarray(n_problems, dtype=float),
            )
        )
        design = self.layout.design(np.log2(sizes), problems, sets)
        curves_DQ4 = np.einsum("qcp,dp->dqc", design, self.parameters_DP)
        out = np.empty(curves_DQ4.shape[:2])
        names = np.array([member.shape for member in self.members])[self.member_D]
        log_compute = np.log(at)
        for name in dict.fromkeys(names.tolist()):
            chosen = names == name
            out[chosen] = curve(name, curves_DQ4[chosen], log_compute, self.layout.top)
        return np.clip(out, self.layout.floor, self.layout.top)


def fit_surface(
    runs: Sequence[SurfaceRun],
    bounds: tuple[float, float],
    draws: int,
    rng: np.random.Generator,
    prior: Prior = DEFAULT_PRIOR,
) -> tuple[Surface, tuple[PreparedRun, ...], Posterior]:
    """Fit every run of a sweep together."""
    prepared = prepare(runs)
    usable = [run for run in prepared if len(run.log_compute_J)]
    layout = _layout(usable, bounds)
    base = _base(prepared, bounds)
    posterior = sample_posterior(Data.of(usable, layout, base), prior, draws, rng)
    scales = np.array([member.run_scale for member in posterior.members])
    scale = float(np.sqrt(np.sum(posterior.weight_M * scales**2)))
    noise = float(np.sqrt(np.mean([run.noise**2 for run in usable])))
    surface = Surface(
        layout,
        posterior.members,
        posterior.member_D,
        posterior.parameters_DP,
        noise,
        scale * prior.run_share,
        scale * prior.run_midpoint,
    )
    return surface, prepared, posterior


def _layout(runs: Sequence[PreparedRun], bounds: tuple[float, float]) -> Layout:
    octaves = np.log2([run.group_size for run in runs])
    low, high = float(np.floor(octaves.min())), float(np.ceil(octaves.max())) + OCTAVES_ABOVE
    problems = [run.problems_per_batch for run in runs if run.problems_per_batch is not None]
    sets = [run.n_problems for run in runs if run.n_problems is not None]
    return Layout(
        knots_K=np.arange(low, high + 1.0),
        centre=float(np.mean([octaves.min(), octaves.max()])),
        problems_reference=float(min(problems, default=1)),
        set_reference=float(np.median(sets)) if len(set(sets)) > 1 else None,
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
