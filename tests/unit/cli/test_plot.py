"""`isocompute report --figure`: figures of tables, saved fits and plans, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from tests.unit.cli.test_commands import Command, succeeded


def table(path: Path) -> Path:
    """Two n at one B_p with three metrics."""
    rows = [
        {"n": n, "bp": 32, "C": c, "avg@4": 0.4 + 0.1 * rise, "best@4": 0.6 + 0.1 * rise, "worst@4": 0.2 + 0.1 * rise}
        for n in (8, 64)
        for c in (10_000, 30_000, 60_000, 100_000, 200_000, 300_000, 500_000, 1_000_000)
        for rise in [c / (c + 3000 * n)]
    ]
    pl.DataFrame(rows).write_csv(path)
    return path


def test_figures_of_a_table_and_of_what_is_saved(isocompute: Command, tmp_path: Path) -> None:
    runs = table(tmp_path / "runs.csv")
    succeeded(isocompute("report", runs, "--figure", "coverage", "-o", "a.svg"))
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    succeeded(isocompute("allocate", runs, "--budget", "2M", "--output", "plan.json"))
    said = json.loads(succeeded(isocompute("report", "plan.json", "--figure", "allocation", "-o", "b.pdf", "--json")))
    assert said["file"] == "b.pdf"
    assert (tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")


def test_every_kind_of_the_library_is_a_kind_of_the_command() -> None:
    from isocompute_sdk.cli import report as plot
    from isocompute_sdk.plots import figures

    assert tuple(figures.OF_FITS) == plot.FITTED
    assert tuple(figures.OF_RUNS) == plot.MEASURED
    assert tuple(figures.OF_AUDIT) == plot.AUDITED
