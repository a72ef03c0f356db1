"""What an audit says about runs whose truth is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.legend import Legend

from isocompute_sdk import Audit, RecordError, RunSet, audit, fit
from isocompute_sdk.auditing import GroupAudit
from isocompute_sdk.errors import FitError, IsoComputeError
from isocompute_sdk.fitting.surface.answers import Estimate
from isocompute_sdk.plots import plot_group
from tests.parameters import few
from tests.unit.sweeps import codes, recorded

END = 4e6


def level(n: int, c: np.ndarray) -> np.ndarray:
    """Larger n rises later and higher: at 4 M rollouts 128 leads 8 by .13."""
    return 0.35 + (0.08 + 0.04 * np.log2(n)) * -np.expm1(-c / (6e3 * n))


def sweep(sizes: tuple[int, ...] = (8, 32, 128), end: float = END, reward: Any = level, **context: Any) -> RunSet:
    rng = np.random.default_rng(3)
    compute = np.concatenate([[0.0], np.geomspace(3e4, end, 30)])
    rows = [(n, c, float(v)) for n in sizes for c, v in zip(compute, reward(n, compute), strict=True)]
    columns: dict[str, Any] = {"n": [r[0] for r in rows], "C": [r[1] for r in rows]}
    columns["reward"] = [r[2] + 0.006 * rng.standard_normal() for r in rows]
    constants = {"problems_per_batch": 32, "model": "m", **context}
    ids = [f"{constants['model']}-n{r[0]}" for r in rows]
    return RunSet.from_columns({"run_id": ids, **columns}, metric="avg@4", **constants)


def test_a_run_that_was_evaluated_at_step_0_only_is_left_out() -> None:
    frame = sweep().to_polars()
    dead = frame.filter((pl.col("group_size") == 8) & (pl.col("rollouts") == 0))
    found = audit(RunSet.from_frame(pl.concat([frame, dead.with_columns(run_id=pl.lit("dead"))])))
    assert "dead" in found.left_out
    assert "dead" not in [run.run_id for group in found.groups for run in group.runs]
    assert found.summary()


@pytest.fixture(scope="module")
def found() -> Audit:
    return audit(sweep())


def only(found: Audit) -> GroupAudit:
    (group,) = found.groups
    return group


@pytest.mark.parametrize("name", few(["mul31-easy", "qwen2.5-7b-easy", "llama-3.1-8b-easy"], 1))
def test_doubts_and_what_goes_together_with_n_are_told_as_by_fits(name: str) -> None:
    runs = recorded(name)
    group, fits = only(audit(runs)), fit(runs)
    assert {*fits.doubts} <= codes(group)
    assert ("group-size-confounded" in codes(group)) == ("group-size-confounded" in codes(fits))


def test_each_run_is_held_against_the_best_n_and_priced(found: Audit) -> None:
    runs = {run.group_size: run for run in only(found).runs}
    assert [runs[n].standing for n in (8, 32, 128)] == ["behind", "behind", "best"]
    truth = float(level(128, np.array(END)) - level(8, np.array(END)))
    behind, equal = runs[8].behind, runs[8].equal_reward
    assert behind is not None
    assert equal is not None
    assert behind.low <= truth <= behind.high
    # The compute at which some n truly reaches what n = 8 ends with.
    grid = np.geomspace(3e4, END, 4000)
    best = np.max([level(n, grid) for n in (8, 32, 128)], axis=0)
    price = float(grid[np.argmax(best >= level(8, np.array(END)))])
    assert equal.low * 0.8 <= price <= equal.high * 1.25
    assert equal.high < 0.5 * END
    verdict, at = only(found).verdict, only(found).decided_at
    assert verdict is not None
    assert at is not None
    assert verdict.kind in ("clear", "likely")
    assert 0.99 * END <= at <= END
    assert {one.group_size for one in only(found).sizes} == {8, 16, 32, 64}


def test_shares_far_above_the_whole_are_multiples_and_names_are_not_broken(found: Audit) -> None:
    run = next(run for run in only(found).runs if run.equal_reward is not None and run.compared)
    equal = Estimate(*(share * run.rollouts for share in (0.49, 0.33, 21.1)))
    assert "49% (33% to 21x)" in replace(run, equal_reward=equal).row()
    named = [replace(run, run_id="Qwen2.5-1.5B-Instruct-GSM8K-512-16-16-Run6", fault="collapse")]
    group = replace(only(found), runs=tuple(named))
    said = replace(found, groups=(group,)).summary(60).splitlines()
    assert all(named[0].run_id in line for line in said if "Run6" in line)


def test_a_saved_audit_loads_with_everything_but_the_fits(found: Audit, tmp_path: Path) -> None:
    document = json.loads(found.save(tmp_path / "audit.json").read_text())
    assert (document["kind"], document["schema_version"]) == ("audit", 1)
    assert document["groups"][0]["runs"][0]["behind"]["low"] > 0
    assert "fits" not in document["groups"][0]
    loaded = Audit.load(tmp_path / "audit.json")
    assert only(loaded).fits is None
    assert loaded == found
    document["groups"][0]["runs"][0]["standing"] = "ahead"
    (tmp_path / "audit.json").write_text(json.dumps(document))
    with pytest.raises(IsoComputeError, match="digest"):
        Audit.load(tmp_path / "audit.json")


def test_where_n_hardly_matters_that_is_the_finding() -> None:
    def same(n: int, c: np.ndarray) -> np.ndarray:
        return 0.4 + 0.05 * -np.expm1(-c / 4e5) + 0.0 * n

    group = only(audit(sweep(reward=same)))
    assert group.verdict is not None
    assert group.verdict.kind == "hardly-matters"


def test_one_group_size_cannot_be_judged() -> None:
    group = only(audit(sweep(sizes=(32,))))
    assert group.sizes == ()
    assert {run.standing for run in group.runs} == {"alone"}


def test_a_group_that_cannot_be_fitted_says_why_and_the_others_are_audited() -> None:
    lone = RunSet.from_columns({"n": [8, 8], "C": [0, 1e4], "avg@4": [0.1, 0.12]}, model="other", run_id="lone")
    found = audit(sweep().concat(lone))
    first, second = found.groups
    assert first.reason is None
    assert second.reason is not None
    assert second.fits is None
    assert "model" in found.apart[0]
    with pytest.raises(FitError, match="group 2"):
        plot_group(second, found.metric)


def test_what_came_after_a_collapse_counts_as_spent_for_nothing() -> None:
    def broken(n: int, c: np.ndarray) -> np.ndarray:
        return np.where((n == 32) & (c > 5e5), 0.36, level(n, c))

    group = only(audit(sweep(reward=broken)))
    run = next(one for one in group.runs if one.group_size == 32)
    assert run.fault == "collapse"
    assert run.equal_reward is not None
    assert run.equal_reward.high < 5e5


def test_a_run_that_never_rose_has_no_merit_of_its_n() -> None:
    def dead(n: int, c: np.ndarray) -> np.ndarray:
        return np.where(n == 32, 0.36, level(n, c))

    group = only(audit(sweep(reward=dead)))
    run = next(one for one in group.runs if one.group_size == 32)
    assert (run.standing, run.expected) == ("behind", pytest.approx(0.36, abs=0.01))
    assert run.equal_reward is not None
    assert run.equal_reward.high < 0.05 * END


def test_ranges_and_evaluation_sets_are_chosen_and_said() -> None:
    runs = sweep()
    percent = RunSet.from_columns(
        {
            "run_id": [*runs.to_polars()["run_id"]] * 2,
            "n": [*runs.to_polars()["group_size"]] * 2,
            "C": [*runs.to_polars()["rollouts"]] * 2,
            "avg@4": [v * 100 for v in runs.to_polars()["value"]] * 2,
            "eval_set": ["validation"] * len(runs) + ["aime"] * len(runs),
        },
        problems_per_batch=32,
    )
    with pytest.raises(FitError, match="outside bounds") as asked:
        audit(percent)
    assert asked.value.options == ("--bounds 0 100",)
    found = audit(percent, bounds=(0.0, 100.0))
    assert found.eval_set == "validation"
    assert {note.code for note in found.notes} == {"metric-chosen"}
    assert audit(percent, eval_set="aime", bounds=(0.0, 100.0)).notes == ()
    with pytest.raises(RecordError, match="avg@4"):
        audit(percent, metric="best@4")


def in_units(runs: RunSet, low: float, high: float) -> RunSet:
    """The same rewards of 0 to 1 as those of another range."""
    return RunSet(runs.to_polars().with_columns(pl.col("value") * (high - low) + low))


def test_the_same_rewards_in_other_units_give_the_same_statements() -> None:
    def flattening(n: int, c: np.ndarray) -> np.ndarray:
        return 0.4 + (0.04 + 0.02 * np.log2(n)) * -np.expm1(-c / 1e5)

    runs = sweep(reward=flattening)
    plain = audit(runs, bounds=(0.0, 1.0))
    percent = audit(in_units(runs, 0.0, 100.0), bounds=(0.0, 100.0))
    for one, other in zip(plain.groups, percent.groups, strict=True):
        assert [run.standing for run in one.runs] == [run.standing for run in other.runs]
        assert one.verdict is not None
        assert other.verdict is not None
        assert one.verdict.kind == other.verdict.kind
        assert [note.code for note in one.notes] == [note.code for note in other.notes]


def test_a_picture_is_drawn_for_every_fitted_group(found: Audit) -> None:
    figure = plot_group(only(found), found.metric)
    assert len(figure.axes) == 2
    runs = figure.axes[0]
    ends = [line for line in runs.lines if len(line.get_xdata()) == 1]
    judged = [run for run in only(found).runs if run.expected is not None]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in ends] == [(r.rollouts, r.reached) for r in judged]
    named = {text.get_text() for one in runs.artists if isinstance(one, Legend) for text in one.get_texts()}
    assert named == {"n = 8", "n = 32", "n = 128", "frontier"}


def test_an_audit_judges_by_the_fit_of_the_same_runs(repository: Path) -> None:
    runs = RunSet.read(repository / "benchmarks" / "data" / "smollm2" / "sweep" / "smollm2-hard.csv")
    (group,) = audit(runs).groups
    assert group.fits is not None
    assert group.fits.to_dict()["passport"] == fit(runs).to_dict()["passport"]


def test_runs_on_problem_sets_of_several_sizes_are_judged_together_where_a_plan_fits_them_together() -> None:
    def of(cells: list[tuple[int, int]]) -> RunSet:
        rows = [(n, d, c) for n, d in cells for c in np.linspace(0.0, 4e5, 12)]
        columns = {"n": [r[0] for r in rows], "n_problems": [r[1] for r in rows], "C": [r[2] for r in rows]}
        reward = [0.3 + (0.3 - 20.0 / d) * c / (c + 2e3 * n) for n, d, c in rows]
        return RunSet.from_columns({**columns, "avg@4": reward}, problems_per_batch=32)

    crossed, apart = of([(8, 500), (8, 6000), (32, 500), (32, 6000)]), of([(8, 500), (32, 6000)])
    group = only(audit(crossed))
    assert group.fits is not None
    assert group.fits.to_dict()["passport"] == fit(crossed).to_dict()["passport"]
    assert len(audit(apart).groups) == 2


@pytest.mark.parametrize(("name", "best"), [("llama-3.1-8b-easy", 16), ("qwen3-4b-hard", 32)])
def test_the_best_by_the_curves_is_the_best_of_what_was_measured(repository: Path, name: str, best: int) -> None:
    runs = RunSet.read(repository / "isocompute_sdk" / "laws" / "data" / "sweeps" / f"{name}.csv")
    ends = {one.group_size: float(np.mean(one.value_T[-3:])) for one in runs.series("avg@4")}
    assert max(ends, key=ends.__getitem__) == best
    assert {run.group_size for run in only(audit(runs)).runs if run.standing == "best"} == {best}
