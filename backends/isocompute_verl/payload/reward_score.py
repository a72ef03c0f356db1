"""The user's reward function as veRL's `compute_score`; it never raises, and failures are counted in reward_error.

veRL loads this file in its reward workers and calls it for one response at a time, possibly from several threads. An
exception there would end the run. veRL reports `acc` as its core validation metric.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
if str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))

import reward_calls  # noqa: E402 (found only in the run folder, which veRL does not put on the path)


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> dict[str, float]:
    """Score one response: `solution_str` without special tokens against the answer of the problem file."""
    info = extra_info or {}
    scorer, answer = reward_calls.scorer_of(FOLDER), json.loads(ground_truth)
    score, error = scorer(str(info.get("question", "")), solution_str, answer, str(info.get("index")))
    return {"score": score, "acc": score, "reward_error": float(error is not None)}
