"""Wrap a user's reward function in OpenRLHF's `reward_func(queries, prompts, labels)` contract.

OpenRLHF executes this file inside every vLLM actor and calls `reward_func` from a thread pool with lists
of one element. It drops whatever the function raises, and a sample without a reward ends the run much
later with an unrelated message. So nothing is raised from here: an exception, a NaN or an infinity
scores 0.0, is counted in the metric `reward_error`, and stands in the sample's record.

The user's file defines either

* `reward(prompt, response, answer) -> float` (or another function, named `file.py:function`), where
  `prompt` is the text the model saw, `response` what it wrote without end-of-turn marks, and `answer`
  the JSON value of the problem file; or
* OpenRLHF's own `reward_func(queries, prompts, labels)`, where `labels` holds that answer.

Each scored sample adds one line to samples.<pid>.jsonl (samples.<host>-<pid>.jsonl on several hosts) in
the run folder: id, split, score, error, attempt, time. The update step is not known here.

    python3 reward_wrapper.py RUN_FOLDER

loads the user's file and scores one row of each file, so that a wrong signature is found before any
GPU is used.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import math
import os
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

SIMPLE_NAME = "reward"
OWN_NAME = "reward_func"
CONFIG_NAME = "reward_config.json"
# OpenRLHF decodes with special tokens: <|im_end|>, <|eot_id|>, </s>, <end_of_turn>; DeepSeek's have wide bars.
END_MARK = re.compile(r"(?:<[|\uff5c][^<>|\uff5c\s]{1,40}[|\uff5c]>|</s>|<eos>|<end_of_turn>)\Z")
TAIL_LENGTHS = (256, 64, 24)


class RewardFileError(Exception):
    """The user's reward file cannot be used; the message says why."""


class Scorer:
    """One user function, its records and its error count; safe to call from several threads.

    Args:
        function: the user's function.
        own_contract: whether it follows OpenRLHF's contract instead of (prompt, response, answer).
        records: appends one record; None keeps none.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        own_contract: bool,
        records: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.function = function
        self.own_contract = own_contract
        self.records = records

    def __call__(self, queries: list[str], prompts: list[str], labels: list[str]) -> dict[str, Any]:
        """Score one sample the way OpenRLHF asks for it: lists of one element in, one dict out."""
        if not len(queries) == len(prompts) == len(labels) == 1:
            raise ValueError(f"OpenRLHF 0.11.2 scores one sample per call; received {len(queries)}")
        label = json.loads(labels[0])
        response, matched = split_response(queries[0], prompts[0])
        error = None
        try:
            score = as_float(self.raw_score(queries[0], prompts[0], response, label["answer"]))
        except Exception as raised:
            score, error = 0.0, f"{type(raised).__name__}: {raised}"
            sys.stderr.write(f"reward_wrapper: problem {label['id']!r} scores 0.0: {traceback.format_exc()}")
        if self.records is not None:
            self.records({"id": label["id"], "split": label["split"], "score": score, "error": error})
        # Every sample has the same keys: OpenRLHF stacks them over the batch.
        extra = {"reward_error": float(error is not None), "prompt_unmatched": float(not matched)}
        return {"rewards": score, "scores": score, "extra_logs": extra}

    def raw_score(self, query: str, prompt: str, response: str, answer: Any) -> Any:
        """What the user's function returns, before any conversion."""
        if self.own_contract:
            result = self.function([query], [prompt], [answer])
            return result["rewards"] if isinstance(result, dict) else result
        return self.function(prompt, response, answer)


def split_response(query: str, prompt: str) -> tuple[str, bool]:
    """The response inside a decoded sequence, and whether the prompt was found in it.

    The decoded prompt can differ from the prompt: it is cut on the left when it is too long, and some
    tokenizers normalise text. Then the end of the prompt (its generation mark) is looked for, nearest to
    where it is expected.
    """
    if query.startswith(prompt):
        return without_end_marks(query[len(prompt) :]), True
    for length in TAIL_LENGTHS:
        tail = prompt[-length:]
        ends = [match.end() for match in re.finditer(re.escape(tail), query)] if tail else []
        if ends:
            end = min(ends, key=lambda position: abs(position - len(prompt)))
            return without_end_marks(query[end:]), True
    return without_end_marks(query[len(prompt) :] if len(query) > len(prompt) else query), False


def without_end_marks(text: str) -> str:
    """`text` without the end-of-turn tokens that decoding leaves at its end."""
    while True:
        trimmed = text.rstrip()
        # Only the last characters are searched: a response can be a long run of blanks.
        mark = END_MARK.search(trimmed[-64:])
        if mark is None:
            return text
        text = trimmed[: len(trimmed) - len(mark.group())]


def as_float(value: Any) -> float:
    """A finite Python float from a number, a 0-d or one-element tensor, or a list of one.

    OpenRLHF needs exactly this type: an int becomes an integer tensor, a list one axis too many.
    """
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("the reward function is asynchronous; accepted: a plain function")
    if isinstance(value, (list, tuple)) and len(value) == 1:
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


class SampleRecords:
    """Append-only JSON lines, one file per process; a line is never mixed with another."""

    def __init__(self, folder: Path, attempt: int, several_hosts: bool) -> None:
        self.folder = folder
        self.attempt = attempt
        self.prefix = f"{socket.gethostname()}-" if several_hosts else ""
        self.lock = threading.Lock()
        self.started: set[Path] = set()
        self.failed = False

    def __call__(self, record: dict[str, Any]) -> None:
        """Append one record. A full disk is reported once and does not stop training."""
        line = json.dumps({**record, "attempt": self.attempt, "time": time.time()}) + "\n"
        path = self.folder / f"samples.{self.prefix}{os.getpid()}.jsonl"
        try:
            with self.lock, path.open("a+b") as file:
                if path not in self.started and cut_off(file):
                    line = "\n" + line
                file.write(line.encode("utf-8"))
                self.started.add(path)
        except OSError as error:
            if not self.failed:
                sys.stderr.write(f"reward_wrapper: sample records are being lost: {error}\n")
            self.failed = True


def cut_off(file: BinaryIO) -> bool:
    """Whether an earlier process with this number was stopped in the middle of a line."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def load_function(path: Path, name: str | None) -> tuple[Callable[..., Any], bool]:
    """The user's function and whether it follows OpenRLHF's own contract.

    Raises:
        RewardFileError: the file does not run, the function is missing or takes other arguments.
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
    except Exception as error:
        raise RewardFileError(f"{path.name} does not run: {type(error).__name__}: {error}") from error
    names = [name] if name is not None else [SIMPLE_NAME, OWN_NAME]
    found = next((candidate for candidate in names if callable(getattr(module, candidate, None))), None)
    if found is None:
        defined = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
        raise RewardFileError(
            f"{path.name} defines no {' or '.join(names)}; its functions are {', '.join(defined) or 'none'}. Define "
            "reward(prompt, response, answer), or name another function as file.py:function"
        )
    function = getattr(module, found)
    check_signature(path, found, function)
    return function, found == OWN_NAME


def check_signature(path: Path, name: str, function: Callable[..., Any]) -> None:
    """Refuse a function that three positional arguments do not fit."""
    wanted = "(queries, prompts, labels)" if name == OWN_NAME else "(prompt, response, answer)"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in and compiled functions state no signature
        return
    try:
        signature.bind("", "", "")
    except TypeError as error:
        raise RewardFileError(f"{path.name}: {name}{signature} cannot be called with {wanted}: {error}") from error


def scorer_for(folder: Path, keep_records: bool) -> Scorer:
    """The scorer that `reward_config.json` in the run folder describes."""
    config = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    function, own_contract = load_function(Path(config["file"]), config["function"])
    records = SampleRecords(Path(config["samples_folder"]), config["attempt"], config["several_hosts"])
    return Scorer(function, own_contract, records if keep_records else None)


_installing = threading.Lock()
_installed: list[Scorer] = []


def installed() -> Scorer:
    """The scorer of the run folder this file lies in, made once per process."""
    with _installing:
        if not _installed:
            _installed.append(scorer_for(Path(__file__).resolve().parent, keep_records=True))
    return _installed[0]


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict[str, Any]:
    """OpenRLHF's entry point: score one sample."""
    return installed()(queries, prompts, labels)


def check(folder: Path) -> None:
    """Score the first row of each file with the right answer and with nothing as the response.

    Raises:
        RewardFileError: the function cannot be loaded, or fails on both.
    """
    scorer = scorer_for(folder, keep_records=False)
    for name in ("train_rows.jsonl", "evaluation_rows.jsonl"):
        with (folder / name).open(encoding="utf-8") as lines:
            row = json.loads(next(lines))
        prompt = row["input"] if isinstance(row["input"], str) else row["input"][-1]["content"]
        label = json.loads(row["label"])
        errors: list[str] = []
        for response in (str(label["answer"]), ""):
            try:
                as_float(scorer.raw_score(prompt + response, prompt, response, label["answer"]))
            except Exception:
                errors.append(traceback.format_exc())
        if len(errors) == 2:
            raise RewardFileError(
                f"the reward function fails on problem {label['id']!r}, whether the response is its answer or "
                f"empty; every sample would score 0.0. {errors[0]}"
            )


def main(argv: list[str]) -> int:
    """Check the reward function of a prepared run folder; 0 on success, 2 where it cannot be used."""
    if len(argv) != 1:
        sys.stderr.write("usage: reward_wrapper.py RUN_FOLDER\n")
        return 2
    try:
        check(Path(argv[0]))
    except RewardFileError as error:
        sys.stderr.write(f"reward_wrapper: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
if __name__ == OWN_NAME:
    # The name under which OpenRLHF executes this file: a broken reward file stops the run here, at its
    # start, instead of scoring every sample 0.0.
    installed()
