"""Figures, questions and the documents that commands save."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest

from isocompute_sdk.cli.listing import DOCUMENTS, SCHEMAS, schema_of
from tests.parameters import few
from tests.processes import ok
from tests.unit.cli.test_commands import Command

schema = cache(schema_of)


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
    ok(isocompute("report", runs, "--figure", "evaluations", "--metric", "worst@4", "-o", "a.svg"))
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    ok(isocompute("allocate", runs, "--budget", "2M", "--output", "plan.json"))
    said = json.loads(ok(isocompute("report", "plan.json", "--figure", "allocation", "-o", "b.pdf", "--json")).stdout)
    assert said["file"] == "b.pdf"
    for words in (("--metric", "worst@4"), ("--figure", "allocation", "--budget", "4M")):
        refused = isocompute("report", "plan.json", *words, "-o", "refused.svg")
        assert (refused.returncode, words[-2] in refused.stderr) == (1, True)
        assert not (tmp_path / "refused.svg").exists()
    ok(isocompute("report", runs, "--figure", "curves", "--budget", "2M", "-o", "c.svg"))
    assert b"plan: n =" in (tmp_path / "c.svg").read_bytes()
    assert (tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")
    # A value that equals a default counts where it was typed.
    timed = ("--budget", "20 GPU-hours", "--rollouts-per-second", "60", "--gpus", "1")
    ok(isocompute("report", runs, *timed, "-o", "timed.html"))


def test_every_kind_of_the_library_is_a_kind_of_the_command() -> None:
    from isocompute_sdk.cli import report as plot
    from isocompute_sdk.plots import figures

    assert tuple(figures.OF_FITS) == plot.FITTED
    assert tuple(figures.OF_RUNS) == (plot.MEASURED,)
    assert tuple(figures.OF_AUDIT) == plot.AUDITED


EASY = ("plan", "--published", "qwen2.5-7b-instruct/guru-math-easy")


def test_what_a_reward_costs_what_more_buys_and_what_a_plan_gains(isocompute: Command) -> None:
    cost = json.loads(isocompute(*EASY, "--for-reward", "0.6", "--json").stdout)
    assert cost["schema_version"] == 1
    assert cost["plan"]["predicted_reward"] >= 0.6
    for question in (("--marginal",), ("--compare", "n=8,bp=32")):
        asked = ok(isocompute(*EASY, "--budget", "3M", *question))
        assert asked.stdout
        answer = json.loads(isocompute(*EASY, "--budget", "3M", *question, "--json").stdout)
        assert answer["schema_version"] == 1


OLD_NAMES = {"torch-run"}
"""Kinds that are read and no longer written."""


@pytest.mark.parametrize("kind", few(SCHEMAS, {"plan", "audit", "run", "map", "forecast"}))
def test_every_schema_is_one(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(kind))


def test_every_document_of_the_package_has_a_schema(repository: Path) -> None:
    sources = [path.read_text() for path in (repository / "isocompute_sdk").rglob("*.py") if path.stem != "documents"]
    declared = {kind for text in sources for kind in re.findall(r'^\w+ = Document\(\s*"([a-z-]+)"', text, re.MULTILINE)}
    assert len(declared) > 5
    served = {schema(kind)["properties"]["kind"]["const"] for kind in DOCUMENTS}
    assert declared - OLD_NAMES == served


def test_saved_plans_fits_and_audits_meet_their_schemas(isocompute: Command, tmp_path: Path) -> None:
    rows = [
        f"{n},32,{step},{0.3 + 0.05 * i + 0.01 * step:.3f}"
        for i, n in enumerate((8, 16, 32))
        for step in range(0, 30, 3)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["n,bp,step,avg@4", *rows]) + "\n")
    ok(isocompute("fit", "runs.csv", "--draws", 40, "--output", "fits.json"))
    ok(isocompute("plan", "--fits", "fits.json", "--budget", "50k", "--output", "plan.json"))
    ok(isocompute("audit", "runs.csv", "--output", "audit.json"))
    for kind in ("fits", "plan", "audit"):
        saved: dict[str, Any] = json.loads((tmp_path / f"{kind}.json").read_text())
        check = jsonschema.Draft202012Validator(schema(kind))
        assert [error.json_path for error in check.iter_errors(saved)] == []
        for damaged in ({**saved, "schema_version": "2"}, {**saved, "notes": 3}, {**saved, "unknown": 1}):
            assert not check.is_valid(damaged), kind
