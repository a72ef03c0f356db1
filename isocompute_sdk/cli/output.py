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


def emit_json(payload: Mapping[str, Any]) -> None:
    """One JSON document on stdout, with its `schema_version`."""
    print(json.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **payload}, indent=1, allow_nan=False))
