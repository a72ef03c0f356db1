"""Rewards: the user's function in a separate process, a time limit per call, and a report of failed calls.

A call has no reward if it raises, takes too long, ends its process or does not return a finite number. Its reward is
NaN, never 0: the caller excludes such rollouts and reports their number.
"""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from isocompute_sdk.training import payload
from isocompute_torch import reward_worker as worker
from isocompute_torch.configuration import InputError, RunFailed

START_SECONDS = 300.0
"""Time limit for loading the reward file."""
GRACE_SECONDS = 2.0
"""Time beyond its limit after which a call's process is stopped."""
POLL_SECONDS = 0.25
STUCK_CALLS = 10
"""Consecutive calls that take too long, or end the process, after which the batch is given up."""
MESSAGES_KEPT = 5
"""Distinct error messages reported per batch."""
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

    def check(self, what: str, limit: float = FAILED_SHARE_LIMIT) -> None:
        """Raise if more than this share of the calls failed."""
        if self.errors > limit * len(self.rewards):
            raise RunFailed(
                f"{what}: the reward function failed for {self.errors} of {len(self.rewards)} rollouts; accepted: "
                f"at most {limit:.0%}. {'; '.join(self.messages)}",
                "Correct the reward function, then start the run again: it resumes from its last checkpoint.",
            )


class RewardFunction:
    """A user's reward function, called as reward(prompt, response, answer) -> float.

    Args:
        target: `file.py` (its function `reward`) or `file.py:function`.
        timeout_seconds: time limit of one call.

    Raises:
        InputError: the function does not load.
    """

    def __init__(self, target: str, *, timeout_seconds: float = 10.0) -> None:
        self.target = target
        self.timeout_seconds = timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def score(self, calls: Sequence[Call], *, seed: int = 0) -> Scores:
        """Call the function once per (prompt, response, answer), in order.

        `random`, and numpy's global generator if numpy is loaded, are seeded before the first call.
        """
        left, late, message = list(calls), 0, ""
        rewards: list[float] = []
        messages: dict[str, None] = {}
        while left:
            self._send((seed, left))
            answered = 0
            while answered < len(left):
                reply = self._answer(self.timeout_seconds + GRACE_SECONDS)
                reward, message, slow = reply if reply is not None else (math.nan, self._end(), True)
                rewards.append(reward)
                answered += 1
                messages.update({message: None} if message else {})
                late = late + 1 if slow else 0
                if reply is None or late == STUCK_CALLS:
                    self._start()
                    break
            if late == STUCK_CALLS:
                raise RunFailed(
                    f"the reward function gave no result in {STUCK_CALLS} consecutive calls: {message}",
                    "Correct the reward function, or raise options.reward_timeout_seconds, then start the run again.",
                )
            left = left[answered:]
        return Scores(rewards, sum(map(math.isnan, rewards)), tuple(messages)[:MESSAGES_KEPT])

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._requests.close()
        self._replies.close()
        try:
            self._process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self.close()
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        beside = str(Path(str(payload.__file__)).parent)
        self._process = subprocess.Popen(
            # -P: the user's imports must not find the modules beside the worker.
            [sys.executable, "-P", worker.__file__, str(theirs_in), str(theirs_out), beside],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._requests, self._replies = Connection(ours_out, readable=False), Connection(ours_in, writable=False)
        self._send((self.target, self.timeout_seconds))
        refusal = self._answer(START_SECONDS)
        if refusal != "":
            reason = "loading it ended the process or took too long" if refusal is None else refusal
            raise InputError(
                f"reward {self.target!r}: {reason}",
                "Give data.reward as file.py or file.py:function, relative to the current folder.",
            )

    def _send(self, message: object) -> None:
        # If the process has ended, `_answer` finds out.
        with suppress(BrokenPipeError):
            self._requests.send(message)

    def _answer(self, seconds: float) -> Any:
        """The next reply; None if it does not arrive in time or the process has ended."""
        deadline = time.monotonic() + seconds
        while not self._replies.poll(POLL_SECONDS):
            if time.monotonic() > deadline:
                return None
        try:
            return self._replies.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return None

    def _end(self) -> str:
        """End a process that gave no answer; returns why there is none."""
        assert self._process is not None, "a batch needs a process"
        try:
            status = self._process.wait(timeout=2 * POLL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return f"no result within {self.timeout_seconds:g} s; the process was stopped"
        return f"the reward function ended its process (status {status})"


CALLS_AT_ONCE = 64
"""Calls that one process is given together. Each group is seeded by its place in the batch, so that rewards that draw
random numbers do not depend on the number of processes."""
LONG_SECONDS = 1.0
"""A batch that takes longer is worth more processes."""
MAX_PROCESSES = 16


class RewardPool:
    """A reward function in a process per core, at most 16; starts with one and adds the others once a batch is slow.

    Args:
        target: as for `RewardFunction`.
        timeout_seconds: time limit of one call.

    Raises:
        InputError: the function does not load.
    """

    def __init__(self, target: str, *, timeout_seconds: float = 10.0) -> None:
        self.target = target
        self.timeout_seconds = timeout_seconds
        self.most = min(len(os.sched_getaffinity(0)), MAX_PROCESSES)
        self.functions = [RewardFunction(target, timeout_seconds=timeout_seconds)]
        """One per process."""

    def score(self, calls: Sequence[Call], *, seed: int = 0) -> Scores:
        """As `RewardFunction.score`, in the order of the calls.

        Raises:
            RunFailed: too many consecutive calls of one process took too long or ended it.
        """
        groups = [list(calls[i : i + CALLS_AT_ONCE]) for i in range(0, len(calls), CALLS_AT_ONCE)]
        free: SimpleQueue[RewardFunction] = SimpleQueue()
        for function in self.functions:
            free.put(function)

        def scored(group: list[Call], seed: int) -> Scores:
            function = free.get()
            try:
                return function.score(group, seed=seed)
            finally:
                free.put(function)

        started, seeds = time.monotonic(), range(seed, seed + len(groups))
        if len(self.functions) == 1:  # without a thread, so that an interrupt ends it at once
            parts = [scored(group, own) for group, own in zip(groups, seeds, strict=True)]
        else:
            with ThreadPoolExecutor(len(self.functions)) as threads:
                parts = list(threads.map(scored, groups, seeds))
        if time.monotonic() - started > LONG_SECONDS and len(groups) > 1:
            while len(self.functions) < self.most:
                self.functions.append(RewardFunction(self.target, timeout_seconds=self.timeout_seconds))
        messages = dict.fromkeys(message for part in parts for message in part.messages)
        rewards = [reward for part in parts for reward in part.rewards]
        return Scores(rewards, sum(part.errors for part in parts), tuple(messages)[:MESSAGES_KEPT])

    def close(self) -> None:
        """End all processes."""
        for function in self.functions:
            function.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
