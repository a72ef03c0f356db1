"""Progress of a run, as plain lines. Imports no torch."""

from __future__ import annotations

import sys
import time
from collections import deque

LINE_SECONDS = 10.0
"""Shortest time between the lines of two updates."""
BEST_AGAIN = 1
"""Evaluations after the last update: the best policy on new samples."""
RECENT = 20
"""Updates whose mean time, evaluations between them included, is that of the ones to come."""


class RunConsole:
    """Shows the progress of one run.

    Args:
        run_id: name of the run.
        total: update steps of the whole run.
        done: update steps done before this attempt.
    """

    def __init__(self, run_id: str, total: int, done: int) -> None:
        self.run_id = run_id
        self.total = total
        self.done = done
        self._started = time.monotonic()
        self._rollouts = 0
        self._ends: deque[float] = deque([self._started], maxlen=RECENT + 1)
        self._last_line = -LINE_SECONDS

    def step(self, step: int, rollouts: int, reward: float) -> None:
        """Show that one update is done, with its rollouts and mean training reward."""
        self.done = step
        self._rollouts += rollouts
        self._ends.append(time.monotonic())
        elapsed = self._ends[-1] - self._started
        if step < self.total and elapsed - self._last_line < LINE_SECONDS:
            return
        self._last_line = elapsed
        speed = f"{self._rollouts / max(elapsed, 1e-9):,.0f}"
        left = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1) * (self.total - step)
        self.note(f"step {step}/{self.total}  reward {reward:.3f}  {speed} rollouts/s  {_clock(left)} left")

    def evaluation(self, step: int, eval_set: str, metrics: dict[str, float]) -> None:
        """Show the metrics at k of one evaluation."""
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items() if "@" in name)
        self.note(f"step {step}/{self.total}  {eval_set}: {shown}")

    def note(self, text: str) -> None:
        """Print one line."""
        sys.stdout.write(f"{self.run_id}: {text}\n")
        sys.stdout.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
