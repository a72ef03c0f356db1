"""`read_logs`: read what is readable, and name the files and columns that are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.log_runs import FoundLogs, LogRequest, find_all_logs
from isocompute_sdk.ingest.log_runs import read_logs as read_found
from isocompute_sdk.ingest.paths import Listing, closed_tables, find_files, label
from isocompute_sdk.ingest.reader import UnknownName
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import canonical


def read_logs(
    paths: Sequence[str | PathLike[str]], metric: str | None = None, **options: Any
) -> tuple[RunSet, dict[str, str]]:
    """Every run that can be read, and why the rest cannot.

    Text columns that are not context and unreadable files are left out. A truncated last line is dropped: its run may
    still be training.

    Args:
        paths: files, folders or globs.
        metric: metric that a column `reward` holds.
        **options: options of `RunSet.read`.

    Returns:
        The runs, and reasons by column or file.

    Raises:
        RecordError: nothing can be read.
    """
    found = find_all_logs([Listing.of(path) for path in paths], "auto")
    logs, left = _framework_logs(found, metric, options)
    if not found.tables:
        if logs is None:
            raise RecordError(
                f"no run can be read: {next(iter(left.values()), 'received no path')}",
                "`isocompute doctor PATH --output map.yaml` asks for what the logs do not say.",
            )
        return logs, left
    tables, without = _tables(found.tables, metric, options)
    return (tables if logs is None else logs.concat(tables)), {**left, **without}


def _framework_logs(
    found: FoundLogs, metric: str | None, options: Mapping[str, Any]
) -> tuple[RunSet | None, dict[str, str]]:
    """Runs that frameworks logged, and why the rest cannot be read."""
    shared = {name: options[name] for name in ("eval_set", "ignore", "rename", "step_unit") if name in options}
    named = {
        name: value
        for name, value in options.items()
        if name != "set" and name not in shared and canonical(name) is not None
    }
    constants = {**options.get("set", {}), **named}
    request = LogRequest(**shared, constants=constants, metric=metric)
    left = {file: "beside logs of frameworks" for note in found.notes for file in note.data["files"]}
    if not found.sources:
        return None, left
    unreadable: dict[str, RecordError] = {}
    try:
        runs = read_found(found.sources, request, unreadable)
    except RecordError:
        runs = None
    left |= {str(found.sources[name].folder): " ".join(str(error).split()) for name, error in unreadable.items()}
    return runs, left


def _tables(
    listings: Sequence[Listing], metric: str | None, options: Mapping[str, Any]
) -> tuple[RunSet, dict[str, str]]:
    """Runs of tables and journals, and a reason for every column or file that is left out."""
    files = list(dict.fromkeys(file for one in listings for file in find_files(one, "auto")))
    closed = [file for one in listings for file in closed_tables(one)]
    left = {str(file): "an archive, a spreadsheet, or compressed other than with gzip" for file in closed}
    try:
        return _read(files, metric, options, left), left
    except RecordError as error:
        if len(files) == 1 or isinstance(error, UnknownName):
            raise
        first = error
    options = {**options, "partly": True}
    good: dict[Path, RunSet] = {}
    for file in files:
        try:
            good[file] = _read([file], metric, options, left)
        except RecordError as error:
            left[str(file)] = " ".join(str(error).removeprefix(f"{file}: ").split())
    if not good:
        raise first
    try:
        return _read(list(good), metric, options, left), left
    except RecordError:
        return _told_apart(good), left


def _told_apart(tables: Mapping[Path, RunSet]) -> RunSet:
    """Give runs of one name in contradicting files different names, taken from their files."""
    import polars as pl

    seen = Counter(run for table in tables.values() for run in table.run_ids)
    heads = _heads(list(tables))
    named: list[RunSet] = []
    for file, table in tables.items():
        names = {run: f"{heads[file]}/{run}" for run in table.run_ids if seen[run] > 1}
        named.append(RunSet(table.to_polars().with_columns(pl.col("run_id").replace(names))))
    return named[0].concat(*named[1:])


def _heads(files: Sequence[Path]) -> dict[Path, str]:
    """Short name of each file: the folder below the common one if that is unique, else the whole label."""
    labels = {file: label(file, files) for file in files}
    heads = {file: text.partition("/")[0] for file, text in labels.items()}
    tails = Counter((heads[file], file.parent.name, file.name) for file in files)
    return {
        file: heads[file] if tails[heads[file], file.parent.name, file.name] == 1 else labels[file] for file in files
    }


def _read(files: Sequence[Path], metric: str | None, options: Mapping[str, Any], left: dict[str, str]) -> RunSet:
    """Read, leaving out unreadable columns one by one."""
    ignore = list(options.get("ignore", ()))
    rest = {name: value for name, value in options.items() if name != "ignore"}
    while True:
        try:
            runs = RunSet.read(files, metric=metric, ignore=ignore, on_truncated="drop", **rest)
            dropped = [name for note in runs.notes if note.code == "columns-left-out" for name in note.data["columns"]]
            left |= {f"column {name}": "text, and not a known column" for name in dropped}
            return runs
        except RecordError as error:
            if error.column is None or error.column in ignore:
                raise
            ignore.append(error.column)
            left[f"column {error.column}"] = (
                "a setting that never changes within a run, or not numbers; not a known column"
            )
