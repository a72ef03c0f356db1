"""One look for every figure: colours, fonts, sizes, axes of compute, direct labels, and saving."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from isocompute_sdk import files
from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.frontier_laws import nearest_rising
from isocompute_sdk.phrases import short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

INK, MUTED, GRID = "#1b2130", "#566073", "#e3e6ec"
PLAN = "#007a9c"
"""Plan, forecast and band of n*; differs from every colour of n with any colour vision."""
SHADES = ("#3a9ab8", "#00303f")
"""Ends of the shades for other quantities than n."""
RAMP = ("#1d121a", "#032a00", "#511a54", "#434302", "#584098", "#944762", "#69780b", "#7171fb", "#719e76")
"""Colours of n, one an octave. Lightness rises in equal steps, so the order survives grey printing; neighbours differ
in hue with any colour vision, also inverted on a dark page. The lightest has a contrast of 3:1 on white (WCAG 2,
graphics); text has none of these colours."""
MARKERS = "os^DvPX"
"""Marks of n, octave by octave: colour is never the only difference."""
SMALLEST, LARGEST = 2, 512
"""Between these n every octave has its own colour; smaller and larger n have those of the ends."""
WIDTH, HEIGHT = 7.2, 4.4
"""Inches of a figure with one panel: the text width of a paper."""
PANEL_WIDTH, PANEL_HEIGHT = 4.6, 3.5
"""Inches of one of several panels."""
DPI = 200
"""Dots per inch of PNG files, and of dense points inside PDF and SVG."""
LABEL_WIDTH = 0.1
"""Share of the width within which a label beside an arrow may cover points."""
LINE = 13.0
"""Points of height of one line of a label."""
TICK = 42.0
"""Points of width between two labels of an axis of compute."""
COLUMN = 110.0
"""Points of width of one column of a legend."""
ABOVE = "above"
"""Group of the labels above the axes."""
MOST_OF_AXIS = 0.25
"""Share of the axis that points below all fitted curves may take."""
MANY = 300
"""Evaluations of a picture from which their marks are small and pale."""
DENSE = 4000
"""Points from which they are stored as an image inside PDF and SVG."""
RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.solid_capstyle": "round",
}
SAVING: Any = {"pdf.fonttype": 42, "svg.hashsalt": "isocompute"}
"""Embedded TrueType fonts, which publishers ask for, and files that are equal for equal figures."""
METADATA = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")


def styled(draw: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """Draw with this style; the caller's own settings stay as they are."""

    @wraps(draw)
    def with_style(*args: Given.args, **kwargs: Given.kwargs) -> Drawn:
        from matplotlib import rc_context

        if _in_notebook():
            from matplotlib import pyplot as plt

            # Loads the notebook's backend, which changes settings that must outlast the context.
            plt.draw_if_interactive()
        with rc_context(RC):
            return draw(*args, **kwargs)

    return with_style


def canvas(ax: Axes | None = None, *, size: tuple[float, float] = (WIDTH, HEIGHT)) -> Axes:
    """The axes given, or those of a new figure."""
    return _figure(size).add_subplot() if ax is None else ax


def panels(count: int, *, size: tuple[float, float] = (PANEL_WIDTH, PANEL_HEIGHT)) -> list[Axes]:
    """Axes of a new figure with so many panels, row by row."""
    if count == 1:
        return [canvas()]
    columns = min(2, count)
    rows = math.ceil(count / columns)
    figure = _figure((columns * size[0], rows * size[1]))
    return [figure.add_subplot(rows, columns, i + 1) for i in range(count)]


def _figure(size: tuple[float, float]) -> Figure:
    """A new figure; of pyplot in a notebook, which shows such figures at the end of a cell and closes them."""
    if _in_notebook():
        from matplotlib import pyplot as plt

        return plt.figure(figsize=size, layout="constrained")
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _in_notebook() -> bool:
    if "ipykernel" not in sys.modules:
        return False
    from ipykernel.zmqshell import ZMQInteractiveShell

    return ZMQInteractiveShell.initialized()


def shades(count: int) -> list[str]:
    """`count` shades of the plan's colour, light to dark: what differs is not n."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    shade = LinearSegmentedColormap.from_list("shades", SHADES)
    return [to_hex(shade(place)) for place in np.linspace(0.0, 1.0, max(count, 2))[:count]]


def look(n: int) -> tuple[str, str]:
    """Colour and mark of this n, the same in every figure."""
    place = math.log2(n / SMALLEST) / math.log2(LARGEST / SMALLEST)
    return _colour(min(max(place, 0.0), 1.0)), MARKERS[round(math.log2(n)) % len(MARKERS)]


@cache
def _colour(place: float) -> str:
    """A colour of the ramp, from 0 (dark) to 1 (light)."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    return to_hex(LinearSegmentedColormap.from_list("n", RAMP)(place))


def log_axis(ax: Axes, low: float, high: float, label: str) -> None:
    """A logarithmic horizontal axis with round, compact ticks."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.set_xlim(low, high)
    decade = ax.bbox.width * 72 / ax.figure.dpi / math.log10(high / low)
    # By the smallest distance of two labels, in decades.
    room = {0.17: (1.0, 2.0, 3.0, 5.0), 0.3: (1.0, 2.0, 5.0), 0.48: (1.0, 3.0), math.inf: (1.0,)}
    subs = next(labels for gap, labels in room.items() if gap * decade > TICK)
    ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(lambda value, _: short(value) if value > 0 else "")
    ax.set_xlabel(label)


def size_axis(ax: Axes, low: float, high: float, label: str) -> None:
    """A vertical axis in octaves, for n or B_p."""
    ax.set_yscale("log", base=2)
    ax.set_ylim(low / 1.4, high * 1.4)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_ylabel(label)


def points(ax: Axes, x: Array, y: Array, colour: str, mark: str, *, many: bool) -> None:
    """Measured values: open marks, so that equal values show through; small and pale where there are `many`."""
    how: dict[str, Any] = {"markersize": 2.4, "alpha": 0.3} if many else {"markersize": 4.8, "markerfacecolor": "none"}
    ax.plot(x, y, mark, color=colour, markeredgewidth=0 if many else 1, rasterized=len(x) > DENSE, zorder=2, **how)


def line_to(ax: Axes, x: Array, y: Array, last: float | None, color: str = INK, **how: Any) -> Line2D:
    """A line that is solid up to `last`, where the runs end, and dashed beyond; None: dashed throughout."""
    cut = 0 if last is None else int(np.searchsorted(x, last * (1 + 1e-9), side="right"))
    # The two parts share a point, so that the line has no gap.
    rest = slice(max(cut - 1, 0), None)
    drawn: list[Line2D] = []
    if cut > 1:
        drawn += ax.plot(x[:cut], y[:cut], color=color, linewidth=1.9, zorder=3, **how)
        how |= {"label": None, "marker": None}
    if cut < len(x):
        drawn += ax.plot(x[rest], y[rest], color=color, linewidth=1.3, linestyle=(0, (4, 2)), zorder=3, **how)
    return drawn[0]


def sample(n: int) -> Line2D:
    """A line of this n with its mark, for a label."""
    from matplotlib.lines import Line2D

    colour, mark = look(n)
    return Line2D([], [], color=colour, marker=mark, markersize=5, linewidth=1.9, label=f"n = {n}")


def name_sizes(ax: Axes, ends: Mapping[int, Sequence[float]], more: Sequence[Label] = ()) -> None:
    """Each n beside the mean end of its lines, and `more` labels as of `end_labels`; call it last."""
    end_labels(ax, [*((float(np.mean(y)), sample(n)) for n, y in ends.items()), *more])


def clip_falls(
    ax: Axes,
    lines: Sequence[tuple[Array, Array, str]],
    kept: Sequence[float] = (),
    fitted: Sequence[float] = (),
) -> None:
    """End the vertical axis below the runs' rises, mark with an arrow where a run falls further, and say how far.

    A run that collapses would otherwise take most of the axis.

    Args:
        ax: axes whose upper limit stands.
        lines: compute, values and colour of every run, in order of compute. Limits that were set stay.
        kept: other values that stay in view: labels of what lies outside leave the axes no room.
        fitted: the lowest values of curves through these lines, where each line holds the runs of one configuration:
            points of one that fell then lie before the best of another.
    """
    rises = [y[: int(np.argmax(y)) + 1] for _, y, _ in lines if len(y)]
    if not rises or not ax.get_autoscaley_on():
        return
    values = np.concatenate([y for _, y, _ in lines])
    # Half of the points stay, also where most runs fell soon.
    lowest, top = min([*kept, float(np.median(values)), *(float(y.min()) for y in rises)]), ax.dataLim.y1
    if fitted and min(fitted) - lowest > MOST_OF_AXIS * (top - lowest):
        lowest = min([*kept, *fitted])
    # Room for two lines of text below all points that stay.
    strip = (14 + 2 * LINE) / (ax.bbox.height * 72 / ax.figure.dpi)
    top += 0.06 * (top - lowest)
    bottom = lowest - strip / (1 - strip) * (top - lowest)
    if not np.any(values < bottom) or bottom >= top:
        return
    ax.set_ylim(bottom, top)
    falls = [(float(x[y < bottom][0]), float(y.min()), colour) for x, y, colour in lines if np.any(y < bottom)]
    how: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "zorder": 5}
    for x, _, colour in falls:
        arrow = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (x, 0.0), xytext=(0, 13), arrowprops=arrow, **how)
    text = f"to {min(low for _, low, _ in falls):.2f}"
    text = text if len(falls) == 1 else f"{len(falls)} lines\n{text}"
    # Beside the arrow where it covers the fewest points.
    low = np.concatenate([np.column_stack([x, y])[(y >= bottom) & (y < lowest)] for x, y, _ in lines])
    across = ax.transAxes.inverted().transform(ax.transData.transform(low))[:, 0] if len(low) else np.empty(0)
    places = [(x, _share(ax, x, bottom)[0]) for x in sorted(x for x, *_ in falls)]
    at, share = min(places, key=lambda place: int(np.count_nonzero(np.abs(across - place[1]) < LABEL_WIDTH)))
    side = "left" if share < 0.3 else "center"
    white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}
    ax.annotate(text, (at, 0.0), xytext=(0, 14), ha=side, bbox=white, **how)


def legend_below(ax: Axes, handles: Sequence[Any]) -> None:
    """A legend below the axes, where it hides no point, with no more columns than fit."""
    columns = max(1, int(ax.bbox.width * 72 / ax.figure.dpi / COLUMN))
    if handles:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=columns, handletextpad=0.2)


def star(
    ax: Axes, x: float, y: float, text: str, interval: tuple[float, float] | None = None, what: str = "plan"
) -> None:
    """The plan, or another choice: a star with its interval, and a label above the axes; call it after the title."""
    if interval is not None:
        ax.plot([x, x], interval, color=PLAN, linewidth=3.2, solid_capstyle="butt", zorder=5, label="plan interval")
    how: dict[str, Any] = {"markersize": 15, "markeredgecolor": "white", "markeredgewidth": 0.8, "clip_on": False}
    ax.plot([x], [y], "*", color=PLAN, zorder=6, label=what, **how)
    start = _share(ax, x, y if interval is None else interval[1])[1]
    ax.axvline(x, min(start, 1.0), 1.0, color=PLAN, linewidth=0.9, linestyle=":", zorder=1)
    _above(ax, x, text, color=PLAN, fontweight="bold")


def upright(ax: Axes, x: float, text: str) -> None:
    """A dotted vertical line with its meaning above the axes. Call it after the title."""
    ax.axvline(x, color=MUTED, linestyle=":", linewidth=1.1, zorder=1)
    _above(ax, x, text, color=MUTED)


def _share(ax: Axes, x: float, y: float) -> tuple[float, float]:
    """A place as shares of the width and of the height of the axes."""
    across, up = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))
    return float(across), float(up)


def _above(ax: Axes, x: float, text: str, **how: Any) -> None:
    """A label above the axes, where it hides nothing, and above those that stand there; the title goes up."""
    rows = [one.get_text().count("\n") + 1 for one in ax.texts if one.get_gid() == ABOVE]
    across, height = _share(ax, x, ax.get_ylim()[0])[0], 4 + LINE * sum(rows)
    ax.annotate(
        text,
        (x, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, height),
        textcoords="offset points",
        ha="left" if across < 0.3 else "right" if across > 0.7 else "center",
        va="bottom",
        linespacing=1.1,
        annotation_clip=False,
        gid=ABOVE,
        **how,
    )
    ax.set_title(ax.get_title("left"), loc="left", pad=height + LINE * (text.count("\n") + 1) + 6)


Label = tuple[float, "Artist"]
"""Where what an artist draws ends, and the artist, whose label is the text."""


def end_labels(ax: Axes, labels: Sequence[Label]) -> None:
    """What was drawn, with a sample of it, beside its right end; moved apart where labels would overlap.

    Call it last, when the limits stand.
    """
    from matplotlib.legend import Legend

    if not labels:
        return
    figure = ax.get_figure(root=True)
    assert figure is not None, "axes belong to a figure"
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
    box, scale = ax.get_window_extent(), 72 / figure.dpi
    bottom, top = ax.get_ylim()
    ordered = sorted(labels, key=lambda one: one[0])
    wanted = [scale * (ax.transData.transform((1, min(max(y, bottom), top)))[1] - box.y0) for y, _ in ordered]
    texts = [str(artist.get_label()) for _, artist in ordered]
    placed = spread(wanted, [LINE * (text.count("\n") + 1) for text in texts], scale * box.height)
    for (_, artist), text, height in zip(ordered, texts, placed, strict=True):
        at: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, height / (scale * box.height))}
        beside = Legend(ax, [artist], [text], handlelength=1.6, handletextpad=0.5, borderpad=0, **at)
        beside.set_clip_on(False)
        ax.add_artist(beside)


def spread(wanted: Sequence[float], heights: Sequence[float], room: float) -> list[float]:
    """Centres as near as possible to `wanted` (increasing) so that labels of these heights do not overlap.

    Least squares under the order constraint; kept within 0 to `room` if they fit.
    """
    height = np.asarray(heights, dtype=float)
    offset = np.concatenate([[0.0], np.cumsum((height[1:] + height[:-1]) / 2)])
    free = nearest_rising(np.asarray(wanted) - offset)
    low, high = height[0] / 2, room - offset[-1] - height[-1] / 2
    return list(np.clip(free, low, max(low, high)) + offset)


def figure_of(drawn: Axes | Figure) -> Figure:
    """The whole figure that axes belong to; a notebook shows it where it is returned, and not once more."""
    figure = drawn.get_figure(root=True)
    assert figure is not None, "axes that were drawn belong to a figure"
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(figure)
    return figure


def as_svg(drawn: Axes | Figure) -> str:
    """A figure as an SVG element on the background of an HTML page, with its text as text."""
    from io import StringIO

    from matplotlib import rc_context

    figure, written = figure_of(drawn), StringIO()
    with rc_context({**SAVING, "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", dpi=DPI, metadata=METADATA[".svg"], transparent=True)
    text = written.getvalue()
    return text[text.index("<svg") :]


def save_figure(drawn: Axes | Figure, path: str | Path) -> Path:
    """Write a figure or that of axes (PNG, SVG or PDF by its suffix); a kill leaves the old file or the new one.

    Raises:
        IsoComputeError: an unknown suffix, or a file that cannot be written.
    """
    from matplotlib import rc_context

    figure = figure_of(drawn)

    def write(temporary: Path) -> None:
        with rc_context(SAVING):
            figure.savefig(temporary, dpi=DPI, metadata=METADATA.get(temporary.suffix.lower()))

    with files.saving(path) as target:
        kinds = figure.canvas.get_supported_filetypes()
        if target.suffix.removeprefix(".").lower() not in kinds:
            raise FitError(
                f"{target} ends in {target.suffix!r}; accepted: {', '.join(f'.{kind}' for kind in kinds)}",
                "Use one of these suffixes, such as .png.",
            )
        return files.write_with(target, write)
