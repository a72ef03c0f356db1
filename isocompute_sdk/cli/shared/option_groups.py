"""Groups of options: a dataclass with one field per option, which several commands take as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints


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
