"""One run in several logs: of two loggers, or of checkpoints that are prefixes of each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.stores import trainer_state
from isocompute_sdk.ingest.tables import TABLE_SUFFIXES, unpacked
from isocompute_sdk.records.run_ids import MIN_CHANGES, Curves, shared_changes

if TYPE_CHECKING:
    from isocompute_sdk.ingest.log_runs import LoadedRun

_NO_MEASUREMENT = re.compile(r"training/.*(step|epoch)|.*(lr|learning_rate|epoch|runtime|per_second|total_flos)", re.I)


@dataclass(frozen=True)
class SameRuns:
    """Runs that several logs hold."""

    runs: dict[str, LoadedRun]
    """Every run, with a configuration that one of several copies has for the one that stands for all."""
    copies: dict[str, str]
    """Run -> the run that it repeats."""
    undecided: tuple[str, str] | None
    """Two logs of one name by different loggers that hold too little to tell whether they are one run."""


def same_runs(runs: Mapping[str, LoadedRun], given: Mapping[str, Mapping[str, Any]]) -> SameRuns:
    """Which runs repeat another one: the same values at the same steps, as far as both go, and no other n or B_p.

    Of several logs the one with more attempts, then with more steps, then with more tags stands for all.

    Args:
        runs: every run.
        given: run -> what a person said of it.
    """
    known = dict(runs)
    order = sorted(
        runs, key=lambda name: (-len(runs[name].log.attempts), -_last(runs[name].log), -len(runs[name].log.tags))
    )
    copies: dict[str, str] = {}
    undecided: tuple[str, str] | None = None
    measured = {name: _curves(runs[name].log) for name in order} if len(runs) > 1 else {}
    for kept, name in combinations(order, 2):
        if kept in copies or name in copies:
            continue
        shared = _shared(runs[kept].log, runs[name].log, measured[kept], measured[name])
        mine, theirs = (_sizes(known[one], given[one]) for one in (kept, name))
        if shared is None or any(None not in (a, b) and a != b for a, b in zip(mine, theirs, strict=True)):
            continue
        if shared >= MIN_CHANGES:
            copies[name] = kept
            if None in mine and None not in theirs:
                known[kept] = replace(known[kept], config=known[name].config)
        elif kept.rpartition("/")[2] == name.rpartition("/")[2] and runs[kept].log.format != runs[name].log.format:
            undecided = kept, name
    return SameRuns(known, copies, undecided)


def _sizes(run: LoadedRun, given: Mapping[str, Any]) -> tuple[Any, Any]:
    fields = {} if run.config is None else {key: said.value for key, said in run.config.fields.items()}
    values = {**fields, **run.log.said, **given}
    return values.get("group_size"), values.get("problems_per_batch")


def _last(log: RunLog) -> float:
    return max((extent.last for extent in log.extents), default=0.0)


def _shared(kept: RunLog, log: RunLog, mine: Curves, theirs: Curves) -> int | None:
    """Different values that both have, none of them another one; None where they differ or may not be one run."""
    common = mine.keys() & theirs.keys()
    if kept.format == log.format:
        # A state is saved again and again, a history exported; other logs of one kind are of different starts.
        saved = kept.format == trainer_state.STORE.name and len(common) == min(len(mine), len(theirs))
        if not saved and not all(unpacked(one.source).suffix in TABLE_SUFFIXES for one in (kept, log)):
            return None
    return shared_changes(mine, theirs) if common else None


def _curves(log: RunLog) -> Curves:
    """What a run measured, by names that loggers share: without `train/`, and with `eval_` before evaluations."""
    names = {tag: re.sub(r"^train/", "", re.sub(r"^eval/", "eval_", tag)) for tag in log.tags}
    series = {name: log.series(tag) for tag, name in names.items() if not _NO_MEASUREMENT.fullmatch(name)}
    return {name: np.column_stack((one.step_T, one.value_T)).astype(np.float64) for name, one in series.items()}
