"""Campaigns on GPUs that are none, killed while runs go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import random_kills
from tests.killing import PARTS, Place, check, kill, undisturbed
from tests.processes import HANG_SECONDS, wait_for
from tests.random_kills import survive
from tests.studies import make_study
from tests.unit.campaigns.executors.fake_gpus import install, listing, uuids

STUDY = make_study(
    name="kills",
    sweep={"group_size": [4, 16, 32, 64], "problems_per_batch": 32, "rollouts": 20_000},
)
CONTROLLER = """
import sys
from pathlib import Path
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.specs import load_study
from isocompute_sdk.training.backend import Needs
from isocompute_simulator import SimulatorBackend

SimulatorBackend.needs = lambda self, run: Needs(1)
carry_out(load_study("study.yaml").expand(), SimulatorBackend(), LocalExecutor(poll_seconds=0.02), Path.cwd())
"""
PYTHON = """#!/bin/bash
# Stands in for Python: no other process may have this run or this GPU until all that is started here has ended. It goes
# on once there is no file `hold`. The look for packages before the first run is let through.
if [[ "$1" == -c ]]; then exec INTERPRETER "$@"; fi
run="$(basename "${@: -1}")"
exec 7>> "gpu-$CUDA_VISIBLE_DEVICES" 8>> "run-$run"
flock -n 7 && flock -n 8 || { echo "$run $CUDA_VISIBLE_DEVICES" >> clashes; exit 70; }
echo "$CUDA_VISIBLE_DEVICES" >> used
while [[ -e hold ]]; do sleep 0.02; done
exec INTERPRETER "$@"
"""


def kill_during_training(place: Place, parts: Sequence[str]) -> None:
    """SIGKILL to the controller and to parts of every run, as soon as a run is seen."""
    with place.start() as controller:
        wait_for(place.running, controller)
        controller.kill()
    for run in place.running():
        kill(run, parts)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    found = uuids(3)
    install(monkeypatch, tmp_path / "bin", listing({gpu: [] for gpu in found}))
    return found


def make(folder: Path) -> Place:
    return Place(folder, STUDY, CONTROLLER, PYTHON)


def used(place: Place) -> set[str]:
    path = place.folder / "used"
    return set(path.read_text().split()) if path.exists() else set()


@pytest.mark.slow
def test_runs_of_a_killed_controller_keep_their_gpus_and_run_once_at_a_time(gpus: list[str], tmp_path: Path) -> None:
    place = make(tmp_path / "kills")
    (place.folder / "hold").touch()
    for parts in PARTS[:3]:
        kill_during_training(place, parts)
    with place.start() as controller:
        wait_for(lambda: used(place) == set(gpus), controller)
        (place.folder / "hold").unlink()
        assert controller.wait(HANG_SECONDS) == 0, place.said()
    check(place, undisturbed(STUDY, tmp_path / "whole"))


@pytest.mark.slow
def test_fifty_kills_of_each_part_change_no_record(gpus: list[str], tmp_path: Path) -> None:
    expected = undisturbed(random_kills.STUDY, tmp_path / "whole")
    places = survive(tmp_path, "LocalExecutor(poll_seconds=0.02)", expected, gpus=1)
    assert {device for place in places for _, device in place.used()} == {f":{gpu}" for gpu in gpus}
