"""Figures of `isocompute_sdk.plots` as pictures of the page: small, so that their text can be read on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.plots import style
from isocompute_sdk.reporting.page import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 4.1, 3.2
"""Inches."""


@style.styled
def panel() -> Axes:
    """Where to draw a picture, so small that its text of 9.5 points has 11 pixels at the width of a phone."""
    return style.canvas(size=SIZE)


def picture(name: str, drawn: Axes, caption: str = "") -> Picture:
    """A figure with its title as text of the page.

    Args:
        name: anchor, unique on the page.
        drawn: its axes, made by `panel`.
        caption: text below.
    """
    title = drawn.get_title("left").replace("$", "")
    drawn.set_title("", loc="left")
    return Picture(name, style.as_svg(drawn), title, caption)
