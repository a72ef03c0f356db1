"""Progress of a run on the screen: a bar on a terminal, plain lines elsewhere. Imports no torch."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeRemainingColumn

LINE_SECONDS = 10.0
"""Longest time between two plain lines."""


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
        self.console = Console(stderr=True)
        self._started = time.monotonic()
        self._rollouts = 0
        self._first = done
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
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self.console)
            self._task = self._bar.add_task(run_id, total=total, completed=done, reward="-", speed="-")

    def step(self, step: int, rollouts: int, reward: float) -> None:
        """Show that one update is done, with its rollouts and mean training reward."""
        self.done = step
        self._rollouts += rollouts
        elapsed = time.monotonic() - self._started
        speed = f"{self._rollouts / max(elapsed, 1e-9):,.0f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, reward=f"{reward:.3f}", speed=speed)
            return
        if step < self.total and elapsed - self._last_line < LINE_SECONDS:
            return
        self._last_line = elapsed
        left = elapsed / max(step - self._first, 1) * (self.total - step)
        self.note(f"step {step}/{self.total}  reward {reward:.3f}  {speed} rollouts/s  {_clock(left)} left")

    def evaluation(self, step: int, eval_set: str, metrics: dict[str, float]) -> None:
        """Show the metrics at k of one evaluation."""
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items() if "@" in name)
        self.note(f"step {step}/{self.total}  {eval_set}: {shown}")

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
