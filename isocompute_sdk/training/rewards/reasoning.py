"""Reward of problems drawn by reasoning-gym: its own scorer, from 0 to 1. Needs the package reasoning-gym.

Of the response only what follows the last `</think>` counts, if there is one, and of that the last text between
`<answer>` and `</answer>`, or all of it.
"""

from __future__ import annotations

import re
from typing import Any

import reasoning_gym  # pyright: ignore[reportMissingImports]

NAME, SETTINGS = "chain_sum", {}
TASK = reasoning_gym.create_dataset(NAME, **SETTINGS)


def reward(prompt: str, response: str, answer: dict[str, Any]) -> float:
    """The scorer's number for the response; `answer` is the entry that the generator drew."""
    said = response.rpartition("</think>")[2]
    marked = re.findall(r"<answer>(.*?)</answer>", said, re.DOTALL)
    return float(TASK.score_answer((marked[-1] if marked else said).strip(), answer))
