"""`collect`: what lies at or below some paths, read once; and `read`: the same as one `RunSet`, or why it is none.

Tables say themselves what n and B_p were; logs do not, and take it from arguments or from the configuration that was
saved beside them. The suffix of a file decides first: for a plain table nothing that knows logs is loaded. What cannot
be read keeps nothing else from being read: `read` raises the first of it at the end, the doctor shows all.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from isocompute_sdk.errors import IsoComputeError, NothingMeasured, RecordError
from isocompute_sdk.ingest.paths import (
    MAY_HOLD,
    TABLE_FORMATS,
    Listing,
    as_paths,
    check_format,
    closed_tables,
    find_files,
    format_of,
    holds_journals,
    is_path,
    json_tables,
    labels,
    log_formats,
    may_be_log,
    readable,
    tables_among,
    untrained_folders,
)
from isocompute_sdk.ingest.tables import RawTable, columns_of, holds_rows, is_sealed, read_table
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
    refuse_commas,
    row_in_memory,
    to_series,
    unstated,
)
from isocompute_sdk.records.runset import join
from isocompute_sdk.records.table import as_mapping, build

if TYPE_CHECKING:
    import polars as pl

    from isocompute_sdk.ingest.copies import LoadedRun
    from isocompute_sdk.ingest.find import LogSource
    from isocompute_sdk.ingest.formats.configuration import SavedConfig
    from isocompute_sdk.ingest.formats.log_format import RunLog, StepUnit


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
        left_out: takes down, by column, file or folder, why it cannot be read, which then keeps no other from being
            read; runs of one name and other settings get names of their files.
        **constants: the same as `set`, as arguments.

    Raises:
        RecordError: with file and line, wherever the content cannot be read or contradicts itself.
    """
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
    return collect(source, asked, format, left_out=left_out).together()


def collect(
    source: object, options: Options, format: str = "auto", *, ask: bool = False, left_out: dict[str, str] | None = None
) -> Collection:
    """Read files, folders and globs, or a table in memory, as far as they can be read.

    Args:
        source: as of `read`.
        options: how to read it.
        format: as of `read`.
        ask: also read tables beside logs, and take a table that does not say n or B_p for a log that is asked about.
        left_out: takes down, by column and file, what cannot be read; `Collection.together` raises it otherwise.

    Raises:
        RecordError: there is nothing at all, or no file has a name of `rename` or `ignore`.
    """
    found = Collection(options, format, ask, left_out)
    check_format(format)
    with readable():
        if is_path(source):
            found.paths = as_paths(source)
            for path in found.paths:
                found.look(Listing.of(path))
        else:
            found.take(_in_memory(source))
        found.build()
    if ask and not (found.logs or found.tables or found.errors):
        where, left = ", ".join(map(str, found.paths)), found.not_looked_at() or "no files"
        raise RecordError(
            f"nothing to read at or below {where}; not looked at: {left}",
            "Give files, folders or globs of logs, CSV, Parquet or JSONL; name a file to see why it cannot be read.",
        )
    names = [*found.columns, *dict.fromkeys(tag for run in found.logs.values() for tag in run.log.tags)]
    if names:
        check_fields(options.rename, [*names, *found.metrics], "name to rename")
        check_fields(options.ignore, names, "name to ignore")
    return found


@dataclass(frozen=True)
class _Loaded:
    """A table as it stands in its file, and those of the requested names that it has."""

    path: Path
    raw: RawTable
    journal: bool = False
    """True for a run of the built-in runner."""
    ignore: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    as_log: bool = False
    """True for a chart of W&B, for the words of a framework, or if `runs=` says what its runs are."""


@dataclass(frozen=True)
class Table:
    """The evaluations in one file that says everything itself."""

    path: Path
    frame: pl.DataFrame
    """In the columns of a `RunSet`."""
    notes: tuple[Note, ...]
    journal: bool


@dataclass
class Collection:
    """What lies at or below some paths."""

    options: Options
    format: str = "auto"
    ask: bool = False
    """As of `collect`."""
    left_out: dict[str, str] | None = None
    """As of `collect`."""
    paths: list[str | os.PathLike[str]] = field(default_factory=list["str | os.PathLike[str]"])
    """What was named."""
    loaded: list[_Loaded] = field(default_factory=list["_Loaded"])
    """Tables that are not `build` yet."""
    contents: dict[tuple[Path, bytes], Path] = field(default_factory=dict[tuple[Path, bytes], Path])
    """Folder and digest of a table -> the table. In other folders other settings may lie beside the same rewards."""
    logs: dict[str, LoadedRun] = field(default_factory=dict[str, "LoadedRun"])
    """Run -> its log."""
    clocks: list[RunLog] = field(default_factory=list["RunLog"])
    """Charts that show only when the steps of a run were logged."""
    tables: list[Table] = field(default_factory=list[Table])
    """Files that say everything themselves."""
    errors: dict[str, IsoComputeError] = field(default_factory=dict[str, IsoComputeError])
    """File or folder -> why it cannot be read."""
    notes: list[Note] = field(default_factory=list[Note])
    """About what was not looked at."""
    columns: dict[str, None] = field(default_factory=dict[str, None])
    """Columns of the tables, as they are written."""
    metrics: dict[str, None] = field(default_factory=dict[str, None])
    """Metrics that tables name in a column of their own."""
    unread: Counter[str] = field(default_factory=Counter[str])
    """Ending -> files that were not looked at and may hold measurements, if `ask` is set."""
    rowless: int = 0
    """Files in JSON beside them that hold none."""

    @contextmanager
    def losing(self, place: object) -> Generator[None]:
        """Take down why something cannot be read, and go on with the rest."""
        try:
            with readable():
                yield
        except IsoComputeError as error:
            self.errors.setdefault(str(place), error)
            if self.left_out is not None:
                said = (error.message.removeprefix(f"{place}: "), error.shell_hint)
                self.left_out[str(place)] = " ".join(". ".join(filter(None, said)).split())

    def not_looked_at(self) -> str:
        """Files that may hold measurements, counted by their endings; empty without any."""
        return ", ".join(f"{count} {ending}" for ending, count in self.unread.most_common())

    def look(self, listing: Listing) -> None:
        """Read the logs in a listing, and load its tables."""
        for folder in listing.locked:
            with self.losing(folder):
                # Its runs would be missing silently.
                raise RecordError(
                    f"{folder} cannot be read: Permission denied",
                    "Change its permissions, or name the folders to read one by one.",
                )
        journals = self.format == "auto" and holds_journals(listing)
        sources = self._logs_in(listing, journals)
        for source in sources:
            with self.losing(source.paths[0]):
                self.add(*source.read(), source.paths[0], beside=listing.path.name)
        if journals:
            tables = find_files(listing, self.format)
        else:
            tables = self._every_table(listing, sources) if self.ask else self._tables_in(listing, sources)
        known = {table.path for table in self.loaded}
        for file in (file for file in tables if file not in known):
            with self.losing(file):
                table = _load(file, self.format)
                if file.is_file():
                    with file.open("rb") as written:
                        content = file.parent, hashlib.file_digest(written, "blake2b").digest()
                    if content in self.contents:
                        raise NothingMeasured(
                            f"{file}: a copy of {self.contents[content]}", "Nothing to do: it is left out."
                        )
                    self.contents[content] = file
                self.take(table)

    def add(self, log: RunLog, config: SavedConfig | None, place: Path, beside: str) -> None:
        """Add a run under its name, or one with `beside` before it; charts of one run are joined."""
        from isocompute_sdk.ingest.copies import LoadedRun
        from isocompute_sdk.ingest.wandb_tables import join_charts

        known, name = self.logs.get(log.name), log.name
        chart = None if known is None else join_charts(known.log, log)
        if known is not None and chart is not None:
            self.logs[name] = LoadedRun(chart, known.config or config, place)
            return
        if known is not None:
            name = f"{beside}/{name}"
        while name in self.logs:
            name += "'"
        self.logs[name] = LoadedRun(log if log.name == name else replace(log, name=name), config, place)

    def _logs_in(self, listing: Listing, journals: bool) -> list[LogSource]:
        """The logs in a listing; beside journals, which say all that the logs beside them say, only with `ask`."""
        if self.format in TABLE_FORMATS:
            if self.format != "auto" or not any(map(may_be_log, listing.files)):
                return []
        elif self.format not in log_formats():
            return []
        from isocompute_sdk.ingest.find import belongs_to_journal, find_logs

        sources = find_logs(listing, self.format)
        if journals:
            sources = [one for one in sources if not belongs_to_journal(one.paths[0], listing.path)]
            if sources and not self.ask:
                folders = [source.folder for source in sources]
                self.notes.append(
                    _not_read(listing, "the journals of the built-in runner", "logs of other runs", folders)
                )
            return sources if self.ask else []
        if self.format != "auto" and not sources:
            raise RecordError(
                f"{listing.path} holds no log of format {self.format!r}",
                "Check the path, or leave format= out to have files recognised by their contents.",
            ).in_shell("Check the path.")
        return sources

    def _tables_in(self, listing: Listing, sources: Sequence[LogSource]) -> list[Path]:
        """The tables that are read: none beside logs, which a note says."""
        idle = set[Path]() if sources or self.format != "auto" else untrained_folders(listing.files)
        if idle and not tables_among(file for file in listing.files if file.parent not in idle):
            raise _untrained(min(idle))
        files = [] if sources else [one for one in find_files(listing, self.format) if one.parent not in idle]
        if self.format != "auto":
            return files
        inside = {source.folder for source in sources if source.launched is not None}
        free = (file for file in listing.files if inside.isdisjoint(file.parents))
        left = tables_among(free) if sources else closed_tables(listing)
        if left:
            what = "other files" if sources else "files that are packed, archives or spreadsheets"
            self.notes.append(_not_read(listing, "its logs" if sources else "its tables", what, left))
        return files

    def _every_table(self, listing: Listing, sources: Sequence[LogSource]) -> list[Path]:
        """All that may be tables, beside logs too: of a folder the files with the ending of one, and what was named."""
        from isocompute_sdk.ingest.find import free_tables
        from isocompute_sdk.ingest.stores.wandb_run import folders_without_history

        inside = {source.folder for source in sources}
        idle = untrained_folders(listing.files) - inside
        self.errors |= {str(folder): _untrained(folder) for folder in idle}
        for folder in folders_without_history(listing.files):
            why = f"{folder}: the history of this W&B run, run-*.wandb, is missing"
            self.errors[str(folder)] = NothingMeasured(why, "Copy it too, or leave the folder out.")
        # What lies in the folder of a run is its own: samples, problem sets, copies of its log.
        inside.discard(listing.path)
        tables = [file for file in free_tables(listing) if {*inside, *idle}.isdisjoint(file.parents)]
        if not (tables or sources or idle):
            tables = json_tables(listing.files)
        taken = {*tables, *(path for source in sources for path in source.paths)}
        taken |= {run.config.path for run in self.logs.values() if run.config is not None}
        free = (file for file in listing.files if file not in taken and inside.isdisjoint(file.parents))
        held = [file for file in free if file.suffix in MAY_HOLD]
        rowless = [file for file in held if file.suffix == ".json" and not holds_rows(file)]
        self.rowless += len(rowless)
        self.unread.update(file.suffix for file in held if file not in rowless)
        return tables

    def take(self, table: _Loaded) -> None:
        """Add a table; it is read as a log if its names are those of a framework or of W&B, or if `runs=` is given."""
        names, options = tuple(table.raw.columns), self.options
        self.columns |= dict.fromkeys(names)
        table = self._with_metrics_renamed(table)
        ignore = tuple(name for name in options.ignore if name in names)
        rename = {name: new for name, new in options.rename.items() if name in names}
        used = {name: cells for name, cells in table.raw.columns.items() if name not in ignore}
        refuse_commas(used, Source(table.raw.locate))
        as_log = bool(options.runs) and not table.journal
        plain = (canonical(name) or name in rename or name in ignore or SAYS_ITSELF.fullmatch(name) for name in names)
        if not (as_log or table.journal or all(plain)):
            from isocompute_sdk.ingest import wandb_tables

            as_log = wandb_tables.is_log(names, ignore, rename)
            internal = wandb_tables.OWN
            ignore = ignore if as_log or internal not in names or internal in ignore else (*ignore, internal)
        self.loaded.append(replace(table, ignore=ignore, rename=rename, as_log=as_log))

    def _with_metrics_renamed(self, table: _Loaded) -> _Loaded:
        """A table of one metric per row with those metrics renamed whose new names were asked for."""
        columns, rename = dict(table.raw.columns), self.options.rename
        own = next((name for name in columns if canonical(rename.get(name, name)) == "metric"), None)
        if own is None or not rename:
            return table
        metrics = to_series(own, columns[own])
        self.metrics |= dict.fromkeys(map(str, metrics.drop_nulls().unique()))
        columns[own] = metrics.replace({name: new for name, new in rename.items() if name in self.metrics})
        return replace(table, raw=replace(table.raw, columns=columns))

    def build(self) -> None:
        """Turn the tables that were loaded into rows, or into logs."""
        files = [table.path for table in self.loaded]
        stems = Counter(file.stem for file in files)
        for table, apart in zip(self.loaded, labels(files) if len(files) > 1 else [""] * len(files), strict=True):
            # Of many files `metrics.csv` the folders tell the runs apart.
            name = apart if stems[table.path.stem] > 1 else table.path.stem
            with self.losing(table.path):
                if table.as_log:
                    self._as_logs(table, name)
                else:
                    self._as_rows(table, name, apart)
        if self.clocks:
            self._set_clocks()
        self.tables = _journals_told_apart(self.tables)
        if len(self.logs) > 1:
            from isocompute_sdk.ingest.copies import continued, without_shared_n

            self.logs = without_shared_n(continued(self.logs))

    def _set_clocks(self) -> None:
        """Give the runs of charts the times that charts of their own show."""
        from isocompute_sdk.ingest.wandb_tables import with_clock

        unused = {clock.source for clock in self.clocks}
        for clock in self.clocks:
            run = self.logs.get(clock.name)
            log = None if run is None else with_clock(run.log, clock)
            if run is not None and log is not None:
                self.logs[clock.name] = replace(run, log=log)
                unused.discard(clock.source)
        for path in sorted(unused):
            with self.losing(path):
                raise RecordError(
                    f"{path} holds the times of runs and no other metric, and no chart with these runs and this x axis "
                    "lies beside it",
                    "Export the chart of the reward into the same folder, with the same x axis.",
                )

    def _as_rows(self, table: _Loaded, name: str, apart: str) -> None:
        prefix = f"{apart}/" if apart else ""
        options = replace(self.options, ignore=table.ignore, rename=table.rename, run_prefix=prefix)
        # Settings beside a table may say what it lacks.
        options = replace(options, without_sizes=options.without_sizes and not self.ask)
        if table.journal:
            stated = [name for name, cells in table.raw.columns.items() if any(cell is not None for cell in cells)]
            options = replace(options, constants=unstated(options.constants, stated))
        try:
            options = replace(options, run_name=apart or table.path.stem)
            frame, notes = build(table.raw.columns, options, Source(table.raw.locate))
        except RecordError as error:
            error = error if str(table.path) in error.message else error.restated(f"{table.path}: {error.message}")
            sets = [option.startswith("--set") for option in error.options]
            renames = any(option.startswith("--rename") for option in error.options)
            names = {column: canonical(table.rename.get(column, column)) for column in table.raw.columns}
            sized = "group_size" in {*names.values(), *map(canonical, options.constants)}
            if self.ask and not renames and (any(sets) or not (sets or sized)):
                # What other options would mend is asked about as it is. With an n nothing is left to ask.
                self._as_logs(table, name, error)
                return
            runs = [table.raw.columns[own] for own, name in names.items() if name == "run_id"]
            several = any(len({*map(str, cells)}) > 1 for cells in runs)
            if not self.ask and (apart or several) and any(one.startswith("--set group_size") for one in error.options):
                # One n for all files or runs would be wrong for most of them.
                error.options = ()
                if apart:
                    error.in_shell("The files may differ: isocompute doctor PATH --output map.yaml asks for each.")
            raise error from None
        self.tables.append(Table(table.path, frame, (*table.raw.notes, *notes), table.journal))

    def _as_logs(self, table: _Loaded, name: str, error: RecordError | None = None) -> None:
        """Add the runs of a table whose words are those of a log, or that lacks n or B_p, which `error` says."""
        from isocompute_sdk.ingest.find import NoRewardLearning, by_release, logged_sizes
        from isocompute_sdk.ingest.stores.saved_config import find_config
        from isocompute_sdk.ingest.wandb_tables import (
            SEPARATOR,
            beyond_asking,
            is_clock,
            logs_of_table,
            refuse_several,
            refuse_slips,
            refuse_twice,
        )

        path, given = table.path, list(self.options.runs)
        try:
            logs = logs_of_table(path, table.raw, self.options.rename, self.options.ignore, given)
        except NoRewardLearning:
            raise
        except RecordError as wrong:
            raise error or wrong from None
        beyond = [beyond_asking(log) for log in logs]
        if error is not None and any(beyond):
            raise error
        for log, certain in zip(logs, beyond, strict=True):
            refuse_slips(log)
            refuse_twice(log, self.options.constants)
            if certain or not self.ask:
                refuse_several(log)
        self.columns |= dict.fromkeys(column.rpartition(SEPARATOR)[2] for column in table.raw.columns)
        if all(map(is_clock, logs)):
            self.clocks += logs
            return
        for log in logs:
            folder = None if table.raw.locate is row_in_memory else path.parent
            config = by_release(log, find_config(folder, path.parent, log.settings, logged_sizes(log)))
            self.add(log if log.name != path.stem else replace(log, name=name), config, path, beside=path.stem)

    def together(self, of_run: Mapping[str, Options] | None = None) -> RunSet:
        """Everything as one table; a run that is in it twice counts once.

        Args:
            of_run: run -> how its log is to be read, if they are not all read alike; others are left out.

        Raises:
            RecordError: something cannot be read, unless `ask` or `left_out` is set; or nothing can.
        """
        notes, frames = [*self.notes], dict[str, "pl.DataFrame"]()
        earlier = {*self.errors}
        if self.logs:
            from isocompute_sdk.ingest.log_runs import read_loaded

            with self.losing("logs") if of_run is None else nullcontext():
                logs = read_loaded(self.logs, self.options, self.losing, of_run)
                if logs is not None:
                    frames["logs"] = logs.to_polars()
                    notes += logs.notes
        # What a log lacks says more than that a file beside it is no table.
        ordered = sorted(self.errors.items(), key=lambda lost: lost[0] in earlier)
        wrong = [error for _, error in ordered if not isinstance(error, NothingMeasured)]
        if wrong and not self.ask and self.left_out is None:
            raise wrong[0]
        frames |= {str(table.path): table.frame for table in self.tables}
        notes += [note for table in self.tables for note in table.notes]
        if not frames:
            none = RecordError(f"nothing to read in {', '.join(map(str, self.paths))}", "Give files, folders or globs.")
            raise next(iter((*wrong, *self.errors.values())), none)
        from isocompute_sdk.ingest.copies import once, repeated

        kept, copies = once([*frames.values()])
        notes += [repeated(name, of) for (_, name), (_, of) in copies.items()]
        frames = {name: frame for name, frame in zip(frames, kept, strict=True) if not frame.is_empty()}
        notes += self._about_losses(notes)
        if of_run is None and (self.ask or self.left_out is not None):
            frames = named_by_file(frames)
        return RunSet(join([*frames.values()], [*frames], self.options.on_duplicate), notes)

    def _about_losses(self, notes: Sequence[Note]) -> Iterator[Note]:
        """On what was left out: runs that have only begun, and with `ask` all that cannot be read."""
        if self.left_out is not None:
            unread = [note for note in notes if note.code == "files-not-read"]
            self.left_out |= {file: note.message for note in unread for file in note.data["files"]}
            columns = [note for note in notes if note.code == "columns-left-out"]
            why = "unknown; to use it, --rename THEIRS=OURS"
            self.left_out |= {f"column {', '.join(note.data['columns'])}": why for note in columns}
        for place, error in self.errors.items():
            if isinstance(error, NothingMeasured):
                yield Note("run-left-out", "info", f"left out: {error.message}", {"message": error.message})
            elif self.ask:
                yield Note("files-not-read", "warning", f"not read: {error}", {"files": [place]})


def _not_read(listing: Listing, through: str, what: str, files: Sequence[Path]) -> Note:
    message = (
        f"{listing.path} is read through {through}; {len(files)} {what}, such as {files[0]}, were not looked at. "
        "Name them to read them."
    )
    severity = "warning" if any(map(is_sealed, files)) else "info"
    return Note("files-not-read", severity, message, {"files": [str(file) for file in files[:20]]})


def _untrained(folder: Path) -> RecordError:
    """The error about the folder of a launch script whose run has measured nothing."""
    from isocompute_sdk.run_folders.store import unmeasured

    why, advice = unmeasured(folder)
    return RecordError(f"{folder}: the run of a launch script {why}", advice)


def _load(path: Path, format: str) -> _Loaded:
    kind = format_of(path) if format == "auto" else format
    if kind in TABLE_FORMATS:
        return _Loaded(path, read_table(path, kind))
    from isocompute_sdk.ingest.formats.registry import load
    from isocompute_sdk.run_folders.store import unmeasured

    journal = load(kind).journal
    assert journal is not None
    table = journal.read(path)
    if not table.columns["value"]:
        why, advice = unmeasured(path.parent)
        raise NothingMeasured(f"{path}: the run {why}", advice)
    return _Loaded(path, table, journal=True)


def _in_memory(source: object) -> _Loaded:
    """A table that somebody holds."""
    if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in cast("Sequence[object]", source)):
        source = columns_of(cast("Sequence[Mapping[str, Any]]", source))
    columns = {name: to_series(name, values) for name, values in as_mapping(source).items()}
    return _Loaded(Path("table"), RawTable(columns, row_in_memory))


def read_launched(folder: str | Path, name: str) -> RunSet:
    """Everything that the runs of one backend at or below a folder have measured."""
    from isocompute_sdk.ingest.find import find_logs
    from isocompute_sdk.ingest.formats.registry import load

    load(name)
    found = Collection(Options())
    for source in find_logs(Listing.of(folder)):
        if source.launched is not None and source.launched.name == name:
            with found.losing(source.folder):
                found.add(*source.read(), source.folder, beside=source.name)
    if not (found.logs or found.errors):
        raise RecordError(
            f"{folder} holds no run that a launch script of backend {name!r} started",
            "Start the run with its launch.sh. Logs of other runs: `isocompute doctor`.",
        )
    return found.together()


def named_by_file(tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Tables with their file's name before the names of runs that have other settings in another table."""
    import polars as pl

    fixed = [name for name in PER_RUN if name != "gpus"]  # a run may go on with other GPUs
    said = pl.concat([table.select("run_id", *fixed).unique() for table in tables.values()])
    differ = pl.any_horizontal(pl.col(name).drop_nulls().n_unique() > 1 for name in fixed)
    apart = said.group_by("run_id").agg(differ=differ).filter("differ")["run_id"].to_list()
    files = [Path(name) for name in tables]
    of_file = (pl.col("run_id").replace({run: f"{name}/{run}" for run in apart}) for name in labels(files))
    return {name: table.with_columns(ids) for (name, table), ids in zip(tables.items(), of_file, strict=True)}


def _journals_told_apart(tables: list[Table]) -> list[Table]:
    """Journals with the folder instead of the name for runs of two studies that have one name; copies keep it."""
    import polars as pl

    places: dict[str, list[int]] = {}
    for i, table in enumerate(tables):
        if table.journal:
            places.setdefault(table.frame["run_id"][0], []).append(i)
    for found in places.values():
        by_length = sorted((tables[i].frame for i in found), key=lambda frame: frame.height)
        copied = any(one.equals(two.head(one.height)) for one, two in combinations(by_length, 2))
        if len(found) == 1 or copied:
            continue
        folders = [tables[i].path.absolute().parent for i in found]
        common = os.path.commonpath(folders)
        for i, folder in zip(found, folders, strict=True):
            name = pl.lit(folder.relative_to(common).as_posix())
            tables[i] = replace(tables[i], frame=tables[i].frame.with_columns(run_id=name))
    return tables


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
