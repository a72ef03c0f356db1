"""Predictions beside outcomes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk import Planner, RecordError, RunSet, fit
from isocompute_sdk.campaigns.scorecard import CONFIDENCE, Comparison, Scorecard, keep_score, read_scorecard
from isocompute_sdk.errors import DocumentError
from tests.processes import ok

Command = Callable[..., subprocess.CompletedProcess[str]]


def level(n: int, c: np.ndarray) -> np.ndarray:
    return 0.35 + (0.08 + 0.04 * np.log2(n)) * -np.expm1(-c / (6e3 * n))


def evaluations(n: int, end: float, run_id: str, noise: float = 0.005, test: bool = False) -> RunSet:
    rng = np.random.default_rng(n)
    compute = np.concatenate([[0.0], np.geomspace(3e4, end, 24)])
    columns = {"run_id": [run_id] * 25, "n": [n] * 25, "C": compute.tolist(), "bp": [32] * 25}
    sets = ["validation", "test"] if test else ["validation"]
    tables = [
        RunSet.from_columns(
            {**columns, "avg@4": (level(n, compute) + noise * rng.standard_normal(25)).tolist()}, eval_set=name
        )
        for name in sets
    ]
    return tables[0] if not test else tables[0].concat(tables[1])


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [evaluations(n, 2e6, f"n{n}") for n in (8, 32, 128)]
    path = tmp_path_factory.mktemp("study") / "plan.json"
    return Planner(fit(runs[0].concat(*runs[1:]), draws=40)).allocate("4M", mode="conservative", spend="all").save(path)


def test_a_run_that_carried_out_a_plan_is_scored_beside_it(plan_file: Path) -> None:
    n = json.loads(plan_file.read_text())["group_size"]
    (written,) = keep_score(plan_file, evaluations(n, 4e6, "planned", test=True))
    assert written.name == "plan.planned.score.json"
    card = read_scorecard(plan_file.parent)
    (score,) = card.scores
    assert score.inside
    assert json.dumps(card.to_dict(), allow_nan=False)


def test_a_run_of_another_configuration_is_refused(plan_file: Path) -> None:
    with pytest.raises(RecordError, match=r"\(8, 32\)"):
        keep_score(plan_file, evaluations(8, 4e6, "other"))


def test_a_run_that_the_plan_was_made_from_is_no_outcome(plan_file: Path) -> None:
    n = json.loads(plan_file.read_text())["group_size"]
    with pytest.raises(RecordError, match="'again'"):
        keep_score(plan_file, evaluations(n, 2e6, "again"))


def test_the_command_scores_and_shows(isocompute: Command, plan_file: Path, tmp_path: Path) -> None:
    n = json.loads(plan_file.read_text())["group_size"]
    short = evaluations(n, 2e6, "short", noise=0.006)
    short.to_polars().write_csv(tmp_path / "runs.csv")
    done = ok(isocompute("report", plan_file, "--outcome", "runs.csv"))
    assert "short" in done.stdout
    document = json.loads(isocompute("report", "--predictions", plan_file.parent, "--json").stdout)
    assert document["kind"] == "scorecard"
    assert {score["run_id"] for score in document["scores"]} >= {"short"}
    assert isocompute("report", plan_file, "--outcome", "missing.csv").returncode == 1


def test_a_campaigns_comparison_counts_and_damage_is_named(tmp_path: Path) -> None:
    compared = Comparison("plan-n4", "avg@4", 1e5, 0.7, 0.5, 0.4, 0.6, 4e4)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "comparison.json").write_text(json.dumps(compared.to_dict()))
    (tmp_path / "two" / "comparison.json").write_text("{")
    with pytest.raises(DocumentError, match=r"two.comparison\.json"):
        read_scorecard(tmp_path)
    (tmp_path / "two" / "comparison.json").unlink()
    (score,) = read_scorecard(tmp_path).scores
    assert (score.run_id, score.inside) == ("plan-n4", False)
    with pytest.raises(RecordError):
        read_scorecard(tmp_path / "three")


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_the_interval_of_the_coverage_is_the_exact_binomial_one(count: int) -> None:
    from scipy.stats import binomtest  # takes longer than all other tests of this file

    for held in range(count + 1):
        measured = [0.5] * held + [0.7] * (count - held)
        card = Scorecard(tuple(Comparison("r", "avg@4", 1e5, value, 0.5, 0.4, 0.6, 4e4) for value in measured))
        exact = binomtest(held, count).proportion_ci(CONFIDENCE, method="exact")
        assert card.coverage_interval == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert Scorecard(()).coverage_interval == (0.0, 1.0)
