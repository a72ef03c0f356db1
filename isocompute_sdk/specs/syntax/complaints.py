"""Failed validations as one readable error: field, value received, values accepted."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from isocompute_sdk.errors import SpecError, close, dotted, show

Path = tuple[str | int, ...]
"""Where a value sits in a spec: keys and list positions from the top."""

Place = Callable[[Path], str]
"""Turns a path into the words that open an error line, e.g. `study.yaml:12: sweep.group_size`."""

MAX_SHOWN = 10
"""Problems listed in one error."""

OTHER_NAMES = {
    "n": "group_size",
    "num_generations": "group_size",
    "bp": "problems_per_batch",
    "b_p": "problems_per_batch",
    "m": "update_steps",
    "max_steps": "update_steps",
    "c": "rollouts",
    "compute": "rollouts",
    "lr": "learning_rate_anchor",
    "learning_rate": "learning_rate_anchor",
    "batch_size": "rollouts_per_batch",
    "b_max": "max_rollouts_per_batch",
    "beta": "kl_coef",
    "max_tokens": "max_response_tokens",
}
"""Names that the paper and the training frameworks use for our fields."""


def problem(
    *, accepted: str | None = None, message: str | None = None, hint: str | None = None, field: str | None = None
) -> PydanticCustomError:
    """An error to raise inside a validator."""
    context = {"accepted": accepted, "message": message, "hint": hint, "field": field}
    return PydanticCustomError("isocompute", "{message}", context)


def close_match(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    names, other = list(known), OTHER_NAMES.get(name.lower())
    return other if other in names else close(name, names)


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """A question with the close match, or None."""
    meant = close_match(name, known)
    return None if meant is None else f"Did you mean {meant}?"


def explain(
    error: ValidationError, model: type[BaseModel], data: object, place: Place | None = None, source: str = ""
) -> SpecError:
    """A pydantic error as a `SpecError` in the terms of this package."""
    place = place or (lambda path: f"{model.__name__}.{dotted(path)}" if path else model.__name__)
    lines: list[tuple[str, str | None]] = []
    for details in error.errors(include_url=False):
        path = _seen_path(details["loc"], data)
        complaint, hint, field = _complaint(details, model)
        lines.append((f"{place((*path, field) if field else path)}: {complaint}", hint))
    if len(lines) == 1:
        text, hint = lines[0]
        return SpecError(text, hint or _what_it_is(error.errors(include_url=False)[0]["loc"], model))
    shown = [line if hint is None else f"{line} ({hint})" for line, hint in lines[:MAX_SHOWN]]
    if len(lines) > MAX_SHOWN:
        shown.append(f"and {len(lines) - MAX_SHOWN} more")
    text = "\n  ".join([f"{source or model.__name__}: {len(lines)} problems", *shown])
    return SpecError(text, "Correct them all and try again.")


def _complaint(details: ErrorDetails, model: type[BaseModel]) -> tuple[str, str | None, str | None]:
    """Message, hint, and the field below the location if the validator named one."""
    context: dict[str, Any] = details.get("ctx", {})
    received, location = details["input"], details["loc"]
    hint = field = None
    match details["type"]:
        case "isocompute":
            hint, field = context["hint"], context["field"]
            text = context["message"] or f"received {show(received)}; accepted: {context['accepted']}"
        case "missing":
            text, hint = f"missing; it is: {_meaning(model, location)}", "Add it."
        case "extra_forbidden":
            known = list(_model_at(model, location[:-1]).model_fields)
            hint = suggestion(str(location[-1]), known) or "Remove it."
            text = f"unknown key, received {show(received)}; accepted keys: {', '.join(known)}"
        case "literal_error":
            accepted = _literals(str(context["expected"]))
            hint = suggestion(str(received), accepted)
            text = f"received {show(received)}; accepted: {', '.join(accepted)}"
        case "model_type" | "model_attributes_type":
            keys = ", ".join(_model_at(model, location).model_fields)
            text = f"received {show(received)}; accepted: a mapping with the keys {keys}"
        case "json_invalid":
            text = f"not valid JSON: {context['error']}"
        case kind:
            if kind == "string_type" and isinstance(received, int | float):
                hint = "Write it in quotes."
            text = f"received {show(received)}; " + _ACCEPTED.get(kind, details["msg"])
    return text, hint, field


_ACCEPTED = {
    "string_type": "accepted: text",
    "string_unicode": "accepted: text that can be written as UTF-8",
    "bool_type": "accepted: true or false",
    "dict_type": "accepted: a mapping",
}


def _literals(expected: str) -> list[str]:
    """`'a', 'b' or 'c'`, as pydantic lists the values of a Literal, taken apart."""
    return [part.strip(" '") for part in expected.replace(" or ", ", ").split(",")]


def _seen_path(location: Sequence[str | int], data: object) -> Path:
    """The part of a location that exists in what the user wrote, and one missing or wrong key after it.

    A scalar instead of a list of one has no position 0 in the file.
    """
    path: list[str | int] = []
    for part in location:
        if isinstance(part, int) and not (isinstance(data, Sequence) and not isinstance(data, str)):
            break
        path.append(part)
        data = _child(data, part)
    return tuple(path)


def _child(data: object, part: str | int) -> object:
    if isinstance(data, Mapping):
        return cast("Mapping[object, object]", data).get(part)
    if isinstance(part, int) and isinstance(data, Sequence):
        return data[part] if part < len(data) else None
    return getattr(data, str(part), None)


def _model_at(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel]:
    """The spec class at a location, or the last one on the way to it."""
    for part in location:
        field = model.model_fields.get(str(part))
        if field is not None:
            model = next(_models_in(field.annotation), model)
    return model


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _what_it_is(location: Sequence[str | int], model: type[BaseModel]) -> str:
    """A hint that says what the value at a location means."""
    names = [part for part in location if isinstance(part, str)]
    known = names and names[-1] in _model_at(model, names[:-1]).model_fields
    return f"Correct it. {names[-1]}: {_meaning(model, names)}." if known else "Correct it."


def _meaning(model: type[BaseModel], location: Sequence[str | int]) -> str:
    """First sentence of the documentation of the field at a location."""
    text = meanings(_model_at(model, location[:-1])).get(str(location[-1]), "required")
    return " ".join(text.split()).split(". ")[0].rstrip(".")


@cache
def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Name of a field -> the docstring below it; none for a class whose source cannot be read.

    pydantic would read the source of every class at every start of a command, in a tenth of a second.
    """
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        try:
            (declared,) = ast.parse(dedent(inspect.getsource(owner))).body
        except (OSError, SyntaxError):
            continue
        assert isinstance(declared, ast.ClassDef)
        for field, text in pairwise(declared.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                    found[name] = inspect.cleandoc(words)
                case _:
                    pass
    return {name: text for name, text in found.items() if name in model.model_fields}
