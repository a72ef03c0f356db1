"""Writing plain data as YAML that `yaml_reader` reads back to equal data."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from isocompute_sdk.specs.yaml_reader import plain_scalar

Scalar = str | int | float | bool | None

_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+-]*")
_INVISIBLE = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}


def write_yaml(data: Mapping[str, object]) -> str:
    """A mapping of scalars, lists of scalars and mappings of the same kind, as block YAML."""
    return "".join(f"{line}\n" for line in _lines(data, 0))


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
    if unicodedata.category(char) not in _INVISIBLE:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _lines(data: Mapping[str, object], depth: int) -> Iterator[str]:
    for key, value in data.items():
        start = f"{'  ' * depth}{scalar_text(key)}:"
        if isinstance(value, Mapping) and value:
            yield start
            yield from _lines(cast("Mapping[str, object]", value), depth + 1)
        elif isinstance(value, Mapping):
            yield f"{start} {{}}"
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{start} [{', '.join(scalar_text(item) for item in cast('Sequence[Scalar]', value))}]"
        else:
            yield f"{start} {scalar_text(cast('Scalar', value))}"
