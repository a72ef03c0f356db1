"""The two errors of a run: unusable input, and a failure during training."""

from __future__ import annotations

from isocompute_sdk.errors import IsoComputeError


class InputError(IsoComputeError, ValueError):
    """Model, problems, reward function or settings are unusable; found before the first update, exit status 2."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python could not allocate memory, on a GPU or a CPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # On a CPU torch raises a plain RuntimeError.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


class RunFailed(IsoComputeError, RuntimeError):
    """Training cannot continue; all measurements are kept, exit status 1."""
