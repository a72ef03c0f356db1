"""Options that several commands share, what they build, and groups of them: dataclasses with one field per option."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from isocompute_sdk.errors import IsoComputeError, SpecError

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.planning import Plan

OUTPUT = "Output"
YAML = (".yaml", ".yml")


def option(help: str, panel: str | None = None, *names: str) -> Any:
    """An option with its help and its panel; by default it is named as its parameter."""
    return typer.Option(*names, help=help, rich_help_panel=panel)


def _named_json(path: Path | None) -> Path | None:
    """The path; commands know saved files by the end of their names."""
    if path is not None and path.suffix != ".json":
        raise SpecError(f"--output {path}; accepted: a name that ends in .json", f"Write --output {path}.json.")
    return path


Json = Annotated[bool, option("Print one JSON document.", OUTPUT, "--json")]
Save = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Save the result here (JSON).", rich_help_panel=OUTPUT, callback=_named_json),
]
Plot = Annotated[Path | None, option("Folder for pictures: reward_curves.png, allocation_law.png.", OUTPUT)]
Verbose = Annotated[bool, option("Show all notes and details.", OUTPUT, "--verbose", "-v")]
EvalSet = Annotated[
    str | None, option("Evaluation set; needed if the metric was measured on several.", None, "--eval-set")
]
Sweeps = Annotated[Path | None, option("Folder of sweeps with provenance to add to the corpus.", None, "--sweeps")]
Pool = Annotated[
    list[str] | None,
    option(
        "Context field that may differ between runs; unstated: missing values equal those of the other runs; "
        "eval_set: sets of any name hold the same problems. Repeatable.",
        None,
        "--pool",
    ),
]
Map = Annotated[
    Path | None,
    option(
        "Filled-in mapping from `isocompute doctor PATH --output map.yaml`, instead of paths.",
        "What the columns mean",
        "--map",
    ),
]
Seed = Annotated[int, option("Seed of the draws.")]
Level = Annotated[float, option("Coverage of the intervals.")]
Checkpoints = Annotated[
    list[Path] | None, option("Folder of checkpoints, if not below the runs; repeatable.", None, "--checkpoints")
]
Parallel = Annotated[
    int | None, typer.Option(help="Runs at a time; by default as many as fit on the GPUs, or one per core.", min=1)
]


def backend(help: str, panel: str | None = None) -> Any:
    """The option for a training framework; the shell completes the registered ones."""

    def registered() -> list[str]:
        from isocompute_sdk.training.registry import available

        return list(available())

    return typer.Option("--backend", help=help, rich_help_panel=panel, autocompletion=registered)


def count(option: str, help: str, panel: str | None = None) -> Any:
    """An option for a whole number from 1 up, in every form that specs accept: 65536, 65,536, 16k."""
    return _numeric(option, help, panel, "COUNT", {"whole": True, "ge": 1})


def quantity(option: str, help: str, panel: str | None = None, *, least: float | None = None) -> Any:
    """An option for a number from `least` up (None: above 0), in every form that specs accept: 0.5, 1,200, 2.5k."""
    return _numeric(option, help, panel, "NUMBER", {"gt": 0} if least is None else {"ge": least})


def _numeric(
    option: str, help: str, panel: str | None, metavar: str, limits: dict[str, Any], remedy: str | None = None
) -> Any:
    def read(value: str) -> int | float:
        from isocompute_sdk.specs.syntax.quantities import Number

        try:
            return Number(**limits).parse(value)
        except SpecError as error:
            # Not a ValueError, which typer would replace by a message of its own.
            raise IsoComputeError(f"{option}: {error.message}", remedy or error.hint) from None

    return typer.Option(option, help=help, rich_help_panel=panel, metavar=metavar, parser=read)


_RANGE = "Give the lowest and the highest reward that your function can return, for example --bounds -1 1."
Bounds = Annotated[tuple[float, float], _numeric("--bounds", "Range of the metric.", None, "LOW HIGH", {}, _RANGE)]

_THOUSANDS = re.compile(r"\s*[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+\s*")


def assignments(texts: list[str] | None, option: str) -> dict[str, Any]:
    """`name=value` texts as a mapping; numbers (also `65,536`) and true/false are read as such.

    Raises:
        SpecError: a text without `=`.
    """
    from isocompute_sdk.ingest.stores.saved_config import scalar

    found: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SpecError(f"{option} {text!r}; accepted: name=value", f"Write it as {option} NAME=VALUE.")
        found[name.strip()] = scalar(value.strip().replace(",", "") if _THOUSANDS.fullmatch(value) else value.strip())
    return found


def save_pictures(source: Fits | Plan, folder: Path) -> list[Path]:
    """Write the pictures of fits or a plan that there is data for; their paths."""
    from isocompute_sdk import plots
    from isocompute_sdk.fitting.fits import Fits

    fits = source if isinstance(source, Fits) else source.fits
    written: list[Path] = []
    if fits is not None and fits.curves:
        written.append(plots.save_figure(plots.reward_curves(source), folder / "reward_curves.png"))
    if fits is not None and (fits.surface is not None or "group_size" in fits.laws):
        written.append(plots.save_figure(plots.allocation(source), folder / "allocation_law.png"))
    return written


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter that is a dataclass replaced by one option per field of it."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}  # pyright: ignore[reportAssignmentType]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _options(groups[parameter.name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))

    def flat(**values: Any) -> None:
        built = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **built)

    flat.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    flat.__doc__, flat.__name__ = command.__doc__, command.__name__
    return flat


def changed_options(group: Any) -> list[str]:
    """The options of a group that differ from their defaults, as they are typed: `--eval-set`."""
    hints = get_type_hints(type(group), include_extras=True)
    changed = [field.name for field in fields(group) if getattr(group, field.name) != _default(field)]
    return [_typed_name(hints[name], name) for name in changed]


def given_beside(given: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """What was given beside the defaults: a study, a campaign or a plan has its own values for the rest."""

    def stated(value: Any) -> Any:
        # A specification with a default that somebody typed equals the default.
        return value, getattr(value, "model_fields_set", None)

    return {name: value for name, value in given.items() if stated(value) != stated(default.get(name))}


def _options(group: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name]
        )


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _typed_name(hint: Any, name: str) -> str:
    declared = getattr(hint.__metadata__[0], "param_decls", None) or ()
    return next((text for text in declared if text.startswith("--")), f"--{name.replace('_', '-')}")
