"""Campaigns of the simulator on any executor, in which each part of the work is killed at random moments."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from isocompute_sdk.campaigns.control import controller_of
from isocompute_sdk.run_folders import store
from tests import killing
from tests.processes import HANG_SECONDS, wait_for
from tests.studies import make_study

STUDY = make_study(
    name="kills",
    sweep={"group_size": [4, 16], "problems_per_batch": 32, "rollouts": 20_000, "seeds": [0, 1]},
    supervision={"retries": 100, "retry_after_seconds": 0},
)
CONTROLLER = """
from pathlib import Path
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor
from isocompute_sdk.campaigns.executors.ray import RayEngine, RaySpec
from isocompute_sdk.campaigns.executors.slurm import SlurmEngine, SlurmSpec
from isocompute_sdk.specs import load_study
from isocompute_sdk.training.backend import Needs
from isocompute_simulator import SimulatorBackend

def cluster(engine):
    return ClusterExecutor(engine, poll_seconds=0.1, ask_seconds=0.2, settle_seconds=0.2)

SimulatorBackend.needs = lambda self, run: Needs(GPUS)
study = load_study("study.yaml")
carry_out(study.expand(), SimulatorBackend(), EXECUTOR, Path.cwd(), supervision=study.supervision)
"""
PARTS = ("process", "command", "controller")
"""What is killed: the wrapper of a run, its training, `isocompute run`."""
KILLS = 50
"""SIGKILLs of each part."""
AT_A_TIME = 2
"""Campaigns that go on at a time."""
PYTHON = f"""#!/bin/sh
# The look for packages before the first run is let through.
if [ "$1" = -c ]; then exec INTERPRETER "$@"; fi
exec INTERPRETER {Path(__file__).with_name("slow_python.py")} "$@"
"""


class Place(killing.Place):
    """A folder with the study, and an interpreter that trains slowly and notes clashes.

    Args:
        folder: the folder.
        executor: expression for the executor.
        seconds: time that each run takes.
        gpus: GPUs that each run needs. Without any, a second job of a run would start at once, and be seen.
    """

    def __init__(self, folder: Path, executor: str, seconds: float = 5, gpus: int = 1) -> None:
        controller = CONTROLLER.replace("EXECUTOR", executor).replace("GPUS", str(gpus))
        super().__init__(folder, STUDY, controller, PYTHON)
        self.take(seconds)

    def take(self, seconds: float) -> None:
        """Let every run take this time from now on."""
        (self.folder / "new").write_text(str(seconds))
        (self.folder / "new").replace(self.folder / "seconds")

    def training(self) -> list[Path]:
        """Runs that have written records and are not done."""
        return [
            run
            for run in self.running()
            if (run / store.METRICS_FILE).is_file() and (run / store.METRICS_FILE).stat().st_size
        ]

    def finished(self) -> list[Path]:
        return [run for run in self.runs() if store.is_finished(run)]

    def used(self) -> list[tuple[str, str]]:
        """Run, and node and GPUs, of every training that has begun."""
        lines = (self.folder / "used").read_text().splitlines()
        return [(run, device) for run, device in map(str.split, lines)]

    def kill_until_done(self, killed: Counter[str], rng: random.Random) -> int:
        """Kill each part often enough, and let the campaign finish; returns how many trainings that has ended at most.

        Controllers get their kills first, so that one of them lives while the last wrappers and trainings are killed.
        """
        code, ended = None, 0
        while code != 0:
            with self.start() as controller:
                wait_for(lambda: self.controlled_by(controller.pid) or controller.poll() is not None)
                # A last run alone would be started over and over.
                while controller.poll() is None and len(self.finished()) < 3 and (parts := lacking(killed)):
                    time.sleep(rng.uniform(0, 1))
                    running = self.running()
                    rng.shuffle(running)
                    hit = [kill(part, running) for part in parts if part != "controller" and rng.random() < 0.6]
                    killed.update(part for part, _ in filter(None, hit))
                    ended += len({run for _, run in filter(None, hit)})
                    if "controller" in parts and rng.random() < 0.7 and controller.poll() is None:
                        controller.kill()
                        killed["controller"] += controller.wait() == -9
                if controller.poll() is None:
                    self.take(0.1)
                code = controller.wait(HANG_SECONDS)
            assert code in (0, -9), self.said()
        return ended

    def controlled_by(self, pid: int) -> bool:
        found = controller_of(self.folder / "runs" / "kills")
        return found is not None and found.pid == pid


def kill(part: str, running: Sequence[Path]) -> tuple[str, Path] | None:
    """SIGKILL to the wrapper or the training of the first run that has it; which one, or None if none has."""
    return next(((part, run) for run in running if killing.kill(run, [part], whole_group=False)), None)


def lacking(killed: Counter[str]) -> list[str]:
    """Parts that have not been killed often enough."""
    return [part for part in PARTS if killed[part] < KILLS / AT_A_TIME]


def survive(folder: Path, executor: str, expected: dict[str, bytes], gpus: int) -> list[Place]:
    """Campaigns, some at a time, in which each part was killed `KILLS` times in all; each has been checked."""

    def some(seed: int) -> tuple[Counter[str], list[Place]]:
        killed, rng = Counter[str](), random.Random(seed)
        places: list[Place] = []
        while lacking(killed):
            place = Place(folder / f"kills{seed}-{len(places)}", executor, 3, gpus)
            ended = place.kill_until_done(killed, rng)
            killing.check(place, expected)
            # What was not killed was not started again, whatever became of the controller.
            assert len(place.used()) <= len(place.runs()) + ended
            places.append(place)
        return killed, places

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        done = list(pool.map(some, range(AT_A_TIME)))
    places = [place for _, some_places in done for place in some_places]
    print(f"{dict(sum((killed for killed, _ in done), Counter()))} in {len(places)} campaigns")
    return places
