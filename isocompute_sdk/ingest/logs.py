"""Which runs' logs lie at or below a path: TensorBoard folders, veRL's file logs, trainer states."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import verl_log
from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.beside import assign, dump_folders, is_console
from isocompute_sdk.ingest.launched import is_run_folder, run_folder_of
from isocompute_sdk.ingest.recovery import recover
from isocompute_sdk.ingest.stores import trainer_state
from isocompute_sdk.ingest.stores.event_files import EVENT_MARK, TensorBoardRun, read_tensorboard
from isocompute_sdk.ingest.stores.packed import as_kept, is_sealed, unpacked
from isocompute_sdk.ingest.verl_dumps import looks_like_dump
from isocompute_sdk.ingest.walking import Listing

LOG_FORMATS: tuple[str, ...] = ("tensorboard", "verl", "trl")
"""Formats of logs that say nothing about n and B_p themselves."""
# Folders that the Hugging Face Trainer makes for every start, and those that programs put around their events.
_STARTED_AT = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.+|\d{9,}(\.\d+)?")
_WRAPPERS = ("runs", "tensorboard", "tensorboard_log", "tensorboard_logs", "tb", "tb_logs", "logs", "events")


@dataclass(frozen=True)
class LogSource:
    """The log of one run, not read yet."""

    name: str
    """Name of the run: its folder, relative to the path that was asked for."""
    format: str
    """A member of `LOG_FORMATS`."""
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

    def read(self) -> RunLog:
        """Read it, with what its consoles and dumps know beside it.

        Raises:
            RecordError: it cannot be read.
        """
        log = self._read()
        return recover(log, self.consoles, self.dumps) if self.consoles or self.dumps else log

    def _read(self) -> RunLog:
        if self.format == "verl":
            return verl_log.read_verl(list(self.paths), self.name)
        if self.format == "tensorboard":
            return _read_events(self.name, self.folder, self.paths)
        state = trainer_state.read_trainer_state(list(self.paths), self.name)
        if not self.events:
            return state
        events = _read_events(self.name, self.folder, self.events)
        if not events.attempts:
            return state
        # The state keeps every digit but only what was saved; the events also have what came after that.
        if events.extents[-1].last > state.extents[-1].last:
            return events
        return replace(state, other_extents=events.extents)


def find_logs(listing: Listing, format: str = "auto") -> list[LogSource]:
    """Every run whose log is among the files of `listing`, sorted by name.

    Args:
        listing: where to look.
        format: one of `LOG_FORMATS`, or `auto` for all of them.
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
    return not is_sealed(path) and (
        EVENT_MARK in path.name
        or trainer_state.is_state(path)
        or (_is_jsonl(path) and (verl_log.looks_like_verl(path) or looks_like_dump(path)))
    )


def _is_jsonl(path: Path) -> bool:
    return unpacked(path).suffix in (".jsonl", ".ndjson")


def _below(root: Path, files: Sequence[Path], base: Path, format: str) -> list[LogSource]:
    events: dict[Path, list[Path]] = {}
    states: dict[Path, list[Path]] = {}
    verl: dict[Path, list[Path]] = {}
    for file in files:
        if is_sealed(file):
            continue
        if EVENT_MARK in file.name and format in ("auto", "tensorboard", "trl"):
            # A file that was named is read alone; a folder is one run.
            here = file if file == root else file.parent
            of_run = events.setdefault(run_folder_of(file.parent, root) or _run_of_events(file.parent), [])
            of_run.extend([here] if here not in of_run else [])
        elif trainer_state.is_state(file) and format in ("auto", "trl"):
            states.setdefault(trainer_state.run_folder(file), []).append(file)
        elif (format == "verl" and file == root) or (
            format in ("auto", "verl") and _is_jsonl(file) and verl_log.looks_like_verl(file)
        ):
            verl.setdefault(run_folder_of(file.parent, root) or verl_log.run_of(file)[0], []).append(file)
    for run in verl:
        # Our own script has veRL write both; the file log keeps every digit and every attempt.
        if is_run_folder(run):
            events.pop(run, None)
    found = [
        LogSource(_name(run, base), "trl", run, tuple(parts), tuple(events.pop(run, ())))
        for run, parts in states.items()
    ]
    found += [LogSource(_name(run, base), "verl", run, tuple(parts)) for run, parts in verl.items()]
    if format != "trl":
        found += [LogSource(_name(run, base), "tensorboard", run, tuple(parts)) for run, parts in events.items()]
    return _with_beside(found, files, root)


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
        if not (as_kept(above / trainer_state.STATE_FILE).exists() or any(above.glob("checkpoint-*"))):
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
    return RunLog(name, source, "tensorboard", tuple(attempts), notes)
