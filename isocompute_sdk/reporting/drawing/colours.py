"""Colours of a report in both themes: one per group size, so that n looks the same in every chart."""

from __future__ import annotations

import math
from collections.abc import Iterable

_RAMP = (
    *("#0d0887", "#3b049a", "#5c01a6", "#7e03a8", "#9c179e", "#b52f8c", "#cc4778"),
    *("#de5f65", "#ed7953", "#f89540", "#fdb42f", "#fbd524", "#f0f921"),
)
"""The plasma colour map: lightness rises evenly, so that its order survives any colour vision and grey printing."""
_PARTS = {"light": (0.0, 0.73), "dark": (0.36, 0.97)}
"""Part of the map with enough contrast on the page of each theme."""
_FIXED = {
    "light": {
        "ink": "#1b2130",
        "muted": "#566073",
        "line": "#d9dee7",
        "card": "#ffffff",
        "accent": "#0b6bb8",
        "band": "#0b6bb833",
        "second": "#b34700",
        "clear": "#ffffff00",
    },
    "dark": {
        "ink": "#e8ecf4",
        "muted": "#a3aec2",
        "line": "#39435a",
        "card": "#182033",
        "accent": "#6cb8f6",
        "band": "#6cb8f633",
        "second": "#ffb077",
        "clear": "#00000000",
    },
}


def palette(sizes: Iterable[int]) -> dict[str, dict[str, str]]:
    """Colours by theme and name: those of the page, and `n16` for n = 16.

    Sizes are placed by log2 n; the powers of two between the smallest and the largest have a colour too.
    """
    levels = set(sizes)
    if levels:
        levels |= {2**i for i in range(1, 31) if min(levels) <= 2**i <= max(levels)}
    octaves = {n: math.log2(n) for n in sorted(levels)}
    first, last = min(octaves.values(), default=0.0), max(octaves.values(), default=0.0)
    found: dict[str, dict[str, str]] = {}
    for theme, (low, high) in _PARTS.items():
        scale = (high - low) / max(last - first, 1e-9)
        found[theme] = _FIXED[theme] | {f"n{n}": _at(low + (at - first) * scale) for n, at in octaves.items()}
    return found


def _at(place: float) -> str:
    """The colour at a place of the map between 0 and 1."""
    position = place * (len(_RAMP) - 1)
    i = min(int(position), len(_RAMP) - 2)
    share = position - i
    parts = [
        round((1 - share) * int(_RAMP[i][k : k + 2], 16) + share * int(_RAMP[i + 1][k : k + 2], 16)) for k in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)
