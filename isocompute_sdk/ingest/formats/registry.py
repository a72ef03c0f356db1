"""Log formats by name: each a `LogFormat` that a package registers in the entry-point group `isocompute.log_formats`.

Recognising a log asks every format; one that cannot be loaded keeps no other from being asked, and is named in a note
on what was read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.formats.log_format import METRICS, PLAIN_NAMES, TRAIN_SET, LogFormat, Meaning, RunLog
from isocompute_sdk.notes import Note
from isocompute_sdk.plugins import Plugins
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET, folded
from isocompute_sdk.records.reward_metrics import OTHER, rank

GROUP = "isocompute.log_formats"
"""Entry-point group that formats register in."""
_FORMATS = Plugins(GROUP, "log format", RecordError)


def available() -> tuple[str, ...]:
    """Names of all registered formats, sorted; none of them is imported."""
    return _FORMATS.names()


def load(name: str) -> LogFormat:
    """Import the format that is registered as `name`.

    Raises:
        RecordError: nothing or more than one thing is registered under that name, its import fails (the cause is
            chained), or it is no `LogFormat` of that name.
    """
    candidate, origin = _FORMATS.load(name)
    if not isinstance(candidate, LogFormat) or candidate.name != name:
        received = f"a format named {candidate.name!r}" if isinstance(candidate, LogFormat) else repr(candidate)[:60]
        raise RecordError(
            f"{origin} is registered as log format {name!r} but is {received}",
            "Register an isocompute_sdk.ingest.LogFormat under its own name.",
        )
    return candidate


def journal_of(path: Path) -> LogFormat | None:
    """The format whose journal a file is; None for any other file."""
    return next((one for one in journals() if one.journal is not None and one.journal.holds(path)), None)


def journals() -> tuple[LogFormat, ...]:
    """Formats whose logs need no translation."""
    return tuple(one for one in formats() if one.journal is not None)


def formats() -> tuple[LogFormat, ...]:
    """Every format that can be loaded, by name."""
    return _loaded(tuple(sys.path))[0]


def broken() -> tuple[Note, ...]:
    """One warning for each format that cannot be loaded; its logs are not recognised."""
    return tuple(
        Note("log-format-broken", "warning", f"{error.message}. {error.hint}", {"format": name})
        for name, error in _loaded(tuple(sys.path))[1].items()
    )


def format_of(tags: Iterable[str]) -> LogFormat | None:
    """The format whose signature the tags bear; None if they bear none or several."""
    every = list(tags)
    found = [one for one in formats() if one.writes(every)]
    return found[0] if len(found) == 1 else None


def recognised(log: RunLog) -> RunLog:
    """The log with the format of its framework, by the tags if nothing else says it."""
    return log if log.framework is not None else replace(log, framework=format_of(log.tags))


@lru_cache(maxsize=8192)
def _metric_of(name: str, path: tuple[str, ...]) -> str | None:
    """Our name of a metric of updates that a table has under another name; None for any other metric."""
    plain = folded(name)
    if plain in METRICS or plain in PLAIN_NAMES:
        return PLAIN_NAMES.get(plain, plain)
    for one in _loaded(path)[0]:
        found: Meaning | None = one.meanings([name]).get(name)
        if found is not None and found.eval_set == TRAIN_SET:
            return found.metric
    return None


def read_as(tag: str, frameworks: Iterable[str | None]) -> str | None:
    """The metric that a tag of one of these frameworks is read as; None for a tag that they do not know."""
    wanted = {*frameworks}
    meanings = (one.meanings([tag]).get(tag) for one in formats() if one.name in wanted)
    return next((meaning.metric for meaning in meanings if meaning is not None), None)


def names_of(metric: str, names: Iterable[str]) -> list[str]:
    """Those of the names under which a table may hold a metric of updates: ours first, then plain ones and tags."""
    every, path = list(names), tuple(sys.path)
    return [name for name in every if name == metric] + [
        name for name in every if name not in METRICS and _metric_of(name, path) == metric
    ]


def unknown(names: Iterable[str]) -> list[str]:
    """Those of the names that are no metric of updates, and do not say that they are a reward."""
    path = tuple(sys.path)
    unsaid = [name for name in names if rank(name.removesuffix(":bootstrap"), DEFAULT_EVAL_SET) in (None, OTHER)]
    return [name for name in unsaid if name not in METRICS and _metric_of(name, path) is None]


@lru_cache(maxsize=4)
def _loaded(path: tuple[str, ...]) -> tuple[tuple[LogFormat, ...], dict[str, RecordError]]:
    """What is installed on a search path: formats, and why others cannot be loaded."""
    found: list[LogFormat] = []
    failed: dict[str, RecordError] = {}
    for name in available():
        try:
            found.append(load(name))
        except RecordError as error:
            failed[name] = error
    return tuple(found), failed
