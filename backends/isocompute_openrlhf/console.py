"""OpenRLHF's lines on the console, as a fallback for events that never reached the disk.

Each update prints `Global step N: {...}` and each evaluation `Evaluation completed in ..., global_step N,
eval_metrics: {...}`, with a Python dict that may hold nan, behind whatever Ray and the logger put in front. The
values are the ones that go to TensorBoard, with all their digits (trainer/ppo_trainer.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from isocompute_sdk.progress import Progress, last_lines, latest

CONSOLE = re.compile(r"console\.(\d+)\.log")
"""Files that supervise.py writes, one per attempt."""
STEP_LINE = re.compile(r"Global step (\d+): \{(.*)\}\s*$")
EVALUATION_LINE = re.compile(r"Evaluation completed in .*, global_step (\d+), eval_metrics: \{(.*)\}\s*$")
# A number may stand inside its type, such as np.float64(0.5).
PAIR = re.compile(r"'([^']+)': (?:[\w.]+\()?(-?(?:nan|inf|\d[\d.]*(?:e[-+]?\d+)?))")

Steps = dict[int, dict[str, float]]
"""Update step -> name -> value."""
TRAIN_REWARD = "rollout/reward_mean"
PASSES = re.compile(r"eval_validation_pass(\d+)")
"""Means of one sample (pass1) and of the best of k, over the validation problems."""


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


def consoles(folder: Path) -> dict[int, Path]:
    """Attempt -> what it printed."""
    return {int(match[1]): path for path in folder.glob("console.*.log") if (match := CONSOLE.fullmatch(path.name))}


def progress_of(folder: Path) -> Progress | None:
    """How far a run is, from the last lines of its consoles; events can only be read from their beginning."""
    files = [path for _, path in sorted(consoles(folder).items(), reverse=True)]
    return latest(
        part for path in files for line in last_lines(path) if b"lobal" in line if (part := _progress(line)) is not None
    )


def _progress(line: bytes) -> Progress | None:
    """What one line says; None where it is none of the two that tell."""
    text = line.decode(errors="replace")
    step, evaluation = STEP_LINE.search(text), EVALUATION_LINE.search(text)
    if step is not None:
        return Progress(int(step[1]), train_reward=_finite(step[2]).get(TRAIN_REWARD))
    if evaluation is None:
        return None
    values = _finite(evaluation[2])
    counts = [int(match[1]) for name in values if (match := PASSES.fullmatch(name))]
    metrics = {f"avg@{max(counts)}": values["eval_validation_pass1"]} if 1 in counts else {}
    return Progress(int(evaluation[1]), metrics=metrics)


def _finite(text: str) -> dict[str, float]:
    return {name: value for name, value in _values(text).items() if math.isfinite(value)}


def _values(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in PAIR.findall(text)}
