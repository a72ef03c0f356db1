"""Reward of mathematical problems: 1 if the response ends in the answer, else 0. Needs the package math-verify.

Both are read and compared as mathematics by math-verify, so that 1/2, 0.5 and \\frac{1}{2} are equal. Of the response
only what follows the last `</think>` counts, if it has one; of the answer what follows `####`, as in GSM8K.
"""

from __future__ import annotations

from typing import Any

from math_verify import parse, verify

UNLIMITED: Any = None
"""math-verify's own time limits need the main thread, and rewards are called from others. The built-in runner has one
for each call."""


def reward(prompt: str, response: str, answer: Any) -> float:
    """1.0 if the response's final answer equals `answer`, else 0.0."""
    right = str(answer).rpartition("####")[2].strip()
    expected = parse(right, parsing_timeout=UNLIMITED) or parse(f"${right}$", parsing_timeout=UNLIMITED)
    given = parse(response.rpartition("</think>")[2], parsing_timeout=UNLIMITED)
    return float(verify(expected, given, timeout_seconds=UNLIMITED))
