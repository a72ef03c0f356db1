"""`Study`: a whole experiment in one file; `Pilot`: runs that are chosen while it goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, GetJsonSchemaHandler, PlainSerializer, PlainValidator, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from isocompute_sdk.errors import BackendError, SpecError, show
from isocompute_sdk.plugins import Plugins
from isocompute_sdk.specs.base import Count, Flag, ModelName, Quantity, Spec, Text, in_unit
from isocompute_sdk.specs.budget import Budget
from isocompute_sdk.specs.recipe import Recipe
from isocompute_sdk.specs.run import Data, Evaluation, FolderName, Hardware, Option, OptionName, RunSpec, batch_refusal
from isocompute_sdk.specs.sweep import Allocation, Seed, Sweep
from isocompute_sdk.specs.syntax.complaints import problem, suggestion
from isocompute_sdk.specs.syntax.quantities import Number
from isocompute_sdk.specs.throughput import Throughput

_EXECUTORS = Plugins("isocompute.executors", "executor", BackendError)


class ExecutorSpec(Spec):
    """What starts the runs of a study. A subclass adds the options of one executor, and `executor()`."""

    name: FolderName
    """Name of the executor, such as local, slurm or ray."""
    parallel: Annotated[Count | None, in_unit("runs")] = None
    """Runs at a time. None: as many as fit."""
    grace_seconds: Annotated[Quantity, in_unit("seconds")] = 15.0
    """Time that a run gets to save its state when asked to end, before it is killed."""

    def executor(self) -> object:
        """The executor with these options, an object that meets `campaigns.executors.Executor`.

        Raises:
            BackendError: the base class starts nothing.
        """
        raise BackendError(
            f"executor {self.name!r} ({type(self).__name__}) starts nothing; accepted: a subclass with executor()",
            "Define executor() in the class that is registered.",
        )


def available() -> tuple[str, ...]:
    """Sorted names of all registered executors, without importing them."""
    return _EXECUTORS.names()


def executor_type(name: str) -> type[ExecutorSpec]:
    """Import the spec class registered as `name`.

    Raises:
        BackendError: no entry point or several have that name, or the class cannot be imported (the cause is chained).
    """
    loaded, origin = _EXECUTORS.load(name)
    if not (isinstance(loaded, type) and issubclass(loaded, ExecutorSpec)):
        raise BackendError(
            f"{origin} is registered as executor {name!r}, but is no ExecutorSpec",
            "Register a subclass of isocompute_sdk.specs.ExecutorSpec.",
        )
    return loaded


def _plain(spec: ExecutorSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", exclude_none=True)


def _typed(value: object) -> ExecutorSpec:
    if isinstance(value, ExecutorSpec):
        return value
    given = {"name": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or not isinstance(cast("Mapping[str, object]", given).get("name"), str):
        raise problem(accepted=f"one of {', '.join(available())}, or a mapping with one of them as its name")
    options = dict(cast("Mapping[str, Any]", given))
    try:
        kind = executor_type(options["name"])
    except BackendError as error:
        raise problem(
            message=error.message, hint=error.hint, field=None if isinstance(value, str) else "name"
        ) from error
    for name, option in options.items():
        if name not in kind.model_fields:
            raise problem(
                message=f"unknown option of executor {options['name']!r}, received {show(option)}; accepted: "
                f"{', '.join(kind.model_fields)}",
                hint=suggestion(name, kind.model_fields) or "Remove it.",
                field=name,
            )
    # Not model_validate: its error would lose the place in the file.
    return kind.__pydantic_validator__.validate_python(options)


_NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
AnyExecutor = Annotated[
    ExecutorSpec,
    PlainValidator(_typed),
    PlainSerializer(_plain),
    WithJsonSchema({"anyOf": [{"type": "string"}, _NAMED]}),
]
"""An executor with its options, or its name alone."""


class ExecutorChoice(Spec):
    """An executor stated on its own, such as on a command line."""

    executor: AnyExecutor
    """The executor."""


class Supervision(Spec):
    """What happens to runs when the controller is told to stop, when they hang, and when they learn nothing."""

    on_signal: Literal["stop", "detach"] = "stop"
    """What SIGTERM and SIGHUP to `isocompute run` do: `stop` ends its runs, `detach` lets them go on. Ctrl-C
    always ends them."""
    hung_after_steps: Annotated[Quantity | None, in_unit("times the longest step")] = 20.0
    """A run is hung if it records nothing for this multiple of its longest time between two records. None: never."""
    hung_after_minutes: Annotated[Quantity, in_unit("minutes")] = 60.0
    """Shortest silence that counts as hung; it must cover start-up and long evaluations."""
    max_hours: Annotated[Quantity | None, in_unit("hours")] = None
    """Wall-clock limit of one attempt at a run. None: no limit."""
    retries: Annotated[int, Number(whole=True, ge=0), in_unit("attempts")] = 2
    """How often a run resumes from its checkpoint after it hung, ran out of time, was killed, or was lost without
    progress. After that the study continues without it."""
    retry_after_seconds: Annotated[float, Number(ge=0), in_unit("seconds")] = 30.0
    """Time before the first retry; it doubles with each further one."""
    stop_on: tuple[str, ...] = ()
    """Codes of health notes, such as `nothing-learned` or `collapsed-run`, that end a run early."""


GENERATOR = "reasoning-gym:"
"""Begins the names of generators."""
_Value = Annotated[float, Number()]


class ProblemSource(Spec):
    """A data set, and which of its rows are the problems; `isocompute problems STUDY` writes the files of `data`."""

    dataset: Text
    """Name on the Hugging Face hub, a folder of that form, a Parquet, CSV, JSON or JSON-lines file, or
    `reasoning-gym:NAME`, a generator of that package."""
    settings: dict[str, int | float | bool | str] = Field(default_factory=dict[str, "int | float | bool | str"])
    """Settings of a generator, such as min_terms."""
    template: Text | None = None
    """Text of every prompt, with {prompt} where the problem stands. None: the problem alone."""
    file: Text | None = None
    """One file of the data set. None: those that it names itself."""
    config: Text | None = None
    """Configuration of the data set. None: its only one."""
    split: Text = "train"
    """Split of the data set."""
    keep: dict[str, tuple[_Value, _Value]] = Field(default_factory=dict[str, "tuple[float, float]"])
    """Column -> smallest and largest value to keep; rows without a value are dropped."""
    validation: Annotated[Count, in_unit("problems")] = 300
    """Rows that become validation problems; the others are for training."""
    seed: Seed = 0
    """Seed of the order of the rows, and so of which ones are held out; of a generator also of the draws."""
    reward: Literal["auto", "maths"] | None = "auto"
    """`auto` also writes a reward function, unless the file is there: the scorer of a generator, else `maths`, which
    compares formulas with math-verify. None: the reward is yours."""

    @model_validator(mode="after")
    def _settings_are_a_generators(self) -> Self:
        if self.settings and not self.dataset.startswith(GENERATOR):
            raise problem(
                message=f"received settings for {self.dataset!r}; accepted: settings of a generator, {GENERATOR}NAME",
                hint="Leave settings out.",
                field="settings",
            )
        return self

    @model_validator(mode="after")
    def _ranges_hold_something(self) -> Self:
        for column, (low, high) in self.keep.items():
            if not low <= high:
                raise problem(
                    message=f"keep.{column}: received {low:g} to {high:g}; accepted: the smaller number first",
                    hint=f"Write {column}: [{min(low, high):g}, {max(low, high):g}].",
                    field="keep",
                )
        return self

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is used."""
        return all(_within(row.get(column), low, high) for column, (low, high) in self.keep.items())


def _within(value: Any, low: float, high: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    return number and low <= value <= high


class Pilot(Spec):
    """Runs chosen in rounds, from what the runs before have shown; `auto` alone stands for the defaults."""

    stop_early: Flag = True
    """End a run once it can no longer change the plan at the target budget."""
    slots: Annotated[Count | None, in_unit("runs")] = None
    """Runs of a round after the first, whose number is part of its design. None: as many as the executor carries out at
    a time, at most 8."""
    largest_share: Annotated[float, Number(gt=0, lt=1), in_unit("share of the budget")] = 0.35
    """Largest share of the budget that the pilot may cost."""
    seed: Seed = 0
    """Seed of the first runs, and of the random numbers behind the choices."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if value == "auto":
            return {}
        if not isinstance(value, Mapping | Pilot):
            raise problem(accepted=f"auto, or a mapping with {', '.join(cls.model_fields)}")
        return cast("Any", value)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """`auto`, or a mapping."""
        return {"anyOf": [{"const": "auto"}, super().__get_pydantic_json_schema__(schema, handler)]}


class Study(Spec):
    """A model, its problems, a recipe, and the runs to make with them."""

    name: FolderName
    """Name of the study; also the name of its folder below output_dir."""
    model: ModelName
    """Base model: a model hub's name or a local path."""
    data: Data
    """Problems and reward function."""
    problems: ProblemSource | None = None
    """Data set from which `isocompute problems` writes the files of `data`. None: they are yours."""
    recipe: Recipe
    """Training recipe: the name of a preset (easy, hard, mixture), or a mapping with `preset` and changes."""
    sweep: Sweep | None = None
    """Grid of pilot runs. None: no pilot runs."""
    runs: tuple[Allocation, ...] = ()
    """Single pilot runs, as `isocompute next` writes them; beside a sweep, one with the n, B_p and seed of a run of
    the sweep sets its length."""
    pilot: Pilot | None = None
    """`auto`: the budget pays for a pilot whose runs are chosen as it runs, then for the planned run; `sweep` is
    not used. None: `sweep`, or `auto` in a study with a budget and no sweep."""
    budget: Budget | None = None
    """Budget of the final run, e.g. `3M` rollouts or `200 gpu_hours`. None: decided later."""
    hardware: Hardware = Hardware()
    """Limits on the rollout batch, and GPUs."""
    throughput: Throughput | None = None
    """Speed and price of the machines; needed for a budget that is not in rollouts. None: unknown."""
    evaluation: Evaluation = Evaluation()
    """How runs are measured."""
    backend: FolderName = "openrlhf"
    """Name of the training backend."""
    options: dict[OptionName, Option] = Field(default_factory=dict[str, str | int | float | bool])
    """Options of this backend; see `isocompute list backends NAME`."""
    output_dir: Text = "runs"
    """Folder that receives one folder per study, with one folder per run."""
    executor: AnyExecutor | None = None
    """What starts the runs: local, slurm, ray or another name, alone or with options. None: this machine."""
    supervision: Supervision = Supervision()
    """What happens to runs when the controller is told to stop, when they hang, and when they learn nothing."""

    @property
    def designed(self) -> Pilot | None:
        """The pilot that is chosen while it goes on; None if the study's runs are those of its sweep."""
        if self.pilot is not None:
            return self.pilot
        return Pilot() if not self.has_runs and self.budget is not None else None

    @property
    def has_runs(self) -> bool:
        """Whether the study names pilot runs, in a sweep or one by one."""
        return self.sweep is not None or bool(self.runs)

    def expand(self) -> tuple[RunSpec, ...]:
        """Every run of the sweep and of `runs`, named `n8-bp32-seed0`, or `n8-bp32-lr1e-06-seed0`, and so on.

        Raises:
            SpecError: the study has no sweep.
        """
        if not self.has_runs:
            raise SpecError(
                f"study {self.name!r} has no sweep; accepted: a study with a sweep section",
                "Add sweep: with group_size, problems_per_batch and rollouts, or plan from the budget instead.",
            )
        cells = (*(self.sweep.expand() if self.sweep is not None else ()), *self.runs)
        return tuple(self.run_of(cell, name) for name, cell in {_run_id(one): one for one in cells}.items())

    def run_of(self, size: Allocation, run_id: str) -> RunSpec:
        """The run of this study with these sizes, seed and learning rate."""
        rate = size.learning_rate_anchor
        return RunSpec(
            run_id=run_id,
            model=self.model,
            data=self.data,
            recipe=self.recipe if rate is None else self.recipe.replace(learning_rate_anchor=rate),
            group_size=size.group_size,
            problems_per_batch=size.problems_per_batch,
            update_steps=size.update_steps,
            seed=size.seed,
            evaluation=self.evaluation,
            hardware=self.hardware,
            backend=self.backend,
            options=self.options,
            output_dir=f"{self.output_dir.rstrip('/')}/{self.name}/{run_id}",
        )

    @model_validator(mode="after")
    def _gpus_of_all_runs(self) -> Self:
        """A budget `on 8xH100`, else a speed of 8 GPUs, says the GPUs of all runs, where the hardware says none."""
        said = [None if one is None else one.gpus for one in (self.budget, self.throughput)]
        gpus = next((one for one in said if one is not None), None)
        if gpus is not None and "gpus" not in self.hardware.model_fields_set:
            # The one way to set a field of a frozen model while it is made.
            object.__setattr__(self, "hardware", self.hardware.replace(gpus=gpus))
        return self

    @model_validator(mode="after")
    def _pilot_has_a_budget(self) -> Self:
        if self.pilot is not None and self.budget is None:
            raise problem(
                message="received pilot without budget; accepted: both, the budget pays for the pilot",
                hint="Add budget: with what pilot and planned run may cost together.",
                field="pilot",
            )
        return self

    @model_validator(mode="after")
    def _every_batch_runs(self) -> Self:
        pairs = [*(self.sweep.pairs if self.sweep is not None else ())]
        pairs += [(one.group_size, one.problems_per_batch) for one in self.runs]
        for n, bp in pairs:
            refusal = batch_refusal(n, bp, self.hardware, self.recipe)
            if refusal is not None:
                raise problem(
                    message=refusal,
                    hint="Set sweep.max_rollouts_per_batch to leave such pairs out, or change hardware or recipe.",
                    field="sweep",
                )
        return self


def _run_id(cell: Allocation) -> str:
    rate = "" if cell.learning_rate_anchor is None else f"-lr{cell.learning_rate_anchor:.10g}"
    return f"n{cell.group_size}-bp{cell.problems_per_batch}{rate}-seed{cell.seed}"
