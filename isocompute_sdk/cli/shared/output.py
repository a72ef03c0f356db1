"""What commands print: text for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from isocompute_sdk.errors import IsoComputeError

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


def for_shell(error: BaseException) -> str:
    """An error in words for a terminal: its hint names flags in place of arguments."""
    if not isinstance(error, IsoComputeError) or error.shell_hint is None:
        return str(error)
    return f"{error.message}\n  {error.shell_hint}"


def emit_json(payload: Mapping[str, Any]) -> None:
    """One JSON document on stdout, with its `schema_version`."""
    print(json.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **payload}, indent=1, allow_nan=False))
