"""Progress of a run on the screen: a bar on a terminal, plain lines elsewhere. Imports no torch."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn

LINE_SECONDS = 10.0
"""Longest time between two plain lines."""
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
        self.console = Console(stderr=True)
        self._evaluation_steps = frozenset(evaluation_steps)
        self._started = self._last = time.monotonic()
        self._rollouts = 0
        self._steps: deque[float] = deque(maxlen=RECENT)
        self._evaluated: dict[int, float] = {}
        self._last_line = -LINE_SECONDS
        self._bar: Progress | None = None
        if self.console.is_terminal:
            columns: tuple[ProgressColumn | str, ...] = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} steps"),
                TextColumn("reward {task.fields[reward]}"),
                TextColumn("{task.fields[speed]} rollouts/s"),
                TextColumn("{task.fields[left]}"),
            )
            self._bar = Progress(*columns, console=self.console)
            self._task = self._bar.add_task(run_id, total=total, completed=done, reward="-", speed="-", left="")

    def step(self, step: int, rollouts: int, reward: float) -> None:
        """Show that one update is done, with its rollouts and mean training reward."""
        self.done = step
        self._rollouts += rollouts
        self._steps.append(self._lap())
        elapsed = self._last - self._started
        speed = f"{self._rollouts / max(elapsed, 1e-9):,.0f}"
        if self._bar is not None:
            self._bar.update(
                self._task, completed=step, reward=f"{reward:.3f}", speed=speed, left=f"{self._left()} left"
            )
            return
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
        """Print one line that stays on the screen."""
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            sys.stdout.write(f"{self.run_id}: {text}\n")
            sys.stdout.flush()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
