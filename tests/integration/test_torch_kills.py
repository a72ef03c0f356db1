"""The built-in runner under SIGKILLs of campaign, wrapper and training while it trains."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor, stop_runs
from isocompute_sdk.run_folders import locks, store, wrapper
from isocompute_sdk.specs import Study, dump_spec
from isocompute_sdk.training import registry
from tests.integration.test_closed_loop import made, make_study, records
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
# Stands in for Python: no other process may train this run until all that is started here has ended.
exec 8>> "run-$(basename "${@: -1}")"
flock -n 8 || { echo "${@: -1}" >> clashes; exit 70; }
exec INTERPRETER "$@"
"""
CAMPAIGN = """
from pathlib import Path
from isocompute_sdk.campaigns.campaign import Campaign
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.specs import load_study
executor = LocalExecutor(2, poll_seconds=0.05)
Campaign(load_study("study.yaml"), "campaign", executor=executor, fit_options={"draws": 20}, base=Path.cwd()).run()
"""
KILLS = 10
PARTS: list[tuple[str, ...]] = [(), ("command",), ("process",), ("process", "command")]


def start(folder: Path, program: str = CONTROLLER) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHON": str(folder / "python")}
    return subprocess.Popen([sys.executable, "-c", program], cwd=folder, env=environment)


def steps(folder: Path, study: Study) -> int:
    """Update steps done by all runs of a study."""
    return sum(store.RunWatch(folder / run.output_dir).status().step for run in study.expand())


def train_until(folder: Path, study: Study, new_steps: int, controller: subprocess.Popen[bytes]) -> bool:
    """Wait until the runs have done so many more steps; False if the controller ends before."""
    goal = steps(folder, study) + new_steps
    wait_for(lambda: steps(folder, study) >= goal or controller.poll() is not None)
    return controller.poll() is None


def kill(folder: Path, study: Study, parts: tuple[str, ...]) -> None:
    """SIGKILL to the wrapper (`process`) or the training (`command`) of every run."""
    for run in study.expand():
        beat = wrapper.read_json(folder / run.output_dir / wrapper.BEAT_FILE) or {}
        for leader in filter(None, (locks.find_process(beat.get(part, "")) for part in parts)):
            os.killpg(leader, signal.SIGKILL)


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
    (place / "study.yaml").write_text(dump_spec(study))
    (place / "python").write_text(PYTHON.replace("INTERPRETER", sys.executable))
    (place / "python").chmod(0o755)
    rng, kills = random.Random(1), 0
    while kills < KILLS:
        with start(place) as controller:
            assert train_until(place, study, rng.randint(8, 40), controller), "the study is too short for ten kills"
            controller.kill()
        kill(place, study, rng.choice(PARTS))
        kills += 1
    with start(place) as controller:
        train_until(place, study, 5, controller)
        controller.kill()
    assert stop_runs([place / run.output_dir for run in study.expand()]).foreign == ()
    # A run that has just finished is not stopped, and takes a moment to leave.
    wait_for(lambda: not training(place))
    with start(place) as controller:
        assert controller.wait() == 0
    assert {run.run_id: records(place / run.output_dir) for run in study.expand()} == expected
    assert not (place / "clashes").exists()
    assert training(place) == []


def designed(folder: Path) -> None:
    """Write a study whose pilot is chosen while it goes on, and an interpreter that notes clashes."""
    study = make_study().replace(
        sweep=None,
        budget=20_000,
        pilot={"slots": 2, "largest_share": 0.3},
        supervision={"retry_after_seconds": 0.1},
    )
    (folder / "study.yaml").write_text(dump_spec(study))
    (folder / "python").write_text(PYTHON.replace("INTERPRETER", sys.executable))
    (folder / "python").chmod(0o755)


def measured(folder: Path) -> dict[str, object]:
    """Records of every run, and every decision."""
    runs = {path.parent.name: records(path.parent) for path in folder.glob("runs/small/*/metrics.jsonl")}
    return {**runs, **{path.name: path.read_bytes() for path in folder.glob("campaign/decisions/*.json")}}


@pytest.mark.slow
def test_a_whole_campaign_of_the_built_in_runner_is_the_same_after_three_kills(tmp_path: Path) -> None:
    whole, killed = made(tmp_path / "whole"), made(tmp_path / "killed")
    designed(whole)
    began = time.monotonic()
    with start(whole, CAMPAIGN) as controller:
        assert controller.wait() == 0
    seconds = time.monotonic() - began
    designed(killed)
    met = 0
    for share, parts in ((0.2, ("command",)), (0.3, ("process",)), (0.3, ("process", "command"))):
        with start(killed, CAMPAIGN) as controller:
            try:
                controller.wait(share * seconds)
            except subprocess.TimeoutExpired:
                met += 1
            controller.kill()
        for run in killed.glob("runs/small/*"):
            beat = wrapper.read_json(run / wrapper.BEAT_FILE) or {}
            for leader in filter(None, (locks.find_process(beat.get(part, "")) for part in parts)):
                os.killpg(leader, signal.SIGKILL)
    assert met == 3
    with start(killed, CAMPAIGN) as controller:
        assert controller.wait() == 0
    assert measured(killed) == measured(whole)
    assert not (killed / "clashes").exists()
    assert training(killed) == []
