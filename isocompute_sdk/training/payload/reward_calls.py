"""Calls the user's reward function; its exceptions never reach the training framework.

The user's file defines `reward(prompt, response, answer) -> float`, or another function named `file.py:function`:
`prompt` is the text the model saw, `response` its answer text, `answer` the JSON value of the problem file. An
exception or a value that is not a finite number scores 0.0 and is counted.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from run_files import read_json, split_target

ARGUMENTS = "(prompt, response, answer)"
PROGRAMS = ("reward_calls.py", "reward_worker.py")
"""Files whose lines are not the user's."""


class RewardFileError(Exception):
    """The user's reward file cannot be used; the message says why."""


class Scorer:
    """One user function and its error count; safe to call from several threads.

    Args:
        function: `reward(prompt, response, answer)`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.errors = 0
        self.lock = threading.Lock()

    def __call__(self, prompt: str, response: str, answer: Any, problem: str) -> tuple[float, str | None]:
        """The reward, and the error message or None; `problem` names the problem in a printed error."""
        try:
            return as_float(self.function(prompt, response, answer)), None
        except Exception as raised:
            with self.lock:
                self.errors += 1
                first = self.errors == 1
            if first:  # the rest is counted; a thousand equal traces would hide everything else
                sys.stderr.write(f"reward: a response to {problem!r} scores 0.0: {traceback.format_exc()}")
            return 0.0, f"{type(raised).__name__}: {raised}"


def as_float(value: Any) -> float:
    """A finite Python float from a number, a 0-d or one-element tensor, or a list of one."""
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the reward function is asynchronous; accepted: a plain function")
    if isinstance(value, (list, tuple)) and len(cast("list[Any]", value)) == 1:
        return as_float(value[0])
    item = getattr(value, "item", None)
    if callable(item):
        value = item()
    if not isinstance(value, (bool, int, float)):
        raise TypeError(f"the reward is {value!r}; accepted: a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the reward is {number}; accepted: a finite number")
    return number


def load_function(path: Path, name: str | None) -> Callable[..., Any]:
    """A function of a file, `reward` without a name.

    Raises:
        RewardFileError: the file does not run, or has no such function that takes three arguments.
    """
    # Its neighbours are importable, as they are when the file is run by hand.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location("isocompute_user_reward", path)
    if spec is None or spec.loader is None:
        raise RewardFileError(f"{str(path)!r} is not a Python file; accepted: a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RewardFileError(f"{path.name} does not run: {described(error)}") from error
    chosen = "reward" if name is None else name
    function = getattr(module, chosen, None)
    if not callable(function):
        defined = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
        raise RewardFileError(
            f"{path.name} defines no function {chosen!r}; its functions are {', '.join(defined) or 'none'}. "
            "Define reward(prompt, response, answer), or name another function as file.py:function"
        )
    check_signature(path.name, chosen, function)
    return function


def described(raised: BaseException) -> str:
    """Type, message and place of an exception; a syntax error names its place itself."""
    frames = traceback.extract_tb(raised.__traceback__)
    own = [one for one in frames if Path(one.filename).name not in PROGRAMS and not one.filename.startswith("<frozen ")]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{type(raised).__name__}: {raised}{place}"


def check_signature(where: str, name: str, function: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with three positional arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in and compiled functions state no signature
        return
    try:
        signature.bind("", "", "")
    except TypeError as error:
        raise RewardFileError(f"{where}: {name}{signature} cannot be called with {ARGUMENTS}: {error}") from error


def function_of(folder: Path) -> Callable[..., Any]:
    """The reward function of a claimed run folder.

    Raises:
        RewardFileError: as `load_function`.
    """
    reward = read_json(folder / "inputs.json")["reward"]
    return load_function(Path(reward["path"]), reward["function"])


_making = threading.Lock()
_scorers: dict[Path, Scorer] = {}


def scorer_of(folder: Path) -> Scorer:
    """The scorer of a claimed run folder, made once per process.

    Raises:
        RewardFileError: as `load_function`.
    """
    with _making:
        if folder not in _scorers:
            _scorers[folder] = Scorer(function_of(folder))
    return _scorers[folder]


def function_named(target: str) -> Callable[..., Any]:
    """The function `file.py` or `file.py:function` in the current folder.

    Raises:
        RewardFileError: there is no such file, or as `load_function`.
    """
    source, name = split_target(target, Path())
    if not Path(source).is_file():
        raise RewardFileError(f"no reward file {source!r} in {str(Path.cwd())!r}")
    return load_function(Path(source).resolve(), name)
