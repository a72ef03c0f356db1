"""The plain subset of YAML that specs are written in, read with the line of every value, and written; specs from it.

Mappings, lists and scalars only: anchors, aliases, merge keys, tags, repeated keys and several documents are
refused, because each lets a file say something else than it shows. Words such as `yes` and dates stay text;
only `true`, `false`, `null`, `~` and numbers have another type.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from isocompute_sdk import files
from isocompute_sdk.errors import SpecError, dotted, show
from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.budget import Budget
from isocompute_sdk.specs.study import Study
from isocompute_sdk.specs.syntax.complaints import Path

if TYPE_CHECKING:
    from ruamel.yaml.events import Event, ScalarEvent

MAX_DEPTH = 20
"""Levels of nesting; specs need four."""

_INTEGER = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.([0-9]+(_[0-9]+)*)?)?)([eE][-+]?[0-9]+)?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
MAX_NUMBER_LENGTH = 60
"""Characters; longer runs of digits stay text, which number fields then refuse."""


@dataclass
class Document:
    """The data of a YAML text, and where each value stands."""

    data: object
    """Dictionaries, lists, text, numbers, booleans and None."""
    lines: dict[Path, int] = field(default_factory=dict[Path, int])
    """Line (from 1) of the key of each mapping entry and of each list item, by path."""

    def line(self, path: Path) -> int:
        """Line of the value at a path, or of the nearest enclosing one that the text holds."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def plain_scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= MAX_NUMBER_LENGTH:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _NOT_FINITE.fullmatch(text):
            return float(text.replace(".", ""))
    return text


def read_yaml(text: str, source: str) -> Document:
    """Parse a YAML text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        return _Builder(YAML(typ="safe", pure=True).parse(text), source).document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        what = "; ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(f"{source}:{line}: not valid YAML: {what}", "Check indentation, colons and quotes.") from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = chr(error.character) if isinstance(error.character, int) else error.character
        raise SpecError(
            f"{source}:{line}: not valid YAML: character {show(character)} is not allowed",
            "Remove it, or write it as an escape in double quotes.",
        ) from error
    except YAMLError as error:
        raise SpecError(f"{source}: not valid YAML: {error}", "Correct the file there.") from error


class _Builder:
    """Turns the parser's events into a `Document`."""

    def __init__(self, events: Iterator[Event], source: str) -> None:
        self.events = events
        self.source = source
        self.lines: dict[Path, int] = {}

    def document(self) -> Document:
        from ruamel.yaml.events import DocumentStartEvent, StreamEndEvent

        next(self.events)
        if not isinstance(next(self.events), DocumentStartEvent):
            raise SpecError(
                f"{self.source}:1: empty; accepted: a mapping of keys to values",
                "Write the keys into it, or give another file.",
            )
        data = self.value(next(self.events), ())
        next(self.events)
        rest = next(self.events)
        if not isinstance(rest, StreamEndEvent):
            raise self.refuse(rest, "a second document starts here", "Keep one document per file.")
        return Document(data, self.lines)

    def value(self, event: Event, path: Path) -> object:
        from ruamel.yaml.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceStartEvent

        if isinstance(event, AliasEvent):
            raise self.refuse(event, f"alias *{event.anchor}; aliases are not read", "Write the value out.")
        assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent)
        if event.anchor is not None:
            raise self.refuse(event, f"anchor &{event.anchor}; anchors are not read", "Remove it.")
        if event.tag is not None:
            raise self.refuse(event, f"tag {event.tag}; tags are not read", "Remove it.")
        if len(path) > MAX_DEPTH:
            raise self.refuse(event, f"nested more than {MAX_DEPTH} levels deep", "No spec needs that.")
        if isinstance(event, ScalarEvent):
            return self.scalar(event)
        return self.mapping(path) if isinstance(event, MappingStartEvent) else self.sequence(path)

    def scalar(self, event: ScalarEvent) -> str | int | float | bool | None:
        return plain_scalar(event.value) if event.style is None else event.value

    def sequence(self, path: Path) -> list[object]:
        from ruamel.yaml.events import SequenceEndEvent

        items: list[object] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            here = (*path, len(items))
            self.lines[here] = event.start_mark.line + 1
            items.append(self.value(event, here))
        return items

    def mapping(self, path: Path) -> dict[str, object]:
        from ruamel.yaml.events import MappingEndEvent, ScalarEvent

        entries: dict[str, object] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self.value(event, path)
            if not isinstance(event, ScalarEvent) or not isinstance(key, str):
                raise self.refuse(event, f"received {show(key)} as a key; accepted: text", "Write the key in quotes.")
            here = (*path, key)
            if key == "<<" and event.style is None:
                raise self.refuse(event, "merge key <<; merging is not read", "Write the entries out.")
            if key in entries:
                first = self.lines[here]
                raise self.refuse(event, f"{dotted(here)} is given twice, first in line {first}", "Keep one of them.")
            self.lines[here] = event.start_mark.line + 1
            entries[key] = self.value(next(self.events), here)
        return entries

    def refuse(self, event: Event, what: str, hint: str) -> SpecError:
        return SpecError(f"{self.source}:{event.start_mark.line + 1}: {what}", hint)


Scalar = str | int | float | bool | None

_WIDEST = 120
"""Columns of a list on one line; a longer one has a line for each item."""
_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+-]*")


def write_yaml(data: Mapping[str, object]) -> str:
    """A mapping of scalars, lists of scalars and mappings of the same kind, as block YAML."""
    return "".join(f"{line}\n" for line in _written(data, 0))


def scalar_text(value: Scalar) -> str:
    """One scalar; text is quoted wherever it could be taken for something else."""
    if not isinstance(value, str):
        return json.dumps(value, allow_nan=False)
    if _PLAIN.fullmatch(value) and plain_scalar(value) == value:
        return value
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _written(data: Mapping[str, object], depth: int) -> Iterator[str]:
    for key, value in data.items():
        start = f"{'  ' * depth}{scalar_text(key)}:"
        if isinstance(value, Mapping) and value:
            yield start
            yield from _written(cast("Mapping[str, object]", value), depth + 1)
        elif isinstance(value, Mapping):
            yield f"{start} {{}}"
        elif isinstance(value, Sequence) and not isinstance(value, str):
            items = [scalar_text(item) for item in cast("Sequence[Scalar]", value)]
            line = f"{start} [{', '.join(items)}]"
            yield from [line] if len(line) <= _WIDEST else [start, *(f"{'  ' * (depth + 1)}- {item}" for item in items)]
        else:
            yield f"{start} {scalar_text(cast('Scalar', value))}"


SpecType = TypeVar("SpecType", bound=Spec)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LARGEST_SPEC = 8 * 2**20
"""Bytes of the largest YAML file that is read: a mapping of ten thousand runs."""


def load_study(path: str | pathlib.Path) -> Study:
    """Read a study file.

    Raises:
        SpecError: the file cannot be read, is not plain YAML, or does not describe a study; the message names
            file, line, field, the value received and what is accepted.
    """
    return load_spec(path, Study)


def load_spec(path: str | pathlib.Path, type: type[SpecType]) -> SpecType:
    """Read one spec of any type from a YAML file.

    Raises:
        SpecError: as for `load_study`.
    """
    text = files.read_text(path, what=f"a YAML file with a {type.__name__}", largest=LARGEST_SPEC, error=SpecError)
    return parse_spec(text, type, source=str(path))


def parse_spec(text: str, type: type[SpecType], source: str = "<text>") -> SpecType:
    """Read one spec of any type from YAML text; `source` names the text in errors.

    Raises:
        SpecError: as for `load_study`.
    """
    document = read_yaml(text, source)

    def place(path: Path) -> str:
        where = f"{source}:{document.line(path)}"
        return f"{where}: {dotted(path)}" if path else f"{where}: {type.__name__}"

    return type.from_file_data(document.data, place, source)


def dump_spec(spec: Spec) -> str:
    """The spec as YAML that `load_spec` reads back to an equal one, with the fields that were given."""
    return write_yaml(_given(spec))


def _given(spec: Spec) -> dict[str, object]:
    """The fields that were given, as plain data: a file with the others would give them too."""
    fields = type(spec).model_fields
    given = {name: getattr(spec, name) for name in fields if name in spec.model_fields_set}
    return {
        name: _plain(value) for name, value in given.items() if value not in (None, ()) or fields[name].default != value
    }


def _plain(value: object) -> object:
    if isinstance(value, Budget) and _given(value).keys() == {value.unit}:
        # On one line, as people write it and commands say to change it.
        amount = getattr(value, value.unit)
        return amount if value.unit == "rollouts" else f"{amount} {value.unit}"
    if isinstance(value, Spec):
        return _given(value)
    return [_plain(part) for part in cast("tuple[object, ...]", value)] if isinstance(value, tuple) else value


def json_schema(type: type[Spec] = Study) -> dict[str, Any]:
    """JSON schema of the YAML form of a spec type.

    It accepts every file that the loader accepts. The loader checks more: ranges of numbers written as text, and
    fields that must fit together.
    """
    return {"$schema": DIALECT, **type.model_json_schema(mode="validation")}
