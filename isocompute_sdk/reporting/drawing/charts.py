"""ECharts options for a report: everything that is drawn is computed here.

Colours are names of the palette behind `@`; `@compact`, `@power2` and `@share` stand for the three number formats of
the page's script. A point's `name` is what the reader sees when hovering.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Json = dict[str, Any]
Points = Sequence[tuple[float, float]]

SYMBOLS = ("circle", "rect", "triangle", "diamond")
"""Marks by position of n, so that colour is not the only difference."""
MOST_TICKS = 7


@dataclass(frozen=True)
class Axis:
    """One axis of a chart."""

    name: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    """Logarithmic, with ticks at 1, 2 and 5."""
    step: float | None = None
    """Distance of the ticks of a linear axis."""
    power2: bool = False
    """Values are log2 of what the labels say."""

    def option(self, *, vertical: bool) -> Json:
        """The axis for ECharts."""
        found: Json = {
            "type": "log" if self.log else "value",
            "name": self.name,
            "nameLocation": "end" if vertical else "middle",
            "nameGap": 12 if vertical else 30,
            "nameTextStyle": {"color": "@muted", "fontSize": 12, "align": "left" if vertical else "center"},
            "axisLine": {"show": not vertical, "lineStyle": {"color": "@line"}},
            "axisTick": {"show": not vertical, "lineStyle": {"color": "@line"}},
            "splitLine": {"show": vertical, "lineStyle": {"color": "@line"}},
            "axisLabel": {"color": "@muted", "formatter": "@compact", "hideOverlap": True},
        }
        if vertical:
            found["nameTextStyle"]["padding"] = [0, 0, 0, -34]
        if self.low is not None and self.high is not None:
            found |= {"min": self.low, "max": self.high}
        if self.log and self.low is not None and self.high is not None:
            ticks = log_ticks(self.low, self.high)
            found["axisLabel"]["customValues"] = ticks
            found["axisTick"]["customValues"] = ticks
        elif self.step is not None:
            found["interval"] = self.step
        if self.power2:
            found |= {"interval": 1, "minInterval": 1}
            found["axisLabel"]["formatter"] = "@power2"
        return found


def chart(
    x: Axis, y: Axis, series: Iterable[Json], *, legend: Mapping[str, str] | None = None, right: int = 18
) -> Json:
    """A chart with one pair of axes; `legend` names the series that can be switched off, each with its mark."""
    found: Json = {
        "animation": False,
        "grid": {"left": 52, "right": right, "top": 34 if y.name else 14, "bottom": 86 if legend else 54},
        "tooltip": {"trigger": "item", "confine": True},
        "xAxis": x.option(vertical=False),
        "yAxis": y.option(vertical=True),
        "series": list(series),
    }
    if legend:
        found["legend"] = {
            "type": "scroll",
            "bottom": 4,
            "data": [{"name": name, "icon": icon} for name, icon in legend.items()],
            "itemStyle": {"opacity": 1},
            "itemWidth": 18,
            "itemHeight": 10,
            "textStyle": {"color": "@ink"},
            "pageTextStyle": {"color": "@muted"},
            "pageIconColor": "@accent",
            "pageIconInactiveColor": "@line",
        }
    return found


def line(
    name: str,
    points: Points,
    colour: str,
    hover: Sequence[str] = (),
    *,
    dashed: bool = False,
    width: float = 2,
    **more: Any,
) -> Json:
    """A line; with `hover`, one text for each point."""
    return {
        "type": "line",
        "name": name,
        "data": _data(points, hover),
        "lineStyle": {"color": f"@{colour}", "width": width, "type": "dashed" if dashed else "solid"},
        # Points are there to hover over, and are not seen.
        "symbol": "circle" if hover else "none",
        "symbolSize": 9,
        "showSymbol": True,
        "itemStyle": {"color": f"@{colour}", "opacity": 0 if hover else 1},
        "emphasis": {"itemStyle": {"opacity": 1}, "lineStyle": {"width": width}},
        **more,
    }


def dots(name: str, points: Points, colour: str, hover: Sequence[str] = (), **more: Any) -> Json:
    """Points without a line."""
    style = {"color": f"@{colour}", **more.pop("itemStyle", {})}
    return {"type": "scatter", "name": name, "data": _data(points, hover), "symbolSize": 5, "itemStyle": style, **more}


def band(name: str, x: Sequence[float], low: Sequence[float], high: Sequence[float], **more: Any) -> list[Json]:
    """The area between two lines."""
    base: Json = {
        "type": "line",
        "name": name,
        "stack": name,
        "stackStrategy": "all",
        "symbol": "none",
        "silent": True,
        "lineStyle": {"opacity": 0},
        "itemStyle": {"color": "@band"},
        "z": 1,
        **more,
    }
    thick = [b - a for a, b in zip(low, high, strict=True)]
    return [
        {**base, "data": _data(list(zip(x, low, strict=True)))},
        {**base, "data": _data(list(zip(x, thick, strict=True))), "areaStyle": {"color": "@band", "opacity": 1}},
    ]


def segments(
    name: str, ends: Iterable[tuple[tuple[float, float], tuple[float, float]]], colour: str, **more: Any
) -> Json:
    """Separate straight pieces, such as intervals."""
    data: list[Any] = []
    for first, last in ends:
        data += [[*map(rounded, first)], [*map(rounded, last)], ["-", "-"]]
    style = {"color": f"@{colour}", "width": 2, **more.pop("lineStyle", {})}
    found: Json = {"type": "line", "name": name, "data": data, "symbol": "none", "silent": True, "lineStyle": style}
    return {**found, "itemStyle": {"color": f"@{colour}"}, **more}


def upright(at: Mapping[str, float], colour: str = "muted") -> Json:
    """Vertical lines with labels; a series without points that carries them."""
    marks = [{"xAxis": rounded(x), "name": name} for name, x in at.items()]
    label = {"formatter": "{b}", "color": f"@{colour}", "position": "insideEndTop", "fontSize": 11}
    style = {"color": f"@{colour}", "type": "dashed", "width": 1}
    return _marks(marks, label, style)


def level(at: Mapping[str, float]) -> Json:
    """Horizontal lines with labels."""
    marks = [{"yAxis": rounded(y), "name": name} for name, y in at.items()]
    label = {"formatter": "{b}", "color": "@muted", "position": "insideStartTop", "fontSize": 11}
    return _marks(marks, label, {"color": "@muted", "type": "dotted", "width": 1.2})


def _marks(marks: list[Json], label: Json, style: Json) -> Json:
    return {
        "type": "line",
        "data": [],
        "markLine": {
            "silent": True,
            "symbol": "none",
            "animation": False,
            "data": marks,
            "label": label,
            "lineStyle": style,
        },
    }


def log_ticks(low: float, high: float) -> list[float]:
    """Round values on a logarithmic axis, at 1, 2 and 5 or coarser."""
    for factors in ((1, 2, 5), (1, 3), (1,)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [f * 10.0**p for p in powers for f in factors if low * 0.999 <= f * 10.0**p <= high * 1.001]
        if len(found) <= MOST_TICKS:
            break
    return found if len(found) > 1 else [low, high]


def linear(name: str, values: Iterable[float], *, within: tuple[float, float] = (-math.inf, math.inf)) -> Axis:
    """A linear axis with round ends that holds all values."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    room = max((high - low) * 0.06, 1e-3 * max(abs(high), 1e-3))
    within = (max(within[0], 0.0), within[1]) if low >= 0 else within
    wide = high - low + 2 * room
    step = 10.0 ** math.floor(math.log10(wide))
    step = next(step * f for f in (0.1, 0.2, 0.5, 1.0, 2.0) if wide / (step * f) <= 6)
    low = max(math.floor((low - room) / step) * step, within[0])
    high = min(math.ceil((high + room) / step) * step, within[1])
    return Axis(name, rounded(low), rounded(high), step=rounded(step))


def thinned(count: int, most: int) -> list[int]:
    """Positions of at most so many of `count` points, first and last included."""
    if count <= most:
        return list(range(count))
    return sorted({int(i) for i in np.linspace(0, count - 1, most).round()})


def rounded(value: float) -> float:
    """Five digits: more cannot be seen, and make the page large."""
    return float(f"{value:.5g}")


def _data(points: Points, hover: Sequence[str] = ()) -> list[Any]:
    values = [[rounded(x), rounded(y)] for x, y in points]
    if not hover:
        return values
    return [{"value": value, "name": text} for value, text in zip(values, hover, strict=True)]
