"""log2 n* = L / (1 + exp(-k (x - midpoint))) + b, with x = log10 C or M (paper, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from isocompute_sdk.errors import FieldError, FitError
from isocompute_sdk.fitting.arguments import positive
from isocompute_sdk.fitting.arrays import Array, ComputeAxis, FitStatus, NotNegative, Number
from isocompute_sdk.fitting.least_squares import Indices, least_squares_batch, project
from isocompute_sdk.notebook import frame_of
from isocompute_sdk.phrases import counted

if TYPE_CHECKING:
    from isocompute_sdk.notebook import Frame

LawVariable = ComputeAxis | Literal["update_steps"]
"""The law's x: the decimal logarithm of compute, or the number of update steps M itself."""

STEEPEST = 50.0
"""Upper bound of k per decade of compute (the paper's bound, fig. 21 right); for laws in M over their range of M."""
STEP_TOLERANCE = 1.05
"""Between the points on both sides of a jump every steep k fits alike. A minimum inside the bounds is preferred to one
on the bound of k if its rms residual is at most this many times larger."""
L_MAX, B_MAX = 12.0, 12.0
"""Upper bounds of L and b in octaves; higher if the data are."""
PARAMETERS = ("L", "k", "midpoint", "b")
MAX_ITERATIONS = 500
"""Steps before a start counts as not converged: towards a step function, k grows without end and without gain."""

LARGEST_LOG10 = 100.0
"""Largest accepted log10 of compute."""
LARGEST_OCTAVES = 511.0
"""Largest accepted L and b: the product of two larger powers of two overflows."""
Octaves = Annotated[float, Field(ge=-LARGEST_OCTAVES, le=LARGEST_OCTAVES)]

Start = tuple[float, float, float, float]
"""Start values in the order of `PARAMETERS`."""


@dataclass(frozen=True)
class AllocationLaw:
    """The sigmoid law of the best group size (or of the best problems per batch, which falls)."""

    L: Octaves
    """Height of the sigmoid in octaves, at least 0."""
    k: Number
    """Steepness per unit of x; negative for a falling law."""
    midpoint: Number
    """x at the half-way point: log10 C, or M."""
    b: Octaves
    """Lower plateau in octaves: log2 of the smallest value."""
    x: LawVariable = "log10_rollouts"
    status: FitStatus = FitStatus.CONVERGED
    at_bound: tuple[str, ...] = ()
    """Parameters on a bound. `k` on its bound: the law is a step at `midpoint`, and k is a lower limit."""
    stderr: Mapping[str, NotNegative | None] = field(default_factory=dict[str, "float | None"])
    """Standard error of L, k, midpoint, b; None for a parameter on a bound and for too few points. The points of a
    frontier are not independent, so these are lower limits."""
    rms: NotNegative | None = None
    """Root mean square residual in octaves; None for a published law."""
    x_range: tuple[Number, Number] | None = None
    """Smallest and largest x the law was fitted to; None if unknown."""

    def __post_init__(self) -> None:
        if self.L < 0:
            raise FieldError("L", self.L, "0 or more octaves")
        if self.x_range is not None:
            low, high = self.x_range
            if low > high or (self.x != "update_steps" and high > LARGEST_LOG10):
                raise FieldError("x_range", self.x_range, f"increasing; log10 of compute below {LARGEST_LOG10:g}")

    @property
    def rising(self) -> bool:
        """Whether the law rises with x."""
        return self.k >= 0

    @property
    def upper_plateau(self) -> float:
        """The larger plateau, 2^(L + b)."""
        return float(2.0 ** (self.L + self.b))

    @property
    def lower_plateau(self) -> float:
        """The smaller plateau, 2^b."""
        return float(2.0**self.b)

    @property
    def saturation(self) -> float:
        """Limit for large x: the upper plateau of a rising law, the lower one of a falling law."""
        return self.upper_plateau if self.rising else self.lower_plateau

    def predict(self, rollouts: npt.ArrayLike) -> Array:
        """Real-valued group size (or problems per batch) at raw compute C, or at M for the laws in steps.

        Args:
            rollouts: C in rollouts; tokens or update steps M where the law's `x` is one of them.

        Raises:
            FitError: compute that is not positive.
        """
        return 2.0 ** self.log2(rollouts)

    def to_frame(self, rollouts: npt.ArrayLike) -> Frame:
        """`predict` as a polars frame: columns of the law's variable (rollouts, tokens or update_steps) and predicted.

        Args:
            rollouts: as of `predict`, any shape.

        Raises:
            FitError: compute that is not positive.
        """
        at = np.atleast_1d(np.asarray(rollouts, dtype=float))
        return frame_of({self.x.removeprefix("log10_"): at, "predicted": self.predict(at)})

    def log2(self, value: npt.ArrayLike) -> Array:
        """log2 of `predict`."""
        return sigmoid(self.to_x(value), self.L, self.k, self.midpoint, self.b)

    def to_x(self, value: npt.ArrayLike) -> Array:
        """The law's x for raw compute or steps."""
        return to_x(value, self.x)

    @classmethod
    def fit(
        cls,
        x_values: npt.ArrayLike,
        group_sizes: npt.ArrayLike,
        x: LawVariable = "log10_rollouts",
        *,
        rising: bool = False,
    ) -> AllocationLaw:
        """Least squares in log2 n from several start values, parameters within stated bounds.

        Args:
            x_values: shape (T,); raw compute C in rollouts or tokens, or update steps M; not their logarithms.
            group_sizes: shape (T,); best group size (or best problems per batch) at each, positive.
            x: the variable of the law.
            rising: only laws that rise with x; of falling sizes the best of these is close to a constant.

        Returns:
            The law; check `status` before you quote a parameter.

        Raises:
            FitError: fewer than two points or x values, values that are not positive or not finite.

        Examples:
            >>> law = iso.AllocationLaw.fit([1e5, 3e5, 6e5, 1e6, 2e6, 4e6], [8, 10, 32, 90, 240, 256])
            >>> law.rising, 200 < law.upper_plateau < 300
            (True, True)
        """
        at = to_x(x_values, x).ravel()
        octaves = np.log2(positive(group_sizes, "group sizes").ravel())
        if at.shape != octaves.shape:
            raise FitError(
                f"{at.size} x values and {octaves.size} group sizes; accepted: one group size for each x value",
                "Give one best group size for each x value.",
            )
        if (values := len(np.unique(at))) < 2:
            raise FitError(
                f"{counted(len(at), 'point')} at {counted(values, 'value')} of {x}; a law needs at least two",
                "Give best group sizes at several budgets.",
            )
        return _fit(at, octaves, x, rising)

    def interval(self, draws_D4: Array, x_T: Array, level: float) -> tuple[Array, Array]:
        """Ends of the interval of the law's real-valued size, each of shape (T,); the law's own value lies inside.

        Args:
            draws_D4: L, k, midpoint, b of each replicate of this law.
            x_T: the law's own x (`to_x`).
            level: coverage asked for.
        """
        octaves_DT = sigmoid(x_T[None, :], *(draws_D4[:, i, None] for i in range(4)))
        low, high = np.quantile(octaves_DT, [(1 - level) / 2, (1 + level) / 2], axis=0)
        # With few draws, or draws on one side of the law, the quantiles may leave it out.
        own = sigmoid(x_T, self.L, self.k, self.midpoint, self.b)
        return 2.0 ** np.minimum(low, own), 2.0 ** np.maximum(high, own)

    def describe(self) -> str:
        """One line: parameters with standard errors where their digits show any, plateau, status."""

        def show(parameter: str, digits: int) -> str:
            error = round(self.stderr.get(parameter) or 0.0, digits)
            return f"{getattr(self, parameter):.{digits}f}" + f" +- {error:.{digits}f}" * (error > 0)

        return (
            f"L = {show('L', 2)}, k = {show('k', 4 if self.x == 'update_steps' else 2)}, "
            f"midpoint {show('midpoint', 2)} ({self.x}), b = {show('b', 2)}; "
            f"tends to {self.saturation:.0f}; {self.status.value}"
        )


def to_x(value: npt.ArrayLike, x: LawVariable) -> Array:
    """The x of a law: log10 of raw compute, or M unchanged."""
    if x == "update_steps":
        return positive(value, "update steps", zero=True)
    if x not in ("log10_rollouts", "log10_tokens"):
        raise FitError(
            f"unknown law variable {x!r}; accepted: log10_rollouts, log10_tokens, update_steps", "Use one of the three."
        )
    return np.log10(positive(value, "compute (raw C, not its logarithm)"))


def sigmoid(x: npt.ArrayLike, L: Array | float, k: Array | float, midpoint: Array | float, b: Array | float) -> Array:
    """L / (1 + exp(-k (x - midpoint))) + b, broadcast; no overflow for any finite input."""
    z = np.asarray(k, dtype=float) * (np.asarray(x, dtype=float) - midpoint)
    return np.asarray(L / (1.0 + np.exp(-np.clip(z, -500.0, 500.0))) + b, dtype=float)


def steepest(x: LawVariable, low: float, high: float) -> float:
    """Upper bound of |k| for data between `low` and `high` in x."""
    # Over a fifth of a decade or less, k = 50 is a gentle slope, not a step.
    return STEEPEST / (high - low) if x == "update_steps" else max(STEEPEST, 10.0 / (high - low))


def _fit(at: Array, octaves: Array, x: LawVariable, rising: bool) -> AllocationLaw:
    low, high = float(at.min()), float(at.max())
    if np.ptp(octaves) == 0:
        return _constant(float(octaves[0]), (low, high), x)
    solutions = _solve(at, octaves, _starts(at, octaves, x, rising), x)
    best = min(solutions, key=_rms)
    inside = [law for law in solutions if law.status is FitStatus.CONVERGED]
    if "k" in best.at_bound and inside:
        smooth = min(inside, key=_rms)
        best = smooth if _rms(smooth) <= STEP_TOLERANCE * _rms(best) else best
    return best


def _rms(law: AllocationLaw) -> float:
    return float("inf") if law.rms is None else law.rms


def _starts(at: Array, octaves: Array, x: LawVariable, rising: bool) -> list[Start]:
    """Start values (L, k, midpoint, b): the best of a grid in every band of slopes and every third of midpoints.

    For a given slope and midpoint the law is linear in L and b, so a fine grid is cheap. Bands whose best value is
    far above the overall best are dropped.
    """
    bounds = min(0.0, float(octaves.min())), max(B_MAX, float(octaves.max())) + L_MAX
    found: list[Start] = []
    for k_G, middle_G, missing_GT in _grids(tuple(at.tolist()), x, rising):
        best = project(missing_GT, octaves, bounds)
        k, middle = float(k_G[best.grid_index]), float(middle_G[best.grid_index])
        found.append((best.rise, k, middle, best.plateau - best.rise))
    losses = {start: float(np.std(sigmoid(at, *start) - octaves)) for start in found}
    least = min(losses.values())
    return [start for start, loss in losses.items() if loss <= 1.5 * least]


@lru_cache(maxsize=1)
def _grids(at: tuple[float, ...], x: LawVariable, rising: bool) -> list[tuple[Array, Array, Array]]:
    """k, midpoint and 1 - S at the x values of every band and third; the same x values come again and again."""
    low, high = min(at), max(at)
    width, limit = high - low, steepest(x, low, high)
    slopes = np.geomspace(0.3 / width, 0.95 * limit, 25)
    signed = slopes if rising else np.r_[slopes, -slopes]
    k_G, middle_G = (a.ravel() for a in np.meshgrid(signed, np.linspace(low - 0.3 * width, high + 0.3 * width, 60)))
    missing_GT = 1.0 - sigmoid(np.array(at)[None, :], 1.0, k_G[:, None], middle_G[:, None], 0.0)
    parts = [np.isin(np.abs(k_G), band) for band in np.array_split(slopes, 5)]
    parts += [np.isin(middle_G, third) for third in np.array_split(np.unique(middle_G), 3)]
    return [(k_G[part], middle_G[part], missing_GT[part]) for part in parts]


def _solve(at: Array, octaves: Array, starts: list[Start], x: LawVariable) -> list[AllocationLaw]:
    """One law per start value (L, k, midpoint, b); k keeps its sign."""
    low, high = float(at.min()), float(at.max())
    smallest, largest = float(octaves.min()), float(octaves.max())
    lower = np.array([0.0, 0.2 / (high - low), low - (high - low), min(0.0, smallest)])
    upper = np.array(
        [max(L_MAX, 2 * (largest - smallest)), steepest(x, low, high), high + (high - low), max(B_MAX, largest)]
    )
    start_NP = np.array(starts)
    sign_N = np.sign(start_NP[:, 1])
    start_NP[:, 1] = np.abs(start_NP[:, 1])

    def residual(values: Array, index: Indices) -> Array:
        L, k, midpoint, b = values.T[:, :, None]
        return sigmoid(at, L, sign_N[index, None] * k, midpoint, b) - octaves

    def jacobian(values: Array, index: Indices) -> Array:
        L, k, midpoint, _ = values.T[:, :, None]
        sign = sign_N[index, None]
        unit = sigmoid(at, 1.0, sign * k, midpoint, 0.0)
        slope = L * unit * (1.0 - unit)
        return np.stack([unit, slope * sign * (at - midpoint), -slope * sign * k, np.ones_like(unit)], axis=1)

    found = least_squares_batch(
        residual, jacobian, start_NP, lower=lower, upper=upper, max_iterations=MAX_ITERATIONS, ftol=1e-13, xtol=1e-12
    )
    slopes_NPT = jacobian(found.parameters_NP, np.arange(len(starts)))
    near = np.minimum(found.parameters_NP - lower, upper - found.parameters_NP) < 2e-3 * (upper - lower)
    return [
        _law(at, x, sign, values, tuple(np.array(PARAMETERS)[touching].tolist()), bool(converged), slopes, float(sse))
        for sign, values, touching, converged, slopes, sse in zip(
            sign_N, found.parameters_NP, near, found.converged_N, slopes_NPT, found.sse_N, strict=True
        )
    ]


def _law(
    at: Array,
    x: LawVariable,
    sign: float,
    values: Array,
    at_bound: tuple[str, ...],
    converged: bool,
    slopes_PT: Array,
    sse: float,
) -> AllocationLaw:
    status = FitStatus.of(len(at) > len(PARAMETERS), converged, at_bound)
    stderr: dict[str, float | None] = dict.fromkeys(PARAMETERS)
    if status is FitStatus.CONVERGED:
        variance = np.diag(np.linalg.pinv(slopes_PT @ slopes_PT.T)) * sse / (len(at) - len(PARAMETERS))
        known = np.isfinite(variance) & (variance >= 0)
        stderr = {
            name: float(np.sqrt(v)) if ok else None for name, v, ok in zip(PARAMETERS, variance, known, strict=True)
        }
    return AllocationLaw(
        L=float(values[0]),
        k=float(sign * values[1]),
        midpoint=float(values[2]),
        b=float(values[3]),
        x=x,
        status=status,
        at_bound=at_bound,
        stderr=stderr,
        rms=float(np.sqrt(sse / len(at))),
        x_range=(float(at.min()), float(at.max())),
    )


def _constant(octaves: float, x_range: tuple[float, float], x: LawVariable) -> AllocationLaw:
    """A flat law: the best size is the same at every budget."""
    return AllocationLaw(
        L=0.0,
        k=0.0,
        midpoint=sum(x_range) / 2,
        b=octaves,
        x=x,
        status=FitStatus.AT_BOUND,
        at_bound=("L",),
        stderr=dict.fromkeys(PARAMETERS),
        rms=0.0,
        x_range=x_range,
    )
