"""Progress of a run, as plain lines. Imports no torch."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable

LINE_SECONDS = 10.0
"""Shortest time between the lines of two updates."""
BEST_AGAIN = 1
"""Evaluations after the last update: the best policy on new samples."""
RECENT = 20
"""Updates whose mean time is that of the ones to come."""


class RunConsole:
    """Shows the progress of one run.

    Args:
        run_id: name of the run.
        total: update steps of the whole run.
        done: update steps done before this attempt.
        evaluation_steps: update steps after which the run is evaluated.
    """

    def __init__(self, run_id: str, total: int, done: int, evaluation_steps: Iterable[int] = ()) -> None:
        self.run_id = run_id
        self.total = total
        self.done = done
        self._evaluation_steps = frozenset(evaluation_steps)
        self._started = self._last = time.monotonic()
        self._rollouts = 0
        self._steps: deque[float] = deque(maxlen=RECENT)
        self._evaluated: dict[int, float] = {}
        self._last_line = -LINE_SECONDS

    def step(self, step: int, rollouts: int, reward: float) -> None:
        """Show that one update is done, with its rollouts and mean training reward."""
        self.done = step
        self._rollouts += rollouts
        self._steps.append(self._lap())
        elapsed = self._last - self._started
        speed = f"{self._rollouts / max(elapsed, 1e-9):,.0f}"
        if step < self.total and elapsed - self._last_line < LINE_SECONDS:
            return
        self._last_line = elapsed
        self.note(f"step {step}/{self.total}  reward {reward:.3f}  {speed} rollouts/s  {self._left()} left")

    def evaluation(self, step: int, eval_set: str, metrics: dict[str, float]) -> None:
        """Show the metrics at k of one evaluation."""
        self._evaluated[step] = self._evaluated.get(step, 0.0) + self._lap()
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items() if "@" in name)
        self.note(f"step {step}/{self.total}  {eval_set}: {shown}")

    def _lap(self) -> float:
        """Seconds since the last update or evaluation ended."""
        before, self._last = self._last, time.monotonic()
        return self._last - before

    def _left(self) -> str:
        """Time for the updates that are left, like the newest ones, and the evaluations, like the last one."""
        seconds = sum(self._steps) / len(self._steps) * (self.total - self.done)
        if self._evaluated:
            to_come = {step for step in self._evaluation_steps if step >= self.done} - self._evaluated.keys()
            seconds += list(self._evaluated.values())[-1] * (len(to_come) + BEST_AGAIN)
        return _clock(seconds)

    def note(self, text: str) -> None:
        """Print one line."""
        sys.stdout.write(f"{self.run_id}: {text}\n")
        sys.stdout.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
