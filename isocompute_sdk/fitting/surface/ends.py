"""Ends of runs above what the fit follows: a curve may jump in a way that none of the shapes has.

    R -> R + f (top - R)

f is the residual at their end, less what runs differ by, as a share of the room. It fades inside the data. Where the
fit follows all of its runs nothing changes. Ends below the fit are left alone: a low last evaluation of a run that has
not begun to rise would take its whole gain away. Runs of TRL that creep up and then jump, n = 4 from .48
to .97 within half a unit of ln C, were predicted at .60 where they had measured .97.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Vector
from isocompute_sdk.fitting.surface.data import FEWEST_BINS, PreparedRun
from isocompute_sdk.fitting.surface.leading import GOLDEN
from isocompute_sdk.fitting.surface.model import Prior

if TYPE_CHECKING:
    from isocompute_sdk.fitting.surface.surface import Surface

END = 0.25
"""The end of a run: its last units of ln C, two bins at least."""
MISSED = 3.0
"""Standard deviations from which an end counts as missed, for itself and against the earlier part of its run: what is
wrong with a whole run is no matter of its end. Those by which runs differ are the prior's: a sweep in which runs differ
more may have been taken for one because of its ends."""
LEAST_MISSED = 0.02
"""Share of the metric's range from which it does."""
FADE = 0.4
"""Units of ln C before the end of the data over which it fades."""


@dataclass(frozen=True)
class Ends:
    """What the ends of the runs of each n add to the fit."""

    share_K: Annotated[Vector, Field(alias="share")]
    """f at the knots."""
    missed: Mapping[int, float]
    """By how much the runs of an n end above the fit, of those n whose end it misses."""

    def __post_init__(self) -> None:
        if np.any((self.share_K < 0) | (self.share_K > 1)):
            raise FieldError("share", self.share_K, "shares")

    @classmethod
    def of(cls, surface: Surface, runs: Sequence[PreparedRun], prior: Prior) -> Ends | None:
        """From the runs that did not fall and are not outlying; None where the fit follows them all.

        Args:
            surface: the fit.
            runs: those that it was made from.
            prior: what runs differ by.
        """
        found: dict[int, list[tuple[float, float, float, float]]] = {}
        for run in runs:
            if run.fault is None and run.run_id not in surface.outlying and len(run.log_compute_J) >= FEWEST_BINS:
                found.setdefault(run.group_size, []).append(_residual(surface, run, prior))
        layout = surface.layout
        share: dict[int, float] = {}
        missed: dict[int, float] = {}
        for n, rows in sorted(found.items()):
            end, bend, variance, predicted = np.mean(rows, axis=0)
            z = max(min(end, bend), 0.0) / float(np.sqrt(variance / len(rows)))
            room = max(layout.top - predicted, 1e-9)
            share[n] = float(np.clip((1.0 - 1.0 / max(z, 1.0) ** 2) * end / room, 0.0, 1.0))
            if z >= MISSED and end >= LEAST_MISSED * (layout.top - layout.floor):
                missed[n] = float(end)
        if not missed:
            return None
        sizes = np.array(sorted(share))
        return cls(np.interp(layout.knots_K, np.log2(sizes), [share[n] for n in sizes.tolist()]), missed)

    def follow(self, reward_DQ: Array, hats_QK: Array, before_Q: Array, top: float) -> Array:
        """Rewards that follow the ends.

        Args:
            reward_DQ: rewards of the draws at each place.
            hats_QK: weights of the knots there.
            before_Q: units of ln C by which the place lies before the end of the data.
            top: upper bound of the metric.
        """
        share_Q = (hats_QK @ self.share_K) * np.exp(-0.5 * (np.maximum(before_Q, 0.0) / FADE) ** 2)
        # How much of it stays beyond the data nobody knows: half to one and a half times as much, even over draws.
        factor_D = 0.5 + (np.arange(len(reward_DQ)) + 0.5) * GOLDEN % 1.0
        return reward_DQ + np.minimum(factor_D[:, None] * share_Q, 1.0) * (top - reward_DQ)


def _residual(surface: Surface, run: PreparedRun, prior: Prior) -> tuple[float, float, float, float]:
    """Residual at the end, the same against the earlier part, its variance, and the predicted reward there."""
    at_J = np.exp(run.log_compute_J)
    drawn_DJ = surface.draws(at_J, run.group_size, run.problems_per_batch, run.n_problems)
    fit_J = drawn_DJ.mean(axis=0)
    end_J = run.log_compute_J >= min(run.log_compute_J[-1] - END, run.log_compute_J[-2])
    weight_J = np.where(end_J, run.count_J, 0.0) / run.count_J[end_J].sum()
    residual_J = run.reward_J - fit_J
    end = float(weight_J @ residual_J)
    before = float(residual_J[~end_J].mean()) if not end_J.all() else end
    predicted = float(weight_J @ fit_J)
    gain = max(predicted - float(np.mean(surface.parameters_DP[:, 0])), 0.0)
    near = surface.predict(at_J[-1] * np.exp([-END, END]), run.group_size, run.problems_per_batch, run.n_problems)
    slope = float(near[1] - near[0]) / (2.0 * END)
    noise = run.noise**2 * (1.0 + run.correlation) / (1.0 - run.correlation) / float(run.count_J[end_J].sum())
    luck = (prior.run_share * gain) ** 2 + (prior.run_midpoint * slope) ** 2
    return end, end - before, noise + luck + float(np.var(drawn_DJ @ weight_J)), predicted
