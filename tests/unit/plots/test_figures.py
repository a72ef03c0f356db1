"""Pictures of fits and plans: what is drawn, from where to where, and that it can be saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import image
from matplotlib.lines import Line2D

import isocompute_sdk as iso
from isocompute_sdk import FitError, Fits, Plan, RunSet
from isocompute_sdk.plots.figures import LAW, plot_allocation_law, plot_reward_curves, save_figure

Make = Callable[..., RunSet]
EASY = "qwen2.5-7b-instruct/guru-math-easy"


@pytest.fixture(scope="module")
def fits(make_runs: Make) -> Fits:
    return iso.fit(make_runs(), draws=20, method="paper")


@pytest.fixture(scope="module")
def plan(fits: Fits) -> Plan:
    return iso.Planner(fits).allocate("2M")


def labels(figure: object) -> list[str]:
    (axes,) = figure.axes  # type: ignore[attr-defined]
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_reward_curves_show_every_group_size_and_the_frontier(fits: Fits) -> None:
    figure = plot_reward_curves(fits)
    assert labels(figure) == ["n = 8", "n = 32", "n = 128", "n = 512", "frontier"]
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "sampling compute C (rollouts)"
    assert axes.get_ylabel() == "avg@4"
    envelope = next(line for line in axes.lines if line.get_label() == "frontier")
    x, y = np.asarray(envelope.get_xdata()), np.asarray(envelope.get_ydata())
    np.testing.assert_allclose(y, fits.frontier(x).reward)


def test_a_plan_adds_its_budget_and_its_group_size(plan: Plan) -> None:
    assert "budget planned" in labels(plot_reward_curves(plan))
    figure = plot_allocation_law(plan)
    shown = labels(figure)
    assert f"plan: n = {plan.group_size}" in shown
    assert "80 % band (uncalibrated)" in shown
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    assert low < plan.rollouts < high
    star = next(line for line in axes.lines if line.get_label() == f"plan: n = {plan.group_size}")
    assert (list(star.get_xdata()), list(star.get_ydata())) == ([plan.rollouts], [plan.group_size])


@pytest.mark.parametrize("name", iso.list_published())
def test_every_published_law_can_be_drawn(name: str, tmp_path: Path) -> None:
    fits = iso.published(name)
    for law in fits.laws:
        path = save_figure(plot_allocation_law(fits, law), tmp_path / f"{law}.png")
        assert image.imread(path).std() > 0.01


def test_the_law_is_drawn_over_the_data_with_its_points(fits: Fits) -> None:
    figure = plot_allocation_law(fits)
    (axes,) = figure.axes
    curve = next(line for line in axes.lines if line.get_label() == "law")
    x = np.asarray(curve.get_xdata())
    np.testing.assert_allclose(np.asarray(curve.get_ydata()), fits.law().predict(x))
    assert (x[0], x[-1]) == pytest.approx((2e4, 4e6))
    assert "n of the best curve" in labels(figure)
    low, high = axes.get_ylim()
    assert low < 8
    assert high > 512


@pytest.mark.parametrize("budget", ["300k", "3M", "100M"])
def test_published_laws_and_the_prior_can_be_drawn(budget: str) -> None:
    for source in (iso.published(EASY), iso.published(f"{EASY}:joint"), iso.published_prior()):
        plan = iso.Planner(source).allocate(budget)
        (axes,) = plot_allocation_law(plan).axes
        low, high = axes.get_xlim()
        assert low < plan.rollouts < high
    figure = plot_allocation_law(iso.published_prior())
    assert "80 % of the prior" in labels(figure)
    assert "no data" in figure.axes[0].get_title()


def test_laws_in_tokens_have_tokens_on_the_axis() -> None:
    source = iso.published(f"{EASY}:tokens")
    speed = iso.Throughput(step_overhead_seconds=1, rollouts_per_second=64, tokens_per_rollout=1500)
    plan = iso.Planner(source, throughput=speed).allocate("3M")
    (axes,) = plot_allocation_law(plan).axes
    assert axes.get_xlabel() == "sampling compute C (tokens)"
    star = next(line for line in axes.lines if str(line.get_label()).startswith("plan"))
    assert list(star.get_xdata()) == [plan.rollouts * 1500]


@pytest.mark.parametrize("name", ["group_size_vs_steps", "problems_per_batch_vs_steps"])
def test_laws_in_steps_have_steps_on_the_axis(name: str) -> None:
    source = iso.published(f"{EASY}:fixed-batch")
    plan = iso.Planner(source).allocate("3M", rollouts_per_batch=8192)
    for one in (source, plan):
        (axes,) = plot_allocation_law(one, name).axes
        assert axes.get_xlabel() == "update steps M at B = 8,192 rollouts per batch"
    assert axes.get_ylabel() == ("best group size n*" if name.startswith("group") else "best problems per batch B_p*")


def test_one_b_p_is_drawn_at_a_time(make_runs: Make) -> None:
    fits = iso.fit(make_runs(levels=[(n, bp) for n in (8, 64) for bp in (32, 128)]), draws=0, method="paper")
    assert "B_p = 32" in plot_reward_curves(fits).axes[0].get_title()
    assert "B_p = 128" in plot_reward_curves(fits, 128).axes[0].get_title()
    with pytest.raises(FitError, match="64"):
        plot_reward_curves(fits, 64)


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(FitError):
        plot_reward_curves(iso.published_prior())
    with pytest.raises(FitError, match="group_size_vs_steps"):
        plot_allocation_law(iso.published(EASY), "group_size_vs_steps")


def test_a_plan_loaded_from_its_file_can_be_drawn(plan: Plan, tmp_path: Path) -> None:
    loaded = Plan.load(plan.save(tmp_path / "plan.json"))
    assert labels(plot_reward_curves(loaded)) == labels(plot_reward_curves(plan))
    from dataclasses import replace

    with pytest.raises(FitError):
        plot_allocation_law(replace(plan, fits=None))


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_figures_are_saved_by_their_suffix(fits: Fits, tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = save_figure(plot_reward_curves(fits), tmp_path / f"figure{suffix}")
    assert path.read_bytes().startswith(magic)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_pictures_leave_pyplot_alone(fits: Fits) -> None:
    from matplotlib import pyplot

    before, backend = pyplot.get_fignums(), matplotlib.get_backend()
    plot_reward_curves(fits)
    plot_allocation_law(fits)
    assert pyplot.get_fignums() == before
    assert matplotlib.get_backend() == backend


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_flat_and_two_point_curves_can_be_drawn_and_saved(make_runs: Make, tmp_path: Path, value: float) -> None:
    flat = iso.fit(make_runs(lambda *_: value, [(8, 32), (64, 32)]), points="all", draws=5, method="paper")
    two = iso.fit(make_runs(compute=[0.0, 1e5, 1e6]), draws=5, method="paper")
    for source in (flat, two):
        save_figure(plot_reward_curves(source), tmp_path / "curves.png")
        save_figure(plot_allocation_law(source), tmp_path / "law.png")


@pytest.mark.parametrize("start", [1.0, 1e12])
def test_small_and_large_compute_can_be_drawn(make_runs: Make, tmp_path: Path, start: float) -> None:
    def reward(n: int, bp: int, c: float) -> float:
        return 0.3 + 0.1 * np.log10(c / start) * n / 64

    fits = iso.fit(
        make_runs(reward, [(8, 32), (64, 32)], np.geomspace(start, 100 * start, 20)), draws=5, method="paper"
    )
    save_figure(plot_reward_curves(fits), tmp_path / "curves.png")
    save_figure(plot_allocation_law(fits), tmp_path / "law.png")


@pytest.fixture(scope="module")
def surface(make_runs: Make) -> Fits:
    return iso.fit(make_runs(), draws=20)


def test_a_surfaces_curves_have_a_band_each(surface: Fits) -> None:
    figure = plot_reward_curves(iso.Planner(surface).allocate("6M", spend="all"))
    assert labels(figure) == ["n = 8", "n = 32", "n = 128", "n = 512", "frontier", "budget planned"]
    (axes,) = figure.axes
    bands = [band.get_paths()[0].vertices for band in axes.collections]
    assert len(bands) == 4
    for (n, bp), vertices in zip(surface.curves, bands, strict=True):
        last = np.max(vertices[:, 0])
        _, low, high = surface.predict(last, n, bp)
        edge = vertices[np.isclose(vertices[:, 0], last), 1]
        assert (edge.min(), edge.max()) == pytest.approx((float(low), float(high)))


def test_a_surfaces_best_n_is_drawn_with_its_set_and_its_law(surface: Fits) -> None:
    figure = plot_allocation_law(iso.Planner(surface).allocate("6M", spend="all"))
    shown = labels(figure)
    assert {"80 % set of n*", "n* of the surface", "law through n*", "budget planned"} <= set(shown)
    (axes,) = figure.axes
    own = next(line for line in axes.lines if line.get_label() == "n* of the surface")
    x = np.asarray(own.get_xdata())
    np.testing.assert_allclose(np.asarray(own.get_ydata()), surface.best_group_size(x))
    assert x[-1] <= surface.largest_compute * (1 + 1e-9)  # type: ignore[operator]


def test_what_is_drawn_as_best_n_is_what_plans_choose(surface: Fits) -> None:
    for source in (surface, iso.Planner(surface).allocate("6M", spend="all")):
        (axes,) = plot_allocation_law(source).axes
        drawn = [line for line in axes.lines if line.get_color() == LAW]
        x, n = (
            np.concatenate([np.asarray(part(line)) for line in drawn]) for part in (Line2D.get_xdata, Line2D.get_ydata)
        )
        assert x.max() > 3 * surface.largest_compute  # type: ignore[operator]
        for compute, size in list(zip(x, n, strict=True))[::9]:
            if compute < 20 * 8 * 32:
                continue
            assert iso.Planner(surface).allocate(float(compute), spend="all").group_size == size
        band = axes.collections[0].get_paths()[0].vertices
        assert band[:, 1].min() <= n.min()
        assert n.max() <= band[:, 1].max()


def test_without_a_law_the_surfaces_own_best_n_is_drawn_and_saved(surface: Fits, tmp_path: Path) -> None:
    from dataclasses import replace

    from isocompute_sdk.cli.shared.options import save_pictures

    turning = replace(surface, laws={}, unsupported={"group_size": "the best n goes up and down with compute"})
    for source in (turning, iso.Planner(turning).allocate("3M")):
        shown = labels(plot_allocation_law(source))
        assert "n* of the surface" in shown
        assert "law through n*" not in shown
        written = save_pictures(source, tmp_path)
        assert [path.name for path in written] == ["reward_curves.png", "allocation_law.png"]
    with pytest.raises(FitError, match="group_size_vs_steps"):
        plot_allocation_law(turning, "group_size_vs_steps")


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path: Path, fits: Fits) -> None:
    figure = plot_reward_curves(fits)
    with pytest.raises(FitError, match=r"\.xyz.*\.png"):
        save_figure(figure, tmp_path / "curves.xyz")
    with pytest.raises(iso.IsoComputeError):
        save_figure(figure, "/proc/none/curves.png")
