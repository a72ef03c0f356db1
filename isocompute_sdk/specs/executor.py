"""`ExecutorSpec`: what starts the runs of a study; `Supervision`: what is done about runs that hang or learn nothing.

Executors are registered as spec classes under the entry-point group `isocompute.executors`: the name, the options with
their types and documentation, and `executor()`, which makes the executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from isocompute_sdk.errors import BackendError, show
from isocompute_sdk.plugins import Plugins
from isocompute_sdk.specs.base import Count, Quantity, Spec, in_unit
from isocompute_sdk.specs.run import FolderName
from isocompute_sdk.specs.syntax.complaints import problem, suggestion
from isocompute_sdk.specs.syntax.quantities import Number

_EXECUTORS = Plugins("isocompute.executors", "executor", BackendError)


class ExecutorSpec(Spec):
    """What starts the runs of a study. A subclass adds the options of one executor, and `executor()`."""

    name: FolderName
    """Name of the executor, such as local, slurm or ray."""
    parallel: Annotated[Count | None, in_unit("runs")] = None
    """Runs at a time. None: as many as there is room for."""
    grace_seconds: Annotated[Quantity, in_unit("seconds")] = 15.0
    """Time in which a run may save its state when it is asked to end; then it is killed."""

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


class _ByName:
    """Reads a mapping with a `name`, or the name alone, as the spec registered under it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        write = core_schema.plain_serializer_function_ser_schema(_plain)
        return core_schema.no_info_plain_validator_function(_typed, serialization=write)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        named = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return {"anyOf": [{"type": "string"}, named]}


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


AnyExecutor = Annotated[ExecutorSpec, _ByName()]
"""An executor with its options, or its name alone."""


class ExecutorChoice(Spec):
    """An executor stated on its own, such as on a command line."""

    executor: AnyExecutor
    """The executor."""


class Supervision(Spec):
    """What happens to runs when the controller is told to leave, when they hang, and when they learn nothing."""

    on_signal: Literal["stop", "detach"] = "stop"
    """What SIGTERM and SIGHUP to `isocompute run` do: `stop` ends its runs, `detach` lets them go on. Ctrl-C
    always ends them."""
    hung_after_steps: Annotated[Quantity | None, in_unit("times the longest step")] = 20.0
    """A run is hung if it records nothing for this multiple of its longest time between two records. None: never."""
    hung_after_minutes: Annotated[Quantity, in_unit("minutes")] = 60.0
    """The least silence of a hung run, which covers start-up and long evaluations."""
    max_hours: Annotated[Quantity | None, in_unit("hours")] = None
    """Wall-clock limit of one attempt at a run. None: no limit."""
    retries: Annotated[int, Number(whole=True, ge=0), in_unit("attempts")] = 2
    """How often a run goes on from its checkpoint after it hung, ran out of time, was killed, or was lost before it got
    further than before. Then it is abandoned, and the study goes on without it."""
    retry_after_seconds: Annotated[float, Number(ge=0), in_unit("seconds")] = 30.0
    """Time before the first retry; it doubles with each further one."""
    stop_on: tuple[str, ...] = ()
    """Codes of health notes, such as `nothing-learned` or `collapsed-run`, that end a run early."""
