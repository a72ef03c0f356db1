"""Every key of a study file, from the classes that read it; examples from the studies in docs/examples."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from generate.markdown import code, prose, table
from isocompute_sdk.specs import (
    Allocation,
    Budget,
    Data,
    Evaluation,
    Hardware,
    ProblemSource,
    Recipe,
    Spec,
    Study,
    Supervision,
    Sweep,
    Throughput,
)
from isocompute_sdk.specs.base import Flag, ModelName, Text
from isocompute_sdk.specs.run import FolderName, Option, OptionName
from isocompute_sdk.specs.study import AnyExecutor, Pilot, available, executor_type
from isocompute_sdk.specs.syntax.complaints import meanings
from isocompute_sdk.specs.syntax.plain_yaml import read_yaml
from isocompute_sdk.specs.syntax.quantities import Items, Number
from isocompute_sdk.specs.throughput import Measurement

EXAMPLES = Path(__file__).parents[1] / "examples"

SECTIONS: dict[str, type[Spec]] = {
    "data": Data,
    "problems": ProblemSource,
    "recipe": Recipe,
    "sweep": Sweep,
    "runs": Allocation,
    "pilot": Pilot,
    "budget": Budget,
    "hardware": Hardware,
    "throughput": Throughput,
    "evaluation": Evaluation,
    "supervision": Supervision,
}
"""Keys of a study whose value is a mapping, with its class; `executor` has one class per executor."""

WORDS: dict[Any, str] = {
    Text: "text",
    ModelName: "hub name or path",
    FolderName: "name: letters, digits, `.`, `_`, `-`",
    OptionName: "name",
    Flag: "`true` or `false`",
    Option: "text, number, `true` or `false`",
    str: "text",
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
}
"""What is accepted, for types that carry no range of their own."""


def pages() -> Iterator[tuple[str, str]]:
    """The part of docs/study_file.md that lists every key."""
    yield "parts/study_file.md", "\n\n".join(_parts()) + "\n"


def _parts() -> Iterator[str]:
    examples = [read_yaml(file.read_text(encoding="utf-8"), file.name).data for file in sorted(EXAMPLES.glob("*.yaml"))]
    studies = cast("list[dict[str, Any]]", examples)
    yield "## The study"
    yield keys(Study, "study-", studies)
    for name, spec in SECTIONS.items():
        given = [study[name] for study in studies if name in study]
        yield from _section(f"{name}", spec, f"{name}-", [one for group in map(_listed, given) for one in group])
    for name in available():
        spec = executor_type(name)
        given = [study["executor"] for study in studies if _named(study.get("executor")) == name]
        yield from _section(f"executor: {name}", spec, f"executor-{name}-", given)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _named(executor: Any) -> str | None:
    return cast("Mapping[str, str]", executor)["name"] if isinstance(executor, Mapping) else executor


def _section(title: str, spec: type[Spec], prefix: str, given: Sequence[Any]) -> Iterator[str]:
    yield f"## {title}"
    for part in inspect.cleandoc(spec.__doc__ or "").split("\n\n"):
        yield f"```text\n{part.strip()}\n```" if part.startswith(" ") else prose(part)
    yield keys(spec, prefix, [one for one in given if isinstance(one, Mapping)])


def keys(spec: type[Spec], prefix: str, given: Sequence[Mapping[str, Any]]) -> str:
    """A table of the keys of one class; each row has the anchor `prefix` + key."""
    texts = meanings(spec)
    rows = [
        (
            f"[`{name}`]{{#{prefix}{name.replace('_', '-')}}}",
            _accepts(name, field),
            _default(field),
            _meaning(name, texts[name], given),
        )
        for name, field in spec.model_fields.items()
    ]
    return table(("key", "accepts", "default", "meaning"), rows, style="stacked defaults")


def _accepts(name: str, field: FieldInfo) -> str:
    extra = field.json_schema_extra
    unit = extra.get("unit") if isinstance(extra, dict) else None
    return (
        accepted(field.rebuild_annotation(), name)
        + (f" ({unit})" if unit is not None else "")
        + (", required" if field.is_required() else "")
    )


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Spec):
        return "defaults below"
    return "" if value in (None, (), {}, PydanticUndefined) else code(_yaml(value))


def _meaning(name: str, text: str, given: Sequence[Mapping[str, Any]]) -> str:
    example = next((one[name] for one in given if name in one), None)
    words = prose(text)
    if example is None or name in SECTIONS or name == "executor":
        return words
    return f"{words}<br>Example: {code(f'{name}: {_yaml(example)}')}"


def _yaml(value: Any) -> str:
    """A value as one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(one)}" for key, one in cast("Mapping[str, Any]", value).items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml, cast("Sequence[Any]", value))) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def accepted(hint: Any, name: str = "") -> str:
    """What a field of this type accepts, as Markdown.

    Args:
        hint: the annotation, with its extras.
        name: key of the field, which links to its section where it has one.
    """
    if hint in WORDS:
        return WORDS[hint]
    if hint == AnyExecutor:
        known = " or ".join(f"[`{one}`](#executor-{one})" for one in available())
        return f"{known}, alone or as a mapping with its `name`"
    if isinstance(hint, type) and issubclass(hint, Spec):
        short = ", or short" if hint in (Budget, Recipe, Pilot) else ""
        return "written by `isocompute run --probe`" if hint is Measurement else f"[mapping{short}](#{name})"
    return _composed(get_origin(hint), get_args(hint), name)


def _composed(origin: Any, parts: Sequence[Any], name: str) -> str:
    if origin is Annotated:
        words = _annotated(parts[0], parts[1:], name)
    elif origin in (Union, types.UnionType):
        words = " or ".join(accepted(one, name) for one in parts if one is not types.NoneType)
    elif origin is Literal:
        words = ", ".join(map(code, parts))
    elif origin is tuple:
        words = f"list of: {accepted(parts[0], name)}" if ... in parts else f"[{', '.join(map(accepted, parts))}]"
    elif origin is dict:
        words = f"mapping of {accepted(parts[0])} to {accepted(parts[1])}"
    else:
        raise TypeError(f"{name}: no words for {origin}[{parts}]; add them to WORDS")
    return words


def _annotated(inner: Any, extras: Sequence[Any], name: str) -> str:
    number = next((one for one in extras if isinstance(one, Number)), None)
    if number is not None:
        return _in_signs(number.accepted)
    items = next((one for one in extras if isinstance(one, Items)), None)
    words = accepted(inner, name)
    return words if items is None or not items.alone or items.length else f"{words}; or one alone"


def _in_signs(words: str) -> str:
    """`whole numbers >= 2` with the signs of mathematics."""
    signs = {"numbers": "number", ">=": "≥", "<=": "≤", ">": "&gt;", "<": "&lt;", "4.29497e+09": "2³²"}
    return " ".join(signs.get(word, word) for word in words.split())
