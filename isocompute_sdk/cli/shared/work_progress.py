"""Progress on stderr, line by line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from isocompute_sdk.interrupts import INTERRUPTED
from isocompute_sdk.phrases import counted

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.executors import Leaving
    from isocompute_sdk.run_folders.store import RunStatus

SECONDS_BETWEEN_LINES = 15.0
"""Interval between lines on progress."""

MAX_REWARDS = 8
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
    runs = counted(len(left.runs), "run")
    if left.detached:
        return (
            f"{left.signal.name}: detached, {runs} left running: {names}{waiting}; the same command "
            f"reattaches, isocompute stop ends them"
        )
    return f"{left.signal.name}: stopped {runs}: {names}{waiting}; the same command resumes from here"


class WorkProgress:
    """Says on stderr which stage goes on, which runs have ended, and now and then how many rollouts are done."""

    def __init__(self) -> None:
        self._stages: list[str] = []
        self._said = 0.0
        self._ended: set[tuple[str, int | None]] = set()

    def stage(self, label: str) -> None:
        """Begin a stage; one that was shown is not shown again."""
        if label not in self._stages:
            self._stages.append(label)
            self._said = time.monotonic()
            on_stderr(label)

    def runs(
        self, label: str, statuses: Sequence[RunStatus], final_steps: Callable[[], Mapping[str, int]] | None = None
    ) -> None:
        """Show the progress of the runs of a stage.

        Args:
            label: the stage.
            statuses: how far its runs are.
            final_steps: returns M of runs that pause on the way to it, by name.
        """
        from isocompute_sdk.phrases import duration
        from isocompute_sdk.timing.spending import seconds_left

        self.stage(label)
        if not statuses or label != self._stages[-1]:
            return
        for status in statuses:
            given_up = status.state == "stopped" and status.message
            end = status.run_id, status.update_steps
            if end in self._ended or not (given_up or status.state in ("finished", "failed")):
                continue
            self._ended.add(end)
            final = final_steps().get(status.run_id, 0) if final_steps is not None else 0
            paused = status.state == "finished" and status.step < final
            state = f"at step {status.step:,} of {final:,}" if paused else status.state
            value = f", {status.headline[0]} {status.headline[1]:.3f}" if status.headline else ""
            told = f"given up: {status.message}" if given_up else f"{state}{value}"
            on_stderr(f"{label}: {status.run_id} {told}")
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            done, total = _rollouts(statuses)
            left = seconds_left(statuses)
            parts = [f"{label}: {done / total:.0%} of {total:,} rollouts", *_rewards(statuses)]
            on_stderr(", ".join([*parts, *([] if left is None else [f"about {duration(left)} left"])]))
            self._said = time.monotonic()


def on_stderr(text: str) -> None:
    """Print a line of its own."""
    print(text, file=sys.stderr, flush=True)


def _rollouts(statuses: Sequence[RunStatus]) -> tuple[int, int]:
    """Rollouts done and asked for, over all runs."""
    done = total = 0
    for status in statuses:
        batch = (status.group_size or 1) * (status.problems_per_batch or 1)
        total += batch * (status.update_steps or max(status.step, 1))
        done += batch * status.step
    return done, max(total, 1)


def _rewards(statuses: Sequence[RunStatus]) -> list[str]:
    """The last evaluation of each run that goes on, or of all together if they are many."""
    found = [(one.run_id, one.headline) for one in statuses if one.headline and one.state == "running"]
    if len(found) <= MAX_REWARDS:
        return [f"{run} {metric} {value:.3f}" for run, (metric, value) in found]
    values = [value for _, (_, value) in found]
    return [f"{found[0][1][0]} {min(values):.3f} to {max(values):.3f}"]
