"""The page as one HTML file: a template, a style sheet, a short script, and Apache ECharts with its licence."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from isocompute_sdk import files
from isocompute_sdk.notes import by_severity
from isocompute_sdk.phrases import printable
from isocompute_sdk.reporting.page import Page

_ASSETS = resources("isocompute_sdk.reporting.drawing") / "assets"
LICENCES = ("echarts-NOTICE.txt", "echarts-LICENSE.txt", "echarts-LICENSE-d3.txt")


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
    return environment.get_template("page.html.j2")


def _as_text(value: object) -> object:
    """What a template prints; text that is markup stays as it is."""
    return printable(value, keep="\n\t") if type(value) is str else value


def render(page: Page) -> str:
    """The page as HTML. Text is escaped; no script runs but the two that are named by their hashes."""
    scripts = [_asset("echarts.common.min.js"), _asset("page.js")]
    return _template().render(
        page=page,
        slider=page.slider(),
        data=Markup(_json(_data(page))),
        style=Markup(_asset("page.css") + _variables(page.palette)),
        scripts=[Markup(script) for script in scripts],
        hashes=[_hash(script) for script in scripts],
        licences=Markup("\n\n".join(_asset(name) for name in LICENCES).replace("--", "- -")),
    )


def write(page: Page, path: str | Path) -> Path:
    """Write the page; who reloads it meanwhile sees the old one or the new one.

    Raises:
        IsoComputeError: the file cannot be written.
    """
    with files.saving(path) as target:
        return files.write_text(target, render(page))


def _data(page: Page) -> dict[str, Any]:
    """What the script needs: options of charts, colours, and the slider's positions."""
    slider = page.slider()
    found: dict[str, Any] = {
        "palette": page.palette,
        "charts": {chart.name: chart.option for chart in page.charts()},
    }
    if slider is not None:
        found["slider"] = {
            "chart": slider.chart,
            "positions": [[one.budget, one.values, list(one.marker)] for one in slider.positions],
        }
    return found


def _json(value: Any) -> str:
    """JSON that can stand in a script element: no character of it can end the element or begin a comment."""
    text = json.dumps(_shown(value), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shown(value: Any) -> Any:
    """The value with control characters of every text in it as escapes."""
    if isinstance(value, str):
        return printable(value, keep="\n\t")
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {printable(key): _shown(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in cast("Sequence[Any]", value)]
    return value


def _variables(palette: Mapping[str, Mapping[str, str]]) -> str:
    """The colours as CSS variables in both themes."""

    def block(selector: str, theme: str) -> str:
        listed = ";".join(f"--{name}:{colour}" for name, colour in palette[theme].items())
        return f"{selector}{{{listed}}}"

    dark = ":root:not([data-theme=light])"
    return "\n".join(
        (
            block(":root", "light"),
            f"@media (prefers-color-scheme:dark){{{block(dark, 'dark')}}}",
            block(":root[data-theme=dark]", "dark"),
            f"@media print{{{block(':root:root:root', 'light')}}}",
        )
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
