"""Everything readable at or below some paths, file by file: what cannot be read becomes an entry, not an error.

`propose` and `doctor` start here, and so does a mapping when it is read: all three see the same runs by the same names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.finding.launched import MARKS, belongs_to_journal, belongs_to_run, has_journal, is_run_folder
from isocompute_sdk.ingest.finding.log_sources import LogSource, NoRewardLearning, is_log, with_generations
from isocompute_sdk.ingest.finding.paths import holds_journals, json_tables, label, readable, tables_among
from isocompute_sdk.ingest.finding.walking import Listing
from isocompute_sdk.ingest.log_runs import find_all_logs, stitched
from isocompute_sdk.ingest.reader import read, refuse_unknown_names
from isocompute_sdk.ingest.stores.packed import unpacked
from isocompute_sdk.ingest.stores.saved_config import SavedConfig, find_config
from isocompute_sdk.ingest.tables.table_logs import join_charts, logs_of_file
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.copies import once

MAY_HOLD = (".json", ".log", ".out", ".txt")
"""Endings of files that may hold measurements and are read only if they are known for a log, or named."""


@dataclass(frozen=True)
class CollectedLog:
    """A run whose log does not contain n and B_p itself."""

    log: RunLog
    config: SavedConfig | None


@dataclass(frozen=True)
class Told:
    """What was said about the columns of tables and logs; see `read`."""

    metric: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    ignore: Sequence[str] = ()
    set: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Collection:
    """What was found."""

    told: Told = field(default_factory=Told)
    """What was said about it."""

    logs: dict[str, CollectedLog] = field(default_factory=dict[str, CollectedLog])
    """Run -> its log."""
    tables: dict[Path, RunSet] = field(default_factory=dict[Path, RunSet])
    """Files, or folders of our own runs, that say everything themselves."""
    copies: list[tuple[Path, RunSet, str]] = field(default_factory=list[tuple[Path, RunSet, str]])
    """Runs of tables that repeat one of another table: file, run, name of the other one."""
    unreadable: dict[Path, IsoComputeError] = field(default_factory=dict[Path, IsoComputeError])
    columns: dict[str, None] = field(default_factory=dict[str, None])
    """Columns of the tables, as they are written."""
    unread: Counter[str] = field(default_factory=Counter[str])
    """Ending -> files that were not looked at and may hold measurements."""

    @property
    def not_looked_at(self) -> str:
        """What was not looked at, in words."""
        counts = ", ".join(f"{count} {ending}" for ending, count in self.unread.most_common())
        return f"not looked at: {counts}. Name them to try."


def collect(paths: Sequence[str | os.PathLike[str]], told: Told | None = None) -> Collection:
    """Read all that lies at or below `paths`: files, folders or globs.

    Args:
        paths: what to read.
        told: what was said about the columns.

    Raises:
        RecordError: a path names nothing, or what was said about is in none of the files.
    """
    found = Collection(told or Told())
    with readable():
        listings = [Listing.of(path) for path in paths]
        for listing in listings:
            _below(found, listing)
    logs = {name: one.log for name, one in found.logs.items()}
    gone = stitched(logs, {name: one.config for name, one in found.logs.items()})
    found.logs = {n: replace(one, log=logs[n]) for n, one in found.logs.items() if n not in gone}
    _once(found)
    if not (found.logs or found.tables or found.unreadable):
        endings = Counter(file.suffix or file.name for listing in listings for file in listing.files)
        shown = ", ".join(f"{count} {ending}" for ending, count in endings.most_common(10))
        raise RecordError(
            f"nothing to read at or below {', '.join(map(str, paths))}; not looked at: {shown or 'no files'}",
            "Give files, folders or globs that hold logs, CSV, Parquet or JSONL; name a file to see why it is none.",
        )
    _refuse_absent(found)
    return found


def _once(found: Collection) -> None:
    """Set aside runs of tables that repeat one of another table."""
    tables = list(found.tables.items())
    frames, copies = once([runs.to_polars() for _, runs in tables])
    found.copies = [(tables[i][0], tables[i][1].filter(run_id=run), of) for (i, run), (_, of) in copies.items()]
    parts = zip(tables, frames, strict=True)
    found.tables = {path: RunSet(frame, runs.notes) for (path, runs), frame in parts if not frame.is_empty()}


def _refuse_absent(found: Collection) -> None:
    """Raise on columns or tags to rename or ignore that are in no file that could be read."""
    named = [*found.told.rename, *found.told.ignore]
    if named and (found.columns or found.logs):
        tags = dict.fromkeys(tag for one in found.logs.values() for tag in one.log.tags)
        refuse_unknown_names(named, [*found.columns, *tags])


def _below(found: Collection, listing: Listing) -> None:
    for folder in listing.locked:
        found.unreadable[folder] = RecordError(f"no permission to read {folder}", "Check its permissions.")
    journals = holds_journals(listing)
    if journals:
        _attempt(found, listing.path, lambda: _table(found, listing.path))
    logs, _ = find_all_logs([listing], "auto", mixed=True)
    for name, source in logs.items():
        root = logs.roots[name]
        # The journal of a run says all that the logs beside it say.
        if journals and belongs_to_journal(source.paths[0], root):
            continue
        _attempt(
            found,
            source.paths[0],
            lambda name=name, source=source, root=root: _source(found, name, source, root),
        )
    inside = {source.folder for source in logs.values()}
    for folder in _run_folders(listing):
        if folder not in inside and not has_journal(folder):
            error = f"{folder}: a launch script made it, and there is no log to read yet"
            found.unreadable[folder] = RecordError(error, "Wait for its first update; its console says more.")
    # What lies in the folder of a run is its own: samples, problem sets, copies of its log.
    inside.discard(listing.path)
    tables = [file for file in (() if journals else _tables(listing)) if inside.isdisjoint(file.parents)]
    if not (tables or logs or journals):
        tables = json_tables(listing.files)
    taken = {*tables, *(path for source in logs.values() for path in source.paths)}
    taken |= {one.config.path for one in found.logs.values() if one.config is not None}
    for file in listing.files:
        if unpacked(file).suffix in MAY_HOLD and file not in taken and inside.isdisjoint(file.parents):
            found.unread[unpacked(file).suffix] += 1
    stems = Counter(unpacked(file).stem for file in tables)
    for file in tables:
        # Of many files `metrics.csv` the folders tell the runs apart.
        name = label(file, tables) if stems[unpacked(file).stem] > 1 else unpacked(file).stem
        _attempt(found, file, lambda file=file, name=name: _file(found, file, name))


def _tables(listing: Listing) -> list[Path]:
    """Files that may be tables: of a folder those with the ending of one, and whatever was named itself."""
    found: list[Path] = []
    for root, files in listing.below.items():
        if root.is_dir():
            found += [file for file in tables_among(files) if not belongs_to_run(file, root)]
        elif not is_log(root):
            found.append(root)
    return found


def _run_folders(listing: Listing) -> list[Path]:
    """Folders that launch scripts made."""
    files = (file for root, files in listing.below.items() if root.is_dir() for file in files)
    return [file.parent for file in files if file.name == MARKS[0] and is_run_folder(file.parent)]


def _attempt(found: Collection, path: Path, read: Callable[[], None]) -> None:
    try:
        read()
    except IsoComputeError as error:
        found.unreadable[path] = error
    except OSError as error:
        found.unreadable[path] = RecordError(f"{path} cannot be read: {error.strerror}", "Check its permissions.")


def _table(found: Collection, path: Path) -> None:
    told = found.told
    found.tables[path] = read(
        path,
        metric=told.metric,
        rename=told.rename,
        ignore=told.ignore,
        set=told.set,
        on_truncated="drop",
        partly=True,
        seen=found.columns,
    )


def _file(found: Collection, path: Path, name: str) -> None:
    """A table, or the logs in it; a log without a name of its own is called `name`."""
    try:
        _table(found, path)
    except RecordError as error:
        # What options would mend is asked about as it is.
        if error.options and not any(option.startswith("--set") for option in error.options):
            raise
        try:
            logs = logs_of_file(path, found.told.rename, found.told.ignore)
        except NoRewardLearning:
            raise
        except RecordError:
            raise error from None
        for log in logs:
            own = name if log.name == unpacked(path).stem else log.name
            _log(found, own, _with_reason(log, error), find_config(path.parent, path.parent))


def _with_reason(log: RunLog, error: RecordError) -> RunLog:
    """The log with a note on why it cannot be read as a table, if it has the columns of one."""
    steps = {step for tag in log.tags for step in log.series(tag).step_T.tolist()}
    counted = log.rollouts is not None and steps <= set(log.rollouts.step_T.tolist())
    if "group_size" not in log.said or not (counted or "problems_per_batch" in log.said):
        return log
    message = f"read as a log, since as a table it makes no sense: {error.message}"
    note = Note("table-read-as-log", "warning", message, {"run_id": log.name, "file": str(log.source)})
    return replace(log, notes=(*log.notes, note))


def _source(found: Collection, name: str, source: LogSource, root: Path) -> None:
    log = source.read()
    config = source.configuration(log, root)
    _log(found, name, with_generations(log, config), config)


def _log(found: Collection, name: str, log: RunLog, config: SavedConfig | None) -> None:
    if name in found.logs and (joined := join_charts(found.logs[name].log, log)) is not None:
        found.logs[name] = CollectedLog(joined, found.logs[name].config or config)
        return
    if name in found.logs:
        name = f"{unpacked(log.source).stem}/{name}"
    while name in found.logs:
        name += "'"
    found.logs[name] = CollectedLog(log if log.name == name else replace(log, name=name), config)
