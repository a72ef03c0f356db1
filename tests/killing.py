"""Campaigns in a folder of their own, whose controller and runs a test kills while they train."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isocompute_sdk.run_folders import locks, store, wrapper
from isocompute_sdk.specs import Study, dump_spec
from isocompute_sdk.training.backend import run_folder
from isocompute_simulator import train
from isocompute_simulator.configuration import REQUEST, RUN_FILE
from tests.processes import HANG_SECONDS

PARTS: list[tuple[str, ...]] = [(), ("command",), ("process",), ("process", "command")]
"""What dies of a run with the controller: nothing, the training, its wrapper, or both."""


@dataclass
class Place:
    """A folder with study.yaml, and a stand-in for Python that starts its runs."""

    folder: Path
    study: Study
    controller: str
    """Program that carries study.yaml out."""
    python: str
    """The stand-in, in which INTERPRETER is this interpreter."""
    output: str = "runs"
    """Where the folders of studies lie."""

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "study.yaml").write_text(dump_spec(self.study))
        (self.folder / "python").write_text(self.python.replace("INTERPRETER", sys.executable))
        (self.folder / "python").chmod(0o755)

    def start(self, **variables: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHON": str(self.folder / "python"), **variables}
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-c", self.controller]
            return subprocess.Popen(command, cwd=self.folder, env=environment, stderr=log)

    def said(self) -> str:
        """What controllers have printed as errors."""
        return (self.folder / "log").read_text()

    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob(f"{self.output}/*/*/spec.json"))

    def running(self) -> list[Path]:
        return [run for run in self.runs() if locks.is_running(run)]

    def finish(self) -> None:
        with self.start() as controller:
            assert controller.wait(HANG_SECONDS) == 0, self.said()


def kill(run: Path, parts: Iterable[str], *, whole_group: bool = True) -> bool:
    """SIGKILL the wrapper (`process`) or the training (`command`) of a run; whether one of them was alive.

    Args:
        run: its folder.
        parts: what to kill.
        whole_group: whether the group of the wrapper is killed with it.
    """
    beat = wrapper.read_json(run / wrapper.BEAT_FILE) or {}
    killed = False
    for part in parts:
        leader = locks.find_process(str(beat.get(part)))
        with suppress(ProcessLookupError):
            if leader is not None:
                (os.killpg if whole_group or part == "command" else os.kill)(leader, signal.SIGKILL)
                killed = True
    return killed


def journals(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/kills/*/metrics.jsonl")}


def undisturbed(study: Study, folder: Path) -> dict[str, bytes]:
    """Records of the runs by the simulator itself, in this process."""
    for run in study.expand():
        place = folder / run_folder(run)
        place.mkdir(parents=True)
        (place / RUN_FILE).write_text(REQUEST.to_text(run))
        assert train.main([str(place)]) == train.DONE
    return journals(folder)


def check(place: Place, expected: dict[str, bytes]) -> None:
    """The same records as undisturbed, no run and no GPU twice at a time, nothing left over."""
    clashes = place.folder / "clashes"
    assert not clashes.exists(), clashes.read_text()
    assert journals(place.folder) == expected
    assert not place.running()
    assert {store.RunWatch(run).status().state for run in place.runs()} == {"finished"}
