"""Campaigns on GPUs that are none, killed at random moments while runs go on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.run_folders import locks, store, wrapper
from isocompute_sdk.specs import Study, dump_spec
from isocompute_sdk.training import registry
from tests.processes import HANG_SECONDS, wait_for
from tests.unit.campaigns.executors.fake_gpus import install, listing, uuids

STUDY = Study.model_validate(
    {
        "name": "kills",
        "model": "simulation",
        "data": {"train": "t.jsonl", "validation": "v.jsonl", "reward": "r.py"},
        "recipe": "easy",
        "sweep": {"group_size": [4, 16, 64], "problems_per_batch": 32, "rollouts": 20_000, "seeds": [0, 1]},
        "backend": "simulator",
    }
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
sleep "0.$((RANDOM % 10))"
while [[ -e hold ]]; do sleep 0.02; done
exec INTERPRETER "$@"
"""


PARTS = [(), ("command",), ("process",), ("process", "command")]
"""What dies with the controller: nothing, the training, its wrapper, or both."""


@dataclass
class Place:
    """A folder with the study, and an interpreter that notes clashes."""

    folder: Path

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHON": str(self.folder / "python")}
        return subprocess.Popen([sys.executable, "-c", CONTROLLER], cwd=self.folder, env=environment)

    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob("runs/kills/*/spec.json"))

    def running(self) -> list[Path]:
        return [run for run in self.runs() if locks.is_running(run)]

    def kill_during_training(self, delay: float, *, parts: Sequence[str]) -> bool:
        """SIGKILL some time after a run is seen; whether the controller was still alive.

        Args:
            delay: seconds after a run is seen.
            parts: of every run, also kill its `process` (the wrapper) or its `command` (the training).
        """
        with self.start() as controller:
            wait_for(lambda: self.running() or controller.poll() is not None)
            time.sleep(delay)
            controller.send_signal(signal.SIGKILL)
        for run in self.running():
            beat = wrapper.read_json(run / wrapper.BEAT_FILE) or {}
            for leader in filter(None, (locks.find_process(beat.get(part, "")) for part in parts)):
                os.killpg(leader, signal.SIGKILL)
        return controller.returncode == -signal.SIGKILL

    def finish(self) -> None:
        with self.start() as controller:
            assert controller.wait(HANG_SECONDS) == 0


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    found = uuids(3)
    install(monkeypatch, tmp_path / "bin", listing({gpu: [] for gpu in found}))
    return found


def make(folder: Path) -> Place:
    folder.mkdir()
    (folder / "study.yaml").write_text(dump_spec(STUDY))
    (folder / "python").write_text(PYTHON.replace("INTERPRETER", sys.executable))
    (folder / "python").chmod(0o755)
    return Place(folder)


def journals(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/kills/*/metrics.jsonl")}


def check(place: Place, expected: dict[str, bytes], gpus: list[str]) -> None:
    """The same records as undisturbed, nothing twice at a time, nothing left over."""
    assert not (place.folder / "clashes").exists()
    assert journals(place.folder) == expected
    assert not place.running()
    assert {store.RunWatch(run).status().state for run in place.runs()} == {"finished"}
    assert set((place.folder / "used").read_text().split()) == set(gpus)


def undisturbed(folder: Path) -> dict[str, bytes]:
    carry_out(STUDY.expand(), registry.load("simulator"), LocalExecutor(2), folder)
    return journals(folder)


def test_runs_of_a_killed_controller_keep_their_gpus_and_run_once_at_a_time(gpus: list[str], tmp_path: Path) -> None:
    place = make(tmp_path / "kills")
    (place.folder / "hold").touch()
    parts = [(), ("command",), ("process",)]
    assert all(place.kill_during_training(0, parts=some) for some in parts)
    (place.folder / "hold").unlink()
    place.finish()
    check(place, undisturbed(tmp_path / "whole"), gpus)


@pytest.mark.slow
def test_fifty_kills_at_random_moments_change_no_record(gpus: list[str], tmp_path: Path) -> None:
    rng, expected = random.Random(0), undisturbed(tmp_path / "whole")
    kills = campaigns = 0
    while kills < 50:
        place = make(tmp_path / f"kills{campaigns}")
        campaigns += 1
        while kills < 50 and place.kill_during_training(rng.uniform(0, 1.5), parts=rng.choice(PARTS)):
            kills += 1
        place.finish()
        check(place, expected, gpus)
    print(f"{kills} kills in {campaigns} campaigns")
