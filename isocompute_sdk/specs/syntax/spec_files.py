"""Specs as YAML files: `load_study`, `load_spec` and `dump_spec`; their JSON schema, for editors that check YAML."""

from __future__ import annotations

import pathlib
from typing import Any, TypeVar, cast

from isocompute_sdk import files
from isocompute_sdk.errors import SpecError, dotted
from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.study import Study
from isocompute_sdk.specs.syntax.complaints import Path
from isocompute_sdk.specs.syntax.plain_yaml import read_yaml, write_yaml

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
    """The spec as YAML that `load_spec` reads back to an equal one; fields that are None by default are left out."""
    return write_yaml(_without_empty(spec))


def _without_empty(spec: Spec) -> dict[str, object]:
    """The fields as plain data, without those that are None by default."""
    data: dict[str, object] = {}
    for name, field in type(spec).model_fields.items():
        value = getattr(spec, name)
        if value == () and field.default == ():
            continue
        if value is not None or field.default is not None:
            data[name] = _plain(value)
    return data


def _plain(value: object) -> object:
    if isinstance(value, Spec):
        return _without_empty(value)
    return [_plain(part) for part in cast("tuple[object, ...]", value)] if isinstance(value, tuple) else value


def json_schema(type: type[Spec] = Study) -> dict[str, Any]:
    """JSON schema of the YAML form of a spec type.

    It accepts every file that the loader accepts. The loader checks more: ranges of numbers written as text, and
    fields that must fit together.
    """
    return {"$schema": DIALECT, **type.model_json_schema(mode="validation")}
