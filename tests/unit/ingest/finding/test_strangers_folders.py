"""Folders as strangers left them: unusual names, parts that are missing or damaged, resumes, several projects."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, propose, read_mapped
from isocompute_sdk.records import RunSet
from tests.processes import need
from tests.unit.ingest.log_files import OPENRLHF, Tags, write_events, write_hydra, write_verl
from tests.unit.ingest.stores.test_saved_arguments import EVERY, save, verl_configuration

SIZES = {"num_generations": 8, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
GENERATION = {"steps_per_generation": 2, "generation_batch_size": 32}


def rows(count: int, seed: int = 0) -> list[dict[str, float]]:
    """Rows of a trainer, of which no two seeds have a value in common."""
    drawn = random.Random(seed)
    names = ("reward", "reward_std", "completions/mean_length", "rewards/accuracy_reward/mean", "loss")
    fixed = {"learning_rate": 1e-6, "frac_reward_zero_std": 0.0}
    return [{"step": s, "epoch": s / 100, **fixed, **{n: drawn.random() for n in names}} for s in range(1, count + 1)]


def write_state(folder: Path, count: int, seed: int = 0, name: str = "trainer_state.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({"log_history": rows(count, seed), "global_step": count}))
    return folder / name


def only(folder: Path) -> tuple[str, str, float | None]:
    """n, B_p and C of the one run that is not left out."""
    found = [one for one in diagnose(folder).runs if not any("twice" in p for p in one.problems)]
    assert len(found) == 1, [one.name for one in found]
    return found[0].group_size, found[0].problems_per_batch, found[0].rollouts


def test_checkpoints_under_other_names_are_one_run(tmp_path: Path) -> None:
    for name, count in (("ckpt_early", 10), ("best", 20), ("ckpt_final", 30)):
        write_state(tmp_path / name, count)
        save(tmp_path / name / "training_args.bin", **EVERY, **SIZES, **GENERATION)
    assert only(tmp_path) == ("8", "4", 30 * 32)
    (info,) = RunSet.read(tmp_path).runs()
    assert (info.rollouts, info.rollouts_spent) == (960, 960)


def test_two_runs_of_the_same_length_and_sizes_stay_two(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_state(tmp_path / f"seed{seed}", 20, seed)
        save(tmp_path / f"seed{seed}" / "training_args.bin", **EVERY, **SIZES, **GENERATION)
    assert len(RunSet.read(tmp_path).run_ids) == 2


def test_a_damaged_last_checkpoint_costs_only_itself_and_is_named(tmp_path: Path) -> None:
    for count in (20, 40):
        path = write_state(tmp_path / "out" / f"checkpoint-{count}", count)
        save(path.with_name("training_args.bin"), **EVERY, **SIZES, **GENERATION)
    path.write_text(path.read_text()[:2000])
    path.with_name("training_args.bin").write_bytes(b"PK\x03\x04 broken")
    runs = RunSet.read(tmp_path)
    assert runs.runs()[0].rollouts == 20 * 32
    assert [note.data["file"] for note in runs.notes if note.code == "log-damaged"] == [str(path)]


def test_rows_of_a_trainer_one_on_each_line(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(20)) + '{"step": 21, "epo')
    (tmp_path / "args.json").write_text(json.dumps({**SIZES, **GENERATION}))
    assert only(tmp_path) == ("8", "4", 640)


def wandb_runs(folder: Path, runs: dict[str, dict[str, Any]], steps: range) -> None:
    """Runs by name, each with what it logs at every step, and one key `config` more."""
    program = (
        "import json, os, sys\nos.environ.update(WANDB_MODE='offline', WANDB_SILENT='true')\nimport wandb\n"
        "for name, config, rows in json.loads(sys.argv[2]):\n"
        "    with wandb.init(project='p', name=name, dir=sys.argv[1], config=config) as run:\n"
        "        for row in rows:\n            run.log(row)\n"
    )
    logged = [
        [name, tags.pop("config"), [{key: value(step) for key, value in tags.items()} for step in steps]]
        for name, tags in runs.items()
    ]
    words = [sys.executable, "-c", program, str(folder), json.dumps(logged)]
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "WANDB_SILENT": "true"})


@pytest.mark.slow
def test_the_trainers_half_of_a_prime_rl_run_is_said_to_be_that(tmp_path: Path) -> None:
    need("wandb")
    tags = {
        "config": {"seed": 1},
        "step": int,
        "progress/samples": lambda step: 256,
        "progress/problems": lambda step: 16,
        "progress/total_problems": lambda step: 16 * step,
        "reward/all/mean": lambda step: step / 20,
    }
    other = {"config": {}, "step": int, "loss/mean": lambda step: step / 7, "mismatch_kl/all/mean": lambda step: 0.001}
    wandb_runs(tmp_path, {"orchestrator": tags, "trainer": other}, range(6))
    runs = RunSet.read(tmp_path)
    (info,) = runs.runs()
    assert (info.run_id, info.group_size, info.problems_per_batch, info.rollouts) == ("orchestrator", 16, 16, 6 * 256)
    assert "run-left-out" in {note.code for note in runs.notes}


def test_every_logger_of_one_run_in_one_folder_is_one_run(tmp_path: Path) -> None:
    write_verl(tmp_path / "proj" / "exp.jsonl", range(61))
    write_events(tmp_path / "tensorboard_log" / "proj" / "exp", range(61), VERL)
    (tmp_path / "proj" / "config.yaml").write_text(verl_configuration(4, 32, "exp", "proj"))
    assert diagnose(tmp_path).next.endswith(".parquet")
    (info,) = RunSet.read(tmp_path).runs()
    assert (info.group_size, info.problems_per_batch, info.rollouts) == (4, 32, 60 * 128)


def console_of_verl(steps: range, experiment: str, seed: int = 0) -> str:
    """What veRL prints: its command, its configuration and a line for each step."""
    said = "+ python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=8 data.train_batch_size=32"
    configured = (
        "{'actor_rollout_ref': {'rollout': {'n': 8, 'val_kwargs': {'n': 4}}},\n "
        f"'data': {{'train_batch_size': 32, 'seed': {seed}}}, 'trainer': {{'experiment_name': '{experiment}'}}}}"
    )
    rewards = [f"step:{i} - training/global_step:{i} - critic/score/mean:{0.3 + i / 90}" for i in steps]
    lines = [f"{text} - val-core/gsm/acc/mean@4:{0.2 + i / 100}" for i, text in zip(steps, rewards, strict=True)]
    return "\n".join([said, configured, *lines, ""])


def test_a_console_that_goes_on_from_a_checkpoint_of_the_same_experiment_is_no_second_run(tmp_path: Path) -> None:
    for name, steps, experiment in (("a", range(31), "x"), ("a-again", range(26, 51), "x"), ("b", range(41, 61), "y")):
        console = console_of_verl(steps, experiment)
        (tmp_path / f"{name}.log").write_text(console)
    runs = RunSet.read(tmp_path)
    assert [info.run_id for info in runs.runs()] == ["a", "b"]
    assert {info.context["temperature"] for info in runs.runs()} == {1.0}, "veRL's own where nothing is said"
    spent, reached = runs.runs()[0].rollouts_spent, max(runs.filter(run_id="a").to_polars()["rollouts"])
    assert (reached, spent) == (50 * 256, 55 * 256)
    codes = {note.code for note in runs.notes}
    # The command does not say how many samples an evaluation takes; the configuration does.
    assert codes >= {"log-continued", "log-starts-late"}
    assert "sources-disagree" not in codes
    (tmp_path / "a-again.log").write_text(console_of_verl(range(36, 51), "x"))
    assert len(RunSet.read(tmp_path).run_ids) == 3, "nothing is known of the steps between"
    (tmp_path / "a-again.log").write_text(console_of_verl(range(26, 51), "x", seed=1))
    assert len(RunSet.read(tmp_path).run_ids) == 3, "another seed is another run"


def test_a_console_of_two_launches_has_the_configuration_of_each(tmp_path: Path) -> None:
    first, then = (console_of_verl(range(31), "x", seed) for seed in (0, 1))
    then = then.replace("'n': 8,", "'n': 16,").replace("rollout.n=8", "rollout.n=16").replace("mean:0.", "mean:0.0")
    (tmp_path / "sweep.log").write_text(first + then)
    assert sorted((info.group_size, info.seed) for info in RunSet.read(tmp_path).runs()) == [(8, 0), (16, 1)]


def test_a_file_that_goes_on_with_one_of_the_same_project_and_experiment_is_no_second_run(tmp_path: Path) -> None:
    for folder, name, steps in (("one", "x", range(41)), ("two", "x", range(31, 61)), ("two", "y", range(31, 61))):
        write_verl(tmp_path / folder / "project" / f"{name}.jsonl", steps)
    runs = RunSet.read(tmp_path, n=8, bp=32)
    assert sorted((info.run_id, info.rollouts_spent) for info in runs.runs()) == [
        ("one/project/x", 70 * 256),
        ("two/project/y", 60 * 256),
    ]


def test_one_configuration_beside_runs_whose_names_say_other_n_gives_none_of_them_its_n(tmp_path: Path) -> None:
    write_hydra(tmp_path, n=16)
    for name in ("grpo_n16", "grpo_n64"):
        write_verl(tmp_path / f"{name}.jsonl", range(31))
    asked = propose(tmp_path)
    assert asked.questions, "the names have to be confirmed"
    assert {run.group_size for run in asked.runs.values()} == {16, 64}
    assert {run.problems_per_batch for run in asked.runs.values()} == {32}


def test_a_configuration_above_the_log_is_found_from_wherever_is_read(tmp_path: Path) -> None:
    write_verl(tmp_path / "exp" / "logs" / "log.jsonl", range(61))
    write_hydra(tmp_path / "exp", 8, 32)
    for asked in (tmp_path, tmp_path / "exp"):
        (info,) = RunSet.read(asked).runs()
        assert (info.group_size, info.problems_per_batch) == (8, 32)


# One run that two loggers wrote counts once.
VERL: Tags = {
    "training/global_step": float,
    "critic/score/mean": lambda step: 0.5,
    "val-core/gsm/acc/mean@4": lambda step: 0.5 + step / 1000 if step % 10 == 0 else None,
}
"""What `write_verl` logs, as veRL's TensorBoard logger has it: in single precision."""


@pytest.fixture
def logged_twice(tmp_path: Path) -> Path:
    write_verl(tmp_path / "n8_bp32.jsonl", range(61))
    write_events(tmp_path / "tensorboard_log" / "project" / "n8_bp32", range(61), VERL)
    return tmp_path


def test_a_run_in_two_logs_is_proposed_once_and_the_doctor_says_so(logged_twice: Path) -> None:
    mapping = propose(logged_twice, set={"n": 8, "bp": 32})
    assert sorted(run.skip for run in mapping.runs.values()) == [False, True]
    confirmed = mapping.replace(searched=(str(logged_twice),))
    assert len(read_mapped(logged_twice / "map.yaml", confirmed).run_ids) == 1
    (said,) = [problem for one in diagnose(logged_twice).runs for problem in one.problems if "written twice" in problem]
    assert "'n8_bp32'" in said


@pytest.mark.parametrize("own", [True, False])
def test_the_configuration_of_a_copy_is_taken_where_the_run_itself_has_none(tmp_path: Path, own: bool) -> None:
    write_verl(tmp_path / "longer" / "log.jsonl", range(81))
    write_events(tmp_path / "copy", range(61), VERL)
    for folder in ("longer", "copy") if own else ("copy",):
        write_hydra(tmp_path / folder, 8, 32)
    (run,) = (one for one in propose(tmp_path).runs.values() if not one.skip)
    assert (run.group_size, run.problems_per_batch) == (8, 32)
    assert ("/longer/" in run.evidence["group_size"]) == own


def test_the_clock_of_a_copy_is_taken_where_the_run_itself_has_none(tmp_path: Path) -> None:
    printed = [
        "+ python -m openrlhf.cli.train_ppo_ray --n_samples_per_prompt 8 --rollout_batch_size 16",
        *(f"Global step {i}: {{'reward': {i / 128}, 'policy_loss': 0.1, 'actor_lr': 1e-06}}" for i in range(1, 31)),
    ]
    (tmp_path / "train.log").write_text("\n".join(printed) + "\n")
    write_events(tmp_path / "tensorboard" / "run", range(1, 21), {**OPENRLHF, "train/reward": lambda i: i / 128}, 1.0)
    runs = RunSet.read([tmp_path / "train.log", tmp_path / "tensorboard"])
    assert [(one.run_id, one.rollouts) for one in runs.runs()] == [("train", 30 * 128)]
    (seconds,) = runs.series("step_seconds")
    # The events end earlier, and every update took a second by them.
    assert set(seconds.value_T) == {1.0}
    assert len(seconds.value_T) == 19


@pytest.mark.parametrize(("n", "problems"), [(16, 32), (8, 64)])
def test_another_configuration_is_another_run_whatever_it_measured(tmp_path: Path, n: int, problems: int) -> None:
    write_hydra(tmp_path / "a", 8, 32)
    write_verl(tmp_path / "a" / "log.jsonl", range(61))
    write_hydra(tmp_path / "b", n, problems)
    write_events(tmp_path / "b", range(61), VERL)
    assert not any(run.skip for run in propose(tmp_path).runs.values())


def test_a_flat_or_short_evaluation_proves_nothing(tmp_path: Path) -> None:
    write_verl(tmp_path / "n8_bp32.jsonl", range(21))
    write_events(tmp_path / "events" / "n8_bp32", range(21), VERL)
    assert not any(run.skip for run in propose(tmp_path).runs.values())


def test_a_list_of_checkpoints_keeps_no_table_beside_it_from_being_read(tmp_path: Path) -> None:
    """As tinker-cookbook writes it."""
    kept = [{"name": f"{batch:06}", "batch": batch, "state_path": "tinker://a/weights"} for batch in (20, 40, 60)]
    (tmp_path / "checkpoints.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in kept))
    (tmp_path / "run.jsonl").write_text('{"n": 8, "bp": 32, "step": 10, "avg@4": 0.2}\n')
    runs = RunSet.read(tmp_path)
    assert len(runs) == 1
    assert "run-left-out" in {note.code for note in runs.notes}
    with pytest.raises(RecordError, match="no column holds a metric"):
        RunSet.read(tmp_path / "checkpoints.jsonl")
