"""Configurations as text: JSON, YAML and the arguments in a shell script, as mappings with dotted keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.files import parse_json


def document(path: Path, text: str) -> object:
    """The content of a JSON or YAML file.

    Raises:
        ValueError: it is neither.
    """
    if path.suffix == ".json":
        return parse_json(text)
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error


def flags(text: str) -> dict[str, Any]:
    """`--name value`, `--name=value` and `name=value` of a shell script, as a mapping."""
    import shlex

    words = shlex.split(text.replace("\\\n", " "), comments=True)
    found: dict[str, Any] = {}
    for i, word in enumerate(words):
        match = re.fullmatch(r"(?:--|\+\+?)?([A-Za-z_][\w.]*)=(.*)", word, re.DOTALL)
        if match:
            found[match[1]] = scalar(match[2])
        elif re.fullmatch(r"--[A-Za-z_][\w.]*", word):
            value = words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith("--") else True
            found[word[2:]] = scalar(value) if isinstance(value, str) else value
    return found


def scalar(text: str) -> str | int | float | bool:
    """A typed value: true/false, whole number, number, else the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def flat(raw: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings with dotted keys; `{"value": x}`, as W&B writes every entry, is x."""
    if isinstance(raw, Mapping):
        mapping = cast(Mapping[object, object], raw)
        if prefix and "value" in mapping and set(mapping) <= {"value", "desc"}:
            yield from flat(mapping["value"], prefix)
            return
        for key, value in mapping.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, raw
