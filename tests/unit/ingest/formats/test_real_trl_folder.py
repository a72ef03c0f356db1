"""Folders that the real TRL leaves on a CPU, with all its loggers: every part alone, and all of it together."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.ingest import diagnose
from isocompute_sdk.records import RunSet

pytest.importorskip("trl")
pytest.importorskip("wandb")
pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[1] / "loggers" / "train_with_trl.py"
EVALUATED = {"eval_strategy": "steps", "eval_steps": 3, "per_device_eval_batch_size": 8}
HALVES = {"per_device_train_batch_size": 1, "num_generations": 3, "steps_per_generation": 3}
"""Three steps of accumulation in a generation, two in an update."""


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train once with these changes of the arguments; the console is kept as console.log."""
    done: dict[str, Path] = {}

    def run(**changes: Any) -> Path:
        key = json.dumps(changes, sort_keys=True)
        if key not in done:
            folder = tmp_path_factory.mktemp("trl") / "out"
            command = [sys.executable, PROGRAM, folder, key]
            found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent)
            assert found.returncode == 0, found.stderr
            (folder.parent / "console.log").write_text(found.stdout + found.stderr)
            done[key] = folder
        return done[key]

    return run


def parts(folder: Path, kind: str, target: Path) -> Path:
    """A copy of one part of what a run left."""
    shutil.copytree(folder, target / "run")
    if kind in ("events", "wandb"):
        shutil.rmtree(target / "run" / "checkpoint-3")
        shutil.rmtree(target / "run" / "checkpoint-6")
    if kind not in ("events", "all"):
        shutil.rmtree(target / "run" / "runs")
    if kind not in ("wandb", "all"):
        shutil.rmtree(target / "run" / "wandb")
    return target / "run"


@pytest.mark.parametrize("kind", ["states", "events", "wandb", "all"])
def test_every_part_says_the_same_without_a_question(train: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    folder = parts(train(**EVALUATED), kind, tmp_path)
    assert diagnose(folder).next.endswith("--output runs.parquet")
    runs = RunSet.read(folder)
    (info,) = runs.runs()
    assert (info.group_size, info.problems_per_batch, info.rollouts, info.rollouts_spent) == (4, 2, 48, 48)
    assert info.context["updates_per_batch"] == 1
    (series,) = runs.series("avg@4")
    assert series.rollouts_T.tolist() == [24, 48]
    (training,) = runs.series("train_reward")
    assert training.rollouts_T.tolist() == [8 * step for step in range(1, 7)]


@pytest.mark.parametrize("kind", ["states", "events", "wandb"])
def test_generations_that_are_no_whole_number_of_updates(train: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    runs = RunSet.read(parts(train(**HALVES), kind, tmp_path))
    # Two completions are trained on in every update; three are generated at a time.
    assert runs.runs()[0].rollouts == 6 * 2
    assert runs.runs()[0].group_size == 3


def test_the_console_alone_with_the_arguments_beside_it(train: Callable[..., Path], tmp_path: Path) -> None:
    folder = train(**EVALUATED)
    shutil.copy(folder.parent / "console.log", tmp_path / "train.log")
    shutil.copy(folder / "checkpoint-6" / "training_args.bin", tmp_path)
    (training,) = RunSet.read(tmp_path).series("train_reward")
    assert training.rollouts_T.tolist() == [8 * step for step in range(1, 7)]
