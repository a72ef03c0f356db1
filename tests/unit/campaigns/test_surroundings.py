"""What is around a campaign changes while its runs go on: the clock, the name of its folder, the speed of its drive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.killing import Place, check, undisturbed
from tests.processes import HANG_SECONDS, wait_for
from tests.studies import make_study

STUDY = make_study(
    name="kills", sweep={"group_size": [4, 16], "problems_per_batch": 32, "rollouts": 20_000, "seeds": [0]}
)
CONTROLLER = """
import sys
from pathlib import Path
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.specs import load_study
from isocompute_sdk.training import registry

runs = load_study("study.yaml").expand()
carry_out(runs, registry.load("simulator"), LocalExecutor(2, poll_seconds=0.02), Path.cwd())
"""
HELD = """#!/bin/bash
# Stands in for Python: a run begins to train once there is no file `hold`.
if [[ "$1" != -c ]]; then while [[ -e HOLD ]]; do sleep 0.02; done; fi
exec INTERPRETER "$@"
"""
CLOCK = """
import os, time
real, real_ns = time.time, time.time_ns
def hours():
    return HOURS if not os.path.exists("HOLD") else 0
time.time = lambda: real() + 3600 * hours()
time.time_ns = lambda: real_ns() + 3600 * 10**9 * hours()
"""
DRIVE = """
import builtins, io, os, time
def late(call):
    def answer(path, *rest, **more):
        if "FOLDER" in str(path) or isinstance(path, int):
            time.sleep(0.002)
        return call(path, *rest, **more)
    return answer
builtins.open = io.open = late(io.open)
for name in ("open", "stat", "replace", "fsync", "scandir", "mkdir"):
    setattr(os, name, late(getattr(os, name)))
"""
"""Every process of a campaign begins with one of these: the time of day jumps when training begins; each call on the
folder of the campaign takes 2 ms longer."""


def make(folder: Path) -> Place:
    place = Place(folder, STUDY, CONTROLLER, HELD.replace("HOLD", str(folder / "hold")))
    (place.folder / "hold").touch()
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(CLOCK.replace("HOURS", "5"), id="clock-forward"),
        pytest.param(CLOCK.replace("HOURS", "-5"), id="clock-back"),
        pytest.param(DRIVE, id="late-drive"),
    ],
)
def test_a_clock_that_is_set_and_a_drive_that_answers_late_change_no_record(change: str, tmp_path: Path) -> None:
    place, before = make(tmp_path / "campaign"), tmp_path / "before"
    before.mkdir()
    text = change.replace("HOLD", str(place.folder / "hold")).replace("FOLDER", str(place.folder))
    (before / "sitecustomize.py").write_text(text)
    with place.start(PYTHONPATH=str(before)) as controller:
        wait_for(lambda: len(place.running()) == 2, controller)
        (place.folder / "hold").unlink()
        assert controller.wait(HANG_SECONDS) == 0, place.said()
    check(place, undisturbed(STUDY, tmp_path / "whole"))


@pytest.mark.slow
def test_a_folder_moved_while_its_runs_go_on_ends_the_campaign_and_is_finished_where_it_is_now(tmp_path: Path) -> None:
    place = make(tmp_path / "campaign")
    with place.start() as controller:
        wait_for(lambda: len(place.running()) == 2, controller)
        place.folder.rename(tmp_path / "moved")
        assert controller.wait(HANG_SECONDS) != 0
    moved = make(tmp_path / "moved")
    assert str(place.folder) in moved.said()
    wait_for(lambda: not moved.running())
    (moved.folder / "hold").unlink()
    moved.finish()
    check(moved, undisturbed(STUDY, tmp_path / "whole"))
