"""`read`: files or a table in, one `RunSet` out.

Two ways lead there: tables, which say themselves what n and B_p were, and logs of frameworks, which do not and take it
from arguments or from the configuration that was saved beside them.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.ingest.finding.paths import (
    as_paths,
    closed_note,
    closed_tables,
    find_files,
    format_of,
    holds_journals,
    is_path,
    label,
    readable,
    refuse_locked,
)
from isocompute_sdk.ingest.finding.walking import Listing
from isocompute_sdk.ingest.formats.log_format import StepUnit
from isocompute_sdk.ingest.formats.registry import journals
from isocompute_sdk.ingest.log_runs import LogRequest, find_all_logs, logs_beside_journals, read_logs
from isocompute_sdk.ingest.stores.packed import unpacked
from isocompute_sdk.ingest.tables.csv import read_csv
from isocompute_sdk.ingest.tables.jsonl import columns_of, read_jsonl
from isocompute_sdk.ingest.tables.parquet import read_parquet
from isocompute_sdk.ingest.tables.raw import OnTruncated, RawTable
from isocompute_sdk.ingest.tables.wandb_csv import (
    INTERNAL,
    SEPARATOR,
    is_chart,
    looks_like_wandb,
    melt_chart,
    melt_history,
)
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.cells import Source, row_in_memory, to_series
from isocompute_sdk.records.columns import PER_RUN, canonical, check_fields
from isocompute_sdk.records.columns import fields as named_columns
from isocompute_sdk.records.copies import once, repeated
from isocompute_sdk.records.input_table import OnDuplicate, Options, as_mapping
from isocompute_sdk.records.table import build, join

if TYPE_CHECKING:
    import polars as pl


def read(
    source: object,
    format: str = "auto",
    *,
    metric: str | None = None,
    eval_set: str | None = None,
    on_duplicate: OnDuplicate = "error",
    on_truncated: OnTruncated = "error",
    ignore: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    runs: Mapping[str, Mapping[str, object]] | None = None,
    step_unit: StepUnit | None = None,
    set: Mapping[str, object] | None = None,
    without_sizes: bool = False,
    partly: bool = False,
    seen: dict[str, None] | None = None,
    **constants: object,
) -> RunSet:
    """Runs from files, folders or globs, or from a table in memory; with the names and guesses of the commands.

    Columns of text are left out of tables with a note; a column `reward` that `metric` does not name is the training
    reward if a trainer's quantities stand beside it, else an evaluation, with a warning; of values that are repeated
    and were not asked about the last counts. `RunSet.from_columns` takes nothing for granted.

    Logs of frameworks are read by their `LogFormat`: resumed runs are stitched, and rollouts counted as generated.
    Folders that a launch script filled say everything about their run; n, B_p and context of other logs come from
    `runs=`, from arguments, or from the configuration saved beside the log. In a folder with logs nothing else is read
    but captured consoles and dumped responses, which may know attempts that the log has lost, see `ingest.recovery`.

    In a table n and B_p may change from row to row of a run, see `records.size_changes`.

    Several files are read one by one and joined. A file without run ids gets its own, made of the file's
    name and the configuration (`sweep-a/n8-bp32-seed0`): files of different experiments never melt into one
    run.

    Args:
        source: file, folder or glob (text may be packed with gzip), or several of them; or a pandas or Polars frame,
            an Arrow table, a list of dicts such as a trainer's log history, or a mapping from column to values.
        format: `auto`, `csv`, `parquet`, `jsonl`, `wandb` (a CSV export of Weights & Biases), `isocompute`
            (metrics.jsonl of the built-in runner; of several such runs those without a measurement are left out),
            `tensorboard`, `verl` (its file log), `trl` (trainer_state.json) or the store of an installed log format.
        metric: name of what a column `reward` or `value` holds.
        eval_set: name of the evaluation set for all rows.
        on_duplicate: `"last"` lets a later row, or a later file, replace an evaluation.
        on_truncated: what to do with broken lines of CSV and JSONL, such as a last one that was cut off: `"error"`, or
            `"drop"` them and say so in `RunSet.notes`. Logs of frameworks, which are often read while they grow,
            always lose only what is broken, with a note.
        ignore: columns or tags to leave out.
        rename: name in the file -> name to use; in a W&B chart or a log, tag -> metric.
        runs: run id -> columns that hold for that run, e.g. `{"lively-sun-3": {"group_size": 8}}`. A chart
            exported from W&B needs it. In a log, n and B_p may change: `{"group_size": {0: 8, 100: 16}}` has 16 from
            the update after step 100 on.
        step_unit: what the steps of logs of unknown frameworks count, one of `formats.log_format.STEP_UNITS`.
        set: any column or context field -> one value for all rows.
        without_sizes: read runs whose n or B_p nothing says, with 1 in its place, so that rollouts are steps, and with
            the note `sizes-unknown`: for questions that need neither.
        partly: accept names in `rename` and `ignore` that are in no file, since another call reads the others.
        seen: takes down all names of columns and tags.
        **constants: the same as `set`, as arguments.

    Raises:
        RecordError: with file and line, wherever the content cannot be read or contradicts itself.
    """
    if on_truncated not in ("error", "drop"):
        raise RecordError(f"on_truncated: received {on_truncated!r}; accepted: 'error', 'drop'", "Use one of the two.")
    constants = {**(set or {}), **constants}
    described = _described(runs or {})
    request = _Request(format, on_truncated, tuple(ignore), dict(rename or {}), described, partly)
    options = Options(metric, eval_set, on_duplicate, constants=constants, lenient=True, without_sizes=without_sizes)
    if not is_path(source):
        return _read_tables([_in_memory(source, request)], request, options, {})
    paths = as_paths(source)
    found: list[RunSet] = []
    seen = {} if seen is None else seen
    with readable():
        listings = [Listing.of(one) for one in paths]
        refuse_locked(listings)
        logs, rest = find_all_logs(listings, format)
        if logs:
            of_logs = described if not rest else {name: told for name, told in described.items() if name in logs}
            wanted = LogRequest(
                eval_set, tuple(ignore), rename or {}, of_logs, step_unit, constants, without_sizes, metric
            )
            found.append(read_logs(logs, wanted, seen=seen))
            described = {name: told for name, told in described.items() if name not in of_logs}
            if not (rest or partly):
                refuse_unknown_names([*(rename or ()), *ignore], list(seen))
        if rest:
            request = replace(request, runs=described, paths=tuple(str(one.path) for one in rest))
            files = list(dict.fromkeys(file for one in rest for file in find_files(one, format)))
            tables = _read_tables([_load(file, request) for file in files], request, options, seen)
            left_out = [note for one in rest if format == "auto" for note in _left_out(one)]
            found.append(RunSet(tables.to_polars(), [*tables.notes, *left_out]))
    if len(found) == 1:
        return found[0]
    frames, copies = once([runs.to_polars() for runs in found])
    notes = [repeated(name, of) for (_, name), (_, of) in copies.items()]
    first, *rest_ = (RunSet(one, runs.notes) for one, runs in zip(frames, found, strict=True) if not one.is_empty())
    return RunSet(first.to_polars(), [*first.notes, *notes]).concat(*rest_, on_duplicate=on_duplicate)


class UnknownName(RecordError):
    """A column or tag to rename or ignore that is in no file."""


def refuse_unknown_names(names: Sequence[str], seen: Sequence[str]) -> None:
    """Raise on a name to rename or ignore that is in no file.

    Raises:
        UnknownName: naming it, what is there, and what is near it.
    """
    for name in names:
        if name not in seen:
            folded = {one.lower(): one for one in seen}
            near = [folded[one] for one in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
            raise UnknownName(
                f"no column or tag {name!r} to rename or ignore; there are: {', '.join(seen[:40])}",
                f"Near it: {', '.join(map(repr, near))}." if near else "Use a name of the files.",
            )


def _read_tables(loaded: Sequence[_Loaded], request: _Request, shared: Options, seen: dict[str, None]) -> RunSet:
    files = [file.path for file in loaded]
    seen |= {name: None for file in loaded for name in file.names}
    if not request.partly:
        refuse_unknown_names([*request.rename, *request.ignore], list(seen))
    _check_all_used(loaded, request)
    # A run that has only just begun has nothing to say yet, which must not keep the others from being read.
    loaded = [file for file in loaded if not file.begun] or loaded
    frames: list[pl.DataFrame] = []
    notes = [note for file in loaded for note in file.notes]
    for file in loaded:
        prefix = f"{label(file.path, files)}/" if len(files) > 1 else ""
        name = prefix.rstrip("/") or unpacked(file.path).stem
        options = replace(shared, ignore=file.ignore, rename=file.rename, run_prefix=prefix, run_name=name)
        try:
            frame, found = _build(file, options)
        except RecordError as error:
            if len(loaded) > 1 and any(option.startswith("--set group_size") for option in error.options):
                # One n for all files would be wrong for most of them.
                where = " ".join(map(quote, request.paths))
                asks = "Their names may say it, and the rest is asked"
                error.options = ()
                error.in_shell(f"{asks}: isocompute ingest {where} --propose map.yaml")
            raise
        frames.append(frame)
        notes += found
    frames, copies = once(_told_apart(frames, loaded))
    notes += [repeated(name, of) for (_, name), (_, of) in copies.items()]
    kept = {str(file.path): frame for frame, file in zip(frames, loaded, strict=True) if not frame.is_empty()}
    return RunSet(join([*kept.values()], [*kept], shared.on_duplicate), notes)


def _told_apart(frames: list[pl.DataFrame], loaded: Sequence[_Loaded]) -> list[pl.DataFrame]:
    """Frames with the folder in place of the name for runs of two studies that have one name; copies keep it."""
    import polars as pl

    places: dict[str, list[int]] = {}
    for i, (frame, file) in enumerate(zip(frames, loaded, strict=True)):
        if file.journal and frame.height:
            places.setdefault(frame["run_id"][0], []).append(i)
    for found in places.values():
        by_length = sorted((frames[i] for i in found), key=lambda frame: frame.height)
        copied = any(one.equals(two.head(one.height)) for one, two in itertools.combinations(by_length, 2))
        if len(found) == 1 or copied:
            continue
        folders = [loaded[i].path.absolute().parent for i in found]
        common = os.path.commonpath(folders)
        for i, folder in zip(found, folders, strict=True):
            frames[i] = frames[i].with_columns(run_id=pl.lit(folder.relative_to(common).as_posix()))
    return frames


def _left_out(listing: Listing) -> list[Note]:
    """That tables cannot be read, or that runs of frameworks lie beside those of the built-in runner."""
    if not holds_journals(listing):
        closed = closed_tables(listing)
        return [closed_note(listing.path, closed)] if closed else []
    others = logs_beside_journals(listing)
    if not others:
        return []
    names = ", ".join(source.name for source in others[:4])
    message = (
        f"{listing.path} is read through the journals of the built-in runner; {len(others)} logs of other runs, such "
        f"as {names}, were not looked at. Name their folders to read them."
    )
    return [Note("files-not-read", "info", message, {"files": [str(source.folder) for source in others[:20]]})]


@dataclass(frozen=True)
class _Request:
    """What was asked of every file."""

    format: str
    on_truncated: OnTruncated
    ignore: tuple[str, ...]
    rename: Mapping[str, str]
    runs: Mapping[str, Mapping[str, object]]
    partly: bool = False
    paths: tuple[str, ...] = ()
    """The paths of the tables, as they were given."""


@dataclass(frozen=True)
class _Loaded:
    """One file, and those of the requested names that it has."""

    path: Path
    names: tuple[str, ...]
    """Its columns, and the metrics of a chart."""
    table: RawTable
    run_ids: frozenset[str]
    """Runs of `runs=` that are in the file."""
    ignore: tuple[str, ...]
    rename: Mapping[str, str]
    journal: bool = False
    """True for a run of the built-in runner."""
    begun: bool = False
    """True for a run of the built-in runner that has not measured anything yet."""
    notes: tuple[Note, ...] = ()


def _load(path: Path, request: _Request) -> _Loaded:
    kind = format_of(path) if request.format == "auto" else request.format
    journal = next((one.journal for one in journals() if one.name == kind), None)
    if journal is not None:
        table = journal.read(path, request.on_truncated)
    elif kind == "jsonl":
        table = read_jsonl(path, request.on_truncated)
    elif kind == "parquet":
        table = read_parquet(path)
    else:
        table = read_csv(path, request.on_truncated)
    ours = journal is not None
    return _understood(path, table, kind, request, journal=ours, begun=ours and not table.columns["value"])


def _in_memory(source: object, request: _Request) -> _Loaded:
    """A table that somebody holds."""
    if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in cast("Sequence[object]", source)):
        source = columns_of(cast("Sequence[Mapping[str, Any]]", source))
    columns = {name: to_series(name, values) for name, values in as_mapping(source).items()}
    return _understood(Path("table"), RawTable(columns, row_in_memory), "csv", request)


def _understood(
    path: Path, table: RawTable, kind: str, request: _Request, *, journal: bool = False, begun: bool = False
) -> _Loaded:
    """A table with its tags in our names, where they are those of a framework or of W&B."""
    names, notes = list(table.columns), table.notes
    written = tuple(names)
    ignore = [name for name in request.ignore if name in names]
    rename = {name: new for name, new in request.rename.items() if name in names}
    wandb = kind == "wandb" or (kind == "csv" and request.format == "auto" and looks_like_wandb(names))
    if wandb and is_chart(names):
        table = melt_chart(path, table, request.runs, request.ignore, request.rename)
        written += tuple(name.rpartition(SEPARATOR)[2] for name in names)
        ignore, rename, notes = [], {}, table.notes
    elif wandb or kind in ("csv", "jsonl", "parquet"):
        melted = melt_history(path, table, ignore, rename, exported=wandb)
        if melted is not None:
            table, ignore, rename = melted, [], {}
        elif wandb:
            ignore += [name for name in INTERNAL if name in names and name not in ignore]
        notes = table.notes
    table, run_ids = _with_run_columns(path, table, request.runs, rename)
    return _Loaded(path, written, table, run_ids, tuple(ignore), rename, journal, begun, notes)


def _with_run_columns(
    path: Path, table: RawTable, runs: Mapping[str, Mapping[str, object]], rename: Mapping[str, str]
) -> tuple[RawTable, frozenset[str]]:
    """Add what `runs=` says about each run as columns."""
    if not runs:
        return table, frozenset()
    written = {rename.get(name, name): name for name in table.columns}
    names = {column: written[name] for name, column in named_columns(written).items()}
    if "run_id" not in names:
        raise RecordError(
            f"{path} has no column run_id to find the runs of runs= by; it has: {', '.join(table.columns)}",
            "Drop runs=, and give what holds for all rows as arguments, e.g. group_size=8.",
        )
    import polars as pl

    ids = to_series("run_id", table.columns[names["run_id"]]).cast(pl.String)
    present = frozenset[str](ids.unique().drop_nulls().to_list())
    strangers = sorted(present - set(runs))
    if strangers:
        raise RecordError(
            f"{path}: run {strangers[0]!r} is not in runs=; received runs: {', '.join(map(repr, runs))}",
            f"{did_you_mean(strangers[0], list(runs))}Describe every run of the file.",
        )
    told = dict.fromkeys(field for values in runs.values() for field in values)
    for field in told:
        if field in names:
            raise RecordError(f"{path}: {field} is given twice, in runs= and in the file", "Give it once.")
    order = sorted(present)
    index = ids.replace_strict(order, list(range(len(order))), default=None, return_dtype=pl.Int64)
    added = {field: to_series(field, [runs[run].get(field) for run in order]).gather(index) for field in told}
    return RawTable({**table.columns, **added}, table.locate), present


def _described(runs: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """What `runs=` says, with canonical column names."""
    described: dict[str, dict[str, object]] = {}
    for run, values in runs.items():
        fields = [canonical(field) or field for field in values]
        check_fields(fields, PER_RUN, f"field of run {run!r} in runs=")
        if len(set(fields)) < len(fields):
            raise RecordError(
                f"run {run!r} in runs=: received {', '.join(values)}; accepted: each column once", "Give it once."
            )
        described[run] = dict(zip(fields, values.values(), strict=True))
    return described


def _check_all_used(loaded: Sequence[_Loaded], request: _Request) -> None:
    """Refuse a run in `runs=` that no file has: its name is misspelt."""
    found = frozenset[str]().union(*(file.run_ids for file in loaded))
    for run in request.runs:
        if run not in found:
            raise RecordError(
                f"run {run!r} of runs= is in no file; the files have: {', '.join(sorted(found))}",
                f"{did_you_mean(run, sorted(found))}Remove it, or correct its name.",
            )


def _build(file: _Loaded, options: Options) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """One file as a canonical frame, and notes on its runs; every error names the file."""
    try:
        return build(file.table.columns, options, Source(file.table.locate))
    except RecordError as error:
        if str(file.path) in error.message:
            raise
        raise error.restated(f"{file.path}: {error.message}") from error
