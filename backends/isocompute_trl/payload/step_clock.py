"""Wall-clock seconds of an update and of its parts: sampling, reward, training (passes, optimiser, everything else)."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class StepClock:
    """Measures one update after the other; `now` returns seconds."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.parts: dict[str, float] = {}
        self.started = now()
        self.whole = 0.0

    def begin(self) -> None:
        """Start an update; parts measured before it, as in an evaluation, are dropped."""
        self.parts = {}
        self.started = self.now()

    def end(self) -> None:
        """End the update."""
        self.whole = self.now() - self.started

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """Add the time inside the context to part `name`."""
        started = self.now()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + self.now() - started

    def seconds(self) -> dict[str, float]:
        """Seconds of each part of the last update; their sum is the whole."""
        rest = max(0.0, self.whole - sum(self.parts.values()))
        return {name: round(value, 6) for name, value in {**self.parts, "training": rest}.items()}
