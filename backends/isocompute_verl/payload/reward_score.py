"""The user's reward function as veRL's `compute_score`; it never raises, and failures are counted in reward_error.

veRL loads this file in its reward workers and calls it for one response at a time, possibly from several threads. An
exception there would end the run. veRL reports `acc` as its core validation metric.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
if str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))

import reward_calls  # noqa: E402 (found only in the run folder, which veRL does not put on the path)

_making = threading.Lock()
_scorers: list[reward_calls.Scorer] = []


def scorer() -> reward_calls.Scorer:
    """The scorer of the run folder this file lies in, made once per process."""
    with _making:
        if not _scorers:
            _scorers.append(reward_calls.Scorer(reward_calls.function_of(FOLDER)))
    return _scorers[0]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> dict[str, float]:
    """Score one response: `solution_str` without special tokens against the answer of the problem file."""
    info = extra_info or {}
    score, error = scorer()(
        str(info.get("question", "")), solution_str, json.loads(ground_truth), str(info.get("index"))
    )
    return {"score": score, "acc": score, "reward_error": float(error is not None)}
