"""Results in a notebook and at a prompt: short, escaped, and with names that can be completed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import isocompute_sdk as iso
from isocompute_sdk.notebook import MAX_ROWS, table

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture(scope="module")
def results(make_runs: Callable[..., iso.RunSet]) -> dict[str, object]:
    import polars as pl

    plain = make_runs(model=HOSTILE).to_polars()
    runs = iso.RunSet.from_frame(plain.with_columns(pl.col("run_id") + HOSTILE))
    fits = iso.fit(runs, "avg@4", draws=24)
    found = {"runs": runs, "fits": fits, "plan": iso.Planner(fits).allocate("3M"), "passport": fits.passport}
    return {**found, "audit": iso.audit(runs), "law": iso.published(iso.list_published()[0])}


@pytest.mark.parametrize("name", ["runs", "fits", "plan", "passport", "audit", "law"])
def test_results_are_short_at_a_prompt_and_escaped_in_a_notebook(results: dict[str, object], name: str) -> None:
    one = results[name]
    assert repr(one).count("\n") < 9
    assert len(repr(one)) < 1000
    html = one._repr_html_()  # type: ignore[attr-defined]
    assert "<script" not in html
    assert len(html) > len(repr(one)) / 2
    if name in ("runs", "audit"):
        assert "&lt;script&gt;" in html


def test_other_results_are_one_line_at_a_prompt(results: dict[str, object]) -> None:
    runs, fits = results["runs"], results["fits"]
    assert isinstance(runs, iso.RunSet)
    assert isinstance(fits, iso.Fits)
    ahead, health = iso.forecast(runs, runs.runs()[0].run_id), iso.check_health(runs)
    for one in (ahead, health, iso.Planner(fits).next_runs("3M")):
        assert "\n" not in repr(one)
        assert len(repr(one)) < 400
    assert ahead.card.action in repr(ahead)


def test_the_numbers_of_a_plan_are_in_its_repr(results: dict[str, object]) -> None:
    plan = results["plan"]
    assert isinstance(plan, iso.Plan)
    for value in (plan.group_size, plan.problems_per_batch, f"{plan.update_steps:,}", plan.verdict.kind):
        assert str(value) in repr(plan)
    assert plan.fits is not None
    assert repr(iso.Planner(plan.fits)) == f"Planner({plan.fits!r})"


def test_a_law_shows_no_standard_error_of_zero(results: dict[str, object]) -> None:
    fits = results["fits"]
    assert isinstance(fits, iso.Fits)
    law = next(iter(fits.laws.values()))
    shown = replace(law, stderr={"midpoint": 0.001, "b": 0.02}).describe()
    assert "+- 0.00" not in shown
    assert "+- 0.02" in shown


def test_long_tables_are_cut_and_counted() -> None:
    html = table(["n"], [[str(i)] for i in range(MAX_ROWS + 5)])
    assert html.count("<tr>") == MAX_ROWS + 1
    assert "5 more" in html


def test_dir_lists_public_names_only() -> None:
    assert set(dir(iso)) == {*iso.__all__, "ingest", "plots", "__version__", "__doc__"}


@pytest.mark.slow
def test_an_editor_completes_the_options_of_the_reader() -> None:
    import jedi

    typed = "import isocompute_sdk as iso\niso.read('runs.csv', "
    offered = {one.name for one in jedi.Script(typed).complete()}
    assert {"metric=", "rename=", "set=", "on_duplicate="} <= offered
