"""The `Backend` protocol: translate a `RunSpec` to one script, and logs of that script to a `RunSet`.

A backend imports no training framework: training is another process, often with another interpreter, because frameworks
pin their own torch and vLLM.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, cast, get_args, get_origin, runtime_checkable

from pydantic import AfterValidator, ConfigDict

from isocompute_sdk.errors import BackendError, SpecError
from isocompute_sdk.files import write_text
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders.store import SCRIPT, RunWatch
from isocompute_sdk.specs import RunSpec, Spec
from isocompute_sdk.specs.base import Text
from isocompute_sdk.specs.syntax.complaints import close_match, meanings, problem

_SET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RESERVED = ("train", "validation", "train_probe", "default", "unknown")
"""Names of evaluation sets that have a meaning here or in OpenRLHF."""
Options = TypeVar("Options", bound=Spec)


class FrameworkOptions(Spec):
    """Options of a backend that also hands flags of its framework through, under the framework's own names."""

    model_config = ConfigDict(extra="allow")
    PASSES: ClassVar[tuple[str, ...]] = ()
    """Flags that are handed through, as `fnmatch` patterns. Only flags of speed, memory, logs and machines belong
    here: what decides n, B_p, M or the objective stands in the plan and the recipe."""

    @classmethod
    def passes(cls, name: str) -> bool:
        """Whether a flag is handed through; `+` before a name adds a key, as in Hydra."""
        return any(fnmatchcase(name.lstrip("+"), pattern) for pattern in cls.PASSES)

    @property
    def loggers(self) -> list[str]:
        """Loggers beside the framework's own that an option of their name turns on."""
        return [name for name in ("tensorboard", "wandb", "mlflow") if getattr(self, name, False)]

    @property
    def passed(self) -> dict[str, str | int | float | bool]:
        """The flags handed through, by name."""
        return dict(self.model_extra or {})


@dataclass(frozen=True)
class BackendOption:
    """One entry of `RunSpec.options` that a backend accepts."""

    name: str
    """Key in `options`."""
    type: str
    """Accepted type, e.g. `int` or `bool`."""
    default: str | int | float | bool | None
    """Value if the key is absent; None is derived from the run."""
    description: str
    """Meaning and unit."""


@dataclass(frozen=True)
class BackendInfo:
    """Description of a backend: framework, version, requirements, options."""

    name: str
    """Name under which it is registered."""
    framework: str
    """Training framework, as its own documentation spells it."""
    version: str
    """Exact framework version for which it is written and tested."""
    summary: str
    """One sentence."""
    needs: tuple[str, ...]
    """What must be installed or present where the script runs."""
    algorithms: tuple[str, ...]
    """Values of `Recipe.algorithm` that it runs."""
    options: tuple[BackendOption, ...] = ()
    """All accepted options."""
    install: tuple[str, ...] = ()
    """Shell commands that make an environment for it, in order."""
    passes: tuple[str, ...] = ()
    """Flags of the framework that options may also name, as patterns."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Launch:
    """A prepared run: its files and the command that starts it."""

    folder: Path
    """Folder of the files."""
    files: tuple[Path, ...]
    """All files written, the script first."""
    argv: tuple[str, ...]
    """Command; its working directory is the folder to which the run's data paths are relative."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables to add."""


@dataclass(frozen=True)
class Needs:
    """Devices that one run needs on the machine that starts its script."""

    gpus: int = 0
    """GPUs that the run has to itself."""
    or_cpu: bool = False
    """Whether the run trains on the CPU if no GPU is visible."""
    source: str = "hardware.gpus"
    """What in a study decides it, for messages: a field, or an option of the backend."""
    nodes: int = 1
    """Machines that have these GPUs each."""
    ray: bool = False
    """Whether the framework starts or joins a Ray cluster, in which it reserves the GPUs itself."""


@dataclass(frozen=True)
class Requires:
    """What must be present where a run starts."""

    files: tuple[str, ...] = ()
    """Files with problems, JSON lines, relative to the folder in which the script starts."""
    reward: str | None = None
    """`file.py` or `file.py:function`. None: no reward function is read."""
    model: str | None = None
    """Base model: a folder, or a hub's name. None: no model is read."""
    packages: tuple[str, ...] = ()
    """Packages that the interpreter of the script must have."""
    beside_sdk: bool = False
    """Whether that interpreter is this one, unless PYTHON is set; otherwise python3."""


@runtime_checkable
class Backend(Protocol):
    """The contract of every backend, checked by test_contract.py and test_progress.py in tests/backends."""

    @property
    def name(self) -> str:
        """Name under which the backend is registered."""
        ...

    def describe(self) -> BackendInfo:
        """Its description; needs neither disk nor network."""
        ...

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Notes on a run before it starts; severity `refuse` blocks it."""
        ...

    def script(self, run: RunSpec) -> str:
        """The bash script. Pure: the same run gives the same text, and no file is written.

        Raises:
            BackendError: preflight refuses the run.
        """
        ...

    def prepare(self, run: RunSpec, folder: str | Path) -> Launch:
        """Write `launch.sh` and the files it needs into `folder`; return how to start it.

        Raises:
            BackendError: preflight refuses the run, and no file is written.
        """
        ...

    def read_records(self, folder: str | Path) -> RunSet:
        """All measurements so far of the run or runs at or below a folder that this backend's script wrote.

        Raises:
            RecordError: nothing was measured yet, or a file cannot be read.
        """
        ...


# Optional additions to the contract, each a method or an attribute of a backend that has it; `ScriptBackend` has all.


def requires_of(backend: Backend, run: RunSpec) -> Requires | None:
    """`backend.requires(run)`: what must be present where an accepted run starts; None if the backend does not say."""
    requires = getattr(backend, "requires", None)
    return None if requires is None else requires(run)


def needs_of(backend: Backend, run: RunSpec) -> Needs:
    """`backend.needs(run)`: devices of an accepted run; else `hardware.gpus` GPUs, or the CPU if no GPU is visible."""
    needs = getattr(backend, "needs", None)
    return Needs(max(run.hardware.gpu_counts), or_cpu=True) if needs is None else needs(run)


def extends_runs(backend: Backend) -> bool:
    """`backend.extends`: whether a finished run that is made longer goes on from its last checkpoint."""
    return bool(getattr(backend, "extends", False))


def speed_options_of(backend: Backend) -> frozenset[str] | None:
    """`backend.speed_options`: options that change no result; None if unknown."""
    return getattr(backend, "speed_options", None)


def follow(backend: Backend, folder: str | Path) -> RunWatch:
    """A `RunWatch` that reads progress by `backend.progress(folder)`, which must be cheap; else from metrics.jsonl."""
    progress = getattr(backend, "progress", None)
    return RunWatch(folder) if progress is None else RunWatch(folder, progress)


def write_launch(
    folder: str | Path,
    script: str,
    env: Mapping[str, str] | None = None,
    beside: Mapping[str, str] | None = None,
) -> Launch:
    """Write a script as `launch.sh` of a folder, after the files `beside` it, and return how to start it."""
    others = [write_text(Path(folder) / name, text) for name, text in (beside or {}).items()]
    path = write_text(Path(folder) / SCRIPT, script, executable=True)
    return Launch(folder=Path(folder), files=(path, *others), argv=("bash", str(path)), env=env or {})


def this_interpreter() -> dict[str, str]:
    """Environment for a runner installed beside the SDK: PYTHON is this interpreter unless it is set."""
    return {} if os.environ.get("PYTHON") else {"PYTHON": sys.executable}


def raise_if_refused(notes: Iterable[Note], backend: str, run_id: str) -> None:
    """Raise one error that lists all refusing notes."""
    refused = [note for note in notes if note.severity == "refuse"]
    if not refused:
        return
    reasons = "\n".join(
        f"  [{note.code}: {note.data['field']}] {note.message}"
        if "field" in note.data
        else f"  [{note.code}] {note.message}"
        for note in refused
    )
    raise BackendError(
        f"backend {backend!r} cannot run {run_id!r} as specified:\n{reasons}",
        "Change the settings named above, or choose another backend (`isocompute list backends` lists them).",
    )


def run_folder(run: RunSpec) -> str:
    """The run's folder: `output_dir/run_id`, or `output_dir` if it already ends in the run's name."""
    folder = PurePosixPath(run.output_dir)
    return str(folder if folder.name == run.run_id else folder / run.run_id)


def read_options(run: RunSpec, model: type[Options]) -> tuple[Options | None, tuple[Note, ...]]:
    """The options of a run as an instance of `model`, or None with refusing notes on what is wrong."""
    known = list(model.model_fields)
    passes = model.passes if issubclass(model, FrameworkOptions) else None
    notes: list[Note] = []
    passed: list[str] = []
    for name in run.options:
        if passes is not None and passes(name):
            passed.append(name)
        elif name not in known:
            meant = close_match(name, known)
            suggestion = f" Did you mean {meant}?" if meant else ""
            if passes is not None:
                suggestion += (
                    " Flags of the framework that decide neither n, B_p, M nor the objective are passed through; "
                    "`isocompute list backends NAME` lists them. n, B_p, M and fields of the recipe are "
                    "changed in the plan (`isocompute launch --change`) or in the study."
                )
            message = f"unknown option {name!r}; accepted: {', '.join(known)}.{suggestion}"
            data = {"field": f"options.{name}", "option": name, "close_match": meant}
            notes.append(Note("unsupported", "refuse", message, data))
    if notes:
        return None, tuple(notes)
    if passed:
        shown = ", ".join(f"{name}={run.options[name]}" for name in passed)
        message = f"passed to the framework unchecked: {shown}."
        notes.append(Note("before-start", "info", message, {"flags": passed}))
    try:
        return model.model_validate(run.options), tuple(notes)
    except SpecError as error:
        return None, (invalid_option(error),)


def invalid_option(error: SpecError) -> Note:
    """The refusing note on an option with a wrong value."""
    message = re.sub(r"\b\w+Options\b", "options", str(error)).replace("\n  ", " ")
    field = message.partition(":")[0].removeprefix("options.")
    return Note("unsupported", "refuse", message, {"field": f"options.{field}" if field != "options" else field})


def files_by_name(text: str | None) -> dict[str, str]:
    """What `NamedFiles` holds, name -> file; empty for None."""
    pairs = (entry.partition("=") for entry in text.split(",")) if text else ()
    return {name.strip(): file.strip() for name, _, file in pairs}


def _named_files(text: str) -> str:
    files = files_by_name(text)
    whole = len(files) == text.count(",") + 1 and all(files.values())
    if not whole or not all(_SET_NAME.fullmatch(name) and name not in RESERVED for name in files):
        raise problem(
            accepted="name=file.jsonl, separated by commas, with new names of letters, digits, '.', '_' and '-' "
            f"(reserved: {', '.join(RESERVED)})"
        )
    return text


NamedFiles = Annotated[Text, AfterValidator(_named_files)]
"""Further evaluation sets, such as `hard=hard.jsonl,easy=easy.jsonl`."""


def describe_options(model: type[Spec]) -> tuple[BackendOption, ...]:
    """Fields of `model` with their docstrings, for `BackendInfo.options`."""
    texts = meanings(model)
    return tuple(
        BackendOption(name, _type_name(field.annotation), field.default, " ".join(texts.get(name, "").split()))
        for name, field in model.model_fields.items()
    )


def _type_name(annotation: object) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, get_args(annotation)))
    plain = [a for a in get_args(annotation) if a is not type(None)] or [annotation]
    inner = get_args(plain[0])
    return cast("type", inner[0] if inner else plain[0]).__name__
