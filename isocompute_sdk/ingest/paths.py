"""Every file at or below a path, each once, and which of them are tables, of what format, and which cannot be read.

Links are followed, and hidden names and circles are left out.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, cast

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.ingest.tables import TABLE_SUFFIXES, held_in, holds_rows, is_sealed
from isocompute_sdk.records.columns import check_fields
from isocompute_sdk.run_folders.journal_records import ATTEMPTS_FILE

if TYPE_CHECKING:
    from isocompute_sdk.ingest.formats.log_format import LogStore

TABLE_FORMATS: tuple[str, ...] = ("auto", "csv", "parquet", "jsonl", "wandb")
_ACCEPTED = f"accepted: {', '.join(TABLE_SUFFIXES)}"


TENSORBOARD, CONSOLE = "tensorboard", "console"
"""Stores of event files, which every format may be read from, and of captured consoles."""
EVENT_MARK = "tfevents"
"""What the name of every event file contains."""
PROGRAM = "claim_folder.py"
"""What launch scripts write before they check anything."""
NEVER_LOGS = (".csv", ".tsv", ".parquet", ".pq")
"""Endings of tables that no log has: nothing that knows logs is loaded for them."""
MAY_HOLD = (".json", ".log", ".out", ".txt")
"""Endings of files that may hold measurements and are read only if they are known for a log, or named."""


def accepted_formats() -> tuple[str, ...]:
    """Accepted values of `format=`.

    `auto` goes by the end of the file's name, W&B exports by their header, journals, such as that of the built-in
    runner (`isocompute`), by their first line, and logs of frameworks by their contents.
    """
    from isocompute_sdk.ingest.formats.registry import journals

    return (*TABLE_FORMATS, *(one.name for one in journals()), *log_formats())


def log_stores() -> dict[str, LogStore]:
    """Stores of frameworks' own, and those that runs of any framework log to."""
    from isocompute_sdk.ingest.formats.registry import formats
    from isocompute_sdk.ingest.stores import mlflow, wandb_run

    own = {one.store.name: one.store for one in formats() if one.store is not None}
    return own | {one.name: one for one in (wandb_run.STORE, mlflow.STORE)}


def log_formats() -> tuple[str, ...]:
    """Formats of logs that say nothing about n and B_p themselves, as `format=` takes them."""
    return (TENSORBOARD, CONSOLE, *log_stores())


def may_be_log(file: Path) -> bool:
    """Whether the suffix of a file allows that it is part of a log."""
    return file.suffix.lower() not in NEVER_LOGS and not is_sealed(file)


def is_log(path: Path) -> bool:
    """Whether a file is part of a framework's log, by its name and content, or holds responses that one dumped."""
    if not may_be_log(path):
        return False
    from isocompute_sdk.ingest.formats.registry import formats

    of_store = EVENT_MARK in path.name or any(store.holds(path) for store in log_stores().values())
    return of_store or any(one.is_dump(path) for one in formats())


def is_path(source: object) -> bool:
    """Whether something is meant for a path, or for several; else it is a table."""
    one = isinstance(source, str | bytes | os.PathLike)
    return one or (isinstance(source, list | tuple) and all(map(is_path, cast("Iterable[object]", source))))


def as_paths(path: object) -> list[str | os.PathLike[str]]:
    """One path or several as a list."""
    one = isinstance(path, str | bytes | os.PathLike) or not isinstance(path, Iterable)
    paths = [path] if one else list(cast("Iterable[object]", path))
    for item in paths or [path]:
        if not isinstance(item, str | os.PathLike) or item == "" or "\0" in str(item):
            raise RecordError(
                f"path: received {item!r:.60}; accepted: a file, a folder or a glob, or a list of them",
                "Give the path as text, such as 'runs/*.csv'.",
            )
    return cast("list[str | os.PathLike[str]]", paths)


@contextmanager
def readable() -> Generator[None]:
    """Turn what the system refuses while files are looked for and read into a `RecordError`."""
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"{error.filename or 'a file'!s:.200} cannot be read: {error.strerror or error}",
            "Check the path and its permissions.",
        ) from error


def find_files(listing: Listing, format: str) -> list[Path]:
    """The files that a path names, sorted; of a folder those of a known ending, also in its subfolders.

    A folder that holds run folders of the built-in runner is read through their metrics.jsonl alone: whatever else
    lies there (problem sets, tables of the same runs) is not looked at.
    """
    target = listing.path
    if target.is_file():
        if format == "auto":
            format_of(target)
        return [target]
    files_there = (
        listing.files if target.is_dir() else [root for root, files in listing.below.items() if files == (root,)]
    )
    where = f"{'folder' if target.is_dir() else 'glob'} {target}"
    if not (target.is_dir() or glob.has_magic(str(target))):
        _refuse_missing(target)
    base = {"wandb": "csv"}.get(format, format if format in TABLE_FORMATS else "jsonl")
    wanted = {suffix for suffix, kind in TABLE_SUFFIXES.items() if format == "auto" or kind == base}
    files = [file for file in files_there if file.suffix.lower() in wanted]
    if not files and base in ("auto", "jsonl") and not closed_tables(listing):
        files = json_tables(files_there)
    if target.is_dir() and (format == "auto" or format not in TABLE_FORMATS):
        journals = [file for file in files if (kind := journal_of(file)) is not None and format in ("auto", kind)]
        files = journals if journals or format != "auto" else files
    if not files and (closed := closed_tables(listing)):
        raise _not_open(closed[0])
    if not files:
        endings = Counter(file.suffix or file.name for file in files_there)
        told = ", ".join(f"{count} {ending}" for ending, count in endings.items()) or "no files"
        raise RecordError(
            f"{where} holds nothing to read: {told}; accepted: files that end in {', '.join(sorted(wanted))}",
            "Check the path; rename a file whose ending does not match its contents.",
        )
    if format == "auto":
        _refuse_mixture(where, files)
    return files


def journal_of(file: Path) -> str | None:
    """Name of the format whose journal a file is, by its first line; None for any other file."""
    if file.suffix != ".jsonl":
        return None
    from isocompute_sdk.ingest.formats import registry

    form = registry.journal_of(file)
    return None if form is None else form.name


def format_of(file: Path) -> str:
    """Format by the end of the file's name, and by its first line for a journal."""
    ending = file.suffix.lower()
    # Most files in JSON are settings, and some hold rows.
    kind = "jsonl" if ending == ".json" and holds_rows(file) else TABLE_SUFFIXES.get(ending)
    if kind is not None:
        return journal_of(file) or kind
    if is_sealed(file):
        raise _not_open(file)
    if ending == ".json":
        raise RecordError(
            f"{file} holds {held_in(file)} and no rows; accepted in JSON: a list of objects, one for each evaluation",
            'No reader knows it. Write what it measured as a list: [{"n": 8, "bp": 32, "step": 10, "avg@4": 0.5}].',
        )
    if ending in MAY_HOLD:
        raise RecordError(
            f"{file} holds no lines that a known trainer prints, and tables do not end in {ending!r}; {_ACCEPTED}",
            "No reader knows it. Write what it measured as CSV: n,bp,step,avg@4.",
        )
    if ending in (".yaml", ".yml"):
        raise RecordError(f"{file} is a study or a specification; {_ACCEPTED}", "Give the folder of its runs.")
    raise RecordError(
        f"{file}: unknown ending {file.suffix!r}; {_ACCEPTED}",
        f"Rename it to what it holds, or say it with format=, one of {', '.join(accepted_formats()[1:])}.",
    ).in_shell(f"Rename it to what it holds, such as {file.stem}.csv.")


def check_format(format: str) -> None:
    """Reject a format that is not in `accepted_formats()`."""
    if format in TABLE_FORMATS:
        return
    check_fields([format], accepted_formats(), "format")


def holds_journals(listing: Listing) -> bool:
    """Whether a folder holds runs of the built-in runner, at any depth."""
    files = listing.files if listing.path.is_dir() else ()
    return any(journal_of(file) is not None for file in files)


def tables_among(files: Iterable[Path]) -> list[Path]:
    """Files that have the ending of a table and are no part of a log, sorted."""
    wanted = (file for file in files if file.suffix.lower() in TABLE_SUFFIXES or is_sealed(file))
    return sorted(file for file in wanted if not is_log(file))


def untrained_folders(files: Sequence[Path]) -> set[Path]:
    """Folders of launch scripts without the journal of a run, which may have nothing in it yet."""
    made, begun = ({file.parent for file in files if file.name == name} for name in (PROGRAM, ATTEMPTS_FILE))
    if not (made or begun):
        return set()
    from isocompute_sdk.ingest.formats.registry import journals

    folders = made | (begun - {file.parent for file in tables_among(files) if file.name != ATTEMPTS_FILE})
    names = [one.journal.file for one in journals() if one.journal is not None]
    return {one for one in folders if not any((one / name).exists() for name in names)}


def json_tables(files: Iterable[Path]) -> list[Path]:
    """Files in JSON that hold rows, sorted: read of a folder that has nothing else, most are settings or dumps.

    Without any the first file in JSON, which is refused with what it holds.
    """
    found = sorted(file for file in files if file.suffix == ".json" and not is_log(file))
    return [file for file in found if holds_rows(file)] or found[:1]


def closed_tables(listing: Listing) -> list[Path]:
    """What is in a folder, or matches a glob, and cannot be read as it is.

    Tables and logs that are packed, archives, and spreadsheets.
    """
    return [file for file in listing.files if is_sealed(file)]


def _not_open(file: Path) -> RecordError:
    return RecordError(
        f"{file} is not read, because it is an archive, a spreadsheet or packed with {file.suffix}; {_ACCEPTED}",
        "Unpack it, or save its sheet as CSV.",
    )


def labels(files: Sequence[Path]) -> list[str]:
    """Names of several files, relative to their common folder and without their endings."""
    folder = os.path.commonpath([file.parent.absolute() for file in files])
    return [file.absolute().relative_to(folder).with_suffix("").as_posix() for file in files]


def _refuse_missing(target: Path) -> None:
    if target.exists():
        raise RecordError(
            f"{target} is a pipe or a device; accepted: files and folders", "Save what it gives as a file."
        )
    if target.is_symlink():
        raise RecordError(f"{target} is a broken link", "Give the file or folder itself, or repair the link.")
    script = target.with_name(f"{target.name}.sh")
    if script.is_file():
        raise RecordError(
            f"no such folder: {target}; its run has not been trained yet",
            f"Start its script: bash {quote(str(script))}, or leave it out.",
        )
    beside = sorted(file.name for file in target.parent.iterdir()) if target.parent.is_dir() else []
    raise RecordError(
        f"no such file or folder: {target}",
        f"{did_you_mean(target.name, beside)}Give a file, a folder or a glob such as 'runs/*.csv'.",
    )


def _refuse_mixture(where: str, files: Sequence[Path]) -> None:
    counts = Counter(format_of(file) for file in files)
    if len(counts) > 1:
        raise RecordError(
            f"{where} mixes formats: {', '.join(f'{count} {kind}' for kind, count in counts.items())}; "
            "accepted: one format at a time",
            f"Name files of one kind, or choose with format=, such as {next(iter(counts))!r}: the same "
            "runs may be counted twice.",
        ).in_shell("Name files of one kind: the same runs may be counted twice.")


@dataclass(frozen=True)
class Listing:
    """What a path stands for, walked once, so that whoever looks for something there sees the same files."""

    path: Path
    """The file, folder or glob that was asked for."""
    below: Mapping[Path, tuple[Path, ...]]
    """The path, or everything that the glob matches -> the files at or below it."""
    locked: tuple[Path, ...]
    """Folders without read permission."""

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Listing:
        """Walk through a file, folder or glob; empty if nothing matches."""
        target = Path(path)
        roots = [target] if target.exists() else map(Path, sorted(glob.glob(str(path), recursive=True)))
        locked: list[Path] = []
        below = {root: tuple(files_below(root, locked)) for root in roots}
        return cls(target, below, tuple(dict.fromkeys(locked)))

    @cached_property
    def files(self) -> list[Path]:
        """All files, sorted, each once."""
        return sorted({file for files in self.below.values() for file in files})


def files_below(root: Path, locked: list[Path] | None = None) -> Iterator[Path]:
    """Regular files of `root`, which may be a file itself, each once, by the names that they have below it.

    Folders of runs are often links to where there is room; a name that is not a link comes before one that is. Folders
    without read permission are added to `locked`.
    """
    if root.is_file():
        yield root
        return
    seen = {os.path.realpath(above) for above in Path(os.path.realpath(root)).parents}

    def closed(error: OSError) -> None:
        if isinstance(error, PermissionError) and locked is not None:
            locked.append(Path(error.filename))

    roots, links = [root], list[Path]()
    while roots:
        folders_behind_links: list[Path] = []
        for start in roots:
            for here, folders, names in os.walk(start, onerror=closed):
                real = os.path.realpath(here)
                if real in seen:
                    folders.clear()
                    continue
                seen.add(real)
                inside = [Path(here, name) for name in sorted(folders) if not name.startswith(".")]
                folders_behind_links += [folder for folder in inside if folder.is_symlink()]
                folders[:] = [folder.name for folder in inside if not folder.is_symlink()]
                for file in (Path(here, name) for name in sorted(names) if not name.startswith(".")):
                    if file.is_symlink():
                        links.append(file)
                    elif file.is_file():  # whoever opens a pipe waits for its other end
                        seen.add(f"{real}/{file.name}")
                        yield file
        roots = folders_behind_links
    for file in links:
        real = os.path.realpath(file)
        if real not in seen and file.is_file():
            seen.add(real)
            yield file
