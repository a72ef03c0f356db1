"""Consoles as the only log of a run, states under other names, and logs that are of no reinforcement learning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose
from isocompute_sdk.records import RunSet

ARGUMENTS = {
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 2,
    "generation_batch_size": 8,
}


def row(step: int, text: bool) -> str:
    values: dict[str, float] = {"loss": 0.0, "grad_norm": 0.5, "learning_rate": 1e-6, "completions/mean_length": 8.0}
    values |= {"rewards/accuracy_reward/mean": 1.0, "reward": step / 100, "reward_std": 0.1, "epoch": step / 1000}
    if step % 2:
        # A row without a loss is one of an update too.
        del values["loss"]
    return str({key: f"{value:.4g}" if text else value for key, value in values.items()})


def trainer_console(steps: range, total: int, *, text: bool = True, bars: bool = True, first: int = 0) -> str:
    """What transformers prints: a bar that is redrawn on one line, and a row at every logged step."""
    lines = ["***** Running training *****", f"  Total optimization steps = {total:,}"]
    lines += [f"  Continuing training from global step {first}"] if first else []
    for step in steps:
        bar = f"\r {100 * step // total}%|##   | {step}/{total} [00:04<00:04,  1.46s/it]" if bars else ""
        lines.append(f"{bar}                   \r{row(step, text)}")
        if step % 10 == 0:
            # The bar of an evaluation has its own total.
            values = {"eval_loss": "0.1", "eval_reward": f"{step / 50}", "epoch": f"{step / 1000:.4g}"}
            lines.append(f"\r100%|##| 4/4 [00:00<00:00, 4.09it/s]\x1b[A{values}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("per_row", [1, 5])
def test_a_trainers_console_is_read_by_its_bars(tmp_path: Path, text: bool, per_row: int) -> None:
    steps = range(per_row, 31, per_row)
    (tmp_path / "train.log").write_text(trainer_console(steps, 30, text=text))
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS))
    runs = RunSet.read(tmp_path)
    (training,) = runs.series("train_reward")
    assert training.rollouts_T.tolist() == [8 * step for step in steps]
    assert training.value_T.tolist() == [step / 100 for step in steps]
    (series,) = runs.series("avg@4")
    assert series.rollouts_T.tolist() == [80, 160, 240]
    assert diagnose(tmp_path).next.endswith(".parquet")


@pytest.mark.parametrize("per_row", [1, 5])
@pytest.mark.parametrize("block", [10, 30])
@pytest.mark.parametrize("stated", [False, True])
def test_rows_that_are_buffered_stand_where_they_were_logged(
    tmp_path: Path, per_row: int, block: int, stated: bool
) -> None:
    steps = range(per_row, 30 * per_row + 1, per_row)
    # Of two updates after the last row there is a bar too.
    last = steps[-1] + min(2, per_row - 1)
    text = trainer_console(range(0), last)
    for at in range(0, len(steps), block):
        end = steps[min(at + block, len(steps)) - 1]
        bars = [f"\r {step}%|##  | {step}/{last} [00:04<00:04,  1.46s/it]" for step in range(at * per_row, end + 1)]
        rest = [f"\r 100%|##  | {last}/{last} [00:04<00:00,  1.46s/it]"] if end == steps[-1] else []
        text += "".join([*bars, *rest]) + "\n" + "\n".join(row(step, True) for step in steps[at : at + block]) + "\n"
    (tmp_path / "train.log").write_text(text)
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS | ({"logging_steps": per_row} if stated else {})))
    (training,) = RunSet.read(tmp_path).series("train_reward")
    assert training.step_T.tolist() == list(steps)
    assert training.value_T.tolist() == [step / 100 for step in steps]


def test_rows_without_bars_need_their_interval(tmp_path: Path) -> None:
    console = tmp_path / "train.log"
    console.write_text(trainer_console(range(5, 31, 5), 30, bars=False))
    with pytest.raises(RecordError, match="logging_steps") as refused:
        RunSet.read(console, group_size=4, problems_per_batch=2)
    assert "num_generations" in str(refused.value.hint)
    least = {"num_generations": 4, "logging_steps": 5}
    for arguments, given in ((ARGUMENTS | least, {}), (least, {"problems_per_batch": 2, "updates_per_batch": 1})):
        (tmp_path / "args.json").write_text(json.dumps(arguments))
        (training,) = RunSet.read(console, set=given).series("train_reward")
        assert training.rollouts_T.tolist() == [8 * step for step in range(5, 31, 5)]


def test_a_resume_on_a_console_goes_on_where_it_says(tmp_path: Path) -> None:
    console = tmp_path / "train.log"
    console.write_text(trainer_console(range(1, 26), 40) + trainer_console(range(21, 41), 40, first=20))
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS))
    runs = RunSet.read(console)
    (training,) = runs.series("train_reward")
    assert training.step_T.tolist() == list(range(1, 41))
    assert runs.runs()[0].rollouts_spent == 8 * 45


@pytest.mark.parametrize("damage", ["'reward': '0.0\n5'", "'reward': '0.0x5'", "'rewa", ""])
@pytest.mark.parametrize("cut", [0, 20])
def test_a_damaged_row_of_a_trainer_moves_no_other_row(tmp_path: Path, damage: str, cut: int) -> None:
    text = trainer_console(range(1, 31), 30)
    lines = [line for line in text.split("\n") if damage or "| 5/30" not in line]
    whole = "\n".join(lines).replace("'reward': '0.05'", damage, 1)
    (tmp_path / "train.log").write_text(whole[: len(whole) - cut])
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS))
    runs = RunSet.read(tmp_path)
    (training,) = runs.series("train_reward")
    assert training.step_T.tolist() == [step for step in range(1, 31) if step != 5]
    assert training.value_T.tolist() == [step / 100 for step in range(1, 31) if step != 5]
    assert "log-damaged" in {note.code for note in runs.notes}


def test_an_evaluation_whose_epoch_is_broken_is_left_out_with_a_note(tmp_path: Path) -> None:
    text = trainer_console(range(1, 31), 30)
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS))
    (tmp_path / "train.log").write_text(text.replace("'epoch': '0.02'}\n\r 70%", "'epo0.02}\n\r 70%", 1))
    runs = RunSet.read(tmp_path)
    assert runs.series("avg@4")[0].step_T.tolist() == [10, 30]
    assert "log-damaged" in {note.code for note in runs.notes}


def test_a_copied_row_of_a_trainer_moves_no_other_row(tmp_path: Path) -> None:
    lines = trainer_console(range(1, 31), 30).split("\n")
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS))
    for at in (8, 20):
        (tmp_path / "train.log").write_text("\n".join([*lines[:at], lines[6].rpartition("\r")[2], *lines[at:]]))
        (training,) = RunSet.read(tmp_path).series("train_reward")
        assert training.value_T.tolist() == [step / 100 for step in range(1, 31)]
    evaluation = next(line for line in lines if "eval_reward" in line).rpartition("A")[2]
    (tmp_path / "train.log").write_text("\n".join([*lines[:8], evaluation, *lines[8:]]))
    assert RunSet.read(tmp_path).series("avg@4")[0].step_T.tolist() == [10, 20, 30]
    # Copies that lost their middle, of an update and of an evaluation.
    torn = lines[6].rpartition("\r")[2].replace("grad_norm': '0.5', 'learning_rate", "grad")
    for at, copy in ((7, torn), (13, evaluation.replace("': '0.1', 'eval_rew", "'"))):
        (tmp_path / "train.log").write_text("\n".join([*lines[:at], copy, *lines[at:]]))
        runs = RunSet.read(tmp_path)
        assert runs.series("train_reward")[0].value_T.tolist() == [step / 100 for step in range(1, 31)]
        assert runs.series("avg@4")[0].value_T.tolist() == [0.2, 0.4, 0.6]


def test_the_command_that_a_shell_echoes_is_used(tmp_path: Path) -> None:
    console = tmp_path / "train.log"
    command = (
        "+ accelerate launch --num_processes 1 grpo.py --num_generations 4 --per_device_train_batch_size 4 "
        "--gradient_accumulation_steps 2\n"
    )
    console.write_text(command + trainer_console(range(1, 11), 10))
    (found,) = diagnose(console).runs
    assert (found.group_size, found.problems_per_batch, found.rollouts) == ("4", "2", 80)


def test_openrlhfs_console_alone_is_read(tmp_path: Path) -> None:
    command = "+ python -m openrlhf.cli.train_ppo_ray --n_samples_per_prompt 8 --rollout_batch_size 16\n"
    lines = [
        f"(pid=3) Global step {i}: {{'reward': {i / 10}, 'policy_loss': nan, 'actor_lr': 1e-06}}\n" for i in (1, 2, 3)
    ]
    (tmp_path / "train.log").write_text(command + "".join(lines))
    (training,) = RunSet.read(tmp_path).series("train_reward")
    assert training.rollouts_T.tolist() == [128, 256, 384]


@pytest.mark.parametrize(
    ("flags", "gpus"),
    [
        ("--actor_num_nodes 2 --actor_num_gpus_per_node 8 --vllm_num_engines 8 --vllm_tensor_parallel_size 2", 16),
        ("--actor_num_gpus_per_node 8 --vllm_num_engines 8", 8),
        # vLLM has GPUs of its own, or the script leaves a number to a variable.
        ("--actor_num_gpus_per_node 8 --vllm_num_engines 4", None),
        ("--actor_num_gpus_per_node 8 --vllm_num_engines 8 --async_train", None),
        ("--actor_num_nodes $NODES --actor_num_gpus_per_node 8 --vllm_num_engines 8", None),
        ("--actor_num_gpus_per_node 8", None),
    ],
)
def test_gpus_of_openrlhf_are_known_where_all_models_share_them(tmp_path: Path, flags: str, gpus: int | None) -> None:
    begin = "python -m openrlhf.cli.train_ppo_ray --n_samples_per_prompt 8 --rollout_batch_size 16"
    dotted = flags.replace("_num", ".num").replace("vllm_t", "vllm.t").replace("--async_train", "--train.async_enable")
    new = "python -m openrlhf.cli.train_ppo_ray --rollout.n_samples_per_prompt 8 --rollout.batch_size 16"
    step = "Global step 1: {'reward': 0.5, 'policy_loss': 0.1, 'actor_lr': 1e-06}"
    for own, named in ((f"{begin} {flags}", "--colocate_all_models"), (f"{new} {dotted}", "--train.colocate_all")):
        for shared in (True, False):
            command = f"{own} {named}" if shared else own
            (tmp_path / "train.log").write_text(f"{command}\n{step}\n")
            (info,) = RunSet.read(tmp_path).runs()
            assert (info.group_size, info.gpus) == (8, gpus if shared else None)


def test_a_console_beside_a_table_is_not_read_instead_of_it(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("n,bp,step,avg@4\n8,32,1,0.5\n8,32,2,0.6\n")
    (tmp_path / "train.log").write_text(trainer_console(range(1, 11), 10))
    assert RunSet.read(tmp_path).metrics == ("avg@4",)


HISTORY = [{"step": step, "reward": step / 100, "completions/mean_length": 9.0} for step in range(1, 11)]


@pytest.mark.parametrize("content", [{"best_metric": None, "log_history": HISTORY}, HISTORY])
@pytest.mark.parametrize("name", ["n4.json", "history_of_my_run.json"])
def test_a_history_under_any_name_is_read(tmp_path: Path, name: str, content: object) -> None:
    (tmp_path / name).write_text(json.dumps(content, indent=2))
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS))
    (training,) = RunSet.read(tmp_path).series("train_reward")
    assert training.rollouts_T.tolist() == [8 * step for step in range(1, 11)]


KINDS = {
    "supervised": {"loss": 1.0, "grad_norm": 0.5, "learning_rate": 1e-5, "mean_token_accuracy": 0.6},
    "loss only": {"loss": 1.0, "grad_norm": 0.5, "learning_rate": 1e-5, "epoch": 0.1},
    "preferences": {"loss": 1.0, "rewards/chosen": 0.1, "rewards/rejected": 0.0, "rewards/accuracies": 0.5},
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_training_is_said_to_be_that_and_keeps_nothing_from_being_read(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind / "checkpoint-10"
    folder.mkdir(parents=True)
    rows = [{"step": step, **KINDS[kind]} for step in range(1, 11)]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    found = diagnose(tmp_path)
    assert not found.usable
    assert "logs no reward" in found.runs[0].problems[0]
    with pytest.raises(RecordError, match="reward"):
        RunSet.read(tmp_path)
    other = tmp_path / "grpo" / "checkpoint-10"
    other.mkdir(parents=True)
    (other / "trainer_state.json").write_text(json.dumps({"log_history": HISTORY}))
    (other.parent / "args.json").write_text(json.dumps(ARGUMENTS))
    runs = RunSet.read(tmp_path)
    assert runs.run_ids == ("grpo",)
    assert "run-left-out" in {note.code for note in runs.notes}
