"""How a fit ended: an answer, or an answer with a caveat."""

from __future__ import annotations

from enum import StrEnum


class FitStatus(StrEnum):
    """Outcome of one fit. Only `CONVERGED` estimates may be quoted without their caveat."""

    CONVERGED = "converged"
    """The optimiser succeeded and every parameter lies strictly inside its bounds."""
    AT_BOUND = "at_bound"
    """A parameter stopped on a bound: its value is a limit, not an estimate."""
    NOT_CONVERGED = "not_converged"
    """The optimiser stopped early; the values are the best it saw."""
    TOO_FEW_POINTS = "too_few_points"
    """As many parameters as points, or more: the curve passes through them and proves nothing."""
    PUBLISHED = "published"
    """Taken from a publication, not fitted here."""
