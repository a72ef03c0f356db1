"""Families of monotone curves R(C) = plateau - rise * (1 - S(C)), one unit shape S each.

Every shape rises from 0 to 1 in the compute C (rollouts or tokens) and has at most two parameters. For given shape
parameters, plateau and rise follow from linear least squares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from isocompute_sdk.documents import Converted
from isocompute_sdk.errors import FieldError, FitError
from isocompute_sdk.fitting.allocation import LARGEST_LOG10
from isocompute_sdk.fitting.arrays import LARGEST, Array, Count, FitStatus, NotNegative, Number, Positive, Vector, same
from isocompute_sdk.fitting.least_squares import project
from isocompute_sdk.phrases import counted, or_unknown, short


@dataclass(frozen=True)
class ShapeParameter:
    """One parameter of a unit shape, searched between bounds that depend on the data."""

    name: str
    """Name in results; with the prefix `log10_` the parameter is a decimal logarithm of compute."""
    bounds: Callable[[float, float], tuple[float, float]]
    """(smallest, largest observed compute) -> (lower, upper) bound."""
    levels: int
    """Grid points between the bounds when start values are searched."""


@dataclass(frozen=True)
class Shape:
    """A unit shape S(C; parameters), its parameters and their start values."""

    name: str
    formula: str
    """The reward curve in the symbols of the paper."""
    parameters: tuple[ShapeParameter, ...]
    unit: Callable[[Array, Array], Array]
    """(compute of shape (T,), parameters of shape (G, P)) -> S of shape (G, T)."""
    floor_is_base_reward: bool = False
    """True: the floor (plateau - rise) is the measured step-0 reward, not a free parameter."""

    @property
    def n_free(self) -> int:
        """Free parameters of the whole curve, plateau and rise included."""
        return len(self.parameters) + (1 if self.floor_is_base_reward else 2)

    def grid(self, smallest: float, largest: float) -> Array:
        """Start values between the bounds, shape (G, P)."""
        axes = [np.linspace(*p.bounds(smallest, largest), p.levels) for p in self.parameters]
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)


def _logistic(compute: Array, parameters: Array) -> Array:
    # C = 0 is the base model; the floor keeps its logarithm finite.
    log10_T = np.log10(np.maximum(compute, 1e-12))
    z = parameters[:, 1:2] * (log10_T[None, :] - parameters[:, :1]) * np.log(10.0)
    return 1.0 / (1.0 + np.exp(-np.clip(z, -500.0, 500.0)))


def _midpoint_bounds(smallest: float, largest: float) -> tuple[float, float]:
    return float(np.log10(smallest)) - 1.0, float(np.log10(largest)) + 1.5


_SLOPE = ShapeParameter("slope", lambda smallest, largest: (0.2, 12.0), 24)

SATURATING_EXPONENTIAL = Shape(
    name="saturating_exponential",
    formula="R(C) = A - D exp(-C / tau)",
    parameters=(ShapeParameter("log10_tau", _midpoint_bounds, 120),),
    unit=lambda compute, parameters: -np.expm1(-compute[None, :] / 10.0 ** parameters[:, :1]),
)
"""The curves of the paper's fig. 6 (digitised: residuals below 1e-4 of reward)."""

LOGISTIC = Shape(
    name="logistic",
    formula="R(C) = F + (A - F) / (1 + exp(-s (ln C - ln C_mid))), F free",
    parameters=(ShapeParameter("log10_midpoint", _midpoint_bounds, 60), _SLOPE),
    unit=_logistic,
)
"""A sigmoid in log C with a free floor."""

HILL = Shape(
    name="hill",
    formula="R(C) = R0 + (A - R0) / (1 + (C_mid / C)^s), R0 = measured step-0 reward",
    parameters=(ShapeParameter("log10_midpoint", _midpoint_bounds, 60), _SLOPE),
    unit=_logistic,
    floor_is_base_reward=True,
)
"""ScaleRL's form (arXiv 2510.13786): `LOGISTIC` with the base model's reward as floor, so it needs an evaluation at
step 0."""

SHAPES: dict[str, Shape] = {s.name: s for s in (SATURATING_EXPONENTIAL, LOGISTIC, HILL)}


PLATEAU_SEEN = 3.0
"""A plateau counts as identified if the data reach this many times the half-way compute. With less data and an
evaluation noise of .012, the fitted gain is only right to a factor of two."""
PLATEAU_MISSING = 0.3
"""Largest share of the rise that may be missing at the last evaluation for that. Flat sigmoids have hardly risen at 3 x
their half-way compute; the Hill form with exponent 1 lacks a quarter there."""


MAX_EVALUATIONS = 500
"""Calls of the residual after which a fit counts as not converged. Data that the model can describe need up to 200; on
other data the optimiser would follow a flat valley for a minute and gain nothing."""


def _null_for_infinity(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _infinity_for_null(value: float | None) -> float:
    return float("inf") if value is None else value


def check_evaluations(compute_T: Array, reward_T: Array) -> None:
    """Check the evaluations of a saved curve."""
    if compute_T.shape != reward_T.shape:
        raise FieldError("reward", reward_T.shape, f"one reward for each compute, shape {compute_T.shape}")
    trained_T = compute_T[compute_T > 0]
    if not trained_T.size or trained_T[0] < 1 / LARGEST or compute_T[0] < 0 or np.any(np.diff(compute_T) < 0):
        raise FieldError("compute", compute_T, "increasing from 0 or more, at least one above 0")


@dataclass(frozen=True)
class Points:
    """The evaluations that one curve is fitted to."""

    group_size: int
    """Rollouts per problem, n."""
    problems_per_batch: int | None
    """Problems per batch, B_p; None if unknown."""
    compute_T: Array
    """Compute at each evaluation (rollouts or tokens), increasing."""
    reward_T: Array
    """Measured metric at each evaluation."""
    base_reward: float | None = None
    """Metric of the base model (step 0); None if not measured."""
    observed: tuple[float, float] | None = None
    """First (after step 0) and last evaluated compute; None: of these points."""


@dataclass(frozen=True, eq=False)
class RewardCurve:
    """A fitted reward curve of one (n, B_p)."""

    group_size: Count
    problems_per_batch: Count | None
    shape: Annotated[str, Field(pattern=f"^({'|'.join(SHAPES)})$")]
    """Name of the shape, a key of `SHAPES`; `surface` for curves of a surface."""
    plateau: Number
    """Reward for unlimited compute."""
    rise: NotNegative
    """Plateau minus the reward at no compute."""
    parameters: tuple[Number, ...]
    """Parameters of the shape, in the order of `SHAPES[shape].parameters`."""
    status: FitStatus
    at_bound: tuple[str, ...]
    """Names of the parameters that stopped on a bound."""
    stderr: Mapping[str, NotNegative | None]
    """Standard error per parameter; None for a parameter on a bound and for too few points."""
    rms: NotNegative
    """Root mean square residual; of a surface, up to the best of each run: the fit leaves out what follows a fall."""
    aicc: Annotated[float, Converted(_null_for_infinity, _infinity_for_null, Number | None)]
    """Corrected Akaike criterion by which the shape was chosen (lower is better); infinite for too few points."""
    compute_T: Annotated[Vector, Field(alias="compute")] = field(repr=False)
    """Compute of each point, increasing."""
    reward_T: Annotated[Vector, Field(alias="reward")] = field(repr=False)
    base_reward: Number | None = None
    observed: tuple[Positive, Positive] | None = None
    """First and last evaluated compute, if the points fitted to are fewer: a run without new records is still
    observed."""

    def __post_init__(self) -> None:
        check_evaluations(self.compute_T, self.reward_T)
        if self.observed is not None and self.observed[0] > self.observed[1]:
            raise FieldError("observed", self.observed, "first and last compute, increasing")
        shape = SHAPES.get(self.shape)
        if shape is None:
            return
        if len(self.parameters) != len(shape.parameters):
            raise FieldError("parameters", self.parameters, f"{len(shape.parameters)} for shape {self.shape!r}")
        if abs(self.parameters[0]) > LARGEST_LOG10:
            raise FieldError("parameters[0]", self.parameters[0], f"log10 of compute below {LARGEST_LOG10:g}")

    @property
    def first_compute(self) -> float:
        """Compute of the first evaluation after step 0; below it the curve is an extrapolation."""
        return float(self.compute_T[self.compute_T > 0][0]) if self.observed is None else self.observed[0]

    @cached_property
    def last_compute(self) -> float:
        """Compute of the last evaluation; above it the curve is an extrapolation."""
        return float(self.compute_T[-1]) if self.observed is None else self.observed[1]

    @property
    def half_compute(self) -> float:
        """Compute at which half of the rise is reached."""
        scale = 10.0 ** self.parameters[0]
        return float(scale * np.log(2.0)) if self.shape == "saturating_exponential" else float(scale)

    @property
    def cells(self) -> tuple[str, ...]:
        """n, B_p, plateau, half-way compute and rms of a table."""
        plateau = f"{self.plateau:.3f}" + ("" if self.plateau_identified else " (not seen)")
        sizes = str(self.group_size), or_unknown(self.problems_per_batch)
        return *sizes, plateau, short(self.half_compute), f"{self.rms:.3f}"

    @property
    def plateau_identified(self) -> bool:
        """Whether the data reach far enough beyond the half-way point, and up the rise, to identify the plateau."""
        reached = self.last_compute >= PLATEAU_SEEN * self.half_compute
        missing = self.plateau - float(self.predict(self.last_compute))
        return self.status is FitStatus.CONVERGED and reached and missing <= PLATEAU_MISSING * self.rise

    def predict(self, compute: npt.ArrayLike) -> Array:
        """Reward at `compute` (any shape), the noise-free fitted value."""
        at = np.asarray(compute, dtype=float)
        values = evaluate(SHAPES[self.shape], at.ravel(), np.array([[self.plateau, self.rise, *self.parameters]]))
        return values[0].reshape(at.shape)

    def __eq__(self, other: object) -> bool:
        """Equal to the last bit, data included."""
        if not isinstance(other, RewardCurve):
            return NotImplemented
        return all(same(getattr(self, f.name), getattr(other, f.name)) for f in fields(RewardCurve))

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def evaluate(shape: Shape, compute: Array, parameters: Array) -> Array:
    """Rewards of shape (G, T) for parameter rows (plateau, rise, shape parameters...) of shape (G, 2 + P)."""
    return parameters[:, :1] - parameters[:, 1:2] * (1.0 - shape.unit(compute, parameters[:, 2:]))


def profile(shape: Shape, points: Points, bounds: tuple[float, float], floor: float | None) -> Array:
    """Best (plateau, rise, shape parameters...) on the shape's grid; `floor` is the reward at no compute, if known.

    For fixed shape parameters the curve is linear in plateau and rise (variable projection).
    """
    grid = shape.grid(*_observed(points))
    best = project(1.0 - shape.unit(points.compute_T, grid), points.reward_T, bounds, floor)
    return np.array([best.plateau, best.rise, *grid[best.grid_index]])


def fit_curve(points: Points, shape: str = "auto", bounds: tuple[float, float] = (0.0, 1.0)) -> RewardCurve:
    """Fit one monotone curve.

    Args:
        points: at least two evaluations at different compute.
        shape: a key of `SHAPES`, or `"auto"` for the one with the lowest corrected Akaike criterion (`hill` takes
            part only with a step-0 evaluation).
        bounds: range of the metric; the curve stays inside.
    """
    if shape not in ("auto", *SHAPES):
        raise FitError(f"unknown curve {shape!r}; accepted: auto, {', '.join(SHAPES)}", "Use one of these shapes.")
    if len(np.unique(points.compute_T)) < 2 or points.compute_T[-1] <= 0:
        raise FitError(
            f"n = {points.group_size}, B_p = {points.problems_per_batch}: "
            f"{counted(len(points.compute_T), 'evaluation')} at one compute value; a curve needs at least two",
            "Evaluate during training, or add <--points all | points='all'> so that evaluations below the record "
            "count.",
        )
    if shape != "auto":
        return _fit_shape(points, SHAPES[shape], bounds)
    usable = [s for s in SHAPES.values() if points.base_reward is not None or not s.floor_is_base_reward]
    fitted = [_fit_shape(points, s, bounds) for s in usable]
    # With too few points for the criterion, the first shape wins, which has the fewest parameters.
    return min(fitted, key=lambda curve: curve.aicc)


def _observed(points: Points) -> tuple[float, float]:
    """First positive and last compute."""
    return float(points.compute_T[points.compute_T > 0][0]), float(points.compute_T[-1])


def _base(points: Points) -> float:
    if points.base_reward is None:
        raise FitError(
            f"curve 'hill' needs the reward at step 0, and n = {points.group_size}, "
            f"B_p = {points.problems_per_batch} has none",
            "Add the step-0 evaluation, or <--curve logistic | curve='logistic'>, which fits the floor.",
        )
    return points.base_reward


def _fit_shape(points: Points, shape: Shape, bounds: tuple[float, float]) -> RewardCurve:
    if shape.floor_is_base_reward:
        return _fit_with_floor(points, shape, bounds, _base(points))
    curve = _fit_with_floor(points, shape, bounds, None)
    # If the curve leaves the metric's range below its first evaluation, its floor is the bound.
    return curve if curve.plateau - curve.rise >= bounds[0] else _fit_with_floor(points, shape, bounds, bounds[0])


def _fit_with_floor(points: Points, shape: Shape, bounds: tuple[float, float], floor: float | None) -> RewardCurve:
    """One shape; `floor` is the reward at no compute, None to fit it too."""
    import lmfit

    x, y = points.compute_T, points.reward_T
    start = profile(shape, points, bounds, floor)
    ranges = [p.bounds(*_observed(points)) for p in shape.parameters]
    room = bounds[1] - (bounds[0] if floor is None else floor)
    enough = len(y) > shape.n_free
    found, converged, stderr = start, False, dict[str, float | None]()
    # With a base model on the upper bound the curve is flat.
    if enough and room > 0:
        model = lmfit.Parameters()
        if floor is None:
            model.add("plateau", value=start[0], min=bounds[0], max=bounds[1])
        model.add("rise", value=start[1], min=0.0, max=room)
        for parameter, value, (low, high) in zip(shape.parameters, start[2:], ranges, strict=True):
            model.add(parameter.name, value=value, min=low, max=high)

        def row(values: Any) -> Array:
            rise = values["rise"].value
            plateau = values["plateau"].value if floor is None else floor + rise
            return np.array([[plateau, rise, *(values[p.name].value for p in shape.parameters)]])

        def residual(values: Any) -> Array:
            return evaluate(shape, x, row(values))[0] - y

        # With a parameter on its bound the covariance can be singular, and lmfit takes roots of negative numbers. No
        # standard error is reported then.
        with np.errstate(all="ignore"):
            result: Any = lmfit.minimize(
                residual,
                model,
                method="least_squares",
                max_nfev=MAX_EVALUATIONS,
                xtol=1e-12,
                ftol=1e-12,
                gtol=1e-12,
            )
        found, converged = row(result.params)[0], bool(result.success)
        if np.sum(residual(model) ** 2) < np.sum(residual(result.params) ** 2):
            found = start
        stderr = {name: _finite(p.stderr) for name, p in result.params.items()}
    at_bound = _on_bounds(shape, found, ranges, bounds, floor)
    names = ["plateau", "rise", *(p.name for p in shape.parameters)]
    sse = float(np.sum((evaluate(shape, x, found[None, :])[0] - y) ** 2))
    return RewardCurve(
        group_size=points.group_size,
        problems_per_batch=points.problems_per_batch,
        shape=shape.name,
        plateau=float(found[0]),
        rise=float(found[1]),
        parameters=tuple(float(v) for v in found[2:]),
        status=FitStatus.of(enough, converged, at_bound),
        at_bound=at_bound,
        stderr={name: None if name in at_bound else stderr.get(name) for name in names},
        rms=float(np.sqrt(sse / len(y))),
        aicc=_aicc(sse, len(y), shape.n_free),
        compute_T=x,
        reward_T=y,
        base_reward=points.base_reward,
        observed=points.observed,
    )


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None


def _on_bounds(
    shape: Shape, found: Array, ranges: list[tuple[float, float]], bounds: tuple[float, float], floor: float | None
) -> tuple[str, ...]:
    span = bounds[1] - bounds[0]
    names = ["plateau"] if found[0] > bounds[1] - 1e-4 * span else []
    if found[1] < 1e-6 * span:
        names.append("rise")
    if floor is not None and not shape.floor_is_base_reward:
        names.append("floor")
    for parameter, value, (low, high) in zip(shape.parameters, found[2:], ranges, strict=True):
        if min(value - low, high - value) < 1e-3 * (high - low):
            names.append(parameter.name)
    return tuple(names)


def _aicc(sse: float, count: int, free: int) -> float:
    # One more parameter for the noise variance. The floor on the variance keeps noise-free data comparable.
    k = free + 1
    if count - k - 1 <= 0:
        return float("inf")
    return count * float(np.log(max(sse / count, 1e-18))) + 2 * k + 2 * k * (k + 1) / (count - k - 1)
