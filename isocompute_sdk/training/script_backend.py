"""`ScriptBackend`: base class of backends whose template is a script that resumes when it runs again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.log_runs import read_launched
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders.progress import Progress
from isocompute_sdk.run_folders.store import read_journals
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.backend import (
    BackendInfo,
    Launch,
    Requires,
    raise_if_refused,
    run_folder,
    this_interpreter,
    write_launch,
)
from isocompute_sdk.training.rendering import render


class ScriptBackend(ABC):
    """Implements the `Backend` protocol from `describe`, `preflight` and a template with its `values`."""

    name: str
    """Name under which the backend is registered."""
    log_format: str = "isocompute"
    """Log format of what training writes; the default is our journal, metrics.jsonl."""
    beside_sdk: bool = False
    """Whether training imports the SDK, and so starts with this interpreter unless PYTHON is set."""
    packages: tuple[str, ...] = ()
    """Packages that the interpreter of the script must have."""
    extends: bool = False
    """Whether a finished run that is made longer goes on from its last checkpoint, as if it had always been longer."""
    speed_options: frozenset[str] | None = None
    """Options that change no result, so that they may change between two starts of a run. None: unknown."""
    reads_inputs: bool = False
    """Whether training reads the run's problems, reward function and model."""

    @abstractmethod
    def describe(self) -> BackendInfo:
        """Its description."""

    @abstractmethod
    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Notes on a run before it starts; severity `refuse` blocks it."""

    def values(self, run: RunSpec) -> Mapping[str, Any]:
        """Template variables of an accepted run beside `run`, `folder`, `version` and `notes`."""
        del run
        return {}

    def documents(self, run: RunSpec) -> Mapping[str, str]:
        """Files (name -> text) that the script of an accepted run needs in the run folder."""
        del run
        return {}

    def template(self) -> str:
        """Template of the script: `templates/launch.sh.j2` in the package of the subclass."""
        package = type(self).__module__.partition(".")[0]
        return resources.files(package).joinpath("templates", "launch.sh.j2").read_text(encoding="utf-8")

    def script(self, run: RunSpec) -> str:
        """The launch script, which carries all it needs; bash runs it in the folder to which data paths are relative.

        Raises:
            BackendError: preflight refuses the run.
        """
        return self._rendered(run, self._accepted(run), self.documents(run), beside=False)

    def requires(self, run: RunSpec) -> Requires:
        """The packages, and the inputs if training reads them."""
        data, packages = run.data, Requires(packages=self.packages, beside_sdk=self.beside_sdk)
        if not self.reads_inputs:
            return packages
        return replace(packages, files=(data.train, data.validation), reward=data.reward, model=run.model)

    def prepare(self, run: RunSpec, folder: str | Path) -> Launch:
        """Write a short `launch.sh` and, beside it, the files it needs; return how to start it.

        Raises:
            BackendError: preflight refuses the run, and no file is written.
        """
        notes, documents = self._accepted(run), self.documents(run)
        script = self._rendered(run, notes, documents, beside=True)
        return write_launch(folder, script, this_interpreter() if self.beside_sdk else None, documents)

    def read_records(self, folder: str | Path) -> RunSet:
        """All measurements of the runs at or below a folder, read with their log format.

        Raises:
            RecordError: nothing was measured yet, or a file cannot be read.
        """
        form = load(self.log_format)
        if form.journal is not None:
            return read_journals(folder, form.journal.file, form.name)
        return read_launched(folder, form.name)

    def progress(self, folder: str | Path) -> Progress | None:
        """Progress of the run in one folder, from the end of its log; None before the first record."""
        return load(self.log_format).progress_in(Path(folder))

    def _accepted(self, run: RunSpec) -> tuple[Note, ...]:
        """The notes of a run that preflight accepts."""
        notes = self.preflight(run)
        raise_if_refused(notes, self.name, run.run_id)
        return notes

    def _rendered(self, run: RunSpec, notes: tuple[Note, ...], documents: Mapping[str, str], *, beside: bool) -> str:
        common = {"run": run, "folder": run_folder(run), "version": self.describe().version}
        carried = {"notes": notes, "documents": documents, "beside": beside}
        return render(self.template(), {**common, **carried, **self.values(run)})
