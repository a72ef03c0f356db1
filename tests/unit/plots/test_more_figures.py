"""Figures of runs, problems and audits, and in a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise

import nbformat
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from nbclient import NotebookClient

import isocompute_sdk as iso
from isocompute_sdk import FitError, Fits, RecordError, RunSet, plots
from isocompute_sdk.plots.style import look
from tests.processes import HANG_SECONDS
from tests.unit.plots.test_figures import check_layout, data_of, line

Make = Callable[..., RunSet]
LEVELS = [(n, bp) for n in (8, 64) for bp in (32, 128)]


def marks(ax: Axes) -> list[tuple[np.ndarray, np.ndarray]]:
    return [data_of(one) for one in ax.lines if one.get_linestyle() == "None"]


def figure_of(ax: Axes) -> Figure:
    return plots.figure_of(ax)


@pytest.fixture(scope="module")
def noisy(make_runs: Make) -> RunSet:
    """Two n at two B_p, with best@4 and worst@4."""
    rng = np.random.default_rng(1)

    def reward(n: int, bp: int, c: float) -> float:
        return 0.4 + 0.2 * -np.expm1(-c / (2e4 * n)) - 0.01 * np.log2(bp / 32) + 0.005 * rng.normal()

    def other(shift: float) -> Callable[[int, int, float], float]:
        return lambda n, bp, c: reward(n, bp, c) + shift

    shifts = {"avg@4": 0.0, "best@4": 0.2, "worst@4": -0.2}
    found = [make_runs(other(by), LEVELS, metric=name) for name, by in shifts.items()]
    return found[0].concat(*found[1:])


@pytest.fixture(scope="module")
def fits(noisy: RunSet) -> Fits:
    return iso.fit(noisy, "avg@4", draws=30)


def test_evaluations_draws_every_value_of_every_run(noisy: RunSet) -> None:
    ax = plots.evaluations(noisy)
    for one, (x, y) in zip(noisy.series("avg@4"), marks(ax), strict=True):
        np.testing.assert_array_equal(x, one.rollouts_T)
        np.testing.assert_array_equal(y, one.value_T)
    check_layout(figure_of(ax))
    with pytest.raises(RecordError, match="avg@9"):
        plots.evaluations(noisy, "avg@9")


def test_a_forecast_is_drawn_with_the_evaluations_of_its_run(noisy: RunSet) -> None:
    run = noisy.series("avg@4")[0]
    ax = iso.plot(iso.forecast(noisy.filter(metric="avg@4"), run.run_id))
    seen = run.rollouts_T > 0
    assert any(np.array_equal(x, run.rollouts_T[seen]) for x, _ in marks(ax))
    check_layout(figure_of(ax))


def test_sensitivity_draws_predictions_and_their_range(fits: Fits) -> None:
    ax = plots.sensitivity_to_n(fits, compute=[1e5, 1e6], problems_per_batch=128)
    for compute, label in ((1e5, "C = 100k"), (1e6, "C = 1M")):
        x, y = data_of(line(ax, label))
        np.testing.assert_allclose(y, fits.predict(compute, x, 128).mean)
    assert f"{np.ptp(y):.3f}" in ax.get_title("left")
    check_layout(figure_of(ax))


def test_a_backtest_draws_every_hidden_run(fits: Fits) -> None:
    assert fits.passport is not None
    test = fits.passport.backtest
    assert test is not None
    ax = plots.backtest(fits)
    found: dict[float, list[float]] = {}
    for x, y in map(data_of, ax.lines):
        found.setdefault(float(y[0]), []).extend(x)
    rows = {(run.low, run.high, run.predicted, run.measured) for run in test.by_run}
    assert len(found) == test.runs
    assert {tuple(row) for row in found.values()} == rows
    check_layout(figure_of(ax))
    with pytest.raises(FitError, match="surface"):
        plots.backtest(iso.published_prior())


def test_a_collapsed_run_leaves_the_axis_to_the_others(make_runs: Make) -> None:
    runs = make_runs().concat(make_runs(lambda n, bp, c: 0.6 if c < 3e5 else 0.02, [(16, 32)]))
    ax = plots.evaluations(runs)
    assert ax.get_ylim()[0] > 0.1
    assert "to 0.02" in {text.get_text() for text in ax.texts}
    check_layout(figure_of(ax))
    lines = [(one.run_id, one.group_size, one.rollouts_T, one.value_T) for one in runs.series("avg@4")]
    assert plots.logged(lines, "best@4", reward=True).get_ylim()[0] > 0.1
    # Of an entropy the fall is what matters.
    assert plots.logged(lines, "entropy").get_ylim()[0] < 0.1


def test_runs_that_fall_together_share_one_number_that_is_of_no_one_colour(make_runs: Make) -> None:
    runs = make_runs(lambda n, bp, c: 0.6 + 1e-8 * c if c < 3e6 else 0.02, [(n, 32) for n in (8, 16, 32)])
    ax = plots.evaluations(runs)
    (number,) = (text for text in ax.texts if text.get_text())
    assert number.get_text().startswith("3 ")
    assert number.get_color() == plots.style.INK


def test_one_seed_that_fell_leaves_the_axis_to_the_curve_through_the_others() -> None:
    x = np.geomspace(1e3, 1e5, 100)
    y = 0.7 + 0.1 * np.log10(x / 1e3)
    y[40:60] = 0.0
    for fitted, shown in (([0.7], True), ([], False)):
        ax = plots.style.canvas(None)
        ax.plot(x, y)
        plots.style.clip_falls(ax, [(x, y, "black")], fitted=fitted)
        assert (ax.get_ylim()[0] > 0.5) == shown


@pytest.mark.parametrize("span", [3.0, 1e3])
def test_labels_of_compute_are_several_and_apart(span: float) -> None:
    from isocompute_sdk.reporting.drawing.pictures import panel

    ax = plots.logged([("a", 8, np.array([128.0, 128.0 * span]), np.array([0.00013, 0.00032]))], "kl", ax=panel())
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    boxes = [one.get_window_extent() for one in ax.get_xticklabels() if one.get_text()]
    inside = [box for box in boxes if ax.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= ax.bbox.x1 + 1]
    assert len(inside) >= 2
    assert all(one.x1 + 7 < other.x0 for one, other in pairwise(inside))


def test_everything_plots_itself_by_kind(noisy: RunSet, fits: Fits) -> None:
    plan = iso.Planner(fits).allocate("3M")
    audit = iso.audit(noisy, "avg@4")
    mine = Figure().add_subplot()
    assert iso.plot(plan, ax=mine) is mine
    assert iso.plot(fits, "allocation").lines
    assert iso.plot(noisy).get_ylabel() == "avg@4"
    # A mark says n by its shape alone: where a run stands is its colour inside.
    ended = [run for run in audit.groups[0].runs if run.expected is not None]
    ends = [one for one in iso.plot(audit).lines if len(data_of(one)[0]) == 1]
    assert [one.get_marker() for one in ends] == [look(run.group_size)[1] for run in ended]
    assert iso.plot(audit, "costs").lines
    narrow = Figure((4.1, 3.2), layout="constrained").add_subplot()
    iso.plot(audit, ax=narrow)
    narrow.figure.draw_without_rendering()  # type: ignore[union-attr]
    (legend,) = (one for one in narrow.get_children() if isinstance(one, Legend) and one is narrow.get_legend())
    assert legend.get_window_extent().x1 <= narrow.figure.bbox.x1
    assert iso.plot(iso.published_prior()).lines
    for source in (plan, fits, noisy, audit):
        with pytest.raises(FitError, match="pie"):
            iso.plot(source, "pie")
    with pytest.raises(FitError, match="'9'"):
        iso.plot(audit, "runs", group="9")


CELLS = (
    "import isocompute_sdk as iso\nfits = iso.published('qwen2.5-7b-instruct/guru-math-easy')\niso.plot(fits)",
    "axes = iso.plot(fits)",
    "from isocompute_sdk import plots\nplots.figure_of(plots.allocation(fits))",
    "import matplotlib.pyplot as plt\nfigure, mine = plt.subplots()\niso.plot(fits, ax=mine)",
)


@pytest.mark.slow
def test_every_plot_shows_once_in_a_fresh_notebook() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    NotebookClient(notebook, timeout=HANG_SECONDS, kernel_name="python3").execute(env=environment)
    pictures = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in notebook.cells]
    assert pictures == [1] * len(CELLS)
