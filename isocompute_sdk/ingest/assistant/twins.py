"""One run in several logs: of two loggers, such as veRL's file log and its TensorBoard folder, or saved twice.

It would count twice. A log of few rows, or an earlier copy of a log, is recognised by all its values; a longer one by
its first evaluations or rewards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.finding.paths import SUFFIXES
from isocompute_sdk.ingest.formats.log_format import LOOKS_LIKE_EVALUATION, TRAIN_REWARD, TRAIN_SET
from isocompute_sdk.ingest.stores import trainer_state
from isocompute_sdk.ingest.stores.packed import unpacked
from isocompute_sdk.records.copies import MIN_CHANGES, Curves, shared_changes

LEAST_VALUES = 4
"""First values of an evaluation that have to be the same, not all of them equal, for two logs to be one run."""
Configuration = tuple[Any, Any]
"""n and B_p, None if unknown."""
_Fingerprint = tuple[str, str, bytes, bytes]
_NO_MEASUREMENT = re.compile(r"training/.*(step|epoch)|.*(lr|learning_rate|epoch|runtime|per_second|total_flos)", re.I)


def twins(logs: Mapping[str, RunLog], sizes: Mapping[str, Configuration]) -> dict[str, str]:
    """Run -> the run that it repeats: the same values at the same steps, and no other n or B_p.

    Of such logs the one with more attempts, then with more steps, then with more tags, is the one that stands for all.
    """
    order = sorted(logs, key=lambda name: (-len(logs[name].attempts), -_last(logs[name]), -len(logs[name].tags)))
    place = {name: i for i, name in enumerate(order)}
    found: dict[str, str] = {}
    measured = _Measured(logs)
    pairs = {tuple(sorted(pair, key=place.__getitem__)) for pair in (*_alike(logs), *_copies(measured))}
    for kept, name in sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]])):
        # A run of its own may agree with several, but not with two of one logger.
        stands_for = [other for other, of in found.items() if of == kept]
        taken = any(
            logs[other].format == logs[name].format and not _whole(measured, other, name) for other in stands_for
        )
        if kept not in found and name not in found and not taken and _agree(sizes[kept], sizes[name]):
            found[name] = kept
    return found


def undecided(logs: Mapping[str, RunLog], copies: Mapping[str, str]) -> tuple[str, str] | None:
    """Two logs of one name by different loggers that hold too little to tell whether they are one run."""
    measured, rest = _Measured(logs), [name for name in logs if name not in copies]
    for one, other in combinations(rest, 2):
        named = one.rpartition("/")[2] == other.rpartition("/")[2]
        if named and logs[one].format != logs[other].format and _whole(measured, one, other, least=0):
            return one, other
    return None


def _last(log: RunLog) -> float:
    return max((extent.last for extent in log.extents), default=0.0)


def _alike(logs: Mapping[str, RunLog]) -> Iterator[tuple[str, str]]:
    """Runs of different loggers with the same first evaluations."""
    alike: dict[_Fingerprint, list[str]] = {}
    for name, log in logs.items():
        for fingerprint in _fingerprints(log):
            alike.setdefault(fingerprint, []).append(name)
    for names in alike.values():
        yield from (pair for pair in combinations(names, 2) if logs[pair[0]].format != logs[pair[1]].format)


def _copies(measured: _Measured) -> Iterator[tuple[str, str]]:
    """Runs of which one holds all values of the other, as an earlier checkpoint or a copy does."""
    alike: dict[tuple[str, float, float], list[str]] = {}
    for name in measured.logs if len(measured.logs) > 1 else ():
        for tag, curve in measured[name].items():
            if len(curve):
                alike.setdefault((tag, curve[0, 0], float(np.float32(curve[0, 1]))), []).append(name)
    pairs = {pair for names in alike.values() for pair in combinations(sorted(names), 2)}
    yield from (pair for pair in pairs if _whole(measured, *pair))


def _whole(measured: _Measured, one: str, other: str, least: int = MIN_CHANGES) -> bool:
    """Whether all values that both could have are the same, `least` or more of them not those of a constant."""
    logs, mine, theirs = measured.logs, measured[one], measured[other]
    common = mine.keys() & theirs.keys()
    saved = logs[one].format == trainer_state.STORE.name and len(common) == min(len(mine), len(theirs))
    exported = all(unpacked(logs[name].source).suffix in SUFFIXES for name in (one, other))
    if logs[one].format == logs[other].format and not (saved or exported):
        # A state is saved again and again, a history exported; other logs of one kind are of different starts.
        return False
    shared = shared_changes(mine, theirs)
    return bool(common) and shared is not None and shared >= least


class _Measured(dict[str, Curves]):
    """Run -> what it measured, by names that loggers share: without `train/`, and with `eval_` before evaluations."""

    def __init__(self, logs: Mapping[str, RunLog]) -> None:
        super().__init__()
        self.logs = logs

    def __missing__(self, run: str) -> Curves:
        log = self.logs[run]
        names = {tag: re.sub(r"^train/", "", re.sub(r"^eval/", "eval_", tag)) for tag in log.tags}
        series = {name: log.series(tag) for tag, name in names.items() if not _NO_MEASUREMENT.fullmatch(name)}
        self[run] = {
            name: np.column_stack((one.step_T, one.value_T)).astype(np.float64) for name, one in series.items()
        }
        return self[run]


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
