"""OpenRLHF's lines on the console, as a fallback for events that never reached the disk.

Each update prints `Global step N: {...}` and each evaluation `Evaluation completed in ..., global_step N,
eval_metrics: {...}`, with a Python dict that may hold nan, behind whatever Ray and the logger put in front. The
values are the ones that go to TensorBoard, with all their digits (trainer/ppo_trainer.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

STEP_LINE = re.compile(r"Global step (\d+): \{(.*)\}\s*$")
EVALUATION_LINE = re.compile(r"Evaluation completed in .*, global_step (\d+), eval_metrics: \{(.*)\}\s*$")
# A number may stand inside its type, such as np.float64(0.5).
PAIR = re.compile(r"'([^']+)': (?:[\w.]+\()?(-?(?:nan|inf|\d[\d.]*(?:e[-+]?\d+)?))")

Steps = dict[int, dict[str, float]]
"""Update step -> name -> value."""


@dataclass(frozen=True)
class Logged:
    """What one attempt of a run logged, under OpenRLHF's names without `train/` and `eval/`."""

    train: Steps = field(default_factory=dict[int, dict[str, float]])
    """What each update measured."""
    evaluation: Steps = field(default_factory=dict[int, dict[str, float]])
    """What each evaluation measured."""

    def filled_from(self, other: Logged) -> Logged:
        """These steps, and those of `other` that are not here."""
        return Logged({**other.train, **self.train}, {**other.evaluation, **self.evaluation})


def read_console(path: Path) -> list[Logged]:
    """What a captured console says, one entry per attempt: where the steps begin anew, another attempt began."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return parse_console(lines)


def parse_console(lines: Iterable[str]) -> list[Logged]:
    """As `read_console`, for lines in memory."""
    attempts: list[Logged] = []
    last = 0
    for line in lines:
        if "lobal" not in line:
            continue
        step = STEP_LINE.search(line)
        if step is not None:
            if not attempts or int(step[1]) <= last:
                attempts.append(Logged())
            last = int(step[1])
            attempts[-1].train[last] = _values(step[2])
            continue
        evaluation = EVALUATION_LINE.search(line)
        if evaluation is not None:
            if not attempts:
                attempts.append(Logged())
            attempts[-1].evaluation[int(evaluation[1])] = _values(evaluation[2])
    return attempts


def _values(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in PAIR.findall(text)}
