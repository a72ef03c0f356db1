"""The closed loop over a small backend of its own, in real processes, stopped and killed on the way."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.campaigns.campaign import Campaign, Outcome
from isocompute_sdk.campaigns.comparison import at_check, compare
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.errors import PlanError, RecordError
from isocompute_sdk.planning.plan_parts import Approval
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Budget, Data, Recipe, Study, Sweep
from tests.parameters import few
from tests.processes import wait_for
from tests.studies import make_study as small_study

FAST = LocalExecutor(max_parallel=4, poll_seconds=0.05)
STAGES = ("sweep", "fit", "allocate", "train", "compare", "refit")
FILES = ("campaign.json", "study.yaml", "fits.json", "plan.json", "comparison.json", "refit.json")


STAGES_SEEN: list[str] = []


@pytest.fixture(scope="module")
def whole(plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A campaign that nothing disturbed, and its folder."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    return folder, make(folder, watch=lambda stage, runs: STAGES_SEEN.append(stage)).run()


def make_study(**changes: Any) -> Study:
    values: dict[str, Any] = {
        "name": "loop",
        "model": "tiny",
        "data": Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
        "recipe": Recipe.preset("hard", min_problems_per_batch=4, warmup_steps=2),
        "sweep": Sweep(group_size=(4, 16, 64), problems_per_batch=4, rollouts=12_800),
        "budget": 40_000,
        "backend": "curve",
    }
    return Study(**{**values, **changes})


def make(folder: Path, **changes: Any) -> Campaign:
    fit = {"pool": ("learning_rate",), "draws": 20}
    values: dict[str, Any] = {"study": make_study(), "folder": folder, "executor": FAST, "fit_options": fit}
    return Campaign(**{**values, **changes})


def same(a: Outcome, b: Outcome) -> bool:
    return a.fits == b.fits and a.plan == b.plan and a.comparison == b.comparison and a.refitted == b.refitted


def test_the_whole_loop_leaves_a_file_per_stage_and_a_folder_per_run(whole: tuple[Path, Outcome]) -> None:
    out, outcome = whole
    assert sorted(p.name for p in out.iterdir()) == sorted([*FILES, "runs"])
    assert list(dict.fromkeys(STAGES_SEEN)) == list(STAGES)
    plan, comparison = outcome.plan, outcome.comparison
    assert plan.rollouts <= 40_000
    assert (comparison.rollouts, comparison.largest_compute) == (plan.rollouts, 12_800)
    assert comparison.low <= comparison.predicted <= comparison.high
    assert comparison.error == pytest.approx(comparison.measured - comparison.predicted)
    runs = store.find_runs(out)
    assert {store.RunWatch(run).status().state for run in runs} == {"finished"}
    assert [run.name for run in runs if run.name.startswith("plan-")] == [comparison.run_id]
    assert outcome.refitted.curves[plan.group_size, plan.problems_per_batch].last_compute == plan.rollouts
    # What was fitted is what can be read from the folder, without the training probe.
    read = RunSet.read(out / "runs")
    assert outcome.refitted.runs is not None
    assert RunSet.from_dict(outcome.refitted.runs) == read


def test_the_comparison_is_a_new_run_at_its_own_compute(whole: tuple[Path, Outcome]) -> None:
    folder, outcome = whole
    campaign = make(folder)
    run = campaign.planned_run()
    assert run.seed not in campaign.study.sweep.seeds  # type: ignore[union-attr]
    assert (run.group_size, run.update_steps) == (outcome.plan.group_size, outcome.plan.update_steps)
    assert (run.data, run.options, run.evaluation) == (
        campaign.study.data,
        campaign.study.options,
        campaign.allocate().evaluation,
    )
    assert compare(outcome.fits, campaign.train()) == outcome.comparison
    with pytest.raises(RecordError, match=" 3 runs"):
        compare(outcome.fits, campaign.sweep())


def test_only_a_plan_with_a_check_is_said_to_have_one(whole: tuple[Path, Outcome]) -> None:
    folder, outcome = whole
    asked = [Approval(kind, "", step=1) for kind in ("check", "part")]
    plans = [dataclasses.replace(outcome.plan, approval=one) for one in asked]
    check, part = (at_check(plan, outcome.comparison.run_id, store.read_journals(folder)) for plan in plans)
    assert check.startswith("check at step 1: measured")
    assert "step 1: measured" in part
    assert "check" not in part


@pytest.mark.parametrize(
    "stop_in",
    few(STAGES, {"allocate"}),
)
def test_an_interrupt_in_any_stage_changes_nothing_in_the_end(
    whole: tuple[Path, Outcome], tmp_path: Path, stop_in: str
) -> None:
    folder, gate = tmp_path / "out", tmp_path / "gate"

    def interrupt(stage: str, runs: tuple[store.RunStatus, ...]) -> None:
        if stage == stop_in and (not runs or any(run.metrics for run in runs)):
            gate.touch()
            raise KeyboardInterrupt

    study = make_study()
    if stop_in in ("sweep", "train"):
        # Runs wait behind their first evaluation for the interrupt in the sweep; without one they have to go on.
        study = make_study(options={"gate": str(gate)})
        if stop_in == "train":
            gate.touch()
    else:
        shutil.copytree(whole[0], folder)
        for name in FILES[2:]:
            (folder / name).unlink()
    with pytest.raises(KeyboardInterrupt):
        make(folder, study=study, watch=interrupt).run()
    assert same(make(folder, study=study).run(), whole[1])


PROGRAM = """
import sys
from test_campaign import make, make_study
make(sys.argv[1], study=make_study(options={"seconds": 0.02})).run()
"""


@pytest.mark.parametrize("after", [pytest.param("sweep", marks=pytest.mark.slow), "plan.json"])
def test_a_kill_loses_nothing_that_was_measured(
    plugins: Path, whole: tuple[Path, Outcome], tmp_path: Path, after: str
) -> None:
    shutil.copy(__file__, plugins / "test_campaign.py")
    out = tmp_path / "out"

    def reached() -> bool:
        runs = list(out.rglob("plan-*/metrics.jsonl" if after == "plan.json" else "n4-*/metrics.jsonl"))
        return any(len(path.read_text().splitlines()) > 6 for path in runs)

    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(out)]) as program:
        wait_for(reached, program)
        program.kill()
    measured = {path: path.read_text() for path in out.rglob("metrics.jsonl")}
    outcome = make(out, study=make_study(options={"seconds": 0.02})).run()
    assert all(path.read_text().startswith(text) for path, text in measured.items())
    assert same(outcome, whole[1])


def test_a_folder_takes_one_campaign(whole: tuple[Path, Outcome]) -> None:
    with pytest.raises(RecordError, match=r"model.*seed-less"):
        make(whole[0], study=make_study(model="seed-less")).fit()
    # Nor under another name, where its runs would lie beside those of the first.
    with pytest.raises(RecordError, match="'loop' -> 'other'") as refused:
        make(whole[0], study=make_study(name="other", model="other")).fit()
    assert "another folder" in (refused.value.hint or "")
    with pytest.raises(RecordError, match="metric, fit"):
        make(whole[0], metric="best@4", fit_options={}).fit()


def test_a_larger_budget_repeats_only_what_depends_on_it(whole: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, first = shutil.copytree(whole[0], tmp_path / "copy"), whole[1]
    second = make(folder, study=make_study(budget=200_000)).run()
    assert second.fits == first.fits
    assert second.plan.budget == Budget(rollouts=200_000)
    assert second.comparison.run_id != first.comparison.run_id
    assert (folder / "plan.1.json").exists()


def test_two_batch_sizes_with_two_rates_of_the_studys_rule_are_fitted_together(plugins: Path, tmp_path: Path) -> None:
    study = make_study(sweep=Sweep(group_size=(4, 16), problems_per_batch=4, rollouts=12_800))
    fits = make(tmp_path / "out", study=study, fit_options={"draws": 20}).fit()
    assert fits.group_sizes == (4, 16)


def test_a_study_without_sweep_or_budget_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="budget"):
        make(tmp_path, study=make_study(budget=None))
    assert not list(tmp_path.iterdir())


def test_a_budget_in_hours_is_planned_with_the_speed_that_the_sweep_itself_logged(tmp_path: Path) -> None:
    study = small_study(
        data={"train": "t.jsonl", "validation": "v.jsonl", "reward": "r.py", "n_problems": 6000},
        sweep={"group_size": [8, 64], "problems_per_batch": 32, "rollouts": 41_000},
        budget="40 gpu_hours",
        hardware={"gpus": 8},
        options={"clock": True, "scale": 200_000},
    )
    campaign = Campaign(
        study,
        tmp_path,
        executor=LocalExecutor(1),
        fit_options={"pool": ("learning_rate",), "draws": 20},
        plan_options={"spend": "all"},
    )
    plan = campaign.allocate()
    assert plan.throughput is not None
    assert plan.throughput.measured is not None
    assert plan.throughput.step_overhead_seconds == pytest.approx(20, rel=0.2)
    assert plan.gpus == 8
    assert 36 < plan.cost <= 40
    assert plan.cost > plan.breakdown["training"]["gpu_hours"]
    assert campaign.planned_run().evaluation == plan.evaluation
