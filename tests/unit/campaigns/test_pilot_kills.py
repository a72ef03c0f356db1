"""Whole campaigns, killed at random moments: controller, wrapper, training, or several of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import chdir
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.campaign import Campaign
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.campaigns.pilot_rounds import FOLDER
from isocompute_sdk.planning import Plan
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import load_study
from isocompute_sdk.specs.study import Pilot
from tests.killing import PARTS, Place, kill
from tests.processes import HANG_SECONDS, wait_for
from tests.studies import make_study

STUDY = make_study(
    name="kills",
    model="simulation/easy-1",
    recipe={"preset": "easy", "min_problems_per_batch": 8},
    budget=200_000,
    options={"task": "easy", "task_seed": 1, "scale": 40_000},
    pilot={"slots": 3, "largest_share": 0.2},
)
CONTROLLER = """
from isocompute_sdk.campaigns.campaign import Campaign
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.specs import load_study
Campaign(load_study("study.yaml"), "out", executor=LocalExecutor(3, poll_seconds=0.02), fit_options={"draws": 20}).run()
"""
PYTHON = """#!/bin/bash
# Stands in for Python: with a file `random` runs take a moment, so that some are under way at any kill. While there is
# a file `hold`, those that begin after the decision that it names do not go on. The look for packages before the
# first run is let through.
if [[ "$1" == -c ]]; then exec INTERPRETER "$@"; fi
if [[ -e random ]]; then sleep "0.$((RANDOM % 5))"; fi
while [[ -e hold && -e out/decisions/$(< hold).json ]]; do sleep 0.02; done
exec INTERPRETER "$@"
"""
ALL = (*PARTS, None)
"""None: the controller lives, and one run's training dies."""


def kill_after(place: Place, decision: str, parts: tuple[str, ...]) -> None:
    """SIGKILL once a run has begun that follows from a decision."""
    (place.folder / "hold").write_text(decision)
    decided = place.folder / "out" / FOLDER / f"{decision}.json"
    with place.start() as controller:
        wait_for(lambda: decided.exists() and place.running(), controller)
        controller.send_signal(signal.SIGKILL)
    for run in place.running():
        kill(run, parts)
    (place.folder / "hold").unlink()


def kill_in(place: Place, delay: float, parts: tuple[str, ...] | None) -> bool:
    """SIGKILL after so many seconds; whether the controller was still at work."""
    with place.start() as controller:
        try:
            assert controller.wait(delay) == 0, place.said()
            return False
        except subprocess.TimeoutExpired:
            pass
        if parts is None:
            for run in place.running()[:1]:
                kill(run, ("command",))
            assert controller.wait(HANG_SECONDS) == 0, place.said()
            return False
        controller.send_signal(signal.SIGKILL)
    for run in place.running():
        kill(run, parts)
    return True


def written(place: Place) -> dict[str, bytes]:
    """Journals, decisions and the plan."""
    out = place.folder / "out"
    # Names that begin with a dot are files that a kill left half written.
    paths = [*out.glob("runs/kills/*/metrics.jsonl"), *out.glob(f"{FOLDER}/[!.]*.json"), out / "plan.json"]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def make(folder: Path, **changes: object) -> Place:
    study = STUDY.replace(supervision=STUDY.supervision.replace(retry_after_seconds=0.1), **changes)
    return Place(folder, study, CONTROLLER, PYTHON, "out/runs")


def go_on(place: Place) -> None:
    """The controller in this process, to the end."""
    with chdir(place.folder):
        executor = LocalExecutor(3, poll_seconds=0.02)
        Campaign(load_study("study.yaml"), "out", executor=executor, fit_options={"draws": 20}).run()


def undisturbed(folder: Path, **changes: object) -> tuple[Place, float]:
    """A campaign that nothing disturbs, and its seconds."""
    place, began = make(folder, **changes), time.monotonic()
    go_on(place)
    return place, time.monotonic() - began


def check(place: Place, whole: Place) -> None:
    assert written(place) == written(whole)
    assert not place.running()
    assert {store.RunWatch(run).status().state for run in place.runs()} == {"finished"}
    assert Plan.load(place.folder / "out" / "plan.json") == Plan.load(whole.folder / "out" / "plan.json")


def kill_one(place: Place, rng: random.Random, seconds: float, kills: int) -> int:
    """Kill a campaign up to so many times, then let it finish; returns the kills that met it at work."""
    met = 0
    for _ in range(kills):
        parts = rng.choice(ALL)
        # What is left gets shorter with every kill.
        hit = kill_in(place, rng.uniform(0, seconds / (met + 1)), parts)
        met += hit or parts is None
        if not hit:
            break
    place.finish()
    return met


@pytest.mark.slow
def test_a_campaign_that_is_killed_decides_and_records_the_same(tmp_path: Path) -> None:
    short = Pilot(slots=3, largest_share=0.2, stop_early=False)
    whole, _ = undisturbed(tmp_path / "whole", pilot=short)
    place = make(tmp_path / "kills", pilot=short)
    kill_after(place, "1-round", ("command",))
    go_on(place)
    check(place, whole)


@pytest.mark.slow
def test_thirty_campaigns_killed_at_random_moments_end_with_the_records_of_an_undisturbed_one(tmp_path: Path) -> None:
    campaigns = int(os.environ.get("ISOCOMPUTE_KILLED_CAMPAIGNS", "30"))
    whole, seconds = undisturbed(tmp_path / "whole")
    rng = random.Random(int(os.environ.get("ISOCOMPUTE_KILL_SEED", "0")))
    met = 0
    for number in range(campaigns):
        place = make(tmp_path / f"kills{number}")
        (place.folder / "random").touch()
        met += kill_one(place, rng, seconds, kills=rng.randint(1, 3))
        check(place, whole)
    print(f"{campaigns} campaigns, {met} kills")
    assert met >= campaigns // 2
