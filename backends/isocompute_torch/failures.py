"""The two errors of a run: unusable input, and a failure during training."""

from __future__ import annotations

from isocompute_sdk.errors import IsoComputeError


class InputError(IsoComputeError, ValueError):
    """Model, problems, reward function or settings are unusable; found before the first update, exit status 2."""


class RunFailed(IsoComputeError, RuntimeError):
    """Training cannot continue; all measurements are kept, exit status 1."""
