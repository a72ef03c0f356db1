"""The page as one HTML file: a template, a style sheet, pictures as SVG, and a short script for slider and theme."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from isocompute_sdk import files
from isocompute_sdk.notes import by_severity
from isocompute_sdk.phrases import printable
from isocompute_sdk.reporting.page import Page

_WHOLE = re.compile(r"--[a-z][a-z-]+|\b(?:n|B_p|M|C) = [\d,.]*\d|\d[\d,.]* (?:x\b|%)")
_ASSETS = resources("isocompute_sdk.reporting.drawing") / "assets"


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("isocompute_sdk.reporting.drawing"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_as_text,
    )
    filters: dict[str, Any] = environment.filters
    filters["sort_notes"] = by_severity
    filters["picture"] = _picture
    filters["whole"] = _whole
    return environment.get_template("page.html.j2")


def _picture(svg: str) -> Markup:
    """A figure as markup: Matplotlib has escaped the text in it."""
    return Markup(printable(svg, keep="\n\t\xa0"))


def _whole(text: str) -> Markup:
    """Text in which no option and no `n = 8` is broken over two lines."""
    return Markup(_WHOLE.sub(r'<span class="whole">\g<0></span>', str(escape(printable(text, keep="\n\t")))))


def _as_text(value: object) -> object:
    """What a template prints; text that is markup stays as it is."""
    return printable(value, keep="\n\t") if type(value) is str else value


def render(page: Page) -> str:
    """The page as HTML. Text is escaped; no script runs but the one that is named by its hash."""
    script, slider = _asset("page.js"), page.slider()
    positions = [] if slider is None else slider.positions
    return _template().render(
        page=page,
        positions=Markup(_json(positions)),
        style=Markup(_asset("page.css")),
        script=Markup(script),
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def write(page: Page, path: str | Path) -> Path:
    """Write the page; who reloads it meanwhile sees the old one or the new one.

    Raises:
        IsoComputeError: the file cannot be written.
    """
    with files.saving(path) as target:
        return files.write_text(target, render(page))


def _json(value: Any) -> str:
    """JSON that can stand in a script element: no character of it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
