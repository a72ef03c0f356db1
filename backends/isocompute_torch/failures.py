"""The two ways a run can go wrong: what it was given, and what happened on the way."""

from __future__ import annotations

from isocompute_sdk.errors import IsoComputeError


class InputError(IsoComputeError, ValueError):
    """Model, problems, reward or settings cannot be used; found before the first update, exit status 2."""


class RunFailed(IsoComputeError, RuntimeError):
    """Training cannot go on; what was measured is kept, exit status 1."""
