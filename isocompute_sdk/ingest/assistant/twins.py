"""One run in the logs of two loggers, such as veRL's file log and its TensorBoard folder: it would count twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.formats.log_format import LOOKS_LIKE_EVALUATION, TRAIN_REWARD, TRAIN_SET

LEAST_VALUES = 4
"""First values of an evaluation that have to be the same, not all of them equal, for two logs to be one run."""
Configuration = tuple[Any, Any]
"""n and B_p, None if unknown."""
_Fingerprint = tuple[str, str, bytes, bytes]


def twins(logs: Mapping[str, RunLog], sizes: Mapping[str, Configuration]) -> dict[str, str]:
    """Run -> the run that it repeats: another format, the same first evaluations value for value, no other n or B_p.

    Of two such logs the one with more attempts, then with more tags, is the one that stands for both.
    """
    alike: dict[_Fingerprint, list[str]] = {}
    for name, log in logs.items():
        for fingerprint in _fingerprints(log):
            alike.setdefault(fingerprint, []).append(name)
    found: dict[str, str] = {}
    for names in alike.values():
        ranked = sorted(names, key=lambda name: (-len(logs[name].attempts), -len(logs[name].tags)))
        for i, name in enumerate(ranked):
            for kept in ranked[:i]:
                apart = logs[kept].format == logs[name].format or not _agree(sizes[kept], sizes[name])
                if not apart and kept not in found and kept not in found.values():
                    found.setdefault(name, kept)
    return found


def told(kept: str) -> str:
    """What is wrong with a run that repeats the run `kept`, for people."""
    return f"its first evaluations are those of {kept!r}, value for value: one run in two logs"


def _agree(one: Configuration, other: Configuration) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _fingerprints(log: RunLog) -> list[_Fingerprint]:
    """The beginnings of its evaluations and of its training reward."""
    known = log.meanings()
    measured = {
        tag: (m.metric, m.eval_set) for tag, m in known.items() if m.eval_set != TRAIN_SET or m.metric == TRAIN_REWARD
    }
    if not measured:
        measured = {tag: (tag, "") for tag in log.tags if LOOKS_LIKE_EVALUATION.fullmatch(tag)}
    found: list[_Fingerprint] = []
    for tag, (metric, eval_set) in measured.items():
        series = log.series(tag)
        step_T = np.asarray(series.step_T[:LEAST_VALUES], dtype=np.float64)
        # TensorBoard keeps single precision, other logs every digit.
        value_T = series.value_T[:LEAST_VALUES].astype(np.float32)
        if len(value_T) == LEAST_VALUES and len(np.unique(value_T)) > 1:
            found.append((metric, eval_set, step_T.tobytes(), value_T.tobytes()))
    return found
