"""Progress on stderr: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from isocompute_sdk.cli import INTERRUPTED
from isocompute_sdk.cli.shared.output import terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from isocompute_sdk.campaigns.executors import Leaving
    from isocompute_sdk.run_folders.store import RunStatus

SECONDS_BETWEEN_LINES = 15.0
"""Interval between lines of plain output."""

SHARE_TO_FORECAST = 0.02
"""Share of a stage after which its speed so far says how long the rest takes, where runs log no times."""
MOST_REWARDS = 8
"""Runs whose rewards are shown one by one."""


@contextmanager
def resumable() -> Generator[None]:
    """On Ctrl-C, SIGTERM and SIGHUP, say what became of the runs and how to resume."""
    from isocompute_sdk.campaigns.executors import Leaving

    try:
        yield
    except Leaving as left:
        # After a hangup there may be no terminal to write to.
        with suppress(OSError):
            print(_farewell(left), file=sys.stderr, flush=True)
        raise
    except KeyboardInterrupt:
        print("stopped; the same command resumes from here", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def _farewell(left: Leaving) -> str:
    """What became of the runs after a signal."""
    names = ", ".join(left.runs) or "none"
    waiting = f"; not started: {', '.join(left.not_started)}" if left.not_started else ""
    if left.detached:
        return (
            f"{left.signal.name}: detached, {len(left.runs)} run(s) go on: {names}{waiting}; the same command takes "
            "them up again, isocompute stop ends them"
        )
    return f"{left.signal.name}: stopped {len(left.runs)} run(s): {names}{waiting}; the same command resumes from here"


class WorkProgress:
    """Shows stages one after another: short ones by name, those with runs by the rollouts done."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._said = 0.0
        self._ended: set[str] = set()
        self._current = ""

    def __enter__(self) -> Self:
        console = terminal(stderr=True)
        if console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
            clock = (TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
            self._bar = Progress(*columns, *clock, TextColumn("{task.fields[detail]}"), console=console)
            self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(completed=kind is None)
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)

    def stage(self, label: str) -> None:
        """Begin a stage and end the one before; a stage that was shown is not shown again."""
        if label in self._begun:
            return
        self._close(completed=True)
        self._current = label
        self._begun[label] = time.monotonic(), 0
        self._said = time.monotonic()
        if self._bar is not None:
            self._tasks[label] = self._bar.add_task(label, total=None, detail="", left="")
        else:
            self._line(label)

    def runs(self, label: str, statuses: Sequence[RunStatus]) -> None:
        """Show the progress of the runs of a stage."""
        self.stage(label)
        if not statuses or label != self._current:
            return
        done, total = _rollouts(statuses)
        if not self._begun[label][1]:
            # What earlier starts did must not count as speed.
            self._begun[label] = time.monotonic(), max(done, 1)
            if self._bar is not None:
                self._bar.update(self._tasks[label], total=total)
        look = time.monotonic() - self._said >= SECONDS_BETWEEN_LINES
        left = self._left(label, statuses, done, total) if look else ""
        if self._bar is not None:
            self._bar.update(self._tasks[label], completed=done, detail=_detail(statuses))
            if look:
                self._bar.update(self._tasks[label], left=left)
                self._said = time.monotonic()
            return
        self._plain(label, statuses)
        if look:
            done_so_far = f"{label}: {done / total:.0%} of {total:,} rollouts"
            parts = [done_so_far, *_rewards(statuses), *[left] * bool(left)]
            self._line(", ".join(parts))
            self._said = time.monotonic()

    def _left(self, label: str, statuses: Sequence[RunStatus], done: int, total: int) -> str:
        """Time to the end of a stage: by what its runs log of updates and evaluations, else by its speed so far."""
        from isocompute_sdk.phrases import duration
        from isocompute_sdk.timing.spending import seconds_left

        began, at_start = self._begun[label]
        left = seconds_left(statuses)
        # Start-up is slow: a forecast from the first few steps would frighten people.
        if left is None and done - at_start >= SHARE_TO_FORECAST * total:
            left = (time.monotonic() - began) * (total - done) / (done - at_start)
        return "" if left is None else f"about {duration(left)} left"

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, soft_wrap=True)
        else:
            self._line(text)

    def _plain(self, label: str, statuses: Sequence[RunStatus]) -> None:
        """Say which runs have ended."""
        for status in statuses:
            if status.state in ("finished", "failed") and status.run_id not in self._ended:
                self._ended.add(status.run_id)
                value = f", {status.headline[0]} {status.headline[1]:.3f}" if status.headline else ""
                self._line(f"{label}: {status.run_id} {status.state}{value}")
            elif status.state == "stopped" and status.message and status.run_id not in self._ended:
                self._ended.add(status.run_id)
                self._line(f"{label}: {status.run_id} given up: {status.message}")

    def _close(self, *, completed: bool) -> None:
        """End the bar of the current stage: full if completed, else as it is."""
        if self._bar is None or self._current not in self._tasks:
            return
        task = self._tasks[self._current]
        if completed:
            self._bar.update(task, total=1, completed=1)
        self._bar.stop_task(task)

    def _line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _rollouts(statuses: Sequence[RunStatus]) -> tuple[int, int]:
    """Rollouts done and asked for, over all runs."""
    done = total = 0
    for status in statuses:
        batch = (status.group_size or 1) * (status.problems_per_batch or 1)
        total += batch * (status.update_steps or max(status.step, 1))
        done += batch * status.step
    return done, max(total, 1)


def _detail(statuses: Sequence[RunStatus]) -> str:
    finished = sum(status.state == "finished" for status in statuses)
    counted = [f"{finished} of {len(statuses)} runs"] if len(statuses) > 1 else []
    return "\n".join([*counted, *_rewards(statuses)])


def _rewards(statuses: Sequence[RunStatus]) -> list[str]:
    """The last evaluation of each run that goes on, or of all together if they are many."""
    found = [(one.run_id, one.headline) for one in statuses if one.headline and one.state == "running"]
    if len(found) <= MOST_REWARDS:
        return [f"{run} {metric} {value:.3f}" for run, (metric, value) in found]
    values = [value for _, (_, value) in found]
    return [f"{found[0][1][0]} {min(values):.3f} to {max(values):.3f}"]
