"""One error base and its leaves: every failure says what was wrong and what to do about it."""

from __future__ import annotations


class IsoComputeError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        message: what was wrong, with the value received and what is accepted.
        hint: what to do next, in one or two sentences.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class SpecError(IsoComputeError, ValueError):
    """A budget, recipe, sweep or study that cannot be meant as it was written."""


class RecordError(IsoComputeError, ValueError):
    """Run data that cannot be read, or that contradicts itself.

    Args:
        message: what was wrong, and where.
        hint: what to do next.
        column: a column without which the rest could be read, where there is one.
    """

    def __init__(self, message: str, hint: str | None = None, column: str | None = None) -> None:
        super().__init__(message, hint)
        self.column = column


class FitError(IsoComputeError, ValueError):
    """The runs cannot support the fit that was asked for."""


class PlanError(IsoComputeError, ValueError):
    """No plan satisfies the budget and the constraints together.

    Args:
        message: what stood in the way.
        hint: what would work.
        smallest_budget: the least amount, in the budget's own unit, for which a plan exists; None where
            no budget would help.
    """

    def __init__(self, message: str, hint: str | None = None, smallest_budget: float | None = None) -> None:
        super().__init__(message, hint)
        self.smallest_budget = smallest_budget


class BackendError(IsoComputeError, RuntimeError):
    """A training framework cannot be found, or cannot do what the recipe asks."""
