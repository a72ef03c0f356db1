"""Which runs' logs lie at or below a path: folders of launch scripts, event files, and files of frameworks' own."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.beside import assign, dump_folders, is_console
from isocompute_sdk.ingest.formats.log_format import LogFormat, LogStore, RunFolder
from isocompute_sdk.ingest.formats.registry import formats
from isocompute_sdk.ingest.launched import launched_among, run_folder_of, run_id_of
from isocompute_sdk.ingest.recovery import recover
from isocompute_sdk.ingest.stores.event_files import EVENT_MARK, TensorBoardRun, read_tensorboard
from isocompute_sdk.ingest.stores.packed import as_kept, is_sealed
from isocompute_sdk.ingest.stores.trainer_state import STATE_FILE
from isocompute_sdk.ingest.walking import Listing

TENSORBOARD = "tensorboard"
"""Store of event files, which every format may be read from."""
# Folders that the Hugging Face Trainer makes for every start, and those that programs put around their events.
_STARTED_AT = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.+|\d{9,}(\.\d+)?")
_WRAPPERS = ("runs", "tensorboard", "tensorboard_log", "tensorboard_logs", "tb", "tb_logs", "logs", "events")


@dataclass(frozen=True)
class LogSource:
    """The log of one run, not read yet."""

    name: str
    """Name of the run: its folder, relative to the path that was asked for."""
    format: str
    """A member of `log_formats()`: the store of the log."""
    folder: Path
    """Folder of the run, where its saved configuration may lie; of a veRL log its path without the ending."""
    paths: tuple[Path, ...]
    """Folders of events, or files."""
    events: tuple[Path, ...] = ()
    """Folders of events of the same run, beside a trainer state."""
    consoles: tuple[Path, ...] = ()
    """Captured consoles of the run."""
    dumps: tuple[Path, ...] = ()
    """Folders of responses that it dumped."""
    launched: LogFormat | None = None
    """The format of a run that a launch script of this package started: its folder says everything about it."""

    @property
    def files(self) -> list[Path]:
        """The files that are read, sorted; a run that goes on may add some."""
        if self.launched is not None and self.launched.run_folder is not None:
            patterns = self.launched.run_folder.files
            return sorted({file for pattern in patterns for file in self.folder.glob(pattern) if file.is_file()})
        parts = {*self.paths, *self.events}
        return sorted({file for part in parts for file in (part.iterdir() if part.is_dir() else (part,))})

    def read(self) -> RunLog:
        """Read it, with what its consoles and dumps know beside it.

        Raises:
            RecordError: it cannot be read.
        """
        log = self._read()
        return recover(log, self.consoles, self.dumps) if self.consoles or self.dumps else log

    def _read(self) -> RunLog:
        if self.launched is not None and self.launched.run_folder is not None:
            return self._launched(self.launched.run_folder)
        if self.format == TENSORBOARD:
            return _read_events(self.name, self.folder, self.paths)
        log = _stores()[self.format].read(self.paths, self.name)
        if not self.events:
            return log
        events = _read_events(self.name, self.folder, self.events)
        if not events.attempts:
            return log
        # A state keeps every digit but only what was saved; the events also have what came after that.
        if events.extents[-1].last > log.extents[-1].last:
            return events
        return replace(log, other_extents=events.extents)

    def _launched(self, folder: RunFolder) -> RunLog:
        log = folder.read(self.folder)
        if not any(one.series or one.exact for one in log.attempts):
            raise NothingMeasured(
                f"{self.folder}: run {log.name!r} has not measured anything yet",
                "Wait for its first update; the console in its folder says what happens.",
            )
        return replace(log, name=self.name, said={k: v for k, v in log.said.items() if v is not None})


class NothingMeasured(RecordError):
    """A run that was started and has no measurement yet."""


def log_formats() -> tuple[str, ...]:
    """Formats of logs that say nothing about n and B_p themselves, as `format=` takes them."""
    return (TENSORBOARD, *_stores())


def _stores() -> dict[str, LogStore]:
    return {one.store.name: one.store for one in formats() if one.store is not None}


def find_logs(listing: Listing, format: str = "auto") -> list[LogSource]:
    """Every run whose log is among the files of `listing`, sorted by name.

    Args:
        listing: where to look.
        format: one of `log_formats()`, or `auto` for all of them.
    """
    alone = len(listing.below) == 1
    found = [
        source
        for root, files in listing.below.items()
        for source in _below(root, files, root if alone else Path(), format)
    ]
    # A glob that matches a folder and what lies in it finds the same runs twice.
    return sorted({source.paths: source for source in found}.values(), key=lambda source: source.name)


def is_log(path: Path) -> bool:
    """Whether a file is part of a framework's log."""
    if is_sealed(path):
        return False
    dumps = (one.dumps.is_dump(path) for one in formats() if one.dumps is not None)
    return EVENT_MARK in path.name or any(store.holds(path) for store in _stores().values()) or any(dumps)


def _below(root: Path, files: Sequence[Path], base: Path, format: str) -> list[LogSource]:
    launched = launched_among(files) if format == "auto" else {}
    found = [
        LogSource(name, form.store.name if form.store else TENSORBOARD, folder, (folder,), launched=form)
        for name, folder, form in _named(launched, base)
    ]
    free = [file for file in files if launched.keys().isdisjoint(file.parents)]
    return [*found, *_with_beside(_unlaunched(root, free, base, format), free, root)]


def _named(launched: Mapping[Path, LogFormat], base: Path) -> Iterator[tuple[str, Path, LogFormat]]:
    """Folders of launch scripts with the name of the run in each, or that of the folder if two have the same."""
    runs = {folder: run_id_of(folder) or _name(folder, base) for folder in launched}
    counts = Counter(runs.values())
    for folder, form in launched.items():
        yield runs[folder] if counts[runs[folder]] == 1 else _name(folder, base), folder, form


def _unlaunched(root: Path, files: Sequence[Path], base: Path, format: str) -> list[LogSource]:
    events: dict[Path, list[Path]] = {}
    stores = {name: store for name, store in _stores().items() if format in ("auto", name)}
    logs: dict[str, dict[Path, list[Path]]] = {name: {} for name in stores}
    with_events = format in ("auto", TENSORBOARD) or any(store.with_events for store in stores.values())
    for file in files:
        if is_sealed(file):
            continue
        if EVENT_MARK in file.name:
            if with_events:
                # A file that was named is read alone; a folder is one run.
                here = file if file == root else file.parent
                of_run = events.setdefault(run_folder_of(file.parent, root) or _run_of_events(file.parent), [])
                of_run.extend([here] if here not in of_run else [])
            continue
        for name, store in stores.items():
            if (format == name and file == root) or store.holds(file):
                inside = None if store.with_events else run_folder_of(file.parent, root)
                logs[name].setdefault(inside or store.run_of(file), []).append(file)
                break
    found: list[LogSource] = []
    for name, runs in logs.items():
        for run, parts in runs.items():
            beside = tuple(events.pop(run, ())) if stores[name].with_events else ()
            found.append(LogSource(_name(run, base), name, run, tuple(parts), beside))
    if format in ("auto", TENSORBOARD):
        found += [LogSource(_name(run, base), TENSORBOARD, run, tuple(parts)) for run, parts in events.items()]
    return found


def _with_beside(found: Sequence[LogSource], files: Sequence[Path], root: Path) -> list[LogSource]:
    """The sources with the consoles and dumps among `files` that belong to them."""
    runs = {source.folder: source.paths for source in found}
    consoles = assign([file for file in files if is_console(file)], runs, root)
    dumps = assign(dump_folders(files), runs, root)
    return [
        replace(one, consoles=tuple(consoles.get(one.folder, ())), dumps=tuple(dumps.get(one.folder, ())))
        for one in found
    ]


def _run_of_events(folder: Path) -> Path:
    """The run that a folder of events belongs to: above what trainers put between the two.

    Folders named after the moment of a start are attempts of one run where checkpoints lie beside them; otherwise they
    may be runs of their own, as programs that choose no name leave them, and stay apart.
    """
    here = folder
    while _STARTED_AT.fullmatch(here.name) and here.parent != here:
        here = here.parent
    started = here != folder
    if started and here == folder.parent and sum(bool(_STARTED_AT.fullmatch(e.name)) for e in here.iterdir()) > 1:
        above = here.parent if here.name in _WRAPPERS else here
        if not (as_kept(above / STATE_FILE).exists() or any(above.glob("checkpoint-*"))):
            return folder
    while here.name in _WRAPPERS and here.parent != here and (started or _holds_events(here)):
        here = here.parent
    return here


def _holds_events(folder: Path) -> bool:
    """Whether a folder such as `tensorboard` holds the events of one run itself, not the folders of many."""
    return any(EVENT_MARK in entry.name for entry in folder.iterdir())


def _name(run: Path, base: Path) -> str:
    relative = os.path.relpath(run, base)
    outside = relative == "." or relative.startswith("..")
    return run.absolute().name if outside else Path(relative).as_posix()


def _read_events(name: str, source: Path, folders: Iterable[Path]) -> RunLog:
    parts: Sequence[TensorBoardRun] = [read_tensorboard(folder) for folder in folders]
    attempts = sorted((a for part in parts for a in part.attempts if a.series), key=lambda a: (a.started, a.path.name))
    notes = tuple(note for part in parts for note in part.notes)
    if not attempts:
        raise RecordError(
            f"{source} holds event files without a single scalar that is whole",
            "The run has not logged anything yet, or its files are damaged: see `isocompute doctor`.",
        )
    return RunLog(name, source, TENSORBOARD, tuple(attempts), notes)
