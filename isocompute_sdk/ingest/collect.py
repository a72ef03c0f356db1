"""Everything readable at or below some paths, file by file: `collect`, the mapping that it gives, a mapping read.

What cannot be read becomes an entry, not an error. The doctor starts here too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import IsoComputeError, RecordError, did_you_mean
from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.copies import once, same_runs
from isocompute_sdk.ingest.find import (
    REQUEST,
    NoRewardLearning,
    belongs_to_journal,
    has_journal,
    is_run_folder,
    run_folder_of,
)
from isocompute_sdk.ingest.formats.registry import broken
from isocompute_sdk.ingest.log_runs import LoadedRun, add_log, find_all_logs
from isocompute_sdk.ingest.log_table import tabulate
from isocompute_sdk.ingest.mapping import RunMap, draft
from isocompute_sdk.ingest.paths import (
    Listing,
    as_paths,
    holds_journals,
    is_log,
    json_tables,
    label,
    readable,
    tables_among,
)
from isocompute_sdk.ingest.reader import read, refuse_unknown_names
from isocompute_sdk.ingest.stores.saved_config import find_config
from isocompute_sdk.ingest.wandb_tables import logs_of_file
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import Options, canonical
from isocompute_sdk.records.runset import join
from isocompute_sdk.records.table import build

MAY_HOLD = (".json", ".log", ".out", ".txt")
"""Endings of files that may hold measurements and are read only if they are known for a log, or named."""


@dataclass
class Collection:
    """What was found."""

    told: dict[str, Any]
    """What was said about all runs: `metric`, `rename`, `ignore` and `set`."""
    logs: dict[str, LoadedRun] = field(default_factory=dict[str, LoadedRun])
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

    def attempt(self, path: Path, look: Callable[[], None]) -> None:
        """Read something, or take down why it cannot be read."""
        try:
            look()
        except IsoComputeError as error:
            self.unreadable[path] = error
        except OSError as error:
            self.unreadable[path] = RecordError(f"{path} cannot be read: {error.strerror}", "Check its permissions.")

    def mapping(self, searched: Sequence[str | os.PathLike[str]]) -> RunMap:
        """The mapping of all runs that do not say everything themselves."""
        given = {canonical(name) or name: value for name, value in self.told["set"].items()}
        same = same_runs(self.logs, dict.fromkeys(self.logs, given))
        return draft(same.runs, same.copies, searched, self.told)


def collect(paths: Sequence[str | os.PathLike[str]], told: Mapping[str, Any]) -> Collection:
    """Read all that lies at or below `paths`: files, folders or globs.

    Args:
        paths: what to read.
        told: `metric`, `rename`, `ignore` and `set`, as in `read`.

    Raises:
        RecordError: a path names nothing, or what was said about is in none of the files.
    """
    found = Collection(dict(told))
    with readable():
        listings = [Listing.of(path) for path in paths]
        for listing in listings:
            _below(found, listing)
    tables = list(found.tables.items())
    frames, copies = once([runs.to_polars() for _, runs in tables])
    found.copies = [(tables[i][0], tables[i][1].filter(run_id=run), of) for (i, run), (_, of) in copies.items()]
    parts = zip(tables, frames, strict=True)
    found.tables = {path: RunSet(frame, runs.notes) for (path, runs), frame in parts if not frame.is_empty()}
    if not (found.logs or found.tables or found.unreadable):
        endings = Counter(file.suffix or file.name for listing in listings for file in listing.files)
        shown = ", ".join(f"{count} {ending}" for ending, count in endings.most_common(10))
        raise RecordError(
            f"nothing to read at or below {', '.join(map(str, paths))}; not looked at: {shown or 'no files'}",
            "Give files, folders or globs that hold logs, CSV, Parquet or JSONL; name a file to see why it is none.",
        )
    if found.columns or found.logs:
        tags = dict.fromkeys(tag for one in found.logs.values() for tag in one.log.tags)
        refuse_unknown_names([*told["rename"], *told["ignore"]], [*found.columns, *tags])
    return found


def _below(found: Collection, listing: Listing) -> None:
    for folder in listing.locked:
        found.unreadable[folder] = RecordError(f"no permission to read {folder}", "Check its permissions.")
    journals = holds_journals(listing)
    if journals:
        found.attempt(listing.path, lambda: _table(found, listing.path))
    logs = find_all_logs([listing], "auto", mixed=True).sources
    for name, source in logs.items():
        # The journal of a run says all that the logs beside it say.
        if not (journals and belongs_to_journal(source.paths[0], source.root)):
            found.attempt(
                source.paths[0], lambda name=name, source=source: add_log(found.logs, name, LoadedRun(*source.read()))
            )
    inside = {source.folder for source in logs.values()}
    for folder in (file.parent for file in listing.files if file.name == REQUEST):
        if is_run_folder(folder) and folder not in inside and not has_journal(folder):
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
        if file.suffix in MAY_HOLD and file not in taken and inside.isdisjoint(file.parents):
            found.unread[file.suffix] += 1
    stems = Counter(file.stem for file in tables)
    for file in tables:
        # Of many files `metrics.csv` the folders tell the runs apart.
        name = label(file, tables) if stems[file.stem] > 1 else file.stem
        found.attempt(file, lambda file=file, name=name: _file(found, file, name))


def _tables(listing: Listing) -> list[Path]:
    """Files that may be tables: of a folder those with the ending of one, and whatever was named itself."""
    tables: list[Path] = []
    for root, files in listing.below.items():
        if root.is_dir():
            free = [file for file in tables_among(files) if run_folder_of(file.parent, root) is None]
            tables += [file for file in free if not belongs_to_journal(file, root)]
        elif not is_log(root):
            tables.append(root)
    return tables


def _table(found: Collection, path: Path) -> None:
    found.tables[path] = read(path, **found.told, partly=True, seen=found.columns)


def _file(found: Collection, path: Path, name: str) -> None:
    """A table, or the logs in it; a log without a name of its own is called `name`."""
    try:
        _table(found, path)
    except RecordError as error:
        # What options would mend is asked about as it is.
        if error.options and not any(option.startswith("--set") for option in error.options):
            raise
        try:
            logs = logs_of_file(path, found.told["rename"], found.told["ignore"])
        except NoRewardLearning:
            raise
        except RecordError:
            raise error from None
        if any(_says_sizes(log) for log in logs):
            raise
        for log in logs:
            own = name if log.name == path.stem else log.name
            add_log(found.logs, own, LoadedRun(log, find_config(path.parent, path.parent)))


def _says_sizes(log: RunLog) -> bool:
    """Whether a log has the columns of a table that says n and B_p: what is wrong with the table is wrong with it."""
    steps = {step for tag in log.tags for step in log.series(tag).step_T.tolist()}
    counted = log.rollouts is not None and steps <= set(log.rollouts.step_T.tolist())
    return "group_size" in log.said and (counted or "problems_per_batch" in log.said)


def propose(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    relative_to: str | os.PathLike[str] = ".",
    *,
    metric: str | None = None,
    rename: Mapping[str, str] | None = None,
    ignore: Sequence[str] = (),
    set: Mapping[str, Any] | None = None,
) -> RunMap:
    """One mapping for all runs at or below `paths` that do not say everything themselves.

    Args:
        paths: files, folders or globs.
        relative_to: folder that the mapping will be saved in; its paths are relative to it.
        metric: what a column `reward` of a table holds.
        rename: name in the files -> name to use.
        ignore: columns and tags to leave out.
        set: column -> value for all runs.

    Raises:
        RecordError: there is nothing to read.
    """
    every = as_paths(paths)
    told = {"metric": metric, "rename": dict(rename or {}), "ignore": tuple(ignore), "set": dict(set or {})}
    return collect(every, told).mapping([os.path.relpath(path, relative_to) for path in every])


def read_mapped(path: str | os.PathLike[str], mapping: RunMap | None = None) -> RunSet:
    """Read every run of a mapping, and the tables beside them.

    Args:
        path: the mapping's file; what it searched is relative to its folder.
        mapping: its contents, if already loaded.

    Raises:
        RecordError: a question is open, the mapping is not confirmed, a run of it is gone, a file cannot be read.
    """
    mapping = RunMap.load(path) if mapping is None else mapping
    readings = mapping.readings(str(path))
    found = collect([Path(path).parent / searched for searched in mapping.searched], told_of(mapping))
    notes: list[Note] = [*broken()]
    tables: dict[str, Any] = {}
    for name, reading in readings.items():
        if name not in found.logs:
            raise RecordError(
                f"{path}: run {name!r} is not there; found: {', '.join(found.logs) or 'none'}",
                f"{did_you_mean(name, list(found.logs))}Propose the mapping again, or write `skip: true` in its entry.",
            )
        table = tabulate(found.logs[name].log, reading)
        tables[name] = build(table.frame, Options())[0]
        notes += table.notes
    for file, error in found.unreadable.items():
        notes.append(Note("file-unreadable", "warning", f"not read: {error}", {"file": str(file)}))
    strangers = [name for name in found.logs if name not in mapping.runs]
    if strangers:
        message = f"runs that the mapping does not know were left out: {', '.join(strangers)}. Propose it again."
        notes.append(Note("run-not-in-mapping", "warning", message, {"runs": strangers}))
    for file, runs in found.tables.items():
        tables[str(file)] = runs.to_polars()
        notes += runs.notes
    try:
        return RunSet(join([*tables.values()], [*tables], "error"), notes)
    except RecordError as error:
        hint = f"{path} searches {', '.join(mapping.searched)}: write into `searched` only what is to be read."
        raise RecordError(error.message, f"{error.hint} {hint}" if error.hint else hint) from error


def told_of(mapping: RunMap) -> dict[str, Any]:
    """What a mapping says about all runs, as `collect` takes it."""
    return {"metric": mapping.metric, "rename": mapping.rename, "ignore": mapping.ignore, "set": mapping.set}
