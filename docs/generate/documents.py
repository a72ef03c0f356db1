"""The JSON files that commands save, from their schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from generate.markdown import code, prose, table
from isocompute_sdk.cli.listing import DOCUMENTS, schema_of


def pages() -> Iterator[tuple[str, str]]:
    """One page for all kinds."""
    about = (
        "# Saved files\n\nEvery JSON file that a command saves, and the JSON lines of a run's journal, with the fields "
        "of their top level. `isocompute list schema KIND` prints the whole JSON schema. Each carries `kind` and "
        "`schema_version`, and a `digest` of all it holds where only isocompute writes it: a changed file, or another "
        "version, is refused."
    )
    yield "documents.md", "\n\n".join([about, *(_section(kind) for kind in DOCUMENTS)]) + "\n"


def _section(kind: str) -> str:
    schema = schema_of(kind)
    known = cast("dict[str, dict[str, Any]]", schema.get("$defs", {}))
    required = set(schema.get("required", ()))
    rows = [
        (code(name), _type(field, known) + ("" if name in required else " (optional)"), prose(_meaning(field, known)))
        for name, field in schema["properties"].items()
        if name not in ("kind", "schema_version")
    ]
    summary = str(schema.get("description", "")).split("\n\n")[0]
    return f"## {kind}\n\n{prose(summary)}\n\n" + table(("field", "type", "meaning"), rows)


def _meaning(field: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> str:
    """The field's own description, else that of its class."""
    own = field.get("description") or known.get(_name(field), {}).get("description", "")
    return str(own).split("\n\n")[0]


def _name(field: Mapping[str, Any]) -> str:
    return str(field.get("$ref", "")).rpartition("/")[2]


def _type(field: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> str:
    """Type of a field in words, one level deep."""
    if "$ref" in field:
        name = _name(field)
        target = known.get(name, {})
        return ", ".join(map(code, target["enum"])) if "enum" in target else code(name)
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(one, known) for one in field["anyOf"]))
    if "enum" in field or "const" in field:
        return ", ".join(map(code, field.get("enum") or [field["const"]]))
    kind = field.get("type", "any")
    if kind == "array":
        return "list" if "items" not in field else f"list of {_type(field['items'], known)}"
    return "mapping" if kind == "object" else str(kind)
