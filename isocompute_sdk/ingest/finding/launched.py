"""Folders of runs that launch scripts of this package started: whatever lies in one belongs to its run.

Backends whose framework has a log of its own leave a request.json whose `kind` their `LogFormat` names; the others
write a journal, metrics.jsonl, which says everything itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.files import parse_json, read_text
from isocompute_sdk.ingest.formats.log_format import LogFormat
from isocompute_sdk.ingest.formats.registry import formats, journals
from isocompute_sdk.ingest.stores.packed import as_kept

REQUEST = "request.json"
MARKS = (REQUEST, "claim_folder.py")
"""Files that every such folder holds."""


def format_of_folder(folder: Path) -> LogFormat | None:
    """The format of the run in a folder, by its request; None for a run with a journal, and for any other folder."""
    try:
        raw = parse_json(read_text(folder / REQUEST, what="a run's request"))
    except (IsoComputeError, ValueError):
        return None
    kind = raw.get("kind") if isinstance(raw, dict) else None
    return next((one for one in formats() if one.run_folder is not None and one.run_folder.kind == kind), None)


def run_id_of(folder: Path) -> str | None:
    """Name of the run that a launch script's folder is of; None if its request does not say."""
    try:
        return str(parse_json(read_text(folder / REQUEST, what="a run's request"))["run"]["run_id"])
    except (IsoComputeError, ValueError, KeyError, TypeError):
        return None


def launched_among(files: Iterable[Path]) -> dict[Path, LogFormat]:
    """Folders of runs, by the files that lie at or below some path -> their format."""
    folders = [file.parent for file in files if file.name == REQUEST]
    found = {folder: format_of_folder(folder) for folder in folders}
    return {folder: form for folder, form in found.items() if form is not None}


def is_run_folder(folder: Path) -> bool:
    """Whether a launch script made the folder."""
    return all((folder / name).is_file() for name in MARKS)


def run_folder_of(path: Path, root: Path) -> Path | None:
    """The folder of a run that `path` is or lies in, at or below `root`; None if there is none."""
    here = path
    while True:
        if is_run_folder(here):
            return here
        if here in (root, here.parent) or root not in here.parents:
            return None
        here = here.parent


def belongs_to_run(file: Path, root: Path) -> bool:
    """Whether a file lies in the folder of a run at or below `root`, one with a journal of the built-in runner too."""
    return run_folder_of(file.parent, root) is not None or belongs_to_journal(file, root)


def belongs_to_journal(file: Path, root: Path) -> bool:
    """Whether a file lies in or below a folder with a journal, at or below `root`."""
    above = [folder for folder in (file, *file.parents) if folder == root or root in folder.parents]
    kinds = [one.journal for one in journals() if one.journal is not None]
    return any(one.holds(as_kept(folder / one.file)) for folder in above for one in kinds)


def has_journal(folder: Path) -> bool:
    """Whether a folder has a file with the name of a journal, which may have nothing in it yet."""
    return any(one.journal is not None and as_kept(folder / one.journal.file).exists() for one in journals())
