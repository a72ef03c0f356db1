"""Memory of the device: how much a run may use, and freed blocks of the process that are kept for the next step."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

GIB = 2**30
MOST = 0.95
"""Share of the memory that a run may fill."""
WORKSPACE = {"cuda": 1.0 * GIB, "cpu": 0.25 * GIB}
"""CUDA context, libraries and fragments."""
CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
KEPT_BYTES = 2**30
"""Free memory at the end of the heap above which glibc returns some."""
LARGEST_BYTES = 2**25
"""Blocks up to this size come from the heap; the largest value that glibc accepts."""
RETURNED_BYTES = 2**17
"""Smallest block that is returned at once where memory is short."""


@dataclass(frozen=True)
class Memory:
    """Memory that one process may use, in bytes."""

    total: float
    """Memory of the device, or the limit of the process if that is lower."""
    free: float
    """What of it is free now."""
    workspace: float
    """What torch needs beside tensors."""

    @property
    def most(self) -> float:
        """Bytes for tensors if nothing else used the device."""
        return MOST * self.total - self.workspace

    @property
    def room(self) -> float:
        """Bytes for tensors now."""
        return MOST * min(self.total, self.free) - self.workspace


def memory_of(device: torch.device) -> Memory:
    """The memory of a GPU, or of this process on a CPU; call it before the weights are loaded."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Memory(total, free, WORKSPACE["cuda"])
    bounds = [(_meminfo("MemTotal"), _meminfo("MemAvailable")), *_control_groups(), *_address_space()]
    total, free = (min(column) for column in zip(*bounds, strict=True))
    return Memory(total, max(0.0, free), WORKSPACE["cpu"])


def keep_freed_memory(*, keep: bool = True) -> None:
    """Make glibc keep freed memory, or return it at once, for the whole process; no effect with another C library.

    Every step of training on a CPU needs the same blocks of some megabytes. Kept blocks save the system from clearing
    each page again at its next use, and cost up to as much memory again in fragments.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, KEPT_BYTES if keep else RETURNED_BYTES)
        mallopt(MMAP_THRESHOLD, LARGEST_BYTES if keep else RETURNED_BYTES)


def _meminfo(name: str) -> float:
    """A line of /proc/meminfo in bytes; infinity on another system."""
    with suppress(OSError, ValueError):
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        return int(text.partition(f"{name}:")[2].split()[0]) * 1024
    return float("inf")


def _control_groups() -> Iterator[tuple[float, float]]:
    """Limits of this container or job, and what of each is free (cgroup v2)."""
    with suppress(OSError):
        own = next((line[3:] for line in OWN_GROUP.read_text("utf-8").splitlines() if line.startswith("0::")), "/")
        here = CGROUP / own.strip("/")
        for group in (here, *here.parents):
            with suppress(OSError, ValueError):  # no limit here: no file, or "max"
                limit = int((group / "memory.max").read_text("utf-8"))
                used = int((group / "memory.current").read_text("utf-8"))
                yield float(limit), float(limit - used)


def _address_space() -> Iterator[tuple[float, float]]:
    """Limit of this process's address space (`ulimit -v`), and what of it is free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(OSError, ValueError, IndexError):
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
            yield float(limit), float(limit - pages * resource.getpagesize())
