"""A task on disk: the same files for the same settings, whole or not there, never taken for another."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from isocompute_sdk.errors import IsoComputeError, SpecError
from isocompute_sdk.specs import Data
from isocompute_torch.configuration import InputError, RunFailed
from isocompute_torch.tasks import PreparedTask, TaskSettings, WarmUp, build, load, prepare
from isocompute_torch.tasks.__main__ import main
from tests.backends.torch_tasks.conftest import contents, hasty

SOURCES = [str(Path(__file__).resolve().parents[3] / part) for part in ("", "backends")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES), "NO_COLOR": "1"}


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def reward_of(task: PreparedTask) -> Any:
    spec = importlib.util.spec_from_file_location("prepared_reward", task.reward)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reward


# What is in a task


def test_the_default_task_is_of_the_measured_size_and_difficulty(easy_task: PreparedTask) -> None:
    assert 1000 <= easy_task.n_problems <= 1600
    assert all(0.38 <= rate <= 0.48 for rate in easy_task.base_rewards.values())
    assert all(0.4 <= easy_task.measured[name]["avg@16"] <= 0.46 for name in ("train", "validation"))
    assert easy_task.measured["warm_up"]["steps"] <= 400
    assert easy_task.max_response_tokens == 5


def test_problem_files_hold_distinct_problems_and_no_validation_prompt_is_trained_on(easy_task: PreparedTask) -> None:
    train, validation = rows(easy_task.train), rows(easy_task.validation)
    assert (len(train), len(validation)) == (easy_task.n_problems, 200)
    assert all(set(row) == {"id", "prompt", "answer"} for row in train + validation)
    assert len({row["id"] for row in train + validation}) == len(train) + len(validation)
    assert not {row["prompt"] for row in train} & {row["prompt"] for row in validation}


def test_the_warm_up_sees_no_validation_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    real = build.warm_up

    def watched(model: Any, problems: Any, *others: Any) -> Any:
        seen.append(problems.ids_PT)
        return real(model, problems, *others)

    monkeypatch.setattr(build, "warm_up", watched)
    task = build.build(hasty(), lambda stage, done, total: None)
    learned = {text[:6] for text in task.tokenizer.batch_decode(seen[0])}
    assert len(learned) == 7_000
    assert not learned & {task.problems[position].prompt for position in task.sets.validation_P}


def test_samples_of_the_saved_model_earn_the_stated_base_reward(easy_task: PreparedTask) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(easy_task.model)
    model: Any = AutoModelForCausalLM.from_pretrained(easy_task.model)
    validation, reward = rows(easy_task.validation), reward_of(easy_task)
    prompts = tokenizer([row["prompt"] for row in validation], return_tensors="pt")["input_ids"]
    torch.manual_seed(1)
    written = model.generate(prompts, attention_mask=torch.ones_like(prompts), top_k=0, num_return_sequences=16)
    responses = written[:, prompts.shape[1] :]
    texts = tokenizer.batch_decode(responses, skip_special_tokens=True)
    scores = [
        reward(validation[i // 16]["prompt"], text, validation[i // 16]["answer"]) for i, text in enumerate(texts)
    ]
    assert np.mean(scores) == pytest.approx(easy_task.base_rewards["validation"], abs=0.04)
    assert responses.shape[1] == easy_task.max_response_tokens
    ended = (responses == tokenizer.eos_token_id).any(dim=1)
    assert ended.float().mean() > 0.98


def test_the_reward_is_one_for_exactly_the_digits_with_or_without_the_end_mark(easy_task: PreparedTask) -> None:
    reward = reward_of(easy_task)
    given = ["0021", "0021<eos>", "21", "00210", "002", "", "0021*"]
    assert [reward("007*3=", response, "0021") for response in given] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_a_task_is_the_data_of_a_run(easy_task: PreparedTask) -> None:
    data = Data(
        train=str(easy_task.train),
        validation=str(easy_task.validation),
        reward=str(easy_task.reward),
        n_problems=easy_task.n_problems,
    )
    assert data.n_problems == easy_task.n_problems


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


def test_the_number_of_threads_of_the_caller_changes_nothing_and_is_restored(tmp_path: Path) -> None:
    one = prepare(tmp_path / "one", settings=hasty())
    torch.set_num_threads(2)
    two = prepare(tmp_path / "two", settings=hasty())
    assert torch.get_num_threads() == 2
    assert contents(one.folder) == contents(two.folder)


def test_several_families_share_one_model_and_one_set(tmp_path: Path) -> None:
    task = prepare(tmp_path / "both", settings=hasty(family="mul31+add32"))
    families = {row["id"].split("-")[0] for row in rows(task.train)}
    assert families == {"mul31", "add32"}
    assert families == {row["id"].split("-")[0] for row in rows(task.validation)}
    assert task.measured["problems"] == 20_000


def test_a_finished_folder_is_taken_as_it_is_without_loading_torch(easy_task: PreparedTask) -> None:
    before = {path: path.stat().st_mtime_ns for path in easy_task.folder.rglob("*")}
    script = (
        "import sys; from isocompute_torch.tasks import prepare; task = prepare(sys.argv[1]); "
        "print(task.n_problems, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(easy_task.folder)],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert done.stdout.split() == [str(easy_task.n_problems), "False", "False"]
    assert {path: path.stat().st_mtime_ns for path in easy_task.folder.rglob("*")} == before
    assert load(easy_task.folder) == easy_task == prepare(easy_task.folder)


def test_a_folder_with_other_settings_is_refused_by_naming_the_difference(easy_task: PreparedTask) -> None:
    with pytest.raises(InputError, match=r"'easy'.*'hard'.*seed 0.* 1"):
        prepare(easy_task.folder, kind="hard", seed=1)


@pytest.mark.parametrize(("file", "damage"), [("train.jsonl", "changed"), ("model/config.json", "missing")])
def test_a_task_whose_files_were_touched_is_not_reused(
    easy_task: PreparedTask, tmp_path: Path, file: str, damage: str
) -> None:
    copy = Path(shutil.copytree(easy_task.folder, tmp_path / "copy"))
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


def test_an_empty_folder_and_a_missing_parent_are_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    prepare(tmp_path / "empty", settings=hasty())
    prepare(tmp_path / "deep" / "er", settings=hasty())
    assert contents(tmp_path / "empty") == contents(tmp_path / "deep" / "er")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "empty"]


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


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        prepare(tmp_path / "task", settings=hasty())
    assert list(tmp_path.iterdir()) == []


def test_where_two_processes_make_one_task_the_first_result_stays(tmp_path: Path) -> None:
    rival = prepare(tmp_path / "rival", settings=hasty())

    def overtaken(stage: str, done: int, total: int) -> None:
        if stage == "files" and not done:
            shutil.copytree(rival.folder, tmp_path / "task")

    task = prepare(tmp_path / "task", progress=overtaken, settings=hasty())
    assert contents(task.folder) == contents(rival.folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rival", "task"]


def test_a_model_that_learned_too_little_for_the_set_is_an_error_that_names_the_counts(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="0 easy problems, 0 "):
        prepare(tmp_path / "task", settings=hasty(kind="easy"))
    with pytest.raises(RunFailed, match=r" 3 .* 0\.9"):
        prepare(tmp_path / "task", settings=TaskSettings(warm_up=WarmUp(pass_rate=0.9, max_steps=3)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"kind": "medium"}, {"seed": -1}, {"family": "sub"}])
def test_settings_that_cannot_be_meant_are_refused_before_anything_is_made(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(SpecError):
        prepare(tmp_path / "task", **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_task_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(IsoComputeError, match=r"task\.json"):
        load(tmp_path)


# The command


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "isocompute_torch.tasks", *map(str, arguments)]


def test_the_command_prints_what_was_measured(easy_task: PreparedTask) -> None:
    done = subprocess.run(
        command(easy_task.folder, "--family", "mul31", "--set", "easy", "--seed", 0),
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert f"train: {easy_task.n_problems:,} " in done.stdout
    assert f"{easy_task.base_rewards['validation']:.3f}" in done.stdout
    assert done.stderr == ""


def test_the_command_ends_with_status_2_and_one_message_on_a_folder_it_cannot_use(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 2
    assert done.stderr.startswith("python -m isocompute_torch.tasks: ")
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_command_leaves_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    # Forked: a process of its own, without the seconds that importing torch takes.
    process = os.fork()
    if process == 0:
        try:
            os.dup2(writing, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            main([str(tmp_path / "task")])
        finally:
            os._exit(70)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.readline() == "warm-up\n"
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
