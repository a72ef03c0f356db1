"""Reward of problems drawn by reasoning-gym: its own scorer, from 0 to 1. Needs the package reasoning-gym.

Of the response only what follows the last `</think>` counts, if there is one, and of that the last text between
`<answer>` and `</answer>`, or all of it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

NAME, SETTINGS = "chain_sum", {}


@cache
def task() -> Any:
    """The generator, which scores too."""
    return import_module("reasoning_gym").create_dataset(NAME, **SETTINGS)


def reward(prompt: str, response: str, answer: dict[str, Any]) -> float:
    """The scorer's number for the response; `answer` is the entry that the generator drew."""
    said = response.rpartition("</think>")[2]
    marked = re.findall(r"<answer>(.*?)</answer>", said, re.DOTALL)
    return float(task().score_answer((marked[-1] if marked else said).strip(), answer))
