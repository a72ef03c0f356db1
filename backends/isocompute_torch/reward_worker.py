"""The separate process that calls the user's reward function. Imports no torch.

    python -P reward_worker.py REQUESTS REPLIES PAYLOAD     (two file descriptors, and the folder of reward_calls.py)

The first request loads the function; the others are batches of calls. Every call is answered at once by its reward,
a message if it has none, and whether it took too long, so that the other side knows at which call this process ended.
"""

from __future__ import annotations

import importlib
import math
import os
import random
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

Reply = tuple[float, str, bool]
"""Reward (NaN without one), message ("" with one), and whether the call took too long."""


class CallTimeout(BaseException):
    """One call took too long. Not an Exception, so that handlers in the function do not catch it."""


def scored(function: Callable[..., Any], call: tuple[str, str, Any], seconds: float, calls: Any) -> Reply:
    """One call, ended by an alarm after its time."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return calls.as_float(function(*call)), "", False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    except CallTimeout:
        return math.nan, f"no result within {seconds:g} s", True
    except Exception as raised:
        return math.nan, calls.described(raised), False


def serve(requests: Connection, replies: Connection, payload: str) -> None:
    """Answer requests until the other side closes."""
    sys.path.insert(0, payload)
    calls = importlib.import_module("reward_calls")
    # The user's imports must not find the modules beside it.
    sys.path.remove(payload)
    for name in ("reward_calls", "run_files"):
        del sys.modules[name]
    target, seconds = requests.recv()
    try:
        function = calls.function_named(target)
    except calls.RewardFileError as error:
        replies.send(str(error))
        return
    replies.send("")
    signal.signal(signal.SIGALRM, _on_alarm)
    while True:
        seed, batch = requests.recv()
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
        for call in batch:
            replies.send(scored(function, call, seconds, calls))


def _on_alarm(_signal: int, _frame: FrameType | None) -> None:
    raise CallTimeout


def main(argv: list[str]) -> int:
    """Serve on the file descriptors named on the command line."""
    # Output of the user's function goes to the log, not into the protocol.
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        serve(Connection(int(argv[0]), writable=False), Connection(int(argv[1]), readable=False), argv[2])
    except (BrokenPipeError, EOFError):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
