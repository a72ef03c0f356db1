"""A task on disk: the same files for the same settings, whole or not there, never taken for another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from isocompute_torch.configuration import InputError
from isocompute_torch.tasks import PreparedTask, load, prepare
from tests.backends.torch_tasks.conftest import contents, hasty

SOURCES = [str(Path(__file__).resolve().parents[3] / part) for part in ("", "backends")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES), "NO_COLOR": "1"}


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# What is in a task


def test_problem_files_hold_distinct_problems_and_no_validation_prompt_is_trained_on(
    finished_task: PreparedTask,
) -> None:
    train, validation = rows(finished_task.train), rows(finished_task.validation)
    assert (len(train), len(validation)) == (finished_task.n_problems, 200)
    assert all(set(row) == {"id", "prompt", "answer"} for row in train + validation)
    assert len({row["id"] for row in train + validation}) == len(train) + len(validation)
    assert not {row["prompt"] for row in train} & {row["prompt"] for row in validation}


# One folder, one task


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        prepare(tmp_path / name, settings=hasty(seed=seed)) for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert contents(first.folder) == contents(again.folder)
    changed = contents(other.folder)
    assert {name for name, data in contents(first.folder).items() if data != changed[name]} == {
        "model/model.safetensors",
        "train.jsonl",
        "validation.jsonl",
        "task.json",
    }


def test_a_finished_folder_is_taken_as_it_is_without_loading_torch(finished_task: PreparedTask) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished_task.folder.rglob("*")}
    script = (
        "import sys; from isocompute_torch.tasks import load; task = load(sys.argv[1]); "
        "print(task.n_problems, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(finished_task.folder)],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert done.stdout.split() == [str(finished_task.n_problems), "False", "False"]
    assert {path: path.stat().st_mtime_ns for path in finished_task.folder.rglob("*")} == before
    assert load(finished_task.folder) == finished_task == prepare(finished_task.folder, settings=hasty())


def test_a_folder_with_other_settings_is_refused_by_naming_the_difference(finished_task: PreparedTask) -> None:
    with pytest.raises(InputError, match=r"'hard'.*'easy'.*seed 0.* 1"):
        prepare(finished_task.folder, settings=hasty(kind="easy", seed=1))


@pytest.mark.parametrize(("file", "damage"), [("train.jsonl", "changed"), ("model/config.json", "missing")])
def test_a_task_whose_files_were_touched_is_not_reused(
    finished_task: PreparedTask, tmp_path: Path, file: str, damage: str
) -> None:
    copy = Path(shutil.copytree(finished_task.folder, tmp_path / "copy"))
    if damage == "missing":
        (copy / file).unlink()
    else:
        (copy / file).write_text("{}\n")
    with pytest.raises(InputError, match=rf"{file}.*{damage}"):
        prepare(copy)


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"task\.json"):
        prepare(tmp_path)
    with pytest.raises(InputError, match=r"task\.json"):
        prepare(tmp_path / "notes.txt")
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_an_unfinished_folder_is_never_there(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    stages: list[str] = []

    def stop_at_files(stage: str, done: int, total: int) -> None:
        stages.append(stage)
        assert not (tmp_path / "task").exists()
        if stage == "files":
            raise Stopped

    with pytest.raises(Stopped):
        prepare(tmp_path / "task", progress=stop_at_files, settings=hasty())
    assert set(stages) == {"warm-up", "labels", "files"}
    assert list(tmp_path.iterdir()) == []


# The command


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "isocompute_torch.tasks", *map(str, arguments)]
