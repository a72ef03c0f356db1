"""Every format of logs in every command that reads runs, without a question."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]
LOGGERS = Path(__file__).parents[1] / "ingest" / "loggers"
SIZES = {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
ARGUMENTS = {**SIZES, "steps_per_generation": 4, "generation_batch_size": 32}


def wandb_folder(folder: Path) -> None:
    pytest.importorskip("wandb")
    subprocess.run([sys.executable, LOGGERS / "log_to_wandb.py", folder], capture_output=True, check=True)


def trainer_states(folder: Path) -> None:
    rows = [{"step": step, "reward": step / 100, "completions/mean_length": 9.0} for step in range(1, 31)]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    (folder / "args.json").write_text(json.dumps(ARGUMENTS))


def trainer_console(folder: Path) -> None:
    rows = [{"loss": 0.0, "reward": step / 100, "completions/mean_length": 9.0} for step in range(1, 31)]
    lines = [f"\r{i}%|#| {i}/30 [00:01<00:02]  {row}" for i, row in enumerate(rows, start=1)]
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    (folder / "args.json").write_text(json.dumps(ARGUMENTS))


def tinker(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"dataset_builder": {"group_size": 8, "batch_size": 4}}))
    rows = [{"step": i, "env/all/total_episodes": 32, "env/all/reward/total": i / 100} for i in range(30)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


FORMATS = {"wandb": wandb_folder, "states": trainer_states, "console": trainer_console, "tinker": tinker}
REWARD = ("--metric", "train_reward")


@pytest.mark.parametrize("format", FORMATS)
def test_every_command_reads_it(tmp_path: Path, in_process: Command, format: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    FORMATS[format](folder)
    found = json.loads(in_process("doctor", folder, "--json").stdout)
    assert {(run["group_size"], run["problems_per_batch"]) for run in found["runs"]} == {("8", "4")}
    told = json.loads(in_process("ingest", folder, "--json").stdout)
    assert {run["group_size"] for run in told["runs"]} == {8}
    assert max(run["rollouts"] for run in told["runs"]) == 32 * (20 if format == "wandb" else 30)
    watched = json.loads(in_process("watch", folder, "--once", "--json").stdout.splitlines()[-1])
    assert (watched["runs"], watched["unreadable"]) == (len(told["runs"]), 0)
    audited = json.loads(in_process("audit", folder, *REWARD, "--json").stdout)
    assert audited["metric"] == "train_reward"
    assert in_process("fit", folder, *REWARD, "--draws", 20).returncode == 0
    planned = in_process("allocate", folder, *REWARD, "--budget", "100k")
    assert planned.returncode == 0, planned.stderr
