"""Signals that wait for the end of a block of code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


@contextmanager
def interrupts_later() -> Generator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP at the end of the block, not inside it; no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    earlier = {
        number: signal.signal(number, lambda number, frame: caught.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        for number in caught:
            signal.raise_signal(number)
