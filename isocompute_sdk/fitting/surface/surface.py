"""`Surface`: the fitted joint model R(C, n, B_p, D), ready to be asked.

Unit shapes of a reward curve in log compute are 0 at no compute, 1/2 at z = 0 and 1 in the limit. Beyond a rise rewards
may begin to fall, and a second rise may come beyond the data:

    ln C_on = u + g (log2 n - centre) + s log2(B_p / B_p,min) + ln(D / D_usual)

    R -> R + w H(u) (top - R),    H(u) = (s(h (u - m)) - s(-h m)) / (1 - s(-h m)),    u = ln(C / C_seen) > 0

w is the share of the remaining room that a second rise wins in the end, m the distance at which half of it is won, s
the logistic function. What is believed about all of them before a sweep is in `prior.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import (
    Array,
    FitStatus,
    Matrix,
    NotNegative,
    Number,
    Positive,
    Vector,
)
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.data import PreparedRun, SurfaceRun
from isocompute_sdk.tolerances import Tolerances

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


NEVER = 1e3
"""ln C of an onset that no run reaches."""
PER_PROBLEMS_OCTAVE = 0.25
"""s: change of the onset's ln C per octave of B_p."""


@dataclass(frozen=True)
class SecondRise:
    """Draws of the second rise."""

    share_D: Annotated[Vector, Field(alias="share")]
    """w; 0 in draws without one."""
    midpoint_D: Annotated[Vector, Field(alias="midpoint")]
    """m."""
    slope: float
    """h."""
    probability: Annotated[float, Field(ge=0, le=1)]
    metric: str | None = None
    """best@k that decided about the probability; None without one."""

    def __post_init__(self) -> None:
        if len(self.share_D) != len(self.midpoint_D):
            raise FieldError("midpoint", len(self.midpoint_D), f"{len(self.share_D)}, one for each draw")

    def added(self, reward_DQ: Array, beyond_DQ: Array, top: float) -> Array:
        """Rewards with the second rise.

        Args:
            reward_DQ: rewards without it.
            beyond_DQ: u, at least 0.
            top: upper bound of the metric.
        """
        start_D1 = logistic(-self.slope * self.midpoint_D)[:, None]
        won_DQ = (logistic(self.slope * (beyond_DQ - self.midpoint_D[:, None])) - start_D1) / (1.0 - start_D1)
        return reward_DQ + self.share_D[:, None] * won_DQ * (top - reward_DQ)


@dataclass(frozen=True)
class Declines:
    """Draws of the onset and the rate of the decline."""

    onset_D: Annotated[Vector, Field(alias="onset")]
    """ln C of the onset at the layout's centre and smallest B_p; `NEVER` in draws without a decline."""
    step_D: Annotated[Vector, Field(alias="step")]
    """Its change per octave of n."""
    rate_D: Annotated[Vector, Field(alias="rate")]
    """Share of the gain lost per unit of ln C after it."""
    probability: Annotated[float, Field(ge=0, le=1)]
    """Posterior probability that the recipe declines."""

    def __post_init__(self) -> None:
        if not len(self.onset_D) == len(self.step_D) == len(self.rate_D):
            lengths = (len(self.onset_D), len(self.step_D), len(self.rate_D))
            raise FieldError("onset", lengths, "as many onsets as steps and rates")


def shift(problems_Q: Array, set_Q: Array, layout: Layout) -> Array:
    """Change of the onset's ln C with B_p and D; NaN for either stands for the reference."""
    by_problems = PER_PROBLEMS_OCTAVE * np.nan_to_num(np.log2(problems_Q / layout.problems_reference))
    if layout.set_reference is None:
        return by_problems
    return by_problems + np.nan_to_num(np.log(set_Q / layout.set_reference))


LEARNED_FILE = Path(__file__).parent / "learned.json"
LEARNED: dict[str, Any] = json.loads(LEARNED_FILE.read_text(encoding="utf-8"))
"""What `scripts/learn_prior.py` found in the recorded sweeps, with its evidence."""
DEPARTURE = float(LEARNED["departure"])
"""Standard deviation of the departure at one unit of ln C beyond the data, as a share of the gain: real
curves leave the family of the fits, and the further the more. Learned by `scripts/learn_prior.py`."""
MIN_LEFT = -0.1
"""Share of the gain that a decline leaves at least; below 0 it ends under the base model."""
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
    """Run-to-run standard deviation of the gain, relative."""
    run_midpoint: NotNegative
    """Run-to-run standard deviation of the half-way log compute."""
    largest_compute: Positive
    """Largest compute at which any run was evaluated."""
    n_problems: Positive | None = None
    """Distinct training problems D that predictions are for; None for what the runs had. Only where they vary it."""
    declines: Declines | None = None
    """Where rewards begin to fall; None if nothing is known."""
    second_rise: SecondRise | None = None
    """A rise that begins again beyond the data; None if none is believed in."""
    outlying: Mapping[str, float] = field(default_factory=dict[str, float])
    """Runs that do not agree with the others, with by how much they lie above the fit."""

    def __post_init__(self) -> None:
        unknown = set(self.shape_D) - set(UNIT_SHAPES)
        if unknown or not self.shape_D:
            raise FieldError("shapes", sorted(unknown), f"one of {', '.join(UNIT_SHAPES)} for each draw")
        shape = (len(self.shape_D), self.layout.size)
        if self.parameters_DP.shape != shape:
            raise FieldError("parameters", self.parameters_DP.shape, f"shape {shape}, draws by parameters")
        draws = len(self.shape_D)
        for name, drawn in (("declines", self.declines), ("second_rise", self.second_rise)):
            count = draws if drawn is None else len(drawn.onset_D if isinstance(drawn, Declines) else drawn.share_D)
            if count != draws:
                raise FieldError(name, count, f"{draws}, one for each draw")
        largest = float(np.max(np.abs(self.parameters_DP[:, 1:])))
        if largest > LARGEST_PARAMETER:
            raise FieldError("parameters", largest, f"at most {LARGEST_PARAMETER:g} in size, after R0")

    @cached_property
    def tolerances(self) -> Tolerances:
        """What counts as equal on the scale of the metric."""
        return Tolerances(self.layout.top - self.layout.floor)

    def draws(
        self,
        compute: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: npt.ArrayLike | None = None,
        n_problems: npt.ArrayLike | None = None,
        *,
        at: bool = False,
    ) -> Array:
        """Noise-free reward of the best checkpoint up to C, averaged over runs, shape (draws, Q).

        Args:
            compute: positive, shape (Q,) or broadcastable to it.
            group_size: n.
            problems_per_batch: B_p; None for the smallest that was run.
            n_problems: D; None for the one that most runs have.
            at: the reward at C itself instead, after a decline lower than the best.
        """
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
        curves_DQ4 = _curves(self.parameters_DP, self.layout.design(np.log2(sizes), problems, sets))
        log_DQ = np.broadcast_to(np.log(spent), curves_DQ4.shape[:2])
        late_DQ = np.zeros(log_DQ.shape)
        if self.declines is not None:
            onset_DQ = self._onset(self.declines, sizes, problems, sets)
            late_DQ = np.maximum(log_DQ - onset_DQ, 0.0)
            log_DQ = np.minimum(log_DQ, onset_DQ)
        reward_DQ = np.empty(log_DQ.shape)
        for name, chosen in _draws_by_shape(self.shape_D):
            reward_DQ[chosen] = curve(name, curves_DQ4[chosen], log_DQ[chosen], self.layout.top)
        if self.second_rise is not None:
            beyond_DQ = np.maximum(log_DQ - float(np.log(self.largest_compute)), 0.0)
            reward_DQ = self.second_rise.added(reward_DQ, beyond_DQ, self.layout.top)
        if at and self.declines is not None:
            base_D1 = curves_DQ4[:, :, 0]
            left_DQ = np.maximum(1.0 - self.declines.rate_D[:, None] * late_DQ, MIN_LEFT)
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
        departure: float = DEPARTURE,
    ) -> tuple[Array, Array, Array]:
        """Mean and quantiles of `draws`, wider beyond the data; for `run` of one new run's measured value."""
        drawn_DQ = self.draws(compute, group_size, problems_per_batch, at=kind == "at")
        mean_Q, low, high = mean_and_interval(drawn_DQ, level)
        gain = np.maximum(mean_Q - float(np.mean(self.parameters_DP[:, 0])), 0.0)
        beyond = np.log(np.asarray(compute, dtype=float) / self.largest_compute)
        lower, high = with_departure((mean_Q, low, high), gain, beyond, level, departure)
        if kind != "at":
            # The best checkpoint up to C is at least that of the data.
            seen_DQ = self.draws(np.minimum(compute, self.largest_compute), group_size, problems_per_batch)
            lower = np.maximum(lower, np.minimum(low, np.quantile(seen_DQ, (1 - level) / 2, axis=0)))
        low = lower
        if kind == "run":
            spread = np.hypot(self.noise, np.hypot(self.run_share, RUN_SHIFT * self.run_midpoint) * gain)
            noise = NormalDist().inv_cdf((1 + level) / 2) * spread
            low, high = mean_Q - np.hypot(mean_Q - low, noise), mean_Q + np.hypot(high - mean_Q, noise)
        return (
            mean_Q,
            np.clip(low, self.layout.floor, self.layout.top),
            np.clip(high, self.layout.floor, self.layout.top),
        )


@lru_cache(maxsize=8)
def _draws_by_shape(shape_D: tuple[str, ...]) -> tuple[tuple[str, npt.NDArray[np.intp]], ...]:
    """Places of the draws of each shape."""
    names = np.array(shape_D)
    return tuple((name, np.flatnonzero(names == name)) for name in dict.fromkeys(shape_D))


def _curves(parameters_DP: Array, design_Q4P: Array) -> Array:
    """(R0, a, m, ln h) of each draw and place, shape (D, Q, 4)."""
    flat_DQ = parameters_DP @ design_Q4P.reshape(-1, design_Q4P.shape[2]).T
    return flat_DQ.reshape(len(flat_DQ), len(design_Q4P), CURVE_PARAMETERS)


def mean_and_interval(drawn_DQ: Array, level: float) -> tuple[Array, Array, Array]:
    """Mean, lower and upper ends of draws, shape (D, ...): of skewed draws the mean may lie outside their quantiles."""
    mean_Q = drawn_DQ.mean(axis=0)
    low_Q, high_Q = np.quantile(drawn_DQ, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return mean_Q, np.minimum(low_Q, mean_Q), np.maximum(high_Q, mean_Q)


def with_departure(
    ends: tuple[Array, Array, Array], gain_Q: Array, beyond_Q: Array, level: float, departure: float = DEPARTURE
) -> tuple[Array, Array]:
    """Lower and upper ends with the departure, a random walk in ln C; means, draws and choices are left alone.

    Args:
        ends: mean, lower and upper ends without it.
        gain_Q: expected gain over the base model.
        beyond_Q: ln C beyond the data; within them at most 0.
        level: of the interval.
        departure: as `DEPARTURE`.
    """
    mean_Q, low_Q, high_Q = ends
    spread_Q = departure * np.maximum(gain_Q, 0.0) * np.sqrt(np.maximum(beyond_Q, 0.0))
    spread_Q = NormalDist().inv_cdf((1 + level) / 2) * spread_Q
    return mean_Q - np.hypot(mean_Q - low_Q, spread_Q), mean_Q + np.hypot(high_Q - mean_Q, spread_Q)


SHAPE = "surface"
GRID = 96
"""Points at which a curve is evaluated before it is interpolated at its evaluations."""
SEEN = 0.7
"""Share of the rise that must have been seen before a plateau counts as identified."""
RISEN = 1e3
"""Multiple of the largest compute at which a rise counts as complete."""
SMALLEST_RISE = 1e-6
"""Up to here there is no rise of which a share could be seen."""


@dataclass(frozen=True, eq=False)
class SurfaceCurve(RewardCurve):
    """One (n, B_p) of a surface; `parameters` holds the decimal logarithm of its half-way compute.

    Its plateau is predicted at `RISEN` times the largest compute: where rewards fall before, that of the best
    checkpoint.
    """

    surface: Surface | None = field(default=None, repr=False)
    rise_seen: float = 1.0
    """Share of the whole rise that is predicted for the last compute observed."""

    @property
    def half_compute(self) -> float:
        """Compute at which half of the rise is reached."""
        return float(10.0 ** self.parameters[0])

    @property
    def plateau_identified(self) -> bool:
        """Whether most of the rise was seen."""
        # As shown.
        return round(self.rise_seen, 2) >= SEEN

    def predict(self, compute: npt.ArrayLike) -> Array:
        """Expected reward at `compute` (any shape); the base model's at 0."""
        assert self.surface is not None, "a surface's curve belongs to its surface"
        at = np.asarray(compute, dtype=float)
        bp = None if self.problems_per_batch is None else float(self.problems_per_batch)
        values = self.surface.predict(np.maximum(at.ravel(), 1e-9), float(self.group_size), bp)
        return values.reshape(at.shape)


def surface_curves(surface: Surface, runs: Sequence[SurfaceRun]) -> dict[tuple[int, int | None], SurfaceCurve]:
    """The curve of every (n, B_p) that was run, with all its evaluations."""
    cells: dict[tuple[int, int | None], list[SurfaceRun]] = {}
    for run in runs:
        cells.setdefault((run.group_size, run.problems_per_batch), []).append(run)
    found: dict[tuple[int, int | None], SurfaceCurve] = {}
    for key in sorted(cells, key=lambda k: (k[0], k[1] or 0)):
        compute = np.concatenate([run.compute_T for run in cells[key]])
        reward = np.concatenate([run.reward_T for run in cells[key]])
        if not np.any(compute > 0):
            continue
        order = np.argsort(compute, kind="stable")
        curve = curve_of(surface, key, compute[order], reward[order], 0.0)
        # What follows a run's highest evaluation may be a fall, which the fit leaves out.
        risen = np.concatenate([run.compute_T <= run.compute_T[np.argmax(run.reward_T)] for run in cells[key]])[order]
        left = (curve.reward_T - _on_grid(curve, curve.compute_T))[risen]
        found[key] = replace(curve, rms=float(np.sqrt(np.mean(left**2))))
    return found


def _on_grid(curve: SurfaceCurve, compute_T: Array) -> Array:
    """The curve at many evaluations, interpolated between few: thousands would each cost all draws."""
    trained = compute_T > 0
    if not trained.any():
        return curve.predict(compute_T)
    low, high = compute_T[trained].min(), compute_T[trained].max()
    grid = np.geomspace(low, high, GRID) if high > low else np.array([low])
    values = np.interp(np.log(np.maximum(compute_T, low)), np.log(grid), curve.predict(grid))
    return np.where(trained, values, float(curve.predict(0.0)))


def curve_of(
    surface: Surface, key: tuple[int, int | None], compute_T: Array, reward_T: Array, rms: float
) -> SurfaceCurve:
    """One configuration's curve, with the evaluations that belong to it, and how far it misses them."""
    nan = float("nan")
    design = surface.layout.design(np.log2([key[0]]), np.array([key[1] or nan], dtype=float), np.array([nan]))
    midpoint_D = np.einsum("cp,dp->dc", design[0], surface.parameters_DP)[:, 2]
    base, ends = float(np.mean(surface.parameters_DP[:, 0])), np.array([compute_T[-1], surface.largest_compute * RISEN])
    last, plateau = surface.predict(ends, float(key[0]), nan if key[1] is None else float(key[1]))
    rise = float(plateau) - base
    at_base = reward_T[compute_T == 0]
    return SurfaceCurve(
        group_size=key[0],
        problems_per_batch=key[1],
        shape=SHAPE,
        plateau=float(plateau),
        rise=rise,
        parameters=(float(np.median(midpoint_D) / np.log(10.0)),),
        status=FitStatus.CONVERGED,
        at_bound=(),
        stderr={},
        rms=rms,
        aicc=float("inf"),
        compute_T=compute_T,
        reward_T=reward_T,
        base_reward=float(at_base.mean()) if at_base.size else None,
        surface=surface,
        rise_seen=float(np.clip((last - base) / rise, 0.0, 1.0)) if rise > SMALLEST_RISE else 1.0,
    )
