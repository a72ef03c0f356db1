"""The built-in runner under SIGKILLs of campaign, wrapper and training while it trains."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor, stop_runs
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Study
from isocompute_sdk.training import registry
from tests.integration.test_closed_loop import made, make_study, records
from tests.killing import PARTS, Place, kill
from tests.processes import wait_for

CONTROLLER = """
from pathlib import Path
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.specs import load_study
from isocompute_sdk.training import registry
study = load_study("study.yaml")
carry_out(study.expand(), registry.load("torch"), LocalExecutor(2, poll_seconds=0.05), Path.cwd())
"""
PYTHON = """#!/bin/bash
# Stands in for Python: no other process may train this run until all that is started here has ended. The look for
# packages before it is let through.
if [[ "$1" == -c ]]; then exec INTERPRETER "$@"; fi
exec 8>> "run-$(basename "${@: -1}")"
flock -n 8 || { echo "${@: -1}" >> clashes; exit 70; }
exec INTERPRETER "$@"
"""
KILLS = 10


def steps(folder: Path, study: Study) -> int:
    """Update steps done by all runs of a study."""
    return sum(store.RunWatch(folder / run.output_dir).status().step for run in study.expand())


def train_until(folder: Path, study: Study, new_steps: int, controller: subprocess.Popen[bytes]) -> bool:
    """Wait until the runs have done so many more steps; False if the controller ends before."""
    goal = steps(folder, study) + new_steps
    wait_for(lambda: steps(folder, study) >= goal or controller.poll() is not None)
    return controller.poll() is None


def training(folder: Path) -> list[str]:
    """Command lines of living processes that name a run folder."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/runs/" in text:
            found.append(text)
    return found


@pytest.mark.slow
def test_ten_kills_while_the_built_in_runner_trains_change_no_record(tmp_path: Path) -> None:
    place = made(tmp_path)
    study = make_study()
    study = study.replace(sweep=study.sweep.replace(rollouts=4_800) if study.sweep is not None else None)
    carry_out(study.expand(), registry.load("torch"), LocalExecutor(2), place)
    expected = {run.run_id: records(place / run.output_dir) for run in study.expand()}
    (place / "runs").rename(place / "undisturbed")
    campaign = Place(place, study, CONTROLLER, PYTHON)
    rng, kills = random.Random(1), 0
    while kills < KILLS:
        with campaign.start() as controller:
            assert train_until(place, study, rng.randint(8, 40), controller), "the study is too short for ten kills"
            controller.kill()
        parts = rng.choice(PARTS)
        for run in study.expand():
            kill(place / run.output_dir, parts)
        kills += 1
    with campaign.start() as controller:
        train_until(place, study, 5, controller)
        controller.kill()
    assert stop_runs([place / run.output_dir for run in study.expand()]).foreign == ()
    # A run that has just finished is not stopped, and takes a moment to leave.
    wait_for(lambda: not training(place))
    campaign.finish()
    assert {run.run_id: records(place / run.output_dir) for run in study.expand()} == expected
    assert not (place / "clashes").exists()
    assert training(place) == []
