"""Rewards: the user's function in a separate process, a time limit per call, and a report of failed calls.

A call has no reward if it raises, takes too long, ends its process or does not return a finite number. Its reward is
NaN, never 0: the caller excludes such rollouts and reports their number.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, Any, Self, cast

from isocompute_torch import reward_worker as worker
from isocompute_torch.configuration import InputError, RunFailed
from isocompute_torch.reward_worker import CELL, MESSAGES_KEPT, PENDING, SCORED, STUCK_CALLS

START_SECONDS = 300.0
"""Time limit for loading the reward file."""
GRACE_SECONDS = 2.0
"""Time beyond its limit after which a call's process is stopped."""
FAILED_SHARE_LIMIT = 0.2
"""The run stops if a larger share of the calls of one batch, or one evaluation, fails."""

Call = tuple[str, str, Any]


@dataclass(frozen=True)
class Scores:
    """Rewards of one batch of calls."""

    rewards: list[float]
    """One per call; NaN for failed calls."""
    errors: int
    """Number of failed calls."""
    messages: tuple[str, ...]
    """The first few distinct messages of failed calls."""

    def check(self, what: str, *, stop_on_error: bool) -> None:
        """Raise if too many calls failed.

        Raises:
            RunFailed: more than `FAILED_SHARE_LIMIT` of the calls failed, or any with `stop_on_error`.
        """
        limit = 0.0 if stop_on_error else FAILED_SHARE_LIMIT
        if self.errors > limit * len(self.rewards):
            raise RunFailed(
                f"{what}: the reward function failed for {self.errors} of {len(self.rewards)} rollouts; accepted: "
                f"at most {limit:.0%}. {'; '.join(self.messages)}",
                "Correct the reward function, then start the run again: it resumes from its last checkpoint.",
            )


class RewardFunction:
    """A user's reward function, called as reward(prompt, response, answer) -> float.

    Args:
        target: `file.py` (its function `reward`), `file.py:function` or `module:function`.
        timeout_seconds: time limit of one call.

    Raises:
        InputError: the function does not load.
    """

    def __init__(self, target: str, *, timeout_seconds: float = 10.0) -> None:
        self.target = target
        self.timeout_seconds = timeout_seconds
        self._results = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this object)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def score(self, calls: Sequence[Call], *, seed: int = 0) -> Scores:
        """Call the function once per (prompt, response, answer), in order.

        `random`, and numpy's global generator if numpy is loaded, are seeded before the first call.

        Raises:
            RunFailed: `STUCK_CALLS` consecutive calls took too long or ended the process.
        """
        calls = list(calls)
        if not calls:
            return Scores([], 0, ())
        size = CELL.size * len(calls)
        self._results.truncate(0)
        self._results.truncate(size)
        messages: dict[str, None] = {}
        with mmap.mmap(self._results.fileno(), size) as cells:
            first = in_a_row = 0
            while first < len(calls):
                self._send((seed, first, calls[first:]))
                reported, stuck = self._wait(cells, first, len(calls))
                messages.update(dict.fromkeys(reported))
                if stuck is None:
                    break
                in_a_row = in_a_row + 1 if stuck == first else 1
                first = stuck + 1
                self._start()
                if in_a_row == STUCK_CALLS:
                    raise _stuck(reported)
            rewards = [value if state == SCORED else math.nan for state, value in CELL.iter_unpack(cells)]
        return Scores(rewards, sum(math.isnan(reward) for reward in rewards), tuple(messages))

    def close(self) -> None:
        """End the process."""
        self._stop()
        self._results.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        if self._process is None:
            return
        with suppress(BrokenPipeError):  # the process ended without reading everything
            self._requests.close()
        self._replies.close()
        try:
            self._process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self) -> None:
        self._stop()
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        passed = (theirs_in, theirs_out, self._results.fileno())
        self._process = subprocess.Popen(
            # -P: the user's imports must not find the modules beside the worker.
            [sys.executable, "-P", worker.__file__, *map(str, passed)],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._requests: IO[bytes] = os.fdopen(ours_out, "wb")
        self._replies: IO[bytes] = os.fdopen(ours_in, "rb")
        self._send((self.target, self.timeout_seconds))
        answer = self._answer(START_SECONDS)
        if answer is None or answer[0] != "ready":
            reason = "loading it ended the process or took too long" if answer is None else str(answer[1])
            raise InputError(
                f"reward {self.target!r}: {reason}",
                "Give data.reward as file.py, file.py:function or module:function, relative to the current folder.",
            )

    def _send(self, message: object) -> None:
        try:
            pickle.dump(message, self._requests)
            self._requests.flush()
        except BrokenPipeError:
            # The process has ended; `_wait` finds the call that ended it.
            return

    def _answer(self, seconds: float) -> tuple[str, object] | None:
        """The next reply; None if it does not arrive in time or the process has ended."""
        ready, _, _ = select.select([self._replies], [], [], seconds)
        if not ready:
            return None
        try:
            return cast("tuple[str, object]", pickle.load(self._replies))
        except (EOFError, pickle.UnpicklingError):
            return None

    def _wait(self, cells: mmap.mmap, first: int, end: int) -> tuple[list[str], int | None]:
        """Messages of a batch, and the index of the call at which it stopped early; None if all calls ended."""
        patience = self.timeout_seconds + GRACE_SECONDS
        position, moved = first, time.monotonic()
        while True:
            answer = self._answer(min(0.25, patience))
            if answer is not None:
                reported = cast("list[str]", answer[1])
                if answer[0] == "stuck":
                    raise _stuck(reported)
                return reported, None
            before, position = position, _progress(cells, position, end)
            if position > before:
                moved = time.monotonic()
            process = cast("subprocess.Popen[bytes]", self._process)
            if process.poll() is not None:
                position = _progress(cells, position, end)
                return [f"the reward function ended its process (status {process.returncode})"], position
            if time.monotonic() - moved > patience:
                process.kill()
                return [f"no result within {self.timeout_seconds:g} s; the process was stopped"], position


def _stuck(messages: Sequence[str]) -> RunFailed:
    return RunFailed(
        f"the reward function gave no result in {STUCK_CALLS} consecutive calls: {'; '.join(messages)}",
        "Correct the reward function, or raise options.reward_timeout_seconds, then start the run again.",
    )


def _progress(cells: mmap.mmap, position: int, end: int) -> int:
    """Index of the first call from `position` on that has not ended."""
    while position < end and CELL.unpack_from(cells, CELL.size * position)[0] != PENDING:
        position += 1
    return position


CALLS_AT_ONCE = 64
"""Calls that one process is given together. Each group is seeded by its place in the batch, so that rewards that draw
random numbers do not depend on the number of processes."""
LONG_SECONDS = 1.0
"""A batch that takes longer is worth more processes."""
MOST_PROCESSES = 16


class RewardPool:
    """A reward function in up to `processes` processes; starts with one and adds the others once a batch is slow.

    Args:
        target: as for `RewardFunction`.
        timeout_seconds: time limit of one call.
        processes: most processes. None: one per core, at most 16.

    Raises:
        InputError: the function does not load.
    """

    def __init__(self, target: str, *, timeout_seconds: float = 10.0, processes: int | None = None) -> None:
        self.target = target
        self.timeout_seconds = timeout_seconds
        self.most = processes or min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
        self._functions = [RewardFunction(target, timeout_seconds=timeout_seconds)]

    @property
    def processes(self) -> int:
        """Processes now."""
        return len(self._functions)

    def score(self, calls: Sequence[Call], *, seed: int = 0) -> Scores:
        """As `RewardFunction.score`, in the order of the calls.

        Raises:
            RunFailed: too many consecutive calls of one process took too long or ended it.
        """
        calls = list(calls)
        groups = [calls[i : i + CALLS_AT_ONCE] for i in range(0, len(calls), CALLS_AT_ONCE)]
        started = time.monotonic()
        found = list(self._scored(groups, seed))
        if time.monotonic() - started > LONG_SECONDS and len(groups) > 1:
            self._grow()
        messages = dict.fromkeys(message for part in found for message in part.messages)
        return Scores(
            [reward for part in found for reward in part.rewards],
            sum(part.errors for part in found),
            tuple(messages)[:MESSAGES_KEPT],
        )

    def close(self) -> None:
        """End all processes."""
        for function in self._functions:
            function.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _scored(self, groups: list[list[Call]], seed: int) -> Iterator[Scores]:
        if len(self._functions) == 1:
            yield from (self._functions[0].score(group, seed=seed + i) for i, group in enumerate(groups))
            return
        free: SimpleQueue[RewardFunction] = SimpleQueue()
        for function in self._functions:
            free.put(function)

        def one(numbered: tuple[int, list[Call]]) -> Scores:
            function = free.get()
            try:
                return function.score(numbered[1], seed=seed + numbered[0])
            finally:
                free.put(function)

        with ThreadPoolExecutor(len(self._functions)) as threads:
            yield from threads.map(one, enumerate(groups))

    def _grow(self) -> None:
        while len(self._functions) < self.most:
            self._functions.append(RewardFunction(self.target, timeout_seconds=self.timeout_seconds))
