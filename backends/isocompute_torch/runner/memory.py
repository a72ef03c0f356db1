"""Memory of the process: freed blocks are kept for the next step."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
KEPT_BYTES = 2**30
"""Free memory at the end of the heap above which glibc returns some."""
LARGEST_BYTES = 2**25
"""Blocks up to this size come from the heap; the largest value that glibc accepts."""


def keep_freed_memory() -> None:
    """Make glibc keep freed memory, for the whole process; no effect with another C library.

    Every step of training on a CPU needs the same blocks of some megabytes. By default glibc returns them to the system
    when they are freed, and the system clears each page again at its next use.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, LARGEST_BYTES)
