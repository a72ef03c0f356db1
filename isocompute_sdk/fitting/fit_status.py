"""Outcome of a fit."""

from __future__ import annotations

from enum import StrEnum


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
