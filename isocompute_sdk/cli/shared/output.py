"""What commands print: text for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

OUTPUT_SCHEMA_VERSION = 1
"""Version of the `--json` documents that are not a saved file of their own."""


def say(text: str = "") -> None:
    """One line for people."""
    print(text)


def printable(text: str, keep: str = "") -> str:
    """Text for a terminal: control characters of run names, line ends included, are shown as escapes.

    Args:
        text: anything.
        keep: characters that stay as they are.
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def emit_json(payload: Mapping[str, Any]) -> None:
    """One JSON document on stdout, with its `schema_version`."""
    print(json.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **payload}, indent=1, allow_nan=False))
