"""The reward function in several processes, where its calls take long enough to gain from it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Self

from isocompute_torch.rewards.function import Call, RewardFunction, Scores
from isocompute_torch.rewards.worker import MESSAGES_KEPT

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
