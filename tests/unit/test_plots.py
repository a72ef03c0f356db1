"""Pictures from any fits or plan: what is on them, not how they look."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

import isocompute_sdk as iso
from isocompute_sdk import plots
from isocompute_sdk.laws import digitised

EASY = "qwen2.5-7b-instruct/guru-math-easy"


@pytest.fixture(scope="module")
def fits() -> iso.Fits:
    table = digitised("reward_curves_easy_bp32.csv")
    return iso.fit(iso.RunSet.from_columns(table, metric="avg@4"), points="all", draws=20)


def labels(figure: object) -> list[str]:
    axes = figure.axes[0]  # type: ignore[attr-defined]
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_reward_curves_show_every_group_size_and_the_frontier(fits: iso.Fits) -> None:
    figure = plots.plot_reward_curves(fits)
    assert labels(figure) == [*(f"n = {n}" for n in (8, 32, 128, 256, 512)), "frontier"]
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert "rollouts" in axes.get_xlabel()
    assert axes.get_ylabel() == "avg@4"


def test_the_drawn_frontier_is_the_fitted_one(fits: iso.Fits) -> None:
    axes = plots.plot_reward_curves(fits).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "frontier")
    x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
    np.testing.assert_allclose(y, fits.frontier(x).reward)


def test_a_plan_adds_its_budget_and_choice(fits: iso.Fits) -> None:
    plan = iso.Planner(fits).allocate("3M")
    assert "budget planned" in labels(plots.plot_reward_curves(plan))
    axes = plots.plot_allocation_law(plan).axes[0]
    star = next(line for line in axes.lines if line.get_label() == f"plan: n = {plan.group_size}")
    assert list(star.get_xdata()) == [plan.rollouts]
    assert list(star.get_ydata()) == [plan.group_size]


@pytest.mark.parametrize("name", iso.list_published())
def test_every_published_law_can_be_drawn(name: str, tmp_path: Path) -> None:
    fits = iso.published(name)
    for law in fits.laws:
        path = plots.save_figure(plots.plot_allocation_law(fits, law), tmp_path / f"{law}.png")
        assert image.imread(path).std() > 0.01


def test_a_plan_on_the_token_axis_is_drawn_in_tokens() -> None:
    throughput = iso.Throughput(step_overhead_seconds=1, rollouts_per_second=10, tokens_per_rollout=500)
    plan = iso.Planner(iso.published(f"{EASY}:tokens"), throughput=throughput).allocate("3M")
    axes = plots.plot_allocation_law(plan).axes[0]
    assert "tokens" in axes.get_xlabel()
    star = next(line for line in axes.lines if str(line.get_label()).startswith("plan"))
    assert list(star.get_xdata()) == [plan.rollouts * 500]


def test_the_prior_is_labelled_as_one() -> None:
    figure = plots.plot_allocation_law(iso.Planner(iso.published_prior()).allocate("3M"))
    assert "80 % of the prior" in labels(figure)
    assert "no data" in figure.axes[0].get_title()


def test_fits_without_curves_say_so_instead_of_an_empty_picture() -> None:
    with pytest.raises(iso.FitError, match="no reward curve"):
        plots.plot_reward_curves(iso.published(f"{EASY}:joint"))


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_figures_are_written_whole(fits: iso.Fits, tmp_path: Path, suffix: str) -> None:
    path = plots.save_figure(plots.plot_reward_curves(fits), tmp_path / f"curves{suffix}")
    assert path.stat().st_size > 5000
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
