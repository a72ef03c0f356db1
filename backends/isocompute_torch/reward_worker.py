"""The separate process that calls the user's reward function. Imports no torch.

    python -P worker.py REQUESTS REPLIES RESULTS      (file descriptors)

It reads pickled requests and answers each. Results go to a shared file, one 9-byte cell per call, written when a call
ends: if a call never returns, or ends the process, the cells show which one.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import mmap
import os
import pickle
import random
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import IO, Any, cast

DEFAULT_FUNCTION = "reward"
CELL = struct.Struct("<Bd")
PENDING, SCORED, FAILED = 0, 1, 2
STUCK_CALLS = 10
"""Consecutive calls that take too long, or end the process, after which the batch is given up."""
MESSAGES_KEPT = 5
"""Distinct error messages reported per batch."""

RewardFunction = Callable[[str, str, Any], Any]


class RewardTargetError(Exception):
    """The reward function is unusable; the message says why."""


class StuckError(Exception):
    """`STUCK_CALLS` consecutive calls took too long."""


class CallTimeout(BaseException):
    """One call took too long. Not an Exception, so that handlers in the function do not catch it."""


def load_target(target: str) -> RewardFunction:
    """The function named by `file.py`, `file.py:function` or `module:function`.

    Raises:
        RewardTargetError: no such file, module or function, code that does not run, or other parameters than three.
    """
    source, separator, name = target.rpartition(":")
    if not separator or Path(target).is_file():
        source, name = target, DEFAULT_FUNCTION
    module = _from_file(Path(source)) if source.endswith(".py") else _from_name(source, target)
    function = getattr(module, name, None)
    if not callable(function):
        defined = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
        raise RewardTargetError(
            f"{source} defines no function {name!r}; its functions are {', '.join(defined) or 'none'}. Define "
            "reward(prompt, response, answer) -> float, or name another function as file.py:function"
        )
    _check_signature(f"{source}:{name}", function)
    return cast("RewardFunction", function)


def as_reward(value: object) -> float:
    """A finite float from a number, or from a tensor or array of one element.

    Raises:
        TypeError: not a number.
        ValueError: NaN or infinite.
    """
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the reward function is asynchronous; accepted: a plain function")
    item = getattr(value, "item", None)
    if callable(item):
        value = item()
    if not isinstance(value, bool | int | float):
        raise TypeError(f"the reward is {value!r}; accepted: a number")
    if not math.isfinite(value):
        raise ValueError(f"the reward is {value}; accepted: a finite number")
    return float(value)


def serve(requests: IO[bytes], replies: IO[bytes], results: int) -> None:
    """Answer requests until the other side closes. The first loads the function, the others are batches of calls."""
    target, timeout_seconds = cast("tuple[str, float]", pickle.load(requests))
    try:
        function = load_target(target)
    except RewardTargetError as error:
        _reply(replies, ("refused", str(error)))
        return
    _reply(replies, ("ready", None))
    signal.signal(signal.SIGALRM, _on_alarm)
    while True:
        try:
            seed, first, calls = cast("tuple[int, int, list[tuple[str, str, Any]]]", pickle.load(requests))
        except EOFError:
            return
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)
        with mmap.mmap(results, CELL.size * (first + len(calls))) as cells:
            try:
                _reply(replies, ("done", _score_all(function, calls, first, cells, timeout_seconds)))
            except StuckError as error:
                _reply(replies, ("stuck", [str(error)]))


def _score_all(
    function: RewardFunction, calls: list[tuple[str, str, Any]], first: int, cells: mmap.mmap, timeout_seconds: float
) -> list[str]:
    """Score calls into their cells; returns the distinct error messages, the first few of them.

    Raises:
        StuckError: too many consecutive calls took too long.
    """
    messages: dict[str, None] = {}
    late = 0
    for index, (prompt, response, answer) in enumerate(calls, start=first):
        try:
            signal.setitimer(signal.ITIMER_REAL, timeout_seconds)
            try:
                state, value = SCORED, as_reward(function(prompt, response, answer))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            late = 0
        except CallTimeout:
            state, value, late = FAILED, 0.0, late + 1
            messages.setdefault(f"no result within {timeout_seconds:g} s")
            if late == STUCK_CALLS:
                raise StuckError(next(reversed(messages))) from None
        except Exception as raised:
            state, value, late = FAILED, 0.0, 0
            messages.setdefault(_described(raised))
        CELL.pack_into(cells, CELL.size * index, state, value)
    return list(messages)[:MESSAGES_KEPT]


def _on_alarm(_signal: int, _frame: FrameType | None) -> None:
    raise CallTimeout


def _described(raised: BaseException) -> str:
    """Type, message and place of an exception; a syntax error names its place itself."""
    frames = traceback.extract_tb(raised.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<frozen ")]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{type(raised).__name__}: {raised}{place}"


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise RewardTargetError(f"no reward file {str(path)!r} in {str(Path.cwd())!r}")
    # Modules beside the file are importable, as if it were run directly.
    sys.path.append(str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location("isocompute_user_reward", path)
    if spec is None or spec.loader is None:
        raise RewardTargetError(f"{str(path)!r} is not a Python file; accepted: a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RewardTargetError(f"{path} does not run: {_described(error)}") from error
    return module


def _from_name(name: str, target: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise RewardTargetError(
            f"reward {target!r}: {error}; accepted: file.py, file.py:function or module:function"
        ) from error
    except (Exception, SystemExit) as error:
        raise RewardTargetError(f"the module {name} does not import: {_described(error)}") from error


def _check_signature(where: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in and compiled functions have no signature
        return
    try:
        signature.bind("", "", "")
    except TypeError as error:
        raise RewardTargetError(
            f"{where}{signature} cannot be called with (prompt, response, answer): {error}"
        ) from error


def _reply(replies: IO[bytes], message: tuple[str, object]) -> None:
    pickle.dump(message, replies)
    replies.flush()


def main(argv: list[str]) -> int:
    """Serve on the file descriptors named on the command line."""
    incoming, outgoing, results = (int(name) for name in argv)
    # Output of the user's function goes to the log, not into the protocol.
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with os.fdopen(incoming, "rb") as requests, os.fdopen(outgoing, "wb") as replies:
            serve(requests, replies, results)
    except (BrokenPipeError, EOFError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
