"""`read`: files or a table in, one `RunSet` out.

Two ways lead there: tables, which say themselves what n and B_p were, and logs, which do not and take it from arguments
or from the configuration that was saved beside them. The suffix of a file decides first: for a plain table nothing that
knows logs is loaded.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.paths import (
    TABLE_FORMATS,
    Listing,
    Losses,
    as_paths,
    closed_note,
    closed_tables,
    find_files,
    format_of,
    holds_journals,
    is_path,
    label,
    may_be_log,
    readable,
    refuse_locked,
    refuse_unknown_names,
)
from isocompute_sdk.ingest.tables import RawTable, columns_of, read_table
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import (
    PER_RUN,
    SAYS_ITSELF,
    OnDuplicate,
    Options,
    Source,
    canonical,
    check_fields,
    row_in_memory,
    to_series,
)
from isocompute_sdk.records.runset import join
from isocompute_sdk.records.table import as_mapping, build

if TYPE_CHECKING:
    import polars as pl

    from isocompute_sdk.ingest.formats.log_format import StepUnit
    from isocompute_sdk.ingest.log_runs import FoundLogs
NOT_MEASURED = "a setting that never changes within a run, or not numbers"
"""Why an audit leaves a column out, which other readers refuse unless told to ignore it."""


def read(
    source: object,
    format: str = "auto",
    *,
    metric: str | None = None,
    eval_set: str | None = None,
    on_duplicate: OnDuplicate = "error",
    ignore: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    runs: Mapping[str, Mapping[str, object]] | None = None,
    step_unit: StepUnit | None = None,
    set: Mapping[str, object] | None = None,
    without_sizes: bool = False,
    partly: bool = False,
    seen: dict[str, None] | None = None,
    left_out: dict[str, str] | None = None,
    **constants: object,
) -> RunSet:
    """Runs from files, folders or globs, or from a table in memory; with the names and guesses of the commands.

    Lines that are broken, such as a last one that was cut off, are left out with a note in `RunSet.notes`.

    Columns of text are left out of tables with a note; a column `reward` that `metric` does not name is the training
    reward if a trainer's quantities stand beside it, else an evaluation, with a warning; of values that are repeated
    and were not asked about the last counts. `RunSet.from_columns` takes nothing for granted.

    Logs of frameworks are read by their `LogFormat`: resumed runs are stitched, and rollouts counted as generated.
    Folders that a launch script filled say everything about their run; n, B_p and context of other logs come from
    `runs=`, from arguments, or from the configuration saved beside the log. In a folder with logs nothing else is read.

    Several files are read one by one and joined. A file without run ids gets its own, made of the file's
    name and the configuration (`sweep-a/n8-bp32-seed0`): files of different experiments never melt into one
    run.

    Args:
        source: file, folder or glob, or several of them; or a pandas or Polars frame,
            an Arrow table, a list of dicts such as a trainer's log history, or a mapping from column to values.
        format: `auto`, `csv`, `parquet`, `jsonl`, `wandb` (a CSV export of Weights & Biases), `isocompute`
            (metrics.jsonl of the built-in runner; of several such runs those without a measurement are left out),
            `tensorboard`, `verl` (its file log), `trl` (trainer_state.json) or the store of an installed log format.
        metric: name of what a column `reward` or `value` holds.
        eval_set: name of the evaluation set for all rows.
        on_duplicate: `"last"` lets a later row, or a later file, replace an evaluation.
        ignore: columns or tags to leave out.
        rename: name in the file -> name to use; in a W&B chart or a log, tag -> metric.
        runs: run id -> columns that hold for that run, e.g. `{"lively-sun-3": {"group_size": 8}}`. A chart
            exported from W&B needs it.
        step_unit: what the steps of logs of unknown frameworks count, one of `formats.log_format.STEP_UNITS`.
        set: any column or context field -> one value for all rows.
        without_sizes: read runs whose n or B_p nothing says, with 1 in its place, so that rollouts are steps, and with
            the note `sizes-unknown`: for questions that need neither.
        partly: accept names in `rename` and `ignore` that are in no file, since another call reads the others.
        seen: takes down all names of columns and tags.
        left_out: takes down, by column, file or folder, why it cannot be read, which then keeps no other from being
            read; runs of one name in files that contradict each other get names of their files.
        **constants: the same as `set`, as arguments.

    Raises:
        RecordError: with file and line, wherever the content cannot be read or contradicts itself.
    """
    seen = {} if seen is None else seen
    asked = Options(
        metric,
        eval_set,
        on_duplicate,
        tuple(ignore),
        dict(rename or {}),
        {**(set or {}), **constants},
        lenient=True,
        without_sizes=without_sizes,
        runs=_described(runs or {}),
        step_unit=step_unit,
    )
    losses, found, rest = Losses(left_out), None, list[Listing]()
    tables: list[_Table] = []
    parts: list[RunSet] = []
    with readable():
        if is_path(source):
            listings = [Listing.of(path) for path in as_paths(source)]
            refuse_locked(listings)
            found = _logs_among(listings, format)
            rest = listings if found is None else [*found.tables]
            for file in dict.fromkeys(file for one in rest for file in find_files(one, format)):
                try:
                    tables.append(_load(file, format, asked))
                except RecordError as error:
                    losses.take(file, error)
        else:
            tables.append(_in_memory(source, asked))
        charts = [one for one in tables if one.as_log]
        tables = [one for one in tables if not one.as_log]
        if charts or (found is not None and found.sources):
            try:
                parts.append(_read_logs(found, charts, asked, seen, losses))
            except RecordError as error:
                if left_out is None:
                    raise
                losses.take("logs", error)
            if not (tables or partly):
                refuse_unknown_names([*asked.rename, *asked.ignore], list(seen))
        if tables:
            seen |= {name: None for file in tables for name in file.names}
            if not partly:
                refuse_unknown_names([*asked.rename, *asked.ignore], list(seen))
            read = _read_tables(tables, asked, losses, [str(one.path) for one in rest])
            notes = [note for one in rest if format == "auto" for note in _left_out(one)]
            parts.append(RunSet(read.to_polars(), [*notes, *read.notes]) if notes else read)
        if not parts:
            none = RecordError(f"nothing to read in {source}", "Give files, folders or globs with runs.")
            raise next(iter(losses.errors), none)
    if left_out is not None:
        unread = [note for one in parts for note in one.notes if note.code == "files-not-read"]
        left_out |= {file: note.message for note in unread for file in note.data["files"]}
    return parts[0] if len(parts) == 1 else _joined(parts, on_duplicate)


def _joined(parts: Sequence[RunSet], on_duplicate: OnDuplicate) -> RunSet:
    """Logs and tables as one; a run that is in both counts once."""
    from isocompute_sdk.ingest.copies import once, repeated

    frames, copies = once([part.to_polars() for part in parts])
    notes = [repeated(name, of) for (_, name), (_, of) in copies.items()]
    first, *more = (RunSet(one, part.notes) for one, part in zip(frames, parts, strict=True) if not one.is_empty())
    return RunSet(first.to_polars(), [*first.notes, *notes]).concat(*more, on_duplicate=on_duplicate)


def _logs_among(listings: Sequence[Listing], format: str) -> FoundLogs | None:
    """The logs in what was named; None if every file is a table by its suffix, or a format of tables was asked for."""
    if format in TABLE_FORMATS and format != "auto":
        return None
    if format == "auto" and not any(map(may_be_log, (file for one in listings for file in one.files))):
        return None
    from isocompute_sdk.ingest.log_runs import find_all_logs

    return find_all_logs(listings, format)


def _read_logs(
    found: FoundLogs | None, charts: Sequence[_Table], asked: Options, seen: dict[str, None], losses: Losses
) -> RunSet:
    """Logs, and tables that are read as logs: charts, and those in a framework's words."""
    from isocompute_sdk.ingest.copies import LoadedRun
    from isocompute_sdk.ingest.log_runs import add_log, load_logs, read_loaded
    from isocompute_sdk.ingest.stores.saved_config import find_config
    from isocompute_sdk.ingest.wandb_tables import SEPARATOR, logs_of_table, refuse_several

    runs: dict[str, LoadedRun] = {} if found is None else load_logs(found.sources, losses)
    for chart in charts:
        try:
            logs = logs_of_table(chart.path, chart.table, asked.rename, asked.ignore, list(asked.runs))
            for log in logs:
                refuse_several(log)
        except RecordError as error:
            losses.take(chart.path, error)
            continue
        held = chart.table.locate is row_in_memory
        config = None if held else find_config(chart.path.parent, chart.path.parent)
        for log in logs:
            add_log(runs, log.name, LoadedRun(log, config))
        seen |= dict.fromkeys((*chart.names, *(name.rpartition(SEPARATOR)[2] for name in chart.names)))
    seen |= dict.fromkeys(tag for run in runs.values() for tag in run.log.tags)
    read = read_loaded(runs, asked, losses)
    return read if found is None else RunSet(read.to_polars(), [*found.notes, *read.notes])


@dataclass(frozen=True)
class _Table:
    """One file, and those of the requested names that it has."""

    path: Path
    names: tuple[str, ...]
    """Its columns."""
    table: RawTable
    ignore: tuple[str, ...]
    rename: Mapping[str, str]
    journal: bool = False
    """True for a run of the built-in runner."""
    as_log: bool = False
    """True for a chart of W&B, or if `runs=` says what its runs are."""


def _load(path: Path, format: str, asked: Options) -> _Table:
    kind = format_of(path) if format == "auto" else format
    if kind not in TABLE_FORMATS:
        from isocompute_sdk.ingest.formats.registry import load

        journal = load(kind).journal
        assert journal is not None
        return _understood(path, journal.read(path), asked, journal=True)
    return _understood(path, read_table(path, kind), asked)


def _in_memory(source: object, asked: Options) -> _Table:
    """A table that somebody holds."""
    if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in cast("Sequence[object]", source)):
        source = columns_of(cast("Sequence[Mapping[str, Any]]", source))
    columns = {name: to_series(name, values) for name, values in as_mapping(source).items()}
    return _understood(Path("table"), RawTable(columns, row_in_memory), asked)


def _understood(path: Path, table: RawTable, asked: Options, *, journal: bool = False) -> _Table:
    """A table, and whether it is read as a log: its names are those of a framework or of W&B, or `runs=` is given."""
    names = tuple(table.columns)
    ignore = tuple(name for name in asked.ignore if name in names)
    rename = {name: new for name, new in asked.rename.items() if name in names}
    found = _Table(path, names, table, ignore, rename, journal)
    if asked.runs and not journal:
        return replace(found, as_log=True)
    plain = (canonical(name) or name in rename or name in ignore or SAYS_ITSELF.fullmatch(name) for name in names)
    if journal or all(plain):
        return found
    from isocompute_sdk.ingest import wandb_tables

    if wandb_tables.is_log(names, ignore, rename):
        return replace(found, as_log=True)
    internal = (name for name in wandb_tables.INTERNAL if name in names and name not in ignore)
    return replace(found, ignore=(*ignore, *internal))


def _read_tables(loaded: Sequence[_Table], asked: Options, losses: Losses, paths: Sequence[str]) -> RunSet:
    """The rows of tables; `paths` are those that were named."""
    files = [file.path for file in loaded]
    # A run that has only just begun has nothing to say yet, which must not keep the others from being read.
    loaded = [file for file in loaded if not (file.journal and not file.table.columns["value"])] or loaded
    frames: list[pl.DataFrame] = []
    notes = [note for file in loaded for note in file.table.notes]
    read: list[_Table] = []
    for file in loaded:
        prefix = f"{label(file.path, files)}/" if len(files) > 1 else ""
        name = prefix.rstrip("/") or file.path.stem
        options = replace(asked, ignore=file.ignore, rename=file.rename, run_prefix=prefix, run_name=name)
        try:
            frame, told = _build(file, options, losses.left_out)
        except RecordError as error:
            if len(loaded) > 1 and any(option.startswith("--set group_size") for option in error.options):
                # One n for all files would be wrong for most of them.
                where = " ".join(map(quote, paths))
                error.options = ()
                error.in_shell(f"The files may differ: isocompute doctor {where} --output map.yaml asks for each.")
            if str(file.path) not in error.message:
                error = error.restated(f"{file.path}: {error.message}")
            losses.take(file.path, error)
            continue
        frames.append(frame)
        read.append(file)
        notes += told
    if not frames:
        raise losses.errors[0]
    if len(frames) > 1:
        from isocompute_sdk.ingest.copies import once, repeated

        frames, copies = once(_told_apart(frames, read))
        notes += [repeated(name, of) for (_, name), (_, of) in copies.items()]
    kept = {str(file.path): frame for frame, file in zip(frames, read, strict=True) if not frame.is_empty()}
    try:
        return RunSet(join([*kept.values()], [*kept], asked.on_duplicate), notes)
    except RecordError:
        if losses.left_out is None:
            raise
        return RunSet(join(_named_by_file(kept), [*kept], asked.on_duplicate), notes)


def _build(file: _Table, options: Options, left_out: dict[str, str] | None) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """The rows of a table; with `left_out` without the columns that cannot be read, one by one."""
    while True:
        try:
            frame, notes = build(file.table.columns, options, Source(file.table.locate))
        except RecordError as error:
            if left_out is None or error.column is None or error.column in options.ignore:
                raise
            left_out[f"column {error.column}"] = NOT_MEASURED
            options = replace(options, ignore=(*options.ignore, error.column))
            continue
        if left_out is not None:
            texts = [name for note in notes if note.code == "columns-left-out" for name in note.data["columns"]]
            left_out |= {f"column {name}": "text, and not a known column" for name in texts}
        return frame, notes


def _named_by_file(tables: Mapping[str, pl.DataFrame]) -> list[pl.DataFrame]:
    """Tables with their file's name before the names of runs that several of them have."""
    import polars as pl

    counts = Counter(run for table in tables.values() for run in table["run_id"].unique())
    files = [Path(name) for name in tables]
    named: list[pl.DataFrame] = []
    for file, table in zip(files, tables.values(), strict=True):
        names = {run: f"{label(file, files)}/{run}" for run in table["run_id"].unique() if counts[run] > 1}
        named.append(table.with_columns(pl.col("run_id").replace(names)))
    return named


def _told_apart(frames: list[pl.DataFrame], loaded: Sequence[_Table]) -> list[pl.DataFrame]:
    """Frames with the folder in place of the name for runs of two studies that have one name; copies keep it."""
    import polars as pl

    places: dict[str, list[int]] = {}
    for i, (frame, file) in enumerate(zip(frames, loaded, strict=True)):
        if file.journal and frame.height:
            places.setdefault(frame["run_id"][0], []).append(i)
    for found in places.values():
        by_length = sorted((frames[i] for i in found), key=lambda frame: frame.height)
        copied = any(one.equals(two.head(one.height)) for one, two in combinations(by_length, 2))
        if len(found) == 1 or copied:
            continue
        folders = [loaded[i].path.absolute().parent for i in found]
        common = os.path.commonpath(folders)
        for i, folder in zip(found, folders, strict=True):
            frames[i] = frames[i].with_columns(run_id=pl.lit(folder.relative_to(common).as_posix()))
    return frames


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


def _left_out(listing: Listing) -> list[Note]:
    """That tables cannot be read, or that runs of frameworks lie beside those of the built-in runner."""
    if not holds_journals(listing):
        closed = closed_tables(listing)
        return [closed_note(listing.path, closed)] if closed else []
    from isocompute_sdk.ingest.find import belongs_to_journal, find_logs

    others = [one for one in find_logs(listing) if not belongs_to_journal(one.paths[0], listing.path)]
    if not others:
        return []
    names = ", ".join(source.name for source in others[:4])
    message = (
        f"{listing.path} is read through the journals of the built-in runner; {len(others)} logs of other runs, such "
        f"as {names}, were not looked at. Name their folders to read them."
    )
    return [Note("files-not-read", "info", message, {"files": [str(source.folder) for source in others[:20]]})]
