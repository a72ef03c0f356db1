"""The package's own source, for tests that read it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def calls_in(file: Path) -> tuple[ast.Call, ...]:
    """Every call in a source file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Call))
