"""Colours of a report in both themes: one per group size, so that n looks the same in every chart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from isocompute_sdk.plots.style import RAMP

_RAMPS = {"light": RAMP, "dark": ("#9360e6", "#d0559f", "#ec7754", "#fb9f3a", "#fdcf27", "#f4f46a")}
"""Colours of n from small to large: those of the pictures, and lighter ones for a dark page, all with a contrast of at
least 3:1 (WCAG 2, graphics). Lightness rises, so that the order survives any colour vision and grey printing."""
_FIXED = {
    "light": {
        "ink": "#1b2130",
        "muted": "#566073",
        "line": "#d9dee7",
        "card": "#ffffff",
        "accent": "#0b6bb8",
        "band": "#0b6bb833",
        "second": "#007a9c",
        "clear": "#ffffff00",
    },
    "dark": {
        "ink": "#e8ecf4",
        "muted": "#a3aec2",
        "line": "#39435a",
        "card": "#182033",
        "accent": "#6cb8f6",
        "band": "#6cb8f633",
        "second": "#4fd8f5",
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
    for theme, ramp in _RAMPS.items():
        span = max(last - first, 1e-9)
        found[theme] = _FIXED[theme] | {f"n{n}": _at(ramp, (at - first) / span) for n, at in octaves.items()}
    return found


def _at(ramp: Sequence[str], place: float) -> str:
    """The colour at a place of the ramp between 0 and 1."""
    position = place * (len(ramp) - 1)
    i = min(int(position), len(ramp) - 2)
    share = position - i
    parts = [
        round((1 - share) * int(ramp[i][k : k + 2], 16) + share * int(ramp[i + 1][k : k + 2], 16)) for k in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)
