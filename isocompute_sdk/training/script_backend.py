"""The part of a backend that is the same wherever one template makes a script that goes on when it is run again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from isocompute_sdk.ingest.log_runs import read_launched
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders.progress import Progress, journal_progress
from isocompute_sdk.run_folders.store import METRICS_FILE, read_journals
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.backend import (
    BackendInfo,
    Launch,
    raise_if_refused,
    resume_launch,
    run_folder,
    this_interpreter,
    write_launch,
)
from isocompute_sdk.training.rendering import render


class ScriptBackend(ABC):
    """Meets the `Backend` protocol; a subclass says what it drives, what it refuses and what its template needs."""

    name: str
    """Name the backend is registered under."""
    log_format: str | None = None
    """Log format of the framework's own logs; None if training writes a journal, metrics.jsonl."""
    beside_sdk: bool = False
    """Whether training needs the SDK, so that it starts with this interpreter unless PYTHON names another."""

    @abstractmethod
    def describe(self) -> BackendInfo:
        """What it drives and needs."""

    @abstractmethod
    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """What is refused and what is worth knowing about `run`."""

    def values(self, run: RunSpec) -> Mapping[str, Any]:
        """What the template of a run that is not refused needs beside `run`, `folder`, `version` and `notes`."""
        del run
        return {}

    def template(self) -> str:
        """The template of the script: `templates/launch.sh.j2` in the package of the subclass."""
        package = type(self).__module__.partition(".")[0]
        return resources.files(package).joinpath("templates", "launch.sh.j2").read_text(encoding="utf-8")

    def script(self, run: RunSpec) -> str:
        """The launch script. Run it with bash in the folder that the data paths are relative to.

        Raises:
            BackendError: preflight refuses the run.
        """
        notes = self.preflight(run)
        raise_if_refused(notes, self.name, run.run_id)
        common = {"run": run, "folder": run_folder(run), "version": self.describe().version, "notes": notes}
        return render(self.template(), {**common, **self.values(run)})

    def prepare(self, run: RunSpec, folder: str | Path) -> Launch:
        """Write `launch.sh` into `folder` and return the command that starts it.

        Raises:
            BackendError: preflight refuses the run; nothing is written then.
        """
        return write_launch(folder, self.script(run), this_interpreter() if self.beside_sdk else None)

    def resume(self, run: RunSpec, folder: str | Path) -> Launch:
        """Say how to go on: the script does so by itself.

        Raises:
            BackendError: nothing was prepared there, or another run; preflight refuses the run.
        """
        return resume_launch(self, run, folder)

    def read_records(self, folder: str | Path) -> RunSet:
        """Everything that the runs at or below the folder have measured, by their log format.

        Raises:
            RecordError: nothing was measured yet, or a file cannot be read.
        """
        return read_journals(folder) if self.log_format is None else read_launched(folder, self.log_format)

    def progress(self, folder: str | Path) -> Progress | None:
        """How far the run in one folder is, from the end of its metrics.jsonl; None before it has one."""
        return journal_progress(Path(folder) / METRICS_FILE)
