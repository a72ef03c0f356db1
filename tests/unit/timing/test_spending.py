"""What runs have taken, by purpose, lost attempts included."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import PlanError
from isocompute_sdk.run_folders import store
from isocompute_sdk.run_folders.journal_records import START, Start
from isocompute_sdk.specs import Budget
from isocompute_sdk.specs.run import Evaluation
from isocompute_sdk.timing.spending import Spending, in_time_left, seconds_for, seconds_left, spending
from tests.backends.framework_runs import run_maker

make_run = run_maker(preset="hard")


def write(folder: Path, records: list[dict[str, Any]], started: list[float]) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    starts = [START.to_text(Start(attempt=i + 1, started=at)) for i, at in enumerate(started)]
    (folder / "attempts.jsonl").write_text("".join(starts))
    return folder


def test_every_second_is_counted_once_and_a_killed_attempt_is_lost(tmp_path: Path) -> None:
    first = {"attempt": 1, "rollouts": 0}
    second = {"attempt": 2}
    records: list[dict[str, Any]] = [
        # The second attempt went on from step 1; what the first did after it is gone.
        {**second, "kind": "run", "wall_seconds": 0.0},
        {**first, "kind": "evaluation", "wall_seconds": 30.0, "seconds": {"evaluation": 10}, "sample_counts": [4, 4]},
        {**first, "kind": "step", "rollouts": 64, "wall_seconds": 50.0, "seconds": {"sampling": 12, "training": 7}},
        {**second, "kind": "step", "rollouts": 128, "wall_seconds": 25.0, "seconds": {"sampling": 12, "training": 8}},
        {**second, "kind": "step", "rollouts": 192, "wall_seconds": 46.0, "seconds": {"sampling": 12, "training": 8}},
    ]
    run = write(tmp_path / "a", records, [1000.0, 1100.0])
    found = spending([run])
    assert 3600 * found.training_hours == pytest.approx(20 + 20 + 21)
    assert 3600 * found.evaluation_hours == pytest.approx(10)
    assert 3600 * found.start_hours == pytest.approx(20 + 5)
    assert 3600 * found.lost_hours == pytest.approx(50)
    assert 3600 * found.hours == pytest.approx(100 + 46)
    assert (found.rollouts, found.evaluation_rollouts) == (192, 8)
    assert re.findall(r"[\d.]+", found.summary()) == ["2.4", "1.0", "0.2", "0.4", "0.8", "192", "8"]
    assert spending([run, run]) == found + found
    assert spending([tmp_path / "nothing"]) == Spending()


def test_hours_of_a_run_on_a_cpu_are_told_apart(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"kind": "run", "device": "cpu", "wall_seconds": 0.0},
        {"kind": "step", "rollouts": 64, "wall_seconds": 50.0, "seconds": {"sampling": 12, "training": 7}},
    ]
    here = spending([write(tmp_path / "a", records, [0.0])])
    records[0]["device"] = "cuda"
    there = spending([write(tmp_path / "b", records, [0.0])])
    assert here.cpu_hours == here.hours == there.hours > there.cpu_hours == 0


def test_the_time_left_counts_slower_updates_evaluations_to_come_and_runs_that_wait(tmp_path: Path) -> None:
    """A run of 100 updates said 1:51 for 24 minutes: it counted neither evaluations nor that updates got slower."""
    statuses = []
    for n in (4, 8):
        run = make_run(
            run_id=f"n{n}", group_size=n, problems_per_batch=4, update_steps=100, evaluation=Evaluation(count=4)
        )
        store.write_spec(tmp_path / run.run_id, run)
        statuses.append(store.RunWatch(tmp_path / run.run_id).status())
    assert seconds_left(statuses) is None
    records: list[dict[str, Any]] = [{"kind": "run"}]
    for step in range(51):
        if step:
            records.append({"kind": "step", "step": step, "seconds": {"training": 1 if step <= 30 else 2}})
        if step in (0, 25, 50):
            records.append({"kind": "evaluation", "step": step, "seconds": {"evaluation": 60}})
    log = tmp_path / "n4" / "metrics.jsonl"
    log.write_text("".join(json.dumps(r) + "\n" for r in records if r["kind"] != "evaluation"))
    statuses[0] = replace(statuses[0], state="running", step=50)
    assert seconds_left(statuses[:1]) == pytest.approx(50 * 2)
    log.write_text("".join(json.dumps(r) + "\n" for r in records))
    own = 50 * 2 + 2 * 60
    assert seconds_left(statuses[:1]) == pytest.approx(own)
    # The other one takes as long per rollout, of which it has twice as many, and begins when this one has ended.
    assert seconds_left(statuses) == pytest.approx(own + 2 * (30 + 40 + 180 + own))
    # With two places one run that waits still takes its whole time: it cannot be split.
    both = [statuses[0], replace(statuses[0], run_id="other"), statuses[1]]
    assert seconds_left(both) == seconds_left(statuses)
    # A budget that the run under way uses up takes as long as that run.
    assert seconds_for(50 * 16, statuses) == pytest.approx(own)
    assert seconds_for(1000, [replace(statuses[0], state="finished"), statuses[1]]) is None


def test_the_hours_of_runs_are_off_a_deadline(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"kind": "run", "wall_seconds": 0.0},
        {"kind": "step", "rollouts": 64, "wall_seconds": 36.0, "seconds": {"training": 36}},
    ]
    runs = [write(tmp_path / name, lines, [0.0]) for name in "ab"]
    budget = Budget(rollouts=1e6, deadline_hours=0.05)
    for at_once, left in ((1, 0.03), (2, 0.04)):
        assert in_time_left(budget, runs, at_once).deadline_hours == pytest.approx(left)
    # Not before the longest of them.
    assert in_time_left(budget, runs[:1], 2).deadline_hours == pytest.approx(0.04)
    with pytest.raises(PlanError, match="none are left"):
        in_time_left(budget, runs * 3, 1)
    assert in_time_left(Budget(rollouts=1e6), runs * 3, 1) == Budget(rollouts=1e6)


def test_a_damaged_line_hides_no_other(tmp_path: Path) -> None:
    run = write(tmp_path / "a", [{"attempt": 1, "kind": "step", "rollouts": 64, "wall_seconds": 1.0}], [0.0])
    with (run / "metrics.jsonl").open("a") as file:
        file.write("not JSON\n7\n")
    assert spending([run]).rollouts == 64
