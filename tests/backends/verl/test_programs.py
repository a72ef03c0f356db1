"""The script as bash runs it, its programs with a real Python, and the reward that veRL calls."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_verl import VeRLBackend
from isocompute_verl import payload as own
from tests.backends.framework_runs import write_sums
from tests.backends.programs import load
from tests.backends.verl.composing import Composer
from tests.processes import wait_for

MakeRun = Callable[..., RunSpec]

RECORDER = """
import json, os, sys
json.dump({"words": sys.argv[1:]}, open(os.environ["RECORD"], "w"))
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[[RunSpec, Path], subprocess.CompletedProcess[str]]:
    """Run a script with a package `verl` whose trainer only notes its arguments."""
    package = tmp_path / "site" / "verl" / "trainer"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "main_ppo.py").write_text(RECORDER)

    def run(spec: RunSpec, work: Path) -> subprocess.CompletedProcess[str]:
        site = str(tmp_path / "site")
        environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": site, "RECORD": f"{tmp_path}/record"}
        script = VeRLBackend().script(spec).encode()
        done = subprocess.run(["bash"], input=script, cwd=work, env=environment, capture_output=True, check=False)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def small(make_run: MakeRun) -> RunSpec:
    return make_run(group_size=2, problems_per_batch=3, update_steps=7, evaluation=Evaluation(n_problems=2))


def test_the_script_starts_the_trainer_with_what_was_meant(
    small: RunSpec,
    start: Callable[[RunSpec, Path], subprocess.CompletedProcess[str]],
    compose: Composer,
    tmp_path: Path,
) -> None:
    work = tmp_path / "it's a $folder"
    write_sums(work)
    run = small.replace(output_dir="out 'here'")
    folder = work / "out 'here'" / "small"
    for _ in range(2):
        done = start(run, work)
        assert done.returncode == 0, done.stderr
    found = compose(json.loads((tmp_path / "record").read_text())["words"])
    assert found.data.train_files == f"{folder}/train_rows.jsonl"
    logger = found.ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH
    assert logger == f"{folder}/logs/attempt-2.jsonl"
    assert found.trainer.validation_data_dir == f"{folder}/validation/2"
    assert (folder / "validation" / "1").is_dir()
    rows = [json.loads(line) for line in (folder / "train_rows.jsonl").read_text().splitlines()]
    assert len(rows) == 3 * 7
    first = json.loads((folder / "evaluation_rows.jsonl").read_text().splitlines()[0])
    assert first == {
        "prompt": [{"role": "user", "content": "0 + 0?"}],
        "data_source": "validation",
        "reward_model": {"style": "rule", "ground_truth": "0"},
        "extra_info": {"index": "v0", "question": "0 + 0?"},
    }


@pytest.fixture
def reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The reward file with a function that likes `ok`, and fails otherwise."""
    (tmp_path / "mine.py").write_text("def reward(p, r, a):\n    return {'ok': a, 'nan': float('nan')}[r]\n")
    inputs = {"reward": {"path": str(tmp_path / "mine.py"), "function": None}}
    (tmp_path / "inputs.json").write_text(json.dumps(inputs))
    module = load("reward_score", own)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    return module


class Falling:
    """Checkpoints and log of a run whose reward rises and falls, in veRL's order: save, remove old ones, evaluate."""

    REWARDS: ClassVar = {2: 0.3, 4: 0.6, 6: 0.5, 8: 0.4, 10: 0.35}

    def __init__(self, run: Path) -> None:
        self.run, self.checkpoints = run, run / "checkpoints"
        self.log = run / "logs" / "attempt-1.jsonl"
        self.log.parent.mkdir(parents=True)

    def step(self, step: int) -> None:
        folder = self.checkpoints / f"global_step_{step}"
        (folder / "actor").mkdir(parents=True)
        (folder / "actor" / "model.pt").write_text(f"weights {step}")
        for old in sorted(self.checkpoints.glob("global_step_*"), key=lambda path: int(path.name[12:]))[:-2]:
            shutil.rmtree(old)
        (folder / "data.pt").write_text("")
        (self.checkpoints / "latest_checkpointed_iteration.txt").write_text(str(step))
        data = {"val-core/validation/acc/mean@4": self.REWARDS[step], "critic/score/mean": 0.9}
        with self.log.open("a") as log:
            log.write(json.dumps({"step": step, "data": data}) + "\n")


def test_the_best_checkpoint_outlives_those_that_are_removed(tmp_path: Path) -> None:
    keep_best, training = load("keep_best", own), Falling(tmp_path)
    for step, reward in training.REWARDS.items():
        training.step(step)
        with training.log.open("a") as log:
            log.write('{"step": 99, "data": {"val-core/validation/acc/mean@4": 1.0')  # a line not yet whole
        keep_best.keep(tmp_path, training.log)
        text = training.log.read_text()
        training.log.write_text(text[: text.rindex('{"step": 99')])
        best = json.loads((tmp_path / "best.json").read_text())
        assert best["reward"] == max(value for at, value in training.REWARDS.items() if at <= step)
        assert reward <= best["reward"]
    assert (best["step"], best["metric"], best["reward"]) == (4, "avg@4", 0.6)
    assert best["checkpoint"] == "best/global_step_4"
    assert (tmp_path / best["checkpoint"] / "actor" / "model.pt").read_text() == "weights 4"
    assert not (training.checkpoints / "global_step_4").exists()


def test_a_checkpoint_that_is_still_written_is_not_kept(tmp_path: Path) -> None:
    keep_best, training = load("keep_best", own), Falling(tmp_path)
    training.step(2)
    (training.checkpoints / "latest_checkpointed_iteration.txt").write_text("1")
    keep_best.keep(tmp_path, training.log)
    assert not (tmp_path / "best.json").exists()


def test_the_watcher_ends_with_the_trainer_and_holds_no_lock(
    small: RunSpec, start: Callable[[RunSpec, Path], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    work = write_sums(tmp_path / "work")
    assert start(small, work).returncode == 0
    folder = work / "runs" / "small"
    run_files = load("run_files")
    assert run_files.hold(folder) is not None
    wait_for(lambda: not any("keep_best.py" in text and str(folder) in text for text in command_lines()))


def command_lines() -> list[str]:
    """The command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found
