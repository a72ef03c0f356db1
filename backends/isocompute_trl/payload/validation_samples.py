"""Rewards of validation responses, and avg@k, best@k and worst@k of one evaluation.

Each process appends to a file of its own, samples/<step>.<attempt>.<process>.jsonl, one response a line: problem,
score, error. An evaluation is read back from the files of its step and attempt.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

FOLDER = "samples"


def write(folder: Path, step: int, attempt: int, records: list[dict[str, Any]]) -> None:
    """Append the responses that this process scored in one pass."""
    (folder / FOLDER).mkdir(exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    with (folder / FOLDER / f"{step}.{attempt}.{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(lines)


def read(folder: Path, step: int, attempt: int) -> dict[str, list[float]]:
    """Rewards of one evaluation, problem -> samples, from the files of all processes."""
    scores: dict[str, list[float]] = {}
    for path in sorted((folder / FOLDER).glob(f"{step}.{attempt}.*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            scores.setdefault(record["problem"], []).append(record["score"])
    return scores


def metrics(scores: dict[str, list[float]], samples: int) -> dict[str, float]:
    """avg@k, best@k and worst@k for k = samples and the powers of two from 2 below, averaged over problems.

    Raises:
        RuntimeError: a problem has fewer than `samples` rewards.
    """
    # Padding of the last batch can repeat a problem; only its first samples count.
    groups = [sorted(group[:samples]) for group in scores.values()]
    if not groups or any(len(group) < samples for group in groups):
        raise RuntimeError(f"an evaluation holds fewer than {samples} rewards of some problems")
    found: dict[str, float] = {}
    for k in sorted({2**i for i in range(1, 16) if 2**i < samples} | {samples}):
        found[f"avg@{k}"] = math.fsum(map(math.fsum, groups)) / (samples * len(groups))
        found[f"best@{k}"] = math.fsum(best(group, k) for group in groups) / len(groups)
        found[f"worst@{k}"] = -math.fsum(best([-score for score in reversed(group)], k) for group in groups) / len(
            groups
        )
    return found


def best(ascending: list[float], k: int) -> float:
    """Expected largest of k values drawn without replacement: value i is it in C(i, k - 1) of C(N, k) draws."""
    terms = (value * math.comb(i, k - 1) for i, value in enumerate(ascending))
    return math.fsum(terms) / math.comb(len(ascending), k)
