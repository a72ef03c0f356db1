"""What a backend is: a translator from a `RunSpec` to one script, and from what a run logged to a `RunSet`.

A backend imports no training framework. Training is another process, often with another interpreter,
because frameworks pin their own torch and vLLM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, get_args, get_origin, runtime_checkable

from isocompute_sdk.errors import BackendError, SpecError
from isocompute_sdk.files import write_text
from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec, Spec
from isocompute_sdk.specs.problems import close_match

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.run_folders.progress import Progress
    from isocompute_sdk.run_folders.store import RunWatch

SCRIPT = "launch.sh"
"""The one file that starts a run; every executor runs it, and running it again resumes."""

Options = TypeVar("Options", bound=Spec)


@dataclass(frozen=True)
class BackendOption:
    """One entry of `RunSpec.options` that a backend reads."""

    name: str
    """Key in `options`."""
    type: str
    """What is accepted, e.g. `int` or `bool`."""
    default: str | int | float | bool | None
    """Value used where the key is absent; None means that it is derived from the run."""
    description: str
    """Meaning and unit."""


@dataclass(frozen=True)
class BackendInfo:
    """What a backend drives, which versions it was written for and what it needs."""

    name: str
    """Name it is loaded by."""
    framework: str
    """Training framework, as its own documentation spells it."""
    version: str
    """Exact framework version whose flags and behaviour the backend was checked against."""
    summary: str
    """One sentence."""
    needs: tuple[str, ...]
    """What has to be installed or present where the script runs."""
    algorithms: tuple[str, ...]
    """Values of `Recipe.algorithm` that it can run."""
    options: tuple[BackendOption, ...]
    """Everything that `RunSpec.options` may hold."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Launch:
    """A prepared run: files on disk and the command that starts it."""

    folder: Path
    """Folder the files were written to."""
    files: tuple[Path, ...]
    """Everything written, the script first."""
    argv: tuple[str, ...]
    """Command; run it in the folder that the data paths of the run are relative to."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables to add."""


@runtime_checkable
class Backend(Protocol):
    """The contract every backend meets; test_contract.py and test_progress.py in tests/backends check it."""

    @property
    def name(self) -> str:
        """Name the backend is registered under."""
        ...

    def describe(self) -> BackendInfo:
        """What it drives and needs. Reads nothing from disk or network."""
        ...

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Everything worth knowing before the run starts; a note of severity `refuse` blocks it."""
        ...

    def script(self, run: RunSpec) -> str:
        """The whole bash script. Pure: the same run gives the same text, and nothing is written.

        Raises:
            BackendError: preflight refuses the run.
        """
        ...

    def prepare(self, run: RunSpec, folder: str | Path) -> Launch:
        """Write `launch.sh` into `folder` in one step and say how to start it.

        Raises:
            BackendError: preflight refuses the run; nothing is written then.
        """
        ...

    def resume(self, run: RunSpec, folder: str | Path) -> Launch:
        """Say how to go on with a run that was prepared in `folder` and stopped; options of speed may differ.

        Raises:
            BackendError: nothing was prepared there, or another run; preflight refuses the run.
        """
        ...

    def read_records(self, folder: str | Path) -> RunSet:
        """Everything measured so far by the run, or the runs, in a folder that this backend's script wrote.

        Raises:
            RecordError: there is nothing to read yet, or it cannot be read.
        """
        ...


@runtime_checkable
class TellsProgress(Protocol):
    """What a backend may have beside the contract; of others metrics.jsonl is looked at."""

    def progress(self, folder: str | Path) -> Progress | None:
        """How far the run in one folder is, from the end of what its framework writes; None before it says anything.

        Cheap: it is asked again and again while the run goes on.
        """
        ...


def follow(backend: Backend, folder: str | Path) -> RunWatch:
    """Follow a run by what its backend knows of it."""
    from isocompute_sdk.run_folders.store import RunWatch

    return RunWatch(folder, backend.progress) if isinstance(backend, TellsProgress) else RunWatch(folder)


def write_launch(folder: str | Path, script: str, env: Mapping[str, str] | None = None) -> Launch:
    """Write a script as the `launch.sh` of a folder, in one step, and say how to start it."""
    path = write_text(Path(folder) / SCRIPT, script, executable=True)
    return Launch(folder=Path(folder), files=(path,), argv=("bash", str(path)), env=env or {})


def resume_launch(backend: Backend, run: RunSpec, folder: str | Path) -> Launch:
    """`Backend.resume` for a script that goes on by itself when it is run again in the same place.

    Raises:
        BackendError: nothing was prepared there, or another run; preflight refuses the run.
    """
    from isocompute_sdk.run_folders.store import another, read_spec

    if not (Path(folder) / SCRIPT).exists():
        raise BackendError(
            f"nothing to resume in {folder}: it holds no {SCRIPT}", "Start the run with prepare (`isocompute run`)."
        )
    earlier = read_spec(folder)
    if earlier is not None:
        changed = another(earlier, run)
        if changed is not None:
            raise BackendError(
                f"{folder} was prepared for a run with another {changed}",
                "Resume it with what it was prepared for, or prepare the new run in a folder of its own.",
            )
    return backend.prepare(run, folder)


def this_interpreter() -> dict[str, str]:
    """Environment for a runner that is installed beside the SDK: this interpreter, unless PYTHON names another."""
    return {} if os.environ.get("PYTHON") else {"PYTHON": sys.executable}


def raise_if_refused(notes: Iterable[Note], backend: str, run_id: str) -> None:
    """Turn refusing notes into one error that names each of them.

    Raises:
        BackendError: at least one note has the severity `refuse`.
    """
    refused = [note for note in notes if note.severity == "refuse"]
    if not refused:
        return
    reasons = "\n".join(f"  [{note.code}] {note.message}" for note in refused)
    raise BackendError(
        f"backend {backend!r} cannot run {run_id!r} as it is specified:\n{reasons}",
        "Change what is named above, or choose another backend (`isocompute backends` lists them).",
    )


def run_folder(run: RunSpec) -> str:
    """The run's own folder: `output_dir/run_id`, or `output_dir` where that ends in the run's name already."""
    folder = PurePosixPath(run.output_dir)
    return str(folder if folder.name == run.run_id else folder / run.run_id)


def read_options(run: RunSpec, model: type[Options]) -> tuple[Options | None, tuple[Note, ...]]:
    """The options of a run as the spec that a backend keeps them in, or refusing notes on what is wrong with them."""
    known = list(model.model_fields)
    notes: list[Note] = []
    for name in run.options:
        if name not in known:
            meant = close_match(name, known)
            suggestion = f" Did you mean {meant}?" if meant else ""
            message = f"unknown option {name!r}; accepted: {', '.join(known)}.{suggestion}"
            notes.append(Note("unknown-option", "refuse", message, {"option": name, "close_match": meant}))
    if notes:
        return None, tuple(notes)
    try:
        return model.model_validate(run.options), ()
    except SpecError as error:
        return None, (invalid_option(error),)


def invalid_option(error: SpecError) -> Note:
    """The refusing note on an option whose value is wrong."""
    return Note("invalid-option", "refuse", str(error).replace("\n  ", " "))


def describe_options(model: type[Spec]) -> tuple[BackendOption, ...]:
    """Options with their documentation, for `BackendInfo`, from the spec that a backend keeps them in."""
    return tuple(
        BackendOption(name, _type_name(field.annotation), field.default, " ".join((field.description or "").split()))
        for name, field in model.model_fields.items()
    )


def _type_name(annotation: object) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    plain = [a for a in get_args(annotation) if a is not type(None)] or [annotation]
    inner = get_args(plain[0])
    return cast("type", inner[0] if inner else plain[0]).__name__
