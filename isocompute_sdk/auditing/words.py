"""Numbers and lists in messages."""

from __future__ import annotations

from collections.abc import Sequence


def count(value: float) -> str:
    """Rollouts in three digits, such as 1.51M or 39.9k."""
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.0f}"


def some(names: Sequence[str], most: int = 4) -> str:
    """The first names of a list and how many more there are."""
    return ", ".join(names[:most]) + (f", and {len(names) - most} more" if len(names) > most else "")
