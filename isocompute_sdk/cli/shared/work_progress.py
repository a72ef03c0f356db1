"""Progress on stderr, line by line."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from isocompute_sdk.cli import INTERRUPTED

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.executors import Leaving
    from isocompute_sdk.run_folders.store import RunStatus

SECONDS_BETWEEN_LINES = 15.0
"""Interval between lines on progress."""

SHARE_TO_FORECAST = 0.02
"""Share of a stage after which its speed so far says how long the rest takes, where runs log no times."""
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
    if left.detached:
        return (
            f"{left.signal.name}: detached, {len(left.runs)} run(s) go on: {names}{waiting}; the same command takes "
            "them up again, isocompute stop ends them"
        )
    return f"{left.signal.name}: stopped {len(left.runs)} run(s): {names}{waiting}; the same command resumes from here"


class WorkProgress:
    """Says on stderr which stage goes on, which runs have ended, and now and then how many rollouts are done."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[float, int]] = {}
        self._said = 0.0
        self._ended: set[str] = set()
        self._current = ""

    def stage(self, label: str) -> None:
        """Begin a stage; one that was shown is not shown again."""
        if label in self._begun:
            return
        self._current = label
        self._begun[label] = time.monotonic(), 0
        self._said = time.monotonic()
        self.say(label)

    def runs(self, label: str, statuses: Sequence[RunStatus]) -> None:
        """Show the progress of the runs of a stage."""
        self.stage(label)
        if not statuses or label != self._current:
            return
        done, total = _rollouts(statuses)
        if not self._begun[label][1]:
            # What earlier starts did must not count as speed.
            self._begun[label] = time.monotonic(), max(done, 1)
        self._endings(label, statuses)
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            left = self._left(label, statuses, done, total)
            parts = [f"{label}: {done / total:.0%} of {total:,} rollouts", *_rewards(statuses), *[left] * bool(left)]
            self.say(", ".join(parts))
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
        """A line of its own."""
        print(text, file=sys.stderr, flush=True)

    def _endings(self, label: str, statuses: Sequence[RunStatus]) -> None:
        """Say which runs have ended."""
        for status in statuses:
            if status.state in ("finished", "failed") and status.run_id not in self._ended:
                self._ended.add(status.run_id)
                value = f", {status.headline[0]} {status.headline[1]:.3f}" if status.headline else ""
                self.say(f"{label}: {status.run_id} {status.state}{value}")
            elif status.state == "stopped" and status.message and status.run_id not in self._ended:
                self._ended.add(status.run_id)
                self.say(f"{label}: {status.run_id} given up: {status.message}")


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
