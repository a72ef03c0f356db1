"""Pictures of fits and plans: what is drawn equals the data and the plan, and can be told apart and saved."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib
import numpy as np
import polars as pl
import pytest
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

import isocompute_sdk as iso
from isocompute_sdk import FitError, Fits, Plan, RunSet, plots
from isocompute_sdk.plots import style
from tests.parameters import few

Make = Callable[..., RunSet]
DARK = "#182033"
EASY = "qwen2.5-7b-instruct/guru-math-easy"
# Machado, Oliveira & Fernandes 2009, severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def linear(colour: str) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """CIELAB of linear sRGB, white D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ light / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def seen(colour: str, vision: str) -> np.ndarray:
    return lab(np.clip(np.array(VISION[vision]) @ linear(colour), 0, 1))


def on_dark(colour: str) -> str:
    """The colour as a dark page shows it: inverted, its hue turned by half a circle, as light on its background."""
    turn = [[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]]
    shown = np.clip(turn @ (1 - np.array(to_rgb(colour))), 0, 1)
    return to_hex(1 - (1 - shown) * (1 - np.array(to_rgb(DARK))))


def contrast(colour: str, ground: str = "#ffffff") -> float:
    one, other = (float(linear(each) @ [0.2126, 0.7152, 0.0722]) + 0.05 for each in (colour, ground))
    return max(one, other) / min(one, other)


def line(ax: Axes, label: str) -> Line2D:
    return next(one for one in ax.lines if one.get_label() == label)


def data_of(one: Line2D) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(one.get_xdata(), dtype=float), np.asarray(one.get_ydata(), dtype=float)


def labels(ax: Axes) -> list[Text]:
    """Texts beside lines and above the axes."""
    return [*ax.texts, *(text for legend in ax.findobj(Legend) for text in legend.get_texts())]


def written(ax: Axes) -> list[str]:
    return [text.get_text() for text in labels(ax)]


def check_layout(figure: Figure) -> None:
    """No label lies over another one, over a point or outside the figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    # `axes.titlelocation` is left.
    titles = [one for ax in figure.axes for one in ax.get_children() if isinstance(one, Text) and one.get_text()]
    texts = [*{*titles, *(text for ax in figure.axes for text in (*labels(ax), ax.xaxis.label, ax.yaxis.label))}]
    for text in texts:
        if isinstance(text, Annotation):
            text.update_positions(canvas.get_renderer())
    # Of annotations without their arrows.
    boxes = {text: Text.get_window_extent(text) for text in texts if text.get_text()}
    limits = figure.bbox.padded(1.0)
    for text, box in boxes.items():
        assert limits.x0 <= box.x0, text
        assert box.x1 <= limits.x1, text
        assert limits.y0 <= box.y0, text
        assert box.y1 <= limits.y1, text
    for one, other in combinations(boxes, 2):
        overlap = Bbox.intersection(boxes[one], boxes[other])
        assert overlap is None or min(overlap.width, overlap.height) < 1.5, (one, other)
    for ax in figure.axes:
        marks = [one for one in ax.lines if one.get_marker() not in ("None", None, "", " ")]
        at = np.concatenate(
            [ax.transData.transform(np.column_stack(data_of(one))) for one in marks] or [np.empty((0, 2))]
        )
        for text in labels(ax):
            box = boxes.get(text, Bbox.null())
            assert not np.any((at > (box.x0, box.y0)).all(axis=1) & (at < (box.x1, box.y1)).all(axis=1)), text


@pytest.fixture(scope="module")
def fits(make_runs: Make) -> Fits:
    return iso.fit(make_runs(), draws=20, method="paper")


@pytest.fixture(scope="module")
def plan(fits: Fits) -> Plan:
    return iso.Planner(fits).allocate("2M")


@pytest.fixture(scope="module")
def surface(make_runs: Make) -> Fits:
    return iso.fit(make_runs(), draws=20)


def test_colours_of_n_are_ordered_and_distinct_with_any_vision_and_dark_enough() -> None:
    found = [style.look(2**octave)[0] for octave in range(1, 10)]
    assert len(set(found)) == 9
    assert min(contrast(one) for one in [*found, style.PLAN, style.INK, style.MUTED]) >= 3.0
    lightness = [seen(one, "normal")[0] for one in found]
    # Neighbours are told apart in grey too.
    assert min(high - low for low, high in pairwise(lightness)) > 6
    for vision in VISION:
        places = [seen(one, vision) for one in [*found, style.PLAN]]
        near = min(float(np.linalg.norm(a - b)) for i, a in enumerate(places) for b in places[i + 1 :])
        # About four times the smallest difference that people see side by side.
        assert near > 8.5, vision
        dark = [seen(on_dark(one), vision) for one in found]
        for steps in (1, 2):
            near = min(float(np.linalg.norm(a - b)) for a, b in zip(dark, dark[steps:], strict=False))
            assert near > (25 if (steps, vision) == (1, "normal") else 8.5), vision


def test_texts_can_be_read_on_white_and_on_a_dark_page(plan: Plan, surface: Fits) -> None:
    drawn = [plots.reward_curves(plan), plots.allocation(plan), plots.backtest(surface)]
    drawn += [plots.sensitivity_to_n(surface), plots.allocation(iso.published_prior())]
    colours = {to_hex(text.get_color()) for ax in drawn for text in ax.findobj(Text) if text.get_text()}
    assert style.PLAN in colours
    for colour in colours:
        assert contrast(colour) >= 4.5, colour
        assert contrast(on_dark(colour), DARK) >= 4.5, colour


@pytest.mark.slow
def test_no_label_lies_over_points_far_from_the_curves(make_runs: Make) -> None:
    runs = make_runs().to_polars()
    above = (
        pl.when(pl.col("rollouts") > 0).then(pl.col("value") + 0.25 * (pl.int_range(pl.len()) % 3)).otherwise("value")
    )
    plan = iso.Planner(iso.fit(RunSet.from_frame(runs.with_columns(above.clip(0, 1))), draws=20)).allocate("2M")
    for size in ((7.2, 4.4), (4.1, 3.2)):
        check_layout(plots.figure_of(plots.reward_curves(plan, ax=Figure(size, layout="constrained").add_subplot())))


def test_reward_curves_draw_all_points_and_the_envelope(fits: Fits) -> None:
    ax = plots.reward_curves(fits)
    assert ax.get_xscale() == "log"
    drawn = [data_of(one) for one in ax.lines if one.get_linestyle() == "None"]
    for curve, (x, y) in zip(fits.select(), drawn, strict=True):
        at = curve.compute_T > 0
        np.testing.assert_array_equal(x, curve.compute_T[at])
        np.testing.assert_array_equal(y, curve.reward_T[at])
    x, y = data_of(line(ax, "frontier"))
    np.testing.assert_allclose(y, fits.frontier(x).reward)
    assert np.all(np.diff(y) >= -1e-12)
    for n in fits.group_sizes:
        at, values = data_of(line(ax, f"n = {n}"))
        assert np.all(values <= np.interp(np.log(at), np.log(x), y) + 1e-9)
    assert {f"n = {n}" for n in fits.group_sizes} <= set(written(ax))
    check_layout(ax.figure)  # type: ignore[arg-type]


def test_a_plan_is_drawn_at_its_own_b_p_with_its_interval(make_runs: Make) -> None:
    levels = [(n, bp) for n in (8, 64, 512) for bp in (32, 128)]
    both = iso.fit(make_runs(levels=levels), draws=20)
    for wanted in (32, 64):
        plan = iso.Planner(both).allocate("3M", problems_per_batch=wanted)
        ax = plots.reward_curves(plan)
        assert f"= {wanted}" in ax.get_title("left")
        star = data_of(line(ax, "plan"))
        assert star == (pytest.approx([plan.rollouts]), pytest.approx([plan.predicted_reward]))
        x, y = data_of(line(ax, "plan interval"))
        assert list(x) == [plan.rollouts] * 2
        assert tuple(y) == plan.reward_interval
        # The plan lies on the curve of its n.
        at, values = (np.concatenate(part) for part in zip(*(data_of(c) for c in curves_of(ax, plan)), strict=True))
        order = np.argsort(at)
        assert np.interp(plan.rollouts, at[order], values[order]) == pytest.approx(plan.predicted_reward, abs=2e-3)
        check_layout(ax.figure)  # type: ignore[arg-type]
    assert len(plots.reward_curves(both).figure.axes) == 2
    (own,) = plots.reward_curves(both, problems_per_batch=128).figure.axes
    assert "= 128" in own.get_title("left")
    with pytest.raises(FitError, match="64"):
        plots.reward_curves(both, problems_per_batch=64)


def test_curves_reach_the_plan_and_are_solid_only_where_runs_are(surface: Fits) -> None:
    plan = iso.Planner(surface).allocate("40M", mode="conservative")
    ax = plots.reward_curves(plan)
    for curve in surface.select():
        colour, _ = style.look(curve.group_size)
        ends = {one.get_linestyle(): data_of(one)[0][-1] for one in ax.lines if one.get_color() == colour}
        assert ends["-"] <= curve.last_compute * 1.001
        assert ends["--"] == pytest.approx(plan.compute, rel=0.01)


def test_without_runs_no_line_is_solid() -> None:
    ax = plots.allocation(iso.Planner(iso.published_prior()).allocate("3M"))
    drawn = [one for one in ax.lines if one.get_color() == style.INK]
    assert [one.get_linestyle() for one in drawn] == ["--"]


def curves_of(ax: Axes, plan: Plan) -> list[Line2D]:
    colour = line(ax, f"n = {plan.group_size}").get_color()
    return [one for one in ax.lines if one.get_color() == colour and one.get_linestyle() != "None"]


def band_at(ax: Axes, x: float) -> tuple[float, float]:
    """Lowest and highest end of the band at one place."""
    band = next(one for one in ax.collections if "80 %" in str(one.get_label()))
    inside = [y for y in np.geomspace(1, 4096, 4000) if band.get_paths()[0].contains_point((x, y))]
    return min(inside), max(inside)


@pytest.mark.parametrize("kind", few(["surface", "paper"], 1))
@pytest.mark.parametrize("limits", few([{"max_rollouts_per_batch": 2048}, {}], 1))
def test_the_star_lies_on_what_plans_choose_and_inside_its_set(
    request: pytest.FixtureRequest, kind: str, limits: dict[str, int]
) -> None:
    fits: Fits = request.getfixturevalue("surface" if kind == "surface" else "fits")
    planner = iso.Planner(fits, iso.Hardware(**limits))
    plan = planner.allocate("2M", spend="all")
    ax = plots.allocation(plan)
    x, y = data_of(line(ax, "plan"))
    assert (list(x), list(y)) == ([2e6], [plan.group_size])
    drawn = [data_of(one) for one in ax.lines if one.get_color() == style.INK]
    at, sizes = (np.concatenate(part) for part in zip(*drawn, strict=True))
    assert sizes[np.argmin(np.abs(at - 2e6))] == plan.group_size
    for budget, size in list(zip(at, sizes, strict=True))[::7]:
        assert planner.allocate(float(budget), spend="all").group_size == size
    if kind == "surface":
        low, high = band_at(ax, 2e6)
        assert low <= plan.group_size * 1.01
        assert plan.group_size <= high * 1.01
        every = [(one.group_size, one.odds.probability_best) for one in (plan, *plan.alternatives) if one.odds]
        assert sum(chance for n, chance in every if low / 1.01 <= n <= high * 1.01) >= 0.8
    check_layout(ax.figure)  # type: ignore[arg-type]


def test_the_set_of_one_n_can_be_seen_behind_its_line(make_runs: Make) -> None:
    runs = make_runs(lambda n, bp, c: 0.7 + 0.1 * np.log10(c / 2e4) - 0.1 * np.log2(n), [(8, 32), (16, 32), (32, 32)])
    low, high = band_at(plots.allocation(iso.fit(runs, draws=20)), 1e5)
    assert low < 8 < high < 16


def test_a_law_is_drawn_over_its_points(fits: Fits) -> None:
    ax = plots.allocation(fits)
    (law,) = (one for one in ax.lines if one.get_color() == style.INK and one.get_linestyle() == "-")
    x, y = data_of(law)
    np.testing.assert_allclose(y, fits.law().predict(x))
    assert (x[0], x[-1]) == pytest.approx((2e4, 4e6))
    (at, best) = next(data_of(one) for one in ax.lines if one.get_linestyle() == "None")
    np.testing.assert_array_equal(best, fits.frontier(at).group_size)
    low, high = ax.get_ylim()
    assert low < 8
    assert high > 512


@pytest.mark.parametrize("name", few(iso.list_published(), 2))
def test_every_published_law_can_be_drawn(name: str) -> None:
    fits = iso.published(name)
    if "group_size" in fits.laws:
        assert plots.allocation(fits).lines


def test_laws_in_tokens_have_tokens_on_the_axis() -> None:
    source = iso.published(f"{EASY}:tokens")
    assert "tokens" in plots.allocation(source).get_xlabel()
    speed = iso.Throughput(step_overhead_seconds=1, rollouts_per_second=64, tokens_per_rollout=1500)
    plan = iso.Planner(source, throughput=speed).allocate(iso.Budget(tokens=3e9))
    ax = plots.allocation(plan)
    assert "tokens" in ax.get_xlabel()
    assert list(data_of(line(ax, "plan"))[0]) == [3e9]


def test_nothing_to_draw_is_said(plan: Plan) -> None:
    with pytest.raises(FitError):
        plots.reward_curves(iso.published_prior())
    with pytest.raises(FitError):
        plots.allocation(replace(plan, fits=None))


@pytest.mark.parametrize(("suffix", "magic"), few([(".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")], 1))
def test_figures_are_saved_by_their_suffix_and_again_to_the_same_bytes(
    plan: Plan, tmp_path: Path, suffix: str, magic: bytes
) -> None:
    loaded = Plan.load(plan.save(tmp_path / "plan.json"))
    first = plots.save_figure(plots.reward_curves(plan), tmp_path / f"a{suffix}")
    second = plots.save_figure(plots.reward_curves(loaded), tmp_path / f"b{suffix}")
    assert first.read_bytes().startswith(magic)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [first.name, second.name, "plan.json"]
    if suffix == ".svg":
        assert ET.parse(first).getroot().tag.endswith("svg")
    if suffix == ".png":
        assert image.imread(first).shape[1] == round(style.WIDTH * style.DPI)
    if suffix == ".pdf":
        assert b"/Type3" not in first.read_bytes()


def test_pictures_leave_pyplot_and_settings_alone_and_draw_into_given_axes(fits: Fits, plan: Plan) -> None:
    from matplotlib import pyplot

    before, backend, settings = pyplot.get_fignums(), matplotlib.get_backend(), dict(matplotlib.rcParams)
    mine = Figure().add_subplot()
    assert plots.reward_curves(fits, ax=mine) is mine
    assert plots.allocation(plan, ax=Figure().add_subplot()).lines
    assert (pyplot.get_fignums(), matplotlib.get_backend()) == (before, backend)
    assert dict(matplotlib.rcParams) == settings


def test_flat_and_two_point_curves_can_be_drawn(make_runs: Make) -> None:
    flat = iso.fit(make_runs(lambda *_: 0.0, [(8, 32), (64, 32)]), points="all", draws=5, method="paper")
    two = iso.fit(make_runs(compute=[0.0, 1e5, 1e6]), draws=5, method="paper")
    for source in (flat, two):
        for ax in (plots.reward_curves(source), plots.allocation(source)):
            check_layout(plots.figure_of(ax))


@pytest.mark.slow
@pytest.mark.parametrize("start", [1.0, 1e12])
def test_small_and_large_compute_can_be_drawn(make_runs: Make, start: float) -> None:
    def reward(n: int, bp: int, c: float) -> float:
        return 0.3 + 0.1 * np.log10(c / start) * n / 64

    fits = iso.fit(
        make_runs(reward, [(8, 32), (64, 32)], np.geomspace(start, 100 * start, 20)), draws=5, method="paper"
    )
    for draw in (plots.reward_curves, plots.allocation):
        check_layout(plots.figure_of(draw(fits)))


@pytest.mark.slow
def test_without_a_law_the_surfaces_own_best_n_is_drawn(surface: Fits) -> None:
    turning = replace(surface, laws={}, unsupported={"group_size": "the best n goes up and down with compute"})
    for source in (turning, iso.Planner(turning).allocate("3M")):
        assert plots.allocation(source).lines


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path: Path, fits: Fits) -> None:
    figure = plots.reward_curves(fits)
    with pytest.raises(FitError, match=r"\.xyz.*\.png"):
        plots.save_figure(figure, tmp_path / "curves.xyz")
    with pytest.raises(iso.IsoComputeError):
        plots.save_figure(figure, "/proc/none/curves.png")


@pytest.mark.slow
def test_a_picture_by_money_says_where_the_runs_end(surface: Fits) -> None:
    speed = iso.Throughput(step_overhead_seconds=20, rollouts_per_second=60, gpus=8, usd_per_gpu_hour=2.5)
    planner = iso.Planner(surface, throughput=speed)
    plan = planner.allocate("$2000", spend="all")
    ax = plots.allocation(plan)
    (ends,) = (one for one in ax.lines if one.get_color() == style.MUTED and len({*data_of(one)[0]}) == 1)
    reached = planner.allocate(f"${data_of(ends)[0][0]:.2f}", spend="all").extrapolation
    assert reached == pytest.approx(1.0, rel=0.2)
    assert plan.extrapolation is not None
    assert (plan.extrapolation > 1.0) == (plan.budget.amount > data_of(ends)[0][0])
