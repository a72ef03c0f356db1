"""Cases of parametrised tests."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], quick: int | Container[Any]) -> list[Any]:
    """The cases, of which the first so many, or these, belong to the default suite; the others are slow."""
    return [
        one
        if (place < quick if isinstance(quick, int) else one in quick)
        else pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.slow)
        for place, one in enumerate(cases)
    ]
