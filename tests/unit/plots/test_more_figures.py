"""Figures of runs, problems and audits, and in a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from nbclient import NotebookClient

import isocompute_sdk as iso
from isocompute_sdk import FitError, Fits, RecordError, RunSet, plots
from isocompute_sdk.fitting.paper.analysis import record_breaking
from isocompute_sdk.plots import problems
from isocompute_sdk.run_folders.run_journal import Journal
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


def test_coverage_has_a_panel_for_best_and_one_for_worst(noisy: RunSet) -> None:
    ax = plots.coverage(noisy)
    panels = figure_of(ax).axes
    assert [panel.get_ylabel() for panel in panels] == ["best@4", "worst@4"]
    for panel in panels:
        drawn = np.concatenate([y for _, y in marks(panel)])
        np.testing.assert_array_equal(drawn, np.concatenate([s.value_T for s in noisy.series(panel.get_ylabel())]))
    check_layout(figure_of(ax))
    with pytest.raises(FitError, match="best@4"):
        plots.coverage(noisy.filter(metric="avg@4"))
    with pytest.raises(FitError, match="best@8"):
        plots.coverage(noisy, k=8)


def test_records_are_the_record_breaking_points(noisy: RunSet) -> None:
    ax = plots.records(noisy, bin_width=0.01)
    for one in noisy.series("avg@4"):
        x, y = data_of(line(ax, one.run_id))
        best = record_breaking(one.value_T, 0.01)
        np.testing.assert_array_equal(x, one.rollouts_T[best])
        assert np.all(np.diff(y) > 0)
    assert sum(len(y) for _, y in marks(ax)) == sum(len(one.value_T) for one in noisy.series("avg@4"))
    check_layout(figure_of(ax))


def test_models_stand_side_by_side_on_common_axes(make_runs: Make, fits: Fits) -> None:
    one = make_runs(model="org/A")
    both = one.concat(make_runs(lambda n, bp, c: 0.2, [(8, 32)], model="org/B", run_id="flat"))
    panels = figure_of(plots.side_by_side(both)).axes
    assert {panel.get_title("left") for panel in panels} == {"A", "B"}
    assert len({panel.get_ylim() for panel in panels}) == 1
    colours = [{curve.get_color() for curve in panel.lines if len(data_of(curve)[1]) > 1} for panel in panels]
    # n = 8 has one colour in both.
    assert len(colours[0] & colours[1]) == 1
    check_layout(figure_of(plots.side_by_side({"first": fits, "second": fits})))
    for few in (one, {"alone": fits}):
        with pytest.raises(FitError):
            plots.side_by_side(few)


def test_sensitivity_draws_predictions_and_their_range(fits: Fits) -> None:
    ax = plots.sensitivity_to_n(fits, compute=[1e5, 1e6], problems_per_batch=128)
    for compute, label in ((1e5, "C = 100k"), (1e6, "C = 1M")):
        x, y = data_of(line(ax, label))
        np.testing.assert_allclose(y, fits.predict(compute, x, 128).mean)
    assert f"{np.ptp(y):.3f}" in ax.get_title("left")
    check_layout(figure_of(ax))
    ax = plots.sensitivity_to_bp(fits, compute=[1e6], group_size=64)
    x, y = data_of(line(ax, "C = 1M"))
    np.testing.assert_allclose(y, [float(fits.predict(1e6, 64, int(bp)).mean) for bp in x])
    assert (x[0], x[-1]) == (32, 128)
    assert y[0] > y[-1]
    check_layout(figure_of(ax))


def test_a_backtest_draws_every_hidden_run(fits: Fits) -> None:
    assert fits.passport is not None
    test = fits.passport.backtest
    assert test is not None
    ax = plots.backtest(fits)
    drawn = {(float(x[0]), float(y[0])) for x, y in marks(ax)}
    assert drawn == {(run.predicted, run.measured) for run in test.by_run}
    bars = {(float(x[0]), float(x[1])) for x, y in map(data_of, ax.lines) if len(x) == 2 and y[0] == y[1]}
    assert bars == {(run.low, run.high) for run in test.by_run}
    assert ax.get_xlim() == ax.get_ylim()
    check_layout(figure_of(ax))
    with pytest.raises(FitError, match="surface"):
        plots.backtest(iso.published_prior())


def write_run(folder: Path, n: int, rate: Callable[[float], np.ndarray], sets: Sequence[str] = ("validation",)) -> None:
    folder.mkdir(parents=True)
    journal = Journal(folder / "metrics.jsonl", folder.name, 1)
    journal.begin(resumed_step=None, group_size=n, problems_per_batch=4, seed=0, rollouts=0)
    for step in (0, 10, 30, 90):
        for name in sets:
            counts = [int(k) for k in np.round(16 * rate(step / 90))]
            journal.append(
                "evaluation",
                step=step,
                rollouts=step * n * 4,
                tokens=0,
                metrics={"avg@16": float(np.mean(counts) / 16)},
                eval_set=name,
                samples=16,
                pass_counts=counts,
                sample_counts=[16] * len(counts),
            )


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    start = np.full(40, 0.25)
    ends = np.repeat([0.0, 1.0], 20)
    write_run(tmp_path / "even", 8, lambda t: start + 0.5 * t)
    write_run(tmp_path / "split", 16, lambda t: (1 - t) * start + t * ends)
    return tmp_path


def test_polarisation_is_free_of_sampling_noise() -> None:
    rng = np.random.default_rng(0)
    assert plots.polarisation(rng.binomial(4, 0.4, 200_000), np.full(200_000, 4)) == pytest.approx(0, abs=0.01)
    p = rng.beta(1, 1, 200_000)
    # The variance of a uniform p is 1/12, of 1/4 at most.
    assert plots.polarisation(rng.binomial(4, p), np.full(200_000, 4)) == pytest.approx(1 / 3, abs=0.01)
    assert plots.polarisation([0, 4, 0, 4], [4, 4, 4, 4]) == pytest.approx(1)
    assert np.isnan(plots.polarisation([1, 0], [1, 1]))


def test_pass_rates_at_matched_compute_and_their_polarisation(folders: Path) -> None:
    ax = plots.pass_rates(folders)
    panels = figure_of(ax).axes
    assert [panel.get_title("left") for panel in panels[:2]] == ["n = 8", "n = 16"]
    for panel in panels[:2]:
        for curve in panel.lines:
            assert sum(data_of(curve)[1]) == pytest.approx(1)
    # Both are drawn at computes that n = 8 reached.
    assert [one.get_label() for one in panels[0].lines] == [one.get_label() for one in panels[1].lines]
    even, divided = (data_of(line(panels[2], name))[1] for name in ("even", "split"))
    assert even[-1] < 0.05
    assert divided[-1] == pytest.approx(1, abs=0.02)
    check_layout(figure_of(ax))


def test_pass_counts_without_samples_are_left_out(folders: Path) -> None:
    for name, samples in (("none", {}), ("ragged", {"sample_counts": [16, 16]}), ("zero", {"sample_counts": [0] * 3})):
        (folders / name).mkdir()
        journal = Journal(folders / name / "metrics.jsonl", name, 1)
        journal.begin(resumed_step=None, group_size=8, problems_per_batch=4, seed=0, rollouts=0)
        counts = {"metrics": {"avg@16": 0.5}, "eval_set": "validation", "pass_counts": [8, 8, 8]}
        journal.append("evaluation", step=0, rollouts=0, tokens=0, **counts, **samples)
    assert {run.run_id for run in problems.read_pass_counts(folders)} == {"even", "split"}


def test_a_difficulty_histogram_counts_problems_and_bands(folders: Path) -> None:
    passes = np.repeat([0, 1, 2, 5, 9, 10, 14, 16], 3)
    ax = plots.difficulty(passes, 16)
    heights = [bar.get_height() for bar in ax.patches[:17]]
    np.testing.assert_array_equal(heights, np.bincount(passes, minlength=17))
    split = iso.split_by_difficulty(passes, 16, rng=0, validation=0)
    shown = {text.get_text().split("\n")[0]: int(text.get_text().split("\n")[1]) for text in ax.texts}
    assert shown | {name.replace("_", " "): len(split[name].train_P) for name in ("hard", "easy", "very_easy")} == shown
    assert sum(shown.values()) == len(passes)
    check_layout(figure_of(ax))
    found, samples = problems.base_passes(folders)
    assert (set(found), samples) == ({4.0}, 16)
    for wrong in ([], [17], [0.5]):
        with pytest.raises(RecordError):
            plots.difficulty(wrong, 16)


def test_a_collapsed_run_leaves_the_axis_to_the_others(make_runs: Make) -> None:
    runs = make_runs().concat(make_runs(lambda n, bp, c: 0.6 if c < 3e5 else 0.02, [(16, 32)]))
    ax = plots.evaluations(runs)
    assert ax.get_ylim()[0] > 0.1
    assert "to 0.02" in {text.get_text() for text in ax.texts}
    check_layout(figure_of(ax))


def test_everything_plots_itself_by_kind(noisy: RunSet, fits: Fits) -> None:
    plan = iso.Planner(fits).allocate("3M")
    audit = iso.audit(noisy, "avg@4")
    mine = Figure().add_subplot()
    assert iso.plot(plan, ax=mine) is mine
    assert iso.plot(fits, "allocation").lines
    assert iso.plot(noisy).get_ylabel() == "avg@4"
    assert iso.plot(audit).lines
    assert iso.plot(audit, "costs").lines
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


def test_every_plot_shows_once_in_a_fresh_notebook() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    NotebookClient(notebook, timeout=HANG_SECONDS, kernel_name="python3").execute(env=environment)
    pictures = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in notebook.cells]
    assert pictures == [1] * len(CELLS)
