"""Campaigns whose pilot is chosen while it goes on, on reward curves with real processes."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import isocompute_sdk as iso
from isocompute_sdk.campaigns import pilot_rounds as pilots
from isocompute_sdk.campaigns.campaign import Campaign, Outcome
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.campaigns.overview import best_so_far, overview
from isocompute_sdk.campaigns.pilot_rounds import read_decisions
from isocompute_sdk.campaigns.study_runs import StudyRuns
from isocompute_sdk.errors import BackendError, PlanError
from isocompute_sdk.planning.trials import Prospect
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import store
from isocompute_sdk.run_folders.run_journal import record
from isocompute_sdk.specs import RunSpec, Study
from isocompute_sdk.tolerances import MIN_UPDATES
from tests.studies import make_study
from tests.unit.curve_backend import CurveBackend, LongerCurveBackend

BUDGET = 300_000


def study(**changes: Any) -> Study:
    values: dict[str, Any] = {
        "name": "auto",
        "model": "tiny",
        "recipe": {"preset": "easy", "min_problems_per_batch": 8},
        "budget": BUDGET,
        "backend": "curve",
        "pilot": {"slots": 3, "largest_share": 0.15},
    }
    return make_study(**{**values, **changes})


def make(folder: Path, **changes: Any) -> Campaign:
    values: dict[str, Any] = {
        "study": study(),
        "folder": folder,
        "backend": LongerCurveBackend(),
        "executor": LocalExecutor(3, poll_seconds=0.05),
        "fit_options": {"draws": 20},
    }
    return Campaign(**{**values, **changes})


def before_plan(folder: Path) -> int:
    """Rollouts of the pilot, whatever the plan continues."""
    last = next(one for one in read_decisions(folder) if one.what == "end")
    return sum(run.rollouts for run in last.runs)


def test_a_share_that_pays_for_no_pilot_stops_before_one(tmp_path: Path) -> None:
    asked = study(budget=1_000_000, pilot={"slots": 2, "largest_share": 0.001})
    campaign = make(tmp_path / "out", study=asked)
    with pytest.raises(PlanError, match="largest_share"):
        campaign.run()
    assert sum(status.rollouts for status in campaign.status()) <= 0.001 * 1_000_000


def test_the_first_round_is_priced_with_the_evaluations_of_the_study(tmp_path: Path) -> None:
    timed = {"budget": "20 gpu_hours", "throughput": {"rollouts_per_second": 20, "gpus": 1}}
    costs = []
    for problems in (10, 2000):
        asked = study(**timed, evaluation={"n_problems": problems, "samples": 4, "every_steps": 5})
        designed = make(tmp_path, study=asked).designed
        assert designed is not None
        costs.append({run.sizes: run.cost for run in designed.first_round().runs})
    assert costs[0]
    assert all(cost < costs[1].get(sizes, math.inf) for sizes, cost in costs[0].items())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("designed") / "out"
    return folder, make(folder).run()


@pytest.mark.parametrize(("final_steps", "evaluated"), [(3, 3), (8, 4), (30, 4), (400, 40)])
def test_a_short_run_is_evaluated_often_enough_to_fit(tmp_path: Path, final_steps: int, evaluated: int) -> None:
    designed = make(tmp_path).designed
    assert designed is not None
    run = designed.spec(pilots.Chosen("short", 8, 8, final_steps, 0, final_steps))
    assert evaluated <= len(run.evaluation.steps(final_steps)) - 1 <= evaluated + 1
    # The same run, longer, is evaluated less often, in the same folder.
    store.write_spec(tmp_path / "short", run)
    begun = json.dumps(record("short", "evaluation", step=0, rollouts=0))
    (tmp_path / "short" / "metrics.jsonl").write_text(f"{begun}\n")
    longer = designed.spec(pilots.Chosen("short", 8, 8, 4000, 0, 4000))
    store.write_spec(tmp_path / "short", longer, longer=True)
    assert len(longer.evaluation.steps(4000)) - 1 == 400


def test_the_run_of_a_plan_is_evaluated_as_its_plan_counted(tmp_path: Path) -> None:
    designed = make(tmp_path, study=study(options={pilots.SCHEDULE_OPTION: 8})).designed
    assert designed is not None
    free = pilots.Chosen("pilot", 8, 8, 400, 0, 400)
    assert pilots.SCHEDULE_OPTION in designed.spec(free).options
    planned = designed.spec(pilots.Chosen("pilot", 8, 8, 400, 0, 400, every_steps=50))
    assert pilots.SCHEDULE_OPTION not in planned.options
    assert planned.evaluation.every_steps == 50


@pytest.mark.slow
def test_pilot_and_plan_share_one_budget_and_every_decision_is_on_file(whole: tuple[Path, Outcome]) -> None:
    folder, outcome = whole
    taken = read_decisions(folder)
    kinds = [one.what for one in taken]
    assert kinds[0] == "round"
    assert kinds[-2:] == ["end", "plan"]
    assert all(one.reason for one in taken)
    assert taken[0].design is not None
    assert taken[-2].asked is not None
    # Before the plan, nothing costs more than the study allows.
    assert before_plan(folder) <= 0.15 * BUDGET
    statuses = make(folder).status()
    assert {status.state for status in statuses} == {"finished"}
    assert sum(status.rollouts for status in statuses) <= BUDGET
    planned = taken[-1].named[taken[-1].planned]
    assert outcome.plan.rollouts == planned.rollouts
    # A run that the plan continues is paid for once.
    own = outcome.plan.past.get("rollouts", 0.0)
    assert outcome.plan.budget.committed - own == pytest.approx(taken[-1].spent)
    assert taken[-1].spent + outcome.plan.rollouts <= BUDGET
    assert outcome.refitted.runs is not None
    fitted = {run.run_id for run in RunSet.from_dict(outcome.refitted.runs).runs()}
    assert fitted == {status.run_id for status in statuses}


@pytest.mark.slow
@pytest.mark.usefixtures("plugins")
def test_what_was_spent_adds_up_by_kind(whole: tuple[Path, Outcome]) -> None:
    seen = overview(whole[0])
    assert seen is not None
    total = sum(seen.kinds[kind].rollouts for kind in ("pilot", "plan"))
    assert total == pytest.approx(sum(status.rollouts for status in seen.statuses))
    # As the plan says: a pilot run that it continues is one of its own.
    own = whole[1].plan.past.get("rollouts", 0.0)
    assert seen.kinds["pilot"].rollouts == pytest.approx(whole[1].plan.budget.committed - own)
    assert seen.kinds["plan"].rollouts == pytest.approx(whole[1].plan.rollouts)
    assert seen.left == pytest.approx(BUDGET - total)
    assert seen.controller is None
    best = best_so_far(whole[0], seen.study)
    assert best is not None
    # An audit of the same runs says the same.
    assert whole[1].refitted.runs is not None
    (audited,) = iso.audit(RunSet.from_dict(whole[1].refitted.runs), eval_set="validation").groups
    assert best.rollouts == audited.decided_at
    assert best.group_size in {run.group_size for run in audited.runs}
    assert f"n = {best.group_size}" in audited.sentence
    assert overview(whole[0].parent) is None


def test_a_pilot_that_learns_nothing_stops_before_the_plan(tmp_path: Path) -> None:
    sick = study(options={"flat": "all"})
    for _ in range(2):
        with pytest.raises(BackendError, match="learned nothing"):
            make(tmp_path / "out", study=sick).run()
    assert [one.what for one in read_decisions(tmp_path / "out")] == ["round"]


def test_a_hopeless_run_ends_early_and_its_data_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(
        fits: object, runs: Sequence[tuple[int, int, float]], budget: float, ended: object
    ) -> tuple[Prospect, ...]:
        assert all(budget > 10 * done for _, _, done in runs)
        return tuple(Prospect(0.001 if n == 8 else 0.5, n == 8) for n, _, _ in runs)

    monkeypatch.setattr(pilots, "prospects", judged)
    folder = tmp_path / "out"
    one_round(monkeypatch, 0.15)
    campaign = make(folder, study=study(pilot={"slots": 3, "largest_share": 0.15}))
    pilot = campaign.designed
    assert pilot is not None
    pilot.carry_out()
    taken = read_decisions(folder)
    assert [one.what for one in taken][:2] == ["round", "look"]
    stopped = {run.run_id: run for run in taken[-1].runs if run.stopped is not None}
    assert stopped
    for name, one in stopped.items():
        status = store.RunWatch(folder / "runs" / "auto" / name).status()
        assert name.startswith("n8-")
        assert (status.state, status.step) == ("finished", one.update_steps)
        assert status.message.startswith("stopped early")
        assert one.update_steps < taken[0].named[name].final_steps
    assert all(run.update_steps == taken[0].named[run.run_id].final_steps for run in taken[-1].runs if not run.stopped)
    # It ends after its largest number of rounds, and has cost less than it may.
    named = [float(one) / 100 for one in re.findall(r"(\d+)%", taken[-1].reason)]
    assert named == [round(sum(run.rollouts for run in taken[-1].runs) / BUDGET, 2)]
    fitted = campaign.fit().runs
    assert fitted is not None
    assert set(stopped) <= {run.run_id for run in RunSet.from_dict(fitted).runs()}
    # Who asks what comes next is offered no more rounds than the pilot has.
    offered = pilot.asked(campaign.fit())["most"]
    monkeypatch.setattr(pilots, "MAX_ROUNDS", 2)
    assert 0 == offered < pilot.asked(campaign.fit())["most"]


def one_round(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Let a pilot be one round with this share of the budget."""
    monkeypatch.setattr(pilots, "SHARES", (share,))
    monkeypatch.setattr(pilots, "MAX_ROUNDS", 1)


def cost_more(monkeypatch: pytest.MonkeyPatch, dearer: float) -> None:
    """Let runs cost so many times what they are priced at."""
    priced = StudyRuns.cost

    def cost(own: StudyRuns, run: RunSpec) -> float:
        return dearer * priced(own, run)

    monkeypatch.setattr(StudyRuns, "cost", cost)


@pytest.mark.parametrize("dearer", [1.5, 4.0])
def test_runs_that_turn_out_dearer_than_priced_end_where_the_share_of_the_pilot_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dearer: float
) -> None:
    def judged(_fits: object, runs: Sequence[object], *_: object) -> tuple[Prospect, ...]:
        return tuple(Prospect(0.5, hopeless=False) for _ in runs)

    cost_more(monkeypatch, dearer)
    monkeypatch.setattr(pilots, "prospects", judged)
    one_round(monkeypatch, 0.15)
    pilot = make(tmp_path / "out").designed
    assert pilot is not None
    runs = pilot.carry_out()
    begun = read_decisions(tmp_path / "out")[0].runs
    spent, first = (dearer * sum(run.rollouts for run in some) for some in (runs, begun))
    # What the runs had cost at the first look cannot be saved any more.
    assert spent == first if first > 0.15 * BUDGET else 0.13 * BUDGET < spent <= 0.15 * BUDGET


@pytest.mark.parametrize("dearer", [1.0, 1.5, 4.0])
def test_a_round_that_is_taken_up_again_ends_where_the_share_of_the_pilot_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dearer: float
) -> None:
    one_round(monkeypatch, 0.15)
    once = study(pilot={"slots": 3, "largest_share": 0.15, "stop_early": False})

    def pause(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "out", study=once, on_decision=pause).run()
    campaign = make(tmp_path / "out", study=once)
    designed = campaign.designed
    assert designed is not None
    (first,) = designed.decisions()
    # One run has not begun, the others were killed half-way.
    for run in first.runs[1:]:
        folder, half = designed.own.place(designed.spec(run)), run.update_steps // 2
        store.write_spec(folder, designed.spec(run))
        lines = [
            record(run.run_id, "evaluation", step=at, rollouts=at * run.group_size * run.problems_per_batch)
            for at in (0, half)
        ]
        lines = [{**one, "eval_set": "validation", "metrics": {"avg@4": 0.4}} for one in lines]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    cost_more(monkeypatch, dearer)
    begun = sum(map(designed.own.cost, designed.runs([first])))
    spent = sum(map(designed.own.cost, designed.carry_out()))
    most = 0.15 * BUDGET
    # What the runs had cost cannot be saved; a run that has not begun makes one update.
    assert spent <= max(most, begun + dearer * first.runs[0].group_size * first.runs[0].problems_per_batch)
    assert spent > 0.9 * most
    assert (dearer > 1.0) == any(one.what == "look" for one in designed.decisions())


def test_a_round_of_which_little_is_left_to_save_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = 0.99 * pilots.MIN_REST / (1 - pilots.LOOKS[-1] / 2)
    one_round(monkeypatch, share)
    pilot = make(tmp_path / "out", study=study(budget=10 * BUDGET)).designed
    assert pilot is not None
    pilot.carry_out()
    first = read_decisions(tmp_path / "out")[0]
    assert not first.looks
    assert any(run.update_steps > 2 * MIN_UPDATES for run in first.runs)


@pytest.mark.slow
def test_a_backend_that_cannot_continue_runs_gets_new_ones(tmp_path: Path) -> None:
    plain = study(pilot={"slots": 3, "largest_share": 0.25, "seed": 2})
    outcome = make(tmp_path / "out", study=plain, backend=CurveBackend()).run()
    taken = read_decisions(tmp_path / "out")
    assert not any(one.what == "look" for one in taken)
    assert taken[-1].continues == ""
    # What is advised names the seed that a second run of its n gets.
    again = [run for one in taken if one.asked is not None for run in one.asked.runs if run.seed]
    assert again
    assert {(run.sizes, run.seed) for run in again} <= {(run.sizes, run.seed) for run in taken[-1].runs}
    assert outcome.comparison.run_id.startswith("plan-")
    assert before_plan(tmp_path / "out") <= 0.25 * BUDGET


@pytest.mark.slow
def test_a_larger_budget_takes_the_pilot_up_again(whole: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder = shutil.copytree(whole[0], tmp_path / "copy")
    edits: list[str] = []
    larger = make(folder, study=study(budget=2 * BUDGET), on_edit=edits.extend)
    outcome = larger.run()
    assert edits == ["budget.rollouts"]
    assert outcome.plan.budget.amount == 2 * BUDGET
    kinds = [one.what for one in read_decisions(folder)]
    assert (kinds.count("plan"), kinds.count("edit")) == (2, 1)
    assert sum(status.rollouts for status in larger.status()) <= 2 * BUDGET


@pytest.mark.slow
def test_a_plan_shorter_than_the_run_that_it_continues_trains_nothing_and_says_so(
    whole: tuple[Path, Outcome], tmp_path: Path
) -> None:
    folder = shutil.copytree(whole[0], tmp_path / "copy")
    next((folder / "decisions").glob("*-plan.json")).unlink()
    designed = make(folder).designed
    assert designed is not None
    has = {(run.group_size, run.problems_per_batch): run for run in read_decisions(folder)[-1].runs}
    plan = designed.own.planner(whole[1].fits, ()).allocate(9_000, problems_per_batch=8, update_steps=21)
    before = has[plan.group_size, plan.problems_per_batch]
    assert before.update_steps > plan.update_steps
    run = designed.planned_run(plan)
    assert (run.run_id, run.update_steps) == (before.run_id, before.update_steps)
    assert "goes on" not in read_decisions(folder)[-1].reason
