"""Traps that were seen in public logs: each reads wrong without a word if nobody thinks of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose
from isocompute_sdk.ingest.stores.saved_config import translate
from isocompute_sdk.records import RunSet
from tests.unit.ingest.finding.test_strangers_folders import GENERATION, SIZES, write_state
from tests.unit.ingest.formats.test_other_frameworks import write_rows
from tests.unit.ingest.log_files import write_verl
from tests.unit.ingest.stores.test_console_logs import trainer_console
from tests.unit.ingest.stores.test_saved_arguments import EVERY, arguments, launch, save


def sizes(folder: Path) -> list[tuple[str, str, float | None]]:
    return sorted((one.group_size, one.problems_per_batch, one.rollouts) for one in diagnose(folder).runs)


def test_a_resume_may_train_for_longer_and_save_at_other_times(tmp_path: Path) -> None:
    launch(tmp_path, arguments(8, max_steps=20, save_steps=5, run_name="a"), range(1, 21), 1000)
    launch(tmp_path, arguments(8, max_steps=40, save_steps=9, run_name="b"), range(16, 41), 2000)
    (info,) = RunSet.read(tmp_path).runs()
    assert (info.rollouts, info.rollouts_spent) == (40 * 32, 45 * 32)


def test_aborted_starts_before_the_run_that_was_saved_are_runs_of_their_own(tmp_path: Path) -> None:
    events = tmp_path / "out" / "runs" / "Nov22_10-00-00_host"
    launch(events, arguments(4), range(1, 3), 1000)
    launch(events, arguments(8), range(1, 21), 2000)
    checkpoint = tmp_path / "out" / "checkpoint-20"
    write_state(checkpoint, 20)
    save(checkpoint / "training_args.bin", **arguments(8))
    assert [(n, rollouts) for n, _, rollouts in sizes(tmp_path)] == [("4", 32.0), ("8", 640.0)]


def test_several_gpus_in_one_process_show_in_the_state(tmp_path: Path) -> None:
    path = write_state(tmp_path / "out" / "checkpoint-10", 10)
    path.write_text(json.dumps({**json.loads(path.read_text()), "train_batch_size": 16}))
    (tmp_path / "out" / "args.json").write_text(json.dumps({**EVERY, **SIZES, **GENERATION}))
    # The arguments count one GPU; four of them made batches of 16 instead of 4.
    assert sizes(tmp_path) == [("8", "16", 1280.0)]
    save(path.with_name("training_args.bin"), **EVERY, **SIZES, **GENERATION, _n_gpu=4)
    (tmp_path / "out" / "args.json").unlink()
    assert sizes(tmp_path) == [("8", "16", 1280.0)]


def test_an_evaluation_is_named_by_its_own_number_of_samples(tmp_path: Path) -> None:
    path = write_state(tmp_path / "checkpoint-4", 4)
    state = json.loads(path.read_text())
    state["log_history"] += [{"step": step, "eval_reward": step / 10, "eval_loss": 0.1} for step in (2, 4)]
    state["log_history"].sort(key=lambda row: row["step"])
    path.write_text(json.dumps(state))
    for more, metric in (({}, "avg@8"), ({"num_generations_eval": 2}, "avg@2")):
        save(path.with_name("training_args.bin"), **EVERY, **SIZES, **GENERATION, **more)
        assert diagnose(tmp_path).runs[0].metric == metric
    (given,) = diagnose(tmp_path, set={"eval_samples": 4}).runs
    assert given.metric == "avg@4"
    assert any("sources disagree" in text for text in given.problems)


def test_a_row_may_lack_its_reward_where_it_was_evaluated_too(tmp_path: Path) -> None:
    path = write_state(tmp_path / "checkpoint-6", 6)
    state = json.loads(path.read_text())
    del state["log_history"][2]["reward"]
    path.write_text(json.dumps(state))
    save(path.with_name("training_args.bin"), **EVERY, **SIZES, **GENERATION)
    (training,) = RunSet.read(tmp_path).series("train_reward")
    assert training.rollouts_T.tolist() == [32 * step for step in (1, 2, 4, 5, 6)]


def test_a_console_that_was_appended_to_holds_launches_of_their_own(tmp_path: Path) -> None:
    words = "+ python grpo.py --num_generations {n} --generation_batch_size 32 --gradient_accumulation_steps 1\n"
    parts = [words.format(n=n) + trainer_console(range(1, last + 1), 40) for n, last in ((4, 10), (8, 20))]
    (tmp_path / "nohup.out").write_text("".join(parts))
    # The folder's configuration is of neither.
    arguments = {"num_generations": 16, "generation_batch_size": 32, "gradient_accumulation_steps": 1}
    (tmp_path / "args.json").write_text(json.dumps({**arguments, "learning_rate": 1e-5}))
    assert sizes(tmp_path) == [("4", "8", 320.0), ("8", "4", 640.0)]
    assert {info.rollouts_spent for info in RunSet.read(tmp_path).runs()} == {320, 640}


def test_verls_console_of_two_launches(tmp_path: Path) -> None:
    lines: list[str] = []
    for n, last in ((4, 10), (8, 12)):
        lines.append(f"+ python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n={n} data.train_batch_size=16")
        lines += [f"step:{i} - critic/score/mean:{i * n / 99} - actor/lr:1e-06" for i in range(1, last + 1)]
    # The second one was stopped and went on after its checkpoint.
    lines += [f"step:{i} - critic/score/mean:{i / 50} - actor/lr:1e-06" for i in range(9, 21)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    assert sizes(tmp_path) == [("4", "16", 640.0), ("8", "16", 2560.0)]
    spent = {info.group_size: info.rollouts_spent for info in RunSet.read(tmp_path).runs()}
    assert spent == {4: 640, 8: 2560 + 4 * 128}


def test_verls_final_test_of_early_2025_is_of_the_last_update(tmp_path: Path) -> None:
    lines = [{"step": 0, "data": {"val/test_score/gsm8k": 0.1}}]
    for step in range(1, 11):
        data = {"critic/score/mean": step / 10, "actor/entropy_loss": 0.5}
        lines.append({"step": step, "data": data | ({"val/test_score/gsm8k": 0.3} if step == 5 else {})})
    lines.append({"step": 11, "data": {"val/test_score/gsm8k": 0.5}})
    write_rows(tmp_path / "run.jsonl", lines)
    (series,) = RunSet.read(tmp_path, group_size=4, problems_per_batch=8, eval_samples=1).series("avg@1")
    assert series.rollouts_T.tolist() == [0, 160, 320]
    assert RunSet.read(tmp_path, group_size=4, problems_per_batch=8).runs()[0].rollouts == 320


def test_a_console_of_2024_has_the_first_test_under_another_name_and_its_last_line_may_be_unfinished(
    tmp_path: Path,
) -> None:
    lines = ["step:0 - test_score/gsm8k:0.1"]
    for step in range(6):
        test = f" - val/test_score/gsm8k:{0.2 + step / 10:.1f}" if step % 2 else ""
        lines.append(
            f"step:{step} - actor/pg_loss:0.5{test} - critic/score/mean:{step / 10} - response_length/mean:91.5"
        )
    (tmp_path / "train.log").write_text("\n".join(lines)[:-2])
    runs = RunSet.read(tmp_path, group_size=1, problems_per_batch=8, eval_samples=1)
    (tests,), (training,) = runs.series("avg@1"), runs.series("train_reward")
    assert tests.rollouts_T.tolist() == [0, 16, 32, 48]
    assert tests.value_T.tolist() == pytest.approx([0.1, 0.3, 0.5, 0.7])
    assert training.rollouts_T.tolist() == [8 * step for step in range(1, 7)]
    # The last number may have had more digits.
    assert len(runs.series("response_length")[0].value_T) == 5


def test_a_diagnostic_of_verls_training_is_not_asked_about_as_an_evaluation(tmp_path: Path) -> None:
    names = {"critic/score/mean": 0.1, "training/rollout_probs_diff_valid": 1.0}
    data = [{"step": i, "data": {tag: value * i for tag, value in names.items()}} for i in range(1, 5)]
    write_rows(tmp_path / "run.jsonl", data)
    found = diagnose(tmp_path, set={"group_size": 8, "problems_per_batch": 16})
    assert (found.verdict, found.runs[0].metric) == ("ready", "train_reward")


def test_one_sample_of_each_prompt_is_what_ppo_is_trained_with() -> None:
    ppo = "algorithm.adv_estimator=gae data.train_batch_size=64 actor_rollout_ref.actor.ppo_mini_batch_size=32"
    raw = dict(word.split("=") for word in ppo.split())
    keys = {key: int(value) if value.isdigit() else value for key, value in raw.items()}
    found = translate(Path("run.sh"), keys)
    assert found is not None
    assert (found.fields["group_size"].value, found.fields["problems_per_batch"].value) == (1, 64)
    grpo = translate(Path("run.sh"), {**keys, "algorithm.adv_estimator": "grpo"})
    assert grpo is not None
    assert "group_size" not in grpo.fields


def test_presets_for_several_machines_are_no_source(tmp_path: Path) -> None:
    write_state(tmp_path, 10)
    (tmp_path / "presets.ini").write_text("[a100]\nnum_generations = 8\n[t4]\nnum_generations = 4\n")
    assert sizes(tmp_path) == [("?", "?", None)]


@pytest.mark.parametrize("row", [{"train_mean_nll": 1.5}, {"teacher_kl": 0.1, "env/all/total_episodes": 64}])
def test_other_training_of_tinker_is_said_to_be_that(tmp_path: Path, row: dict[str, float]) -> None:
    write_rows(tmp_path / "metrics.jsonl", [{"step": i, "progress/batch": i, **row} for i in range(8)])
    assert not diagnose(tmp_path).usable
    with pytest.raises(RecordError, match="no reward"):
        RunSet.read(tmp_path)


def test_a_table_of_supervised_training_is_said_to_be_that(tmp_path: Path) -> None:
    """As ms-swift logs: rows without a step, and a summary with one."""
    lines = [{"loss": 1 / i, "token_acc": 0.5, "epoch": i / 10, "global_step/max_steps": f"{i}/9"} for i in range(1, 9)]
    write_rows(tmp_path / "logging.jsonl", [*lines, {"best_metric": 0.1, "memory": 16.6, "global_step": 9}])
    found = diagnose(tmp_path)
    assert (found.verdict, "supervised" in found.runs[0].problems[0]) == ("unusable", True)


def test_json_without_rows_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"checkpoint-155": {"gsm8k": {"acc": [0.2, 0.1]}}}))
    (found,) = diagnose(tmp_path / "run.json").runs
    assert "list of objects" in found.problems[0]


def test_the_orchestrator_of_an_older_prime_rl_is_configured_in_toml(tmp_path: Path) -> None:
    (tmp_path / "orchestrator.toml").write_text("batch_size = 128\nrollouts_per_example = 8\n[model]\nname = 'q'\n")
    found = [{"step": i, "reward/mean": i / 10, "progress/ckpt_step": i} for i in range(6)]
    write_rows(tmp_path / "metrics.jsonl", found)
    assert sizes(tmp_path) == [("8", "16", 768.0)]


def test_of_a_batch_that_was_counted_only_n_is_asked(tmp_path: Path) -> None:
    found = [{"step": i, "env/all/total_episodes": 128, "env/all/reward/total": i / 9} for i in range(6)]
    write_rows(tmp_path / "metrics.jsonl", found)
    (run,) = diagnose(tmp_path).runs
    assert run.group_size == "?"
    assert not any("B_p" in problem for problem in run.problems)
    (info,) = RunSet.read(tmp_path, group_size=16).runs()
    assert (info.problems_per_batch, info.rollouts) == (8, 768)


@pytest.mark.parametrize("name", ["grpo_output.txt", "train.o48213", "log.txt", "nohup.out", "slurm-7.out"])
def test_consoles_by_the_names_that_people_and_queues_give(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(trainer_console(range(1, 11), 10))
    (tmp_path / "args.json").write_text(json.dumps({**SIZES, **GENERATION}))
    (tmp_path / "requirements.txt").write_text("trl==0.19\n")
    assert sizes(tmp_path) == [("8", "4", 320.0)]


def test_starts_that_logged_nothing_keep_no_other_run_from_being_read(tmp_path: Path) -> None:
    launch(tmp_path / "a" / "runs" / "Nov21_10-00-00_host", arguments(8), range(0), 1000)
    launch(tmp_path / "b" / "runs" / "Nov22_10-00-00_host", arguments(8), range(1, 11), 2000)
    runs = RunSet.read(tmp_path)
    assert [info.rollouts for info in runs.runs()] == [320]
    assert "run-left-out" in {note.code for note in runs.notes}


def test_a_state_may_hold_what_is_no_number(tmp_path: Path) -> None:
    path = write_state(tmp_path, 6)
    path.write_text(path.read_text().replace('"loss": ', '"loss": NaN, "old": ', 1))
    (tmp_path / "args.json").write_text(json.dumps({**SIZES, **GENERATION}))
    assert sizes(tmp_path) == [("8", "4", 192.0)]


def test_rows_that_every_process_prints_count_once(tmp_path: Path) -> None:
    console = trainer_console(range(1, 11), 10, bars=False)
    lines = [line for line in console.splitlines() for _ in range(4 if "'reward'" in line else 1)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "args.json").write_text(json.dumps({**SIZES, **GENERATION, "logging_steps": 1}))
    assert sizes(tmp_path) == [("8", "4", 320.0)]


def test_colours_without_their_escapes(tmp_path: Path) -> None:
    said = "[36m(TaskRunner pid=77)[0m "
    lines = [f"{said}{{'actor_rollout_ref': {{'rollout': {{'n': 8}}}},", f"{said} 'data': {{'train_batch_size': 16}}}}"]
    lines += [f"{said}step:{i} - critic/score/mean:{i / 10} - actor/lr:1e-06" for i in range(1, 11)]
    (tmp_path / "verl.txt").write_text("\n".join(lines) + "\n")
    assert sizes(tmp_path) == [("8", "16", 1280.0)]


def test_checkpoints_of_an_earlier_run_into_the_same_folder_are_another_run(tmp_path: Path) -> None:
    for count, seed, n in ((10, 1, 4), (20, 1, 4), (8, 2, 8)):
        folder = tmp_path / "out" / f"checkpoint-{count}"
        write_state(folder, count, seed)
        save(folder / "training_args.bin", **arguments(n))
    assert sizes(tmp_path) == [("4", "4", 320.0), ("8", "4", 256.0)]


def test_the_console_of_one_run_configures_no_other(tmp_path: Path) -> None:
    for name, n in (("run1", 4), ("run10", 8)):
        write_verl(tmp_path / f"{name}.jsonl", range(1, 11))
        command = f"python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n={n} data.train_batch_size=16\n"
        (tmp_path / f"{name}.log").write_text(command)
    assert sizes(tmp_path) == [("?", "?", None), ("?", "?", None)]
