"""Unit shapes of a reward curve in log compute, each 0 at no compute, 1/2 at z = 0 and 1 in the limit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import FieldError, FitError
from isocompute_sdk.fitting.arrays import Array, Number, Positive, Vector

if TYPE_CHECKING:
    from isocompute_sdk.fitting.surface.data import PreparedRun

LN2 = float(np.log(2.0))
LARGEST = 60.0
"""Beyond this |z| every shape is flat to the last digit."""


def hill(z: Array) -> tuple[Array, Array]:
    """1 / (1 + e^-z), the form of ScaleRL (arXiv 2510.13786), and its derivative."""
    value = 1.0 / (1.0 + np.exp(-np.clip(z, -LARGEST, LARGEST)))
    return value, value * (1.0 - value)


def weibull(z: Array) -> tuple[Array, Array]:
    """1 - exp(-ln 2 e^z), a saturating exponential for slope 1 (what fig. 6 of the paper draws), and its derivative."""
    power = LN2 * np.exp(np.clip(z, -LARGEST, 6.0))
    left = np.exp(-power)
    return 1.0 - left, power * left


def gompertz(z: Array) -> tuple[Array, Array]:
    """exp(-ln 2 e^-z), late to start and slow to end, and its derivative."""
    power = LN2 * np.exp(-np.clip(z, -6.0, LARGEST))
    value = np.exp(-power)
    return value, power * value


UNIT_SHAPES: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "hill": hill,
    "weibull": weibull,
    "gompertz": gompertz,
}
"""The ensemble; a sweep weighs its members by how well they explain it."""


CURVE_PARAMETERS = 4
"""R0, a, m and ln h: what one configuration's curve depends on."""
LARGEST_SLOPE = 4.0
"""Largest |ln h|: at e^4 a curve is a step on any grid of evaluations."""
OCTAVES_ABOVE = 1
"""Knots above the largest n that was run: a plan may go that far and no further."""


LEARNED_FILE = Path(__file__).parent / "learned.json"
LEARNED: dict[str, Any] = json.loads(LEARNED_FILE.read_text(encoding="utf-8"))
"""What `scripts/learn_prior.py` found in the recorded sweeps, with its evidence."""
SECOND_RISE = (0.25, 0.1)
"""`Kind.second_rise` of each kind."""


@dataclass(frozen=True)
class Kind:
    """A kind of sweep, by what a larger n does to the plateau."""

    share_step: tuple[float, float]
    """Change of a."""
    second_rise: float
    """Probability of a rise that begins again beyond the data, where no best@k tells it."""


@dataclass(frozen=True)
class Prior:
    """Means and standard deviations of what a sweep alone may not determine. Per octave of n unless said otherwise.

    What has no default is learned from the recorded sweeps; the defaults come from the paper's figures.
    """

    share_level_sd: float
    """Of the level of a, around half of the headroom. A pilot too short to show a rise says next to nothing about its
    size."""
    kinds: tuple[Kind, ...]
    """Larger n wins late; n hardly moves. As probable before a sweep, weighed by its evidence after it."""
    share_bend_sd: float
    """Second difference of a."""
    midpoint_level_sd: float
    """Of the level of m, around the largest compute of the runs."""
    midpoint_step: tuple[float, float]
    """Change of m: larger groups need more compute."""
    midpoint_bend_sd: float
    slope_sd: float = 0.45
    """ln h; h = 1 is the saturating exponential of the paper's fig. 6 for the Weibull shape. Not learned: the sweeps'
    own, .78 +- .73, predicts pilots worse (docs/methods.md)."""
    slope_step_sd: float = 0.06
    problems_share_sd: float = 0.08
    """Change of a per octave of B_p."""
    problems_midpoint: tuple[float, float] = (0.3, 0.3)
    """Change of m per octave of B_p: larger batches take fewer steps for the same compute."""
    problem_set_share: tuple[float, float] = (0.1, 0.3)
    """Change of a per octave of D."""
    problem_set_tilt: tuple[float, float] = (0.02, 0.1)
    """Change of that per octave of n: a small problem set caps n."""
    second_share: tuple[float, float] = (0.4, 1.0)
    """Logit of the share of the room left that it wins."""
    second_midpoint: tuple[float, float] = (2.0, 1.2)
    """How far, in ln C, half of it lies beyond the largest compute that was seen."""
    second_slope: float = 0.8
    """Its steepness h."""
    run_share: float = 0.06
    """Run-to-run standard deviation of the gain, relative."""
    run_midpoint: float = 0.15
    """Run-to-run standard deviation of m."""

    @classmethod
    def learned(cls, without: str | None = None) -> Prior:
        """What the recorded sweeps say.

        Args:
            without: family of sweeps that is left out, to judge its own; None for none.

        Raises:
            FitError: nothing was learned from that family.
        """
        families = LEARNED["families"]
        if without is not None and without not in families:
            raise FitError(f"without = {without!r}; accepted: {', '.join(families)}", "Leave it out.")
        return cls.of(LEARNED["prior"] if without is None else families[without]["prior_without"])

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> Prior:
        """From the numbers of `LEARNED_FILE`."""
        kinds = tuple(
            Kind((step[0], step[1]), second) for step, second in zip(numbers["kinds"], SECOND_RISE, strict=True)
        )
        found: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in numbers.items()}
        found["kinds"] = kinds
        return cls(**found)

    @property
    def share_step(self) -> tuple[float, float]:
        """Mean and standard deviation of a change of a, over the kinds."""
        mean_K, sd_K = np.array([kind.share_step for kind in self.kinds]).T
        return float(mean_K.mean()), float(np.sqrt(np.mean(sd_K**2) + np.var(mean_K)))


@dataclass(frozen=True)
class Layout:
    """Where each parameter stands, and what configurations are measured against."""

    knots_K: Vector
    """log2 n of the knots, one octave apart."""
    centre: Number
    """log2 n at which the slope's intercept is defined."""
    problems_reference: Positive
    """B_p at which a and m are defined."""
    set_reference: Positive | None
    """D at which a is defined; None if all runs have the same D."""
    top: Number
    """Upper bound of the metric."""
    floor: Number
    """Lower bound of the metric."""

    def __post_init__(self) -> None:
        knots = self.knots_K
        if not knots.size or knots[0] < 0 or knots[-1] > 64 or np.any(np.diff(knots) != 1):
            raise FieldError("knots_K", knots, "log2 of group sizes, one octave apart")
        if self.floor >= self.top:
            raise FieldError("floor", self.floor, f"below top = {self.top}")

    @classmethod
    def of(cls, runs: Sequence[PreparedRun], bounds: tuple[float, float]) -> Layout:
        """The layout of a sweep: knots from its smallest n to `OCTAVES_ABOVE` its largest."""
        octaves = np.log2([run.group_size for run in runs])
        low, high = float(np.floor(octaves.min())), float(np.ceil(octaves.max())) + OCTAVES_ABOVE
        problems = [run.problems_per_batch for run in runs if run.problems_per_batch is not None]
        sets = [run.n_problems for run in runs if run.n_problems is not None]
        return cls(
            knots_K=np.asarray(np.arange(low, high + 1.0), dtype=np.float64),
            centre=float(np.mean([octaves.min(), octaves.max()])),
            problems_reference=float(min(problems, default=1)),
            set_reference=float(np.median(sets)) if len(set(sets)) > 1 else None,
            top=bounds[1],
            floor=bounds[0],
        )

    @property
    def size(self) -> int:
        """Number of parameters P."""
        return 1 + 2 * len(self.knots_K) + 4 + (2 if self.set_reference is not None else 0)

    def design(self, log2_n_Q: Array, problems_Q: Array, set_Q: Array) -> Array:
        """Linear map from parameters to each configuration's (R0, a, m, ln h), shape (Q, 4, P).

        NaN for B_p or D stands for the reference. Beyond the outermost knots the curve of the knot is used.
        """
        knots, count = self.knots_K, len(self.knots_K)
        x = np.clip(log2_n_Q, knots[0], knots[-1])
        hats_QK = self.hats(log2_n_Q)
        octaves = np.nan_to_num(np.log2(problems_Q / self.problems_reference))
        out = np.zeros((len(x), CURVE_PARAMETERS, self.size))
        out[:, 0, 0] = 1.0
        out[:, 1, 1 : 1 + count] = hats_QK
        out[:, 2, 1 + count : 1 + 2 * count] = hats_QK
        after = 1 + 2 * count
        out[:, 3, after] = 1.0
        out[:, 3, after + 1] = x - self.centre
        out[:, 1, after + 2] = octaves
        out[:, 2, after + 3] = octaves
        if self.set_reference is not None:
            sets = np.nan_to_num(np.log2(set_Q / self.set_reference))
            out[:, 1, after + 4] = sets
            out[:, 1, after + 5] = sets * (x - self.centre)
        return out

    def hats(self, log2_n_Q: Array) -> Array:
        """Weights of the knots at each n, shape (Q, K)."""
        x = np.clip(log2_n_Q, self.knots_K[0], self.knots_K[-1])
        return np.maximum(1.0 - np.abs(x[:, None] - self.knots_K[None, :]), 0.0)

    def prior_rows(
        self,
        prior: Prior,
        midpoint: float,
        base: tuple[float, float],
        kind: int = 0,
    ) -> tuple[Array, Array]:
        """The prior as least-squares rows: (weights (S, P), wanted (S,)), so that W theta - w is standard normal."""
        count, size = len(self.knots_K), self.size
        rows: list[Array] = []
        wanted: list[float] = []

        def add(entries: dict[int, float], mean: float, sd: float) -> None:
            row = np.zeros(size)
            for index, value in entries.items():
                row[index] = value / sd
            rows.append(row)
            wanted.append(mean / sd)

        add({0: 1.0}, *base)
        middle = count // 2
        for first, level, step, bend in (
            (1, (0.0, prior.share_level_sd), prior.kinds[kind].share_step, (0.0, prior.share_bend_sd)),
            (1 + count, (midpoint, prior.midpoint_level_sd), prior.midpoint_step, (0.0, prior.midpoint_bend_sd)),
        ):
            add({first + middle: 1.0}, *level)
            for k in range(count - 1):
                add({first + k: -1.0, first + k + 1: 1.0}, *step)
            for k in range(count - 2):
                add({first + k: 1.0, first + k + 1: -2.0, first + k + 2: 1.0}, *bend)
        after = 1 + 2 * count
        add({after: 1.0}, 0.0, prior.slope_sd)
        add({after + 1: 1.0}, 0.0, prior.slope_step_sd)
        add({after + 2: 1.0}, 0.0, prior.problems_share_sd)
        add({after + 3: 1.0}, *prior.problems_midpoint)
        if self.set_reference is not None:
            add({after + 4: 1.0}, *prior.problem_set_share)
            add({after + 5: 1.0}, *prior.problem_set_tilt)
        return np.array(rows), np.array(wanted)


def curve(shape: str, curves_4: Array, log_compute: Array, top: float) -> Array:
    """Reward of curves (R0, a, m, ln h), whose last axis is 4 and whose other axes broadcast with `log_compute`."""
    base, share, midpoint, slope = (curves_4[..., i] for i in range(CURVE_PARAMETERS))
    unit, _ = UNIT_SHAPES[shape](_steepness(slope) * (log_compute - midpoint))
    return base + (top - base) * logistic(share) * unit


def curve_and_slopes(shape: str, curves_4: Array, log_compute: Array, top: float) -> tuple[Array, Array]:
    """Reward, and its derivatives by (R0, a, m, ln h) stacked on a new axis before the last."""
    base, share, midpoint, slope = (curves_4[..., i] for i in range(CURVE_PARAMETERS))
    steepness = _steepness(slope)
    z = steepness * (log_compute - midpoint)
    unit, unit_slope = UNIT_SHAPES[shape](z)
    won = logistic(share)
    room = (top - base) * won
    by_slope = room * unit_slope * z * (np.abs(slope) < LARGEST_SLOPE)
    slopes = np.stack([1.0 - won * unit, room * (1.0 - won) * unit, -room * unit_slope * steepness, by_slope], axis=-2)
    return base + room * unit, slopes


def _steepness(slope: Array) -> Array:
    """e^slope within limits: of constant rewards it is determined by nothing, and may run off to a step."""
    return np.exp(np.clip(slope, -LARGEST_SLOPE, LARGEST_SLOPE))


def logistic(value: Array) -> Array:
    """1 / (1 + e^-v), without overflow."""
    return 1.0 / (1.0 + np.exp(-np.clip(value, -60.0, 60.0)))
