"""Freed memory stays with the process, so that the next step does not ask the system for it page by page."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
KEPT_BYTES = 2**30
"""Free memory at the end of the heap above which some is given back."""
LARGEST_BYTES = 2**25
"""Blocks up to this size come from the heap; the most that glibc accepts."""


def keep_freed_memory() -> None:
    """Tell glibc to; elsewhere nothing changes. Holds for the whole process.

    Every step of training on a CPU needs the same blocks of some megabytes. By default glibc gives them back when they
    are freed, and the system then clears each page again at its first use.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, LARGEST_BYTES)
