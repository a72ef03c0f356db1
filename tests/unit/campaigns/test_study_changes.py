"""Edited studies: what may change once runs have measured something."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.control import STUDY_FILE, study_changes, update_study
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.errors import RecordError
from isocompute_sdk.run_folders import store, wrapper
from isocompute_sdk.specs import Study
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import run_folder
from tests.studies import make_study
from tests.unit.curve_backend import LongerCurveBackend

FAST = LocalExecutor(max_parallel=2, poll_seconds=0.05)
SIMULATOR = registry.load("simulator")


SWEEP = {"group_size": [4, 16], "problems_per_batch": 32, "rollouts": 40_960}


def study(**changes: Any) -> Study:
    values = {"name": "edited", "sweep": SWEEP, "budget": 200_000, "options": {"scale": 100_000}}
    return make_study(**{**values, **changes})


@pytest.mark.parametrize(
    ("edit", "field", "accepted"),
    [
        ({"budget": 300_000}, "budget.rollouts", True),
        ({"budget": {"rollouts": 200_000, "deadline_hours": 3}}, "budget.deadline_hours", True),
        ({"budget": 100_000}, "budget.rollouts", True),
        ({"sweep": {**SWEEP, "seeds": [0, 1]}}, "sweep.seeds", True),
        ({"sweep": {**SWEEP, "group_size": [4, 16, 64]}}, "sweep.group_size", True),
        ({"sweep": {**SWEEP, "rollouts": 81_920}}, "sweep.rollouts", True),
        ({"executor": "slurm"}, "executor", True),
        ({"supervision": {"retries": 5}}, "supervision.retries", True),
        ({"throughput": {"rollouts_per_second": 3, "step_overhead_seconds": 1}}, "throughput", True),
        ({"model": "other"}, "model", False),
        ({"data": {"train": "t2.jsonl", "validation": "v.jsonl", "reward": "r.py"}}, "data.train", False),
        ({"data": {"train": "t.jsonl", "validation": "v.jsonl", "reward": "r2.py"}}, "data.reward", False),
        ({"recipe": "hard"}, "recipe.kl_coef", False),
        ({"evaluation": {"samples": 8}}, "evaluation.samples", False),
        ({"options": {"scale": 200_000}}, "options.scale", False),
    ],
)
def test_an_edit_is_accepted_only_where_it_spoils_nothing_that_was_run(
    edit: dict[str, Any], field: str, accepted: bool, tmp_path: Path
) -> None:
    before, after, run = study(), study(**edit), tmp_path / "run"
    # Before anything has measured, everything may change.
    assert field in study_changes(before, after, SIMULATOR, [run], tmp_path)
    run.mkdir()
    wrapper.write_exit(run, 1, 0, stopped=False)
    if accepted:
        assert field in study_changes(before, after, SIMULATOR, [run], tmp_path)
    else:
        with pytest.raises(RecordError, match=field):
            study_changes(before, after, SIMULATOR, [run], tmp_path)


def test_an_edited_sweep_lists_all_its_changes_and_keeps_what_was_run(tmp_path: Path) -> None:
    folder, backend, curves = tmp_path / "runs" / "edited", LongerCurveBackend(), partial(study, options={})
    carry_out(
        curves().expand(),
        backend,
        FAST,
        tmp_path,
        before=lambda: update_study(curves(), folder, tmp_path, backend),
    )
    kept = (folder / STUDY_FILE).read_bytes()
    with pytest.raises(RecordError) as refused:
        update_study(curves(model="other", budget=400_000), folder, tmp_path, backend)
    for part in ("model", "'simulation'", "'other'", "budget.rollouts", "200000", "400000"):
        assert part in refused.value.message
    assert (folder / STUDY_FILE).read_bytes() == kept
    more = curves(sweep={**SWEEP, "seeds": [0, 1], "rollouts": 81_920})
    assert set(update_study(more, folder, tmp_path, backend)) == {
        "sweep.seeds",
        "sweep.rollouts",
    }
    carry_out(more.expand(), backend, FAST, tmp_path)
    statuses = [store.RunWatch(tmp_path / run_folder(run)).status() for run in more.expand()]
    assert {(status.state, status.rollouts) for status in statuses} == {("finished", 81_920)}
    shorter = curves(sweep={**SWEEP, "rollouts": 20_480})
    with pytest.raises(RecordError, match="update_steps"):
        carry_out(shorter.expand(), backend, FAST, tmp_path)
