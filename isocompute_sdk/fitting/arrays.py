"""Types of the numerics, and the ranges in which saved numbers are accepted."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from isocompute_sdk.documents import Floats

LARGEST = 1e100
"""Largest size of a number: larger ones overflow once they are squared and added up."""
MAX_COUNT = 2**40
"""Largest accepted count: group size, problems per batch, problems of a set."""

ComputeAxis = Literal["log10_rollouts", "log10_tokens"]
"""Decimal logarithm of compute, in rollouts or in tokens."""

Array = npt.NDArray[np.float64]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Field(ge=1 / LARGEST, le=LARGEST)]
NotNegative = Annotated[float, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Vector = Annotated[Array, Floats(1, largest=LARGEST)]
Matrix = Annotated[Array, Floats(2, largest=LARGEST)]


def same(one: Any, other: Any) -> bool:
    """Whether two values, of which either may be an array, are equal to the last bit."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


class FitStatus(StrEnum):
    """Outcome of one fit. Quote other estimates than `CONVERGED` ones with their status."""

    CONVERGED = "converged"
    """The optimiser succeeded and every parameter lies strictly inside its bounds."""
    AT_BOUND = "at_bound"
    """A parameter stopped on a bound: its value is a limit, not an estimate."""
    NOT_CONVERGED = "not_converged"
    """The optimiser stopped early; the values are the best that it found."""
    TOO_FEW_POINTS = "too_few_points"
    """As many parameters as points, or more: the curve passes through any data."""
    PUBLISHED = "published"
    """Taken from a publication, not fitted here."""

    @classmethod
    def of(cls, enough: bool, converged: bool, at_bound: tuple[str, ...]) -> FitStatus:
        """The outcome of a fit: whether it had enough points and converged, and its parameters on a bound."""
        if not enough:
            return cls.TOO_FEW_POINTS
        if at_bound:
            return cls.AT_BOUND
        return cls.CONVERGED if converged else cls.NOT_CONVERGED
