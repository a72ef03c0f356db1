"""Campaigns whose pilot is chosen while it goes on, on simulated tasks with real processes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk import published_prior
from isocompute_sdk.campaigns import designed
from isocompute_sdk.campaigns.campaign import Campaign, Outcome
from isocompute_sdk.campaigns.decisions import Decisions, read_decisions
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.campaigns.overview import best_so_far, overview
from isocompute_sdk.campaigns.qualification import choose_checks
from isocompute_sdk.campaigns.study_changes import Change
from isocompute_sdk.errors import BackendError, PlanError
from isocompute_sdk.planning import Planner
from isocompute_sdk.planning.trials import Prospect
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Study
from tests.unit.curve_backend import CurveBackend

BUDGET = 300_000


def study(**changes: Any) -> Study:
    values: dict[str, Any] = {
        "name": "auto",
        "model": "simulation/easy-1",
        "data": {"train": "t.jsonl", "validation": "v.jsonl", "reward": "r.py"},
        "recipe": {"preset": "easy", "min_problems_per_batch": 8},
        "budget": BUDGET,
        "backend": "simulator",
        "options": {"task": "easy", "task_seed": 1, "scale": 60_000},
        "pilot": {"slots": 3, "largest_share": 0.15},
    }
    return Study.model_validate({**values, **changes})


def make(folder: Path, **changes: Any) -> Campaign:
    values: dict[str, Any] = {
        "study": study(),
        "folder": folder,
        "executor": LocalExecutor(3, poll_seconds=0.05),
        "fit_options": {"draws": 20},
    }
    return Campaign(**{**values, **changes})


def before_plan(taken: Decisions) -> int:
    """Rollouts of checks and pilot, whatever the plan continues."""
    runs = [*(() if taken.checks is None else taken.checks.runs), *taken.pilot_runs()]
    longest: dict[str, int] = {}
    for run in runs:
        longest[run.run_id] = max(run.rollouts, longest.get(run.run_id, 0))
    return sum(longest.values())


def test_a_share_that_pays_for_no_pilot_stops_before_one(tmp_path: Path) -> None:
    asked = study(budget=1_000_000, pilot={"slots": 2, "largest_share": 0.001})
    campaign = make(tmp_path / "out", study=asked)
    with pytest.raises(PlanError, match="largest_share"):
        campaign.run()
    assert sum(status.rollouts for status in campaign.status()) <= 0.001 * 1_000_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("designed") / "out"
    return folder, make(folder).run()


def test_checks_pilot_and_plan_share_one_budget_and_every_decision_is_on_file(whole: tuple[Path, Outcome]) -> None:
    folder, outcome = whole
    taken = read_decisions(folder)
    assert taken.checks is not None
    assert taken.qualified is not None
    assert taken.qualified.healthy
    assert len(taken.rounds) > 1
    assert taken.ended
    assert all(one.reason for one in (*taken.rounds, *taken.endings, taken.checks, taken.qualified))
    assert taken.rounds[0].design is not None
    # No configuration that a check has shown is run again.
    first = {(run.group_size, run.problems_per_batch): run.run_id for run in taken.rounds[0].runs}
    checks = {(run.group_size, run.problems_per_batch): run.run_id for run in taken.checks.runs}
    assert set(first) & set(checks)
    assert all(first[both] == checks[both] for both in set(first) & set(checks))
    # Before the plan, nothing costs more than the study allows.
    assert before_plan(taken) <= 0.15 * BUDGET
    assert all(one.asked is not None for one in taken.rounds[1:-1])
    statuses = make(folder).status()
    assert {status.state for status in statuses} == {"finished"}
    assert sum(status.rollouts for status in statuses) <= BUDGET
    ending = taken.endings[-1]
    assert outcome.plan.rollouts == ending.run.rollouts
    # A run that the plan continues is paid for once.
    assert outcome.plan.budget.committed == pytest.approx(ending.spent)
    assert ending.spent + outcome.plan.rollouts <= BUDGET
    assert outcome.refitted.runs is not None
    fitted = {run.run_id for run in RunSet.from_dict(outcome.refitted.runs).runs()}
    assert fitted == {status.run_id for status in statuses if not status.run_id.startswith("check-")}


def test_what_was_spent_adds_up_by_kind(whole: tuple[Path, Outcome]) -> None:
    seen = overview(whole[0])
    assert seen is not None
    total = sum(seen.kinds[kind].rollouts for kind in ("qualification", "pilot", "plan"))
    assert total == pytest.approx(sum(status.rollouts for status in seen.statuses))
    assert seen.left == pytest.approx(BUDGET - total)
    checks = read_decisions(whole[0]).checks
    assert checks is not None
    assert seen.kinds["qualification"].rollouts == pytest.approx(sum(run.rollouts for run in checks.runs))
    ending = read_decisions(whole[0]).endings[-1]
    assert 0 < seen.kinds["plan"].rollouts <= ending.run.rollouts
    assert seen.controller is None
    best = best_so_far(whole[0], seen.study)
    assert best is not None
    assert best.group_size in best.sizes
    assert overview(whole[0].parent) is None


def test_an_unhealthy_recipe_stops_the_campaign_with_its_reason_before_the_pilot(tmp_path: Path) -> None:
    first = Planner(published_prior(), recipe=study().recipe).design_pilot(BUDGET, rng=0)
    checks, _ = choose_checks(study(), 0, sorted(run.group_size for run in first.runs))
    sick = study(backend="curve", model="tiny", options={"flat": checks[0].group_size})
    for _ in range(2):
        with pytest.raises(BackendError, match="nothing-learned"):
            make(tmp_path / "out", study=sick, backend=CurveBackend()).run()
    taken = read_decisions(tmp_path / "out")
    assert taken.qualified is not None
    assert not taken.qualified.healthy
    assert taken.rounds == ()


def test_a_hopeless_run_ends_early_and_its_data_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(
        fits: object, runs: Sequence[tuple[int, int, float]], budget: float, ended: object
    ) -> tuple[Prospect, ...]:
        assert all(budget > 10 * done for _, _, done in runs)
        return tuple(Prospect(0.001 if n == 8 else 0.5, n == 8) for n, _, _ in runs)

    monkeypatch.setattr(designed, "prospects", judged)
    folder = tmp_path / "out"
    monkeypatch.setattr(designed, "SHARES", (0.15,))
    monkeypatch.setattr(designed, "MOST_ROUNDS", 1)
    campaign = make(folder, study=study(pilot={"slots": 3, "largest_share": 0.15, "qualify": False}))
    pilot = campaign.designed
    assert pilot is not None
    pilot.carry_out()
    taken = read_decisions(folder)
    stopped = taken.stopped()
    assert stopped
    longest = {run.run_id: run.update_steps for one in taken.rounds for run in one.runs}
    for name, one in stopped.items():
        status = store.RunWatch(folder / "runs" / "auto" / name).status()
        assert name.startswith("n8-")
        assert (status.state, status.step) == ("finished", one.update_steps)
        assert status.message.startswith("stopped early")
        assert one.update_steps < longest[name]
    fitted = campaign.fit().runs
    assert fitted is not None
    assert set(stopped) <= {run.run_id for run in RunSet.from_dict(fitted).runs()}


def test_the_slot_of_a_stopped_run_is_offered_at_once_and_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(fits: object, runs: Sequence[tuple[int, int, float]], budget: float, ended: object) -> list[Prospect]:
        smallest = min(n for n, _, _ in runs)
        return [Prospect(0.001 if n == smallest else 0.5, n == smallest and len(runs) > 1) for n, _, _ in runs]

    at_work: list[set[str]] = []

    def watch(stage: str, statuses: Sequence[store.RunStatus]) -> None:
        at_work.append({one.run_id for one in statuses if one.state != "finished"} if stage == "pilot" else set())

    monkeypatch.setattr(designed, "prospects", judged)
    monkeypatch.setattr(designed, "SHARES", (0.15,))
    monkeypatch.setattr(designed, "MOST_ROUNDS", 2)
    four = {"slots": 4, "largest_share": 0.35, "qualify": False}
    campaign = make(
        tmp_path / "out", study=study(pilot=four), executor=LocalExecutor(4, poll_seconds=0.02), watch=watch
    )
    pilot = campaign.designed
    assert pilot is not None
    pilot.carry_out()
    taken = read_decisions(tmp_path / "out")
    looks = [look for one in taken.rounds for look in taken.looks[one.number] if look.asked is not None]
    assert looks
    for look in looks:
        stopped = {one.run_id for one in look.judged if one.stopped}
        going = {one.run_id for one in look.judged if not one.stopped}
        added = {one.run_id for one in look.added}
        assert len(added) <= len(stopped)
        assert not added & (going | stopped)
        # Late runs and those that go on are at work together.
        assert not added or any(added <= names and going & names for names in at_work)
    ends = {one.run_id: one.update_steps for one in taken.pilot_runs()} | {
        name: one.update_steps for name, one in taken.stopped().items()
    }
    statuses = {status.run_id: status.step for status in campaign.status()}
    assert {name: statuses[name] for name in ends} == ends


def test_a_backend_that_cannot_continue_runs_gets_new_ones(tmp_path: Path) -> None:
    plain = study(backend="curve", model="tiny", options={}, pilot={"slots": 3, "largest_share": 0.25, "seed": 2})
    outcome = make(tmp_path / "out", study=plain, backend=CurveBackend()).run()
    taken = read_decisions(tmp_path / "out")
    assert all(not looks for looks in taken.looks.values())
    assert taken.endings[-1].continues is None
    assert outcome.comparison.run_id.startswith("plan-")
    runs = [run for one in taken.rounds for run in one.runs]
    assert len({run.run_id for run in runs}) == len(runs)
    assert before_plan(taken) <= 0.25 * BUDGET


def test_a_larger_budget_takes_the_pilot_up_again(whole: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder = shutil.copytree(whole[0], tmp_path / "copy")
    edits: list[str] = []

    def edited(changes: Sequence[Change]) -> None:
        edits.extend(one.field for one in changes)

    larger = make(folder, study=study(budget=2 * BUDGET), on_edit=edited)
    outcome = larger.run()
    assert edits == ["budget.rollouts"]
    assert outcome.plan.budget.amount == 2 * BUDGET
    assert len(read_decisions(folder).endings) == 2
    assert sum(status.rollouts for status in larger.status()) <= 2 * BUDGET
