"""Runs for the TRL backend, and its script as bash and a real Python carry it out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.specs import Data, Evaluation, Recipe, RunSpec
from isocompute_trl import TRLBackend

MakeRun = Callable[..., RunSpec]


@pytest.fixture(scope="session")
def make_run() -> MakeRun:
    def make(**changes: Any) -> RunSpec:
        recipe = changes.pop("recipe", {})
        values: dict[str, Any] = {
            "run_id": "small",
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "data": Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
            "recipe": recipe if isinstance(recipe, Recipe) else Recipe(**recipe),
            "group_size": 16,
            "problems_per_batch": 32,
            "update_steps": 100,
            "evaluation": Evaluation(n_problems=320),
            "backend": "trl",
            "output_dir": "runs",
        }
        return RunSpec(**{**values, **changes})

    return make


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with five training problems, four validation problems and a reward function."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name, count in (("train", 5), ("validation", 4)):
        rows = [{"id": f"{name[0]}{i}", "question": f"{i} + {i}?", "answer": 2 * i} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text("def reward(prompt, response, answer):\n    return response == str(answer)\n")
    return folder


@pytest.fixture
def prepare(work: Path, tmp_path: Path) -> Callable[[RunSpec], subprocess.CompletedProcess[str]]:
    """Run a script up to the start of training, which a stub stands in for."""
    stub = tmp_path / "python-without-trl"
    stub.write_text(
        f'#!/bin/sh\ncase "$1" in */train.py|-m) exit 0;; esac\nexec {sys.executable} "$@"\n', encoding="utf-8"
    )
    stub.chmod(0o755)

    def start(run: RunSpec) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHON": str(stub), "PYTHONPATH": ""}
        script = TRLBackend().script(run).encode()
        done = subprocess.run(["bash"], input=script, cwd=work, env=environment, capture_output=True, check=False)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return start
