"""Folders of runs that launch scripts of this package started: whatever lies in one belongs to its run."""

from __future__ import annotations

from pathlib import Path

from isocompute_sdk.ingest.stores.journal import looks_like_journal
from isocompute_sdk.ingest.stores.packed import as_kept

MARKS = ("request.json", "claim_folder.py")
"""Files that every such folder holds."""
JOURNAL = "metrics.jsonl"


def is_run_folder(folder: Path) -> bool:
    """Whether a launch script made the folder."""
    return all((folder / name).is_file() for name in MARKS)


def run_folder_of(path: Path, root: Path) -> Path | None:
    """The folder of a run that `path` is or lies in, at or below `root`; None where there is none."""
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
    above = [folder for folder in file.parents if folder == root or root in folder.parents]
    return any(looks_like_journal(as_kept(folder / JOURNAL)) for folder in above)
