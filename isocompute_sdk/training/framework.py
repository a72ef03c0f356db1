"""`FrameworkBackend`: a backend from two tables, the framework's flags and what it refuses or does differently.

A new flag is one `Flag` in one table, a new refusal one `Rule` in the other. Both read a `Case`: a run with its
options, to which a framework adds what it derives from them as properties.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import BackendError
from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.reader import read_launched
from isocompute_sdk.notes import Note, Severity, unique
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders.progress import Progress
from isocompute_sdk.run_folders.store import REQUEST_FILE, read_journals
from isocompute_sdk.specs import Evaluation, Recipe, RunSpec, Spec
from isocompute_sdk.training.backend import (
    BackendInfo,
    FrameworkOptions,
    Launch,
    Needs,
    Requires,
    describe_options,
    raise_if_refused,
    read_options,
    run_folder,
    this_interpreter,
    write_launch,
)
from isocompute_sdk.training.existing import Setting
from isocompute_sdk.training.payload import programs
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


REMEDY = "Run launch.sh again in the same place; it rewrites the file."


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a launch script asks for, and what the programs beside the training need."""

    framework: str
    """Package that must be installed."""
    version: str
    """Its version."""
    run: RunSpec
    identity: dict[str, Any]
    """Everything that a later start in the same folder must have in common with the first."""
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    """Context of the run's records."""
    gpus: int = 1
    """GPUs of all machines."""
    chat_template: bool = True
    eval_samples_per_pass: int = 1
    misread_in_paths: tuple[str, ...] = ()
    """Texts that the path of the run folder must not contain."""


def request_document(backend: str) -> Document[Request]:
    """How request.json of a backend is saved."""
    return Document(f"{backend}-run", 1, Request, signed=False, remedy=REMEDY)


Options = TypeVar("Options", bound=Spec)
C = TypeVar("C", bound="Case[Any]")
Part = Literal["plan", "recipe", ""]
USUAL_NODE = 8
"""GPUs of a machine if `nodes` is not set."""


@dataclass(frozen=True)
class Case(Generic[Options]):
    """A run with its options: what flags and rules read."""

    run: RunSpec
    options: Options
    framework: ClassVar[str] = ""
    """As its own documentation spells it."""

    @property
    def recipe(self) -> Recipe:
        """The run's recipe."""
        return self.run.recipe

    @property
    def evaluation(self) -> Evaluation:
        """The run's evaluation."""
        return self.run.evaluation

    @property
    def gpus(self) -> int:
        """GPUs of all machines."""
        return max(self.run.hardware.gpu_counts)

    @property
    def nodes(self) -> int:
        """Machines: the option `nodes`, else 1 up to 8 GPUs, else one for every 8 GPUs."""
        return getattr(self.options, "nodes", None) or max(1, self.gpus // USUAL_NODE)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of one machine."""
        return self.gpus // self.nodes

    @property
    def longest(self) -> int:
        """Tokens of prompt and response together."""
        return self.recipe.max_prompt_tokens + self.recipe.max_response_tokens

    @property
    def ppo(self) -> bool:
        """Whether a value model is trained."""
        return self.recipe.algorithm == "ppo"

    @property
    def cispo(self) -> bool:
        """Whether the loss is that of CISPO."""
        return self.recipe.algorithm == "cispo"

    @property
    def tis(self) -> bool:
        """Whether truncated importance weights are applied."""
        return self.recipe.importance_sampling == "tis"

    @property
    def problem_files(self) -> dict[str, str]:
        """Files of problems, by field of the spec."""
        return {"data.train": self.run.data.train, "data.validation": self.run.data.validation}

    @property
    def paths(self) -> dict[str, str]:
        """All fields of a run that may be paths, by name."""
        run = self.run
        return {"model": run.model, "output_dir": run.output_dir, **self.problem_files, "data.reward": run.data.reward}

    @property
    def values(self) -> dict[str, Any]:
        """What a rule's message may show."""
        return {
            "c": self,
            "run": self.run,
            "recipe": self.recipe,
            "evaluation": self.evaluation,
            "options": self.options,
        }


@dataclass(frozen=True)
class Place:
    """A value that is known only where the script runs: a path below the run folder, or the model."""

    path: str
    """Below the run folder; empty for the model."""


MODEL = Place("")


@dataclass(frozen=True)
class Flag:
    """One line of a table of flags."""

    name: str
    """The framework's full name, without dashes."""
    value: Any
    """What it is set to; a function is called with the case."""
    part: Part = ""
    """What decides it: `plan` (n, B_p, M, learning rate and schedule, evaluation), `recipe` (the objective and how
    responses are sampled), or nothing that `--overrides` and `--against` compare."""
    when: str = ""
    """Field of the case without which the flag is left out."""


Value = str | Callable[[Any], Any]
"""A field of the case, such as `recipe.top_p`, or a function of the case."""


def looked_up(value: Value) -> Callable[[Any], Any]:
    """The function that gives a value of a case."""
    return attrgetter(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Section:
    """Flags under one heading of the script."""

    title: str
    flags: tuple[Flag, ...]
    when: str = ""
    """Field of the case without which the section is left out."""


def plan(name: str, value: Value, when: str = "") -> Flag:
    """A flag of the plan, from a field or a function of the case."""
    return Flag(name, looked_up(value), "plan", when)


def recipe(name: str, value: Value, when: str = "") -> Flag:
    """A flag of the recipe, from a field or a function of the case."""
    return Flag(name, looked_up(value), "recipe", when)


def own(name: str, value: Value, when: str = "") -> Flag:
    """A flag of machines, memory, files and logs, from a field or a function of the case."""
    return Flag(name, looked_up(value), "", when)


def filled(table: Iterable[Section], case: Case[Any]) -> tuple[Section, ...]:
    """The table with the values of a case; flags that the user hands through come last, instead of the table's."""
    passed: Mapping[str, Any] = case.options.passed if isinstance(case.options, FrameworkOptions) else {}

    def holds(when: str) -> bool:
        return not when or bool(looked_up(when)(case))

    found: list[Section] = []
    for section in table:
        if not holds(section.when):
            continue
        flags = [
            Flag(one.name, one.value(case) if callable(one.value) else one.value, one.part)
            for one in section.flags
            if holds(one.when) and one.name not in passed
        ]
        if flags:
            found.append(Section(section.title, tuple(flags)))
    if passed:
        found.append(Section("passed through", tuple(Flag(name, value) for name, value in passed.items())))
    return tuple(found)


Check = Callable[[C], Iterable[Note]]
"""Notes on a case; a `Rule` is one."""


@dataclass(frozen=True)
class Rule(Generic[C]):
    """One thing that a framework refuses, or does differently."""

    field: str
    """What decides it, such as `recipe.algorithm`."""
    when: Callable[[C], bool]
    message: str
    """Why, and what to do; `{recipe.top_p:g}` and the like are filled in."""
    code: str = "unsupported"
    severity: Severity = "refuse"
    data: tuple[str, ...] = ()
    """Fields of the case whose values stand in the note's data."""

    def __call__(self, case: C) -> Iterable[Note]:
        """Its note, where it applies."""
        if self.when(case):
            numbers = {path.rpartition(".")[2]: looked_up(path)(case) for path in self.data}
            yield Note(self.code, self.severity, self.message.format(**case.values), {"field": self.field, **numbers})


def checked(
    run: RunSpec, model: type[Options], case_of: Callable[[RunSpec, Options], C], checks: Iterable[Check[C]]
) -> tuple[Note, ...]:
    """All notes on a run. Where its options cannot be used, the rest is checked with the default ones."""
    options, notes = read_options(run, model)
    case = case_of(run, model() if options is None else options)
    found = [note for check in checks for note in check(case)]
    if options is None:
        found = [note for note in found if not str(note.data.get("field", "")).startswith("options.")]
    return unique((*run.recipe.notes(), *found, *notes))


class FrameworkBackend(ScriptBackend, Generic[C]):
    """A `ScriptBackend` of a framework that takes a command line or a list of settings."""

    INFO: ClassVar[BackendInfo]
    """Its description, without the options."""
    OPTIONS: ClassVar[type[FrameworkOptions]]
    CASE: ClassVar[type[Any]]
    FLAGS: ClassVar[tuple[Section, ...]]
    CHECKS: ClassVar[tuple[Any, ...]]
    SAME: ClassVar[tuple[str, ...]]
    """Fields of the case that a resumed run cannot change, such as the number of GPUs of a sharded checkpoint."""
    MISREAD_IN_PATHS: ClassVar[tuple[str, ...]] = ()
    """Texts that the framework misreads in the path of a run folder."""
    PROGRAMS: ClassVar[tuple[str, ...]]
    """Programs that the script writes into the run folder besides those of the SDK."""
    reads_inputs: bool = True

    def describe(self) -> BackendInfo:
        """Its description."""
        return replace(self.INFO, options=describe_options(self.OPTIONS), passes=self.OPTIONS.PASSES)

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        """Notes on a run before it starts."""
        return checked(run, self.OPTIONS, self.CASE, self.CHECKS)

    def needs(self, run: RunSpec) -> Needs:
        """The GPUs of one node of a framework on Ray; they may all be elsewhere if it joins a cluster."""
        case = self.case(run)
        elsewhere = case.nodes > 1 or bool(os.environ.get("RAY_ADDRESS"))
        return Needs(case.gpus_per_node, or_cpu=elsewhere, nodes=case.nodes, ray=True)

    def case(self, run: RunSpec) -> C:
        """An accepted run with its options.

        Raises:
            BackendError: the options cannot be used.
        """
        options, notes = read_options(run, self.OPTIONS)
        if options is None:
            raise BackendError(notes[0].message, "Correct the options.")
        return self.CASE(run, options)

    def sections(self, run: RunSpec) -> tuple[Section, ...]:
        """All flags of an accepted run with their values, in the order of the script."""
        return filled(self.FLAGS, self.case(run))

    def words(self, flag: Flag) -> tuple[str, ...]:
        """The words of a command that set a flag."""
        raise NotImplementedError

    def settings(self, run: RunSpec) -> tuple[Setting, ...]:
        """The flags of plan and recipe."""
        flags = [flag for section in self.sections(run) for flag in section.flags if flag.part]
        return tuple(Setting(flag.name, flag.value, self.words(flag), flag.part == "plan") for flag in flags)

    def request(self, case: Any) -> Request:
        """What the programs in the run folder work from.

        Its identity has no options that only affect speed and memory, so a run can be resumed with others.
        """
        run, version = case.run, self.INFO.version
        same = {path.rpartition(".")[2]: looked_up(path)(case) for path in self.SAME}
        document = run.model_dump(mode="json", exclude={"options", "output_dir", "hardware"})
        return Request(
            framework=self.packages[0],
            version=version,
            run=run,
            identity={**document, "version": version, **same},
            context=dict(run.context()),
            gpus=case.gpus,
            chat_template=getattr(case.options, "chat_template", True),
            eval_samples_per_pass=getattr(case.options, "eval_samples_per_pass", 1),
            misread_in_paths=self.MISREAD_IN_PATHS,
        )

    def documents(self, run: RunSpec) -> dict[str, str]:
        """The request, and the programs of the script."""
        package = type(self).__module__.partition(".")[0]
        return {
            REQUEST_FILE: request_document(self.name).to_text(self.request(self.case(run))),
            **programs(f"{package}.payload", self.PROGRAMS),
        }
