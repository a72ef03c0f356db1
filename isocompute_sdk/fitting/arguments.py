"""Checks of the arguments of `fit` and of the methods of `Fits`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import LARGEST, Array, ComputeAxis

LAWS = ("group_size", "group_size_vs_steps", "problems_per_batch_vs_steps")


@dataclass(frozen=True)
class MethodOptions:
    """Options of every method."""

    compute: ComputeAxis = "log10_rollouts"
    """Axis of curves and law: rollouts or tokens."""
    max_rollouts_per_batch: int | None = None
    """B_max of the sweep. Given, a note says where it, not the reward, may end the growth of n*."""
    rollouts_per_batch: int | None = None
    """Fixed batch B of the laws in steps; None for the one that most configurations share."""

    def __post_init__(self) -> None:
        for name in ("max_rollouts_per_batch", "rollouts_per_batch"):
            value: Any = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise FitError(f"{name} = {value!r}; accepted: a whole number, 1 or more", "Leave it out if unknown.")


def check_kind(kind: object) -> None:
    """Reject an unknown kind of prediction."""
    if not isinstance(kind, str) or kind not in ("mean", "at", "run"):
        raise FitError(f"kind = {kind!r}; accepted: 'mean', 'at', 'run'", "Use one of them.")


def check_law_name(name: object) -> None:
    """Refuse an unknown law."""
    if not isinstance(name, str) or name not in LAWS:
        raise FitError(f"unknown law {name!r}; accepted: {', '.join(LAWS)}", "Use one of these names.")


def check_level(level: object) -> float:
    """The coverage of an interval as a float."""
    # Rounding must not move the upper quantile to 1.
    if not _is_number(level) or not (level > 0 and (1 + level) / 2 < 1):
        raise FitError(f"level = {level!r}; accepted: between 0 and 1, such as 0.8", "Give the coverage as a share.")
    return float(level)


def check_problems(problems_per_batch: object) -> None:
    """Reject a B_p that is neither None nor a number above 0."""
    if problems_per_batch is not None and not (_is_number(problems_per_batch) and 0 < problems_per_batch < np.inf):
        raise FitError(
            f"problems_per_batch = {problems_per_batch!r}; accepted: a number above 0, or None",
            "Give B_p, the problems in one batch.",
        )


def positive(value: npt.ArrayLike, what: str = "compute and group sizes", *, zero: bool = False) -> Array:
    """Compute or group sizes as floats, in the shape given; `zero` takes 0 too."""
    try:
        if np.asarray(value).dtype.kind in "cmM":
            raise TypeError("complex numbers, times")
        at = np.asarray(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise FitError(
            f"{what} must be numbers; received {value!r:.60}",
            "Give plain numbers such as 3e6; text such as '3M' is for budgets.",
        ) from None
    good = np.isfinite(at) & ((at >= 0) if zero else (at > 0))
    if not np.all(good):
        least = "at least 0" if zero else "positive"
        raise FitError(
            f"{what} must be {least} and finite; received {at.ravel()[~good.ravel()][:3].tolist()}",
            f"Give numbers {'from 0 up' if zero else 'above 0'}.",
        )
    return at


def one_positive(value: object, what: str) -> float:
    """One positive number."""
    at = positive(cast("npt.ArrayLike", value), what)
    if at.size != 1:
        raise FitError(f"{what}: received {value!r:.60} ({at.size} numbers); accepted: one", "Give one at a time.")
    return float(at.ravel()[0])


def increasing_sizes(group_sizes: npt.ArrayLike, smallest: int, largest: int) -> npt.NDArray[np.int64]:
    """Candidates n, shape (N,)."""
    sizes = np.atleast_1d(positive(group_sizes)).ravel()
    if not sizes.size or np.any(sizes != np.round(sizes)) or np.any(np.diff(sizes) <= 0):
        raise FitError(
            f"group_sizes = {group_sizes!r:.60}; accepted: at least one whole number, increasing",
            "Give every candidate once, such as [8, 16, 32].",
        )
    check_reach(sizes, smallest, largest)
    return sizes.astype(np.int64)


def check_reach(sizes: Array, smallest: int, largest: int) -> None:
    """Reject n outside the range that a surface covers."""
    if sizes.size and (sizes.min() < smallest or sizes.max() > largest):
        outside = sizes.max() if sizes.max() > largest else sizes.min()
        raise FitError(
            f"group_size {outside:g}; accepted: {smallest} to {largest}, the levels that were run and one octave above",
            "Run such an n, or ask within this range.",
        )


def metric_range(bounds: tuple[float, float]) -> tuple[float, float]:
    """Lowest and highest value of a metric as floats; their squares must not overflow."""
    try:
        if isinstance(bounds, str):
            raise TypeError
        low, high = (float(b) for b in bounds)
    except (TypeError, ValueError, OverflowError):
        low, high = np.nan, np.nan
    if not (max(abs(low), abs(high)) < LARGEST and low < high):
        raise FitError(
            f"bounds = {' '.join(repr(bounds).split()):.80}; accepted: (lowest, highest) value of the metric, "
            f"finite and increasing, each below {LARGEST:g}",
            "Give the range of the metric.",
        )
    return low, high


def whole_number(name: str, value: object) -> int:
    """A whole number from 0 up as an int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        extra = ", or a numpy Generator" if name == "rng" else ""
        raise FitError(
            f"{name} = {value!r}; accepted: a whole number, 0 or more{extra}", f"Correct {name}, or leave it out."
        )
    return int(value)


def together(
    rollouts: npt.ArrayLike, group_size: npt.ArrayLike, problems: object, reach: tuple[int, int] | None = None
) -> tuple[Array, Array]:
    """Compute and group sizes, positive, in one shape; group sizes within the reach of a surface."""
    at, sizes = positive(rollouts), positive(group_size)
    if not isinstance(problems, Sequence) or isinstance(problems, str):
        check_problems(problems)
    if reach is not None:
        check_reach(sizes, *reach)
    try:
        both = np.broadcast_arrays(at, sizes)
    except ValueError:
        raise FitError(
            f"{at.shape} budgets and {sizes.shape} group sizes; accepted: one of each, or shapes that broadcast",
            "Ask for one n at a time to get every budget at every n.",
        ) from None
    return both[0], both[1]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
