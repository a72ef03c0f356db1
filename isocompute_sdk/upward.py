"""Methods of lower objects whose work an upper layer does: `isocompute_sdk/__init__.py` registers where each lives."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES: dict[str, str] = {}


def register(**modules: str) -> None:
    """The module of each function by the function's name; it is imported at the first call."""
    _MODULES.update(modules)


def call(function: str, *args: Any, **options: Any) -> Any:
    """What a registered function returns."""
    return getattr(import_module(_MODULES[function]), function)(*args, **options)
