"""Campaigns of the simulator on a real engine, killed while their runs train."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from isocompute_sdk.run_folders import store
from tests import killing
from tests.processes import HANG_SECONDS, wait_for
from tests.studies import make_study

STUDY = make_study(
    name="kills",
    sweep={"group_size": [4, 16], "problems_per_batch": 32, "rollouts": 20_000, "seeds": [0, 1]},
    supervision={"retries": 20, "retry_after_seconds": 0.2},
)
CONTROLLER = """
import os
from pathlib import Path
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor
from isocompute_sdk.campaigns.executors.ray import RayEngine, RaySpec
from isocompute_sdk.campaigns.executors.slurm import SlurmEngine, SlurmSpec
from isocompute_sdk.specs import load_study
from isocompute_sdk.training.backend import Needs
from isocompute_simulator import SimulatorBackend

SimulatorBackend.needs = lambda self, run: Needs(GPUS)
executor = ClusterExecutor(ENGINE, poll_seconds=0.3, ask_seconds=0.3, settle_seconds=1)
study = load_study("study.yaml")
watch = lambda statuses: Path(f"at-work-{os.getpid()}").touch()
carry_out(study.expand(), SimulatorBackend(), executor, Path.cwd(), watch, supervision=study.supervision)
"""
PARTS = ("controller", "process", "command")
"""What is killed: `isocompute run`, the wrapper of a run, its training."""
SLOW_PYTHON = Path(__file__).with_name("slow_python.py")


class Place(killing.Place):
    """A folder with the study, and an interpreter that trains slowly and notes clashes.

    Args:
        folder: the folder.
        engine: expression for the engine.
        seconds: time that each run takes; None: three to nine seconds, at random.
        gpus: GPUs that each run needs. Without any, a second job of a run would start at once, and be seen.
    """

    def __init__(self, folder: Path, engine: str, seconds: float | None = None, gpus: int = 1) -> None:
        controller = CONTROLLER.replace("ENGINE", engine).replace("GPUS", str(gpus))
        super().__init__(folder, STUDY, controller, f'#!/bin/sh\nexec INTERPRETER {SLOW_PYTHON} "$@"\n')
        if seconds is not None:
            (folder / "seconds").write_text(str(seconds))

    def training(self) -> list[Path]:
        """Runs that have written records and are not done."""
        return [
            run
            for run in self.running()
            if (run / store.METRICS_FILE).is_file() and (run / store.METRICS_FILE).stat().st_size
        ]

    def kill_during_training(self, rng: random.Random, seconds: float) -> int:
        """Kill a controller, a worker or both at a random moment while a run trains; returns the number of SIGKILLs."""
        chosen = rng.choice([("controller",), ("process",), ("command",), ("controller", "process"), PARTS])
        kills = 0
        with self.start() as controller:
            # From then on the controller has adopted or submitted what it could.
            at_work = self.folder / f"at-work-{controller.pid}"
            wait_for(lambda: (at_work.exists() and bool(self.training())) or controller.poll() is not None)
            time.sleep(rng.uniform(0, 1.5))
            training = self.training()
            if training:
                run = rng.choice(training)
                kills = killing.kill(run, [part for part in chosen if part != "controller"], whole_group=False)
            if "controller" in chosen and controller.poll() is None:
                controller.send_signal(signal.SIGKILL)
                kills += 1
            elif controller.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    controller.wait(rng.uniform(0, seconds))
                if controller.poll() is None:
                    controller.send_signal(signal.SIGKILL)
                    kills += 1
        return kills

    def finish(self) -> None:
        """Start controllers until one has finished the study: each failure of a killed run ends one."""
        for _ in range(6):
            with self.start() as controller:
                try:
                    code = controller.wait(HANG_SECONDS)
                except subprocess.TimeoutExpired:
                    controller.kill()
                    raise
            if code == 0:
                return
        raise AssertionError(f"six controllers could not finish: {self.said()[-2000:]}")


def devices(place: Place) -> set[str]:
    """Node and GPUs of every attempt."""
    return {line.split()[1] for line in (place.folder / "used").read_text().splitlines()}


def survive(places: Sequence[Place], kills: int, rng: random.Random, seconds: float) -> int:
    """Kill until there were enough SIGKILLs, in as many campaigns as that takes; returns how many were finished."""
    done = 0
    for number, place in enumerate(places, start=1):
        while done < kills:
            killed = place.kill_during_training(rng, seconds)
            done += killed
            if not killed:
                break
        place.finish()
        if done >= kills:
            return number
    raise AssertionError(f"{done} SIGKILLs in {len(places)} campaigns; wanted {kills}")
