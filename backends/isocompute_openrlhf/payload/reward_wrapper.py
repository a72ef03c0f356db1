"""Wrap a user's reward function in OpenRLHF's `reward_func(queries, prompts, labels)` contract.

OpenRLHF executes this file inside every vLLM actor and calls `reward_func` from a thread pool with lists of one
element. It ignores exceptions, and a sample without a reward ends the run much later with an unrelated message. This
wrapper therefore never raises: an exception, a NaN or an infinity scores 0.0 and is counted in the metric
`reward_error`.

The user's file defines `reward(prompt, response, answer) -> float` (or another function, named `file.py:function`):
`prompt` is the text the model saw, `response` what it wrote without end-of-turn marks, and `answer` the JSON value of
the problem file.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
if str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))

import reward_calls  # noqa: E402 (found only in the run folder, which OpenRLHF does not put on the path)

OWN_NAME = "reward_func"
# OpenRLHF decodes with special tokens: <|im_end|>, <|eot_id|>, </s>, <end_of_turn>; DeepSeek's have wide bars.
END_MARK = re.compile(r"(?:<[|\uff5c][^<>|\uff5c\s]{1,40}[|\uff5c]>|</s>|<eos>|<end_of_turn>)\Z")
TAIL_LENGTHS = (256, 64, 24)


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


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict[str, Any]:
    """OpenRLHF's entry point: score one sample the way it asks for it, lists of one element in and one dict out."""
    if not len(queries) == len(prompts) == len(labels) == 1:
        raise ValueError(f"OpenRLHF 0.11.2 scores one sample per call; received {len(queries)}")
    label = json.loads(labels[0])
    response, matched = split_response(queries[0], prompts[0])
    score, error = reward_calls.scorer_of(FOLDER)(prompts[0], response, label["answer"], label["id"])
    # Every sample has the same keys: OpenRLHF stacks them over the batch. It needs a float of Python: an int becomes
    # an integer tensor, a list one axis too many.
    extra = {"reward_error": float(error is not None), "prompt_unmatched": float(not matched)}
    return {"rewards": score, "scores": score, "extra_logs": extra}


if __name__ == OWN_NAME:
    # The name under which OpenRLHF executes this file: a broken reward file stops the run here, at its
    # start, instead of scoring every sample 0.0.
    reward_calls.scorer_of(FOLDER)
