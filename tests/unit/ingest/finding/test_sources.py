"""Where n and B_p come from: command lines, banners, printed objects, Hydra by its clock; and sources that disagree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose
from isocompute_sdk.records import RunSet
from tests.processes import need
from tests.unit.ingest.stores.test_console_logs import HISTORY, trainer_console


def test_a_dict_that_every_process_prints_over_many_lines(tmp_path: Path) -> None:
    console = tmp_path / "nohup.out"
    printed = "{'num_generations': 4,\n 'generation_batch_size': 8,\n 'none': None}\n"
    # One of the dicts holds nothing of the sizes.
    other = "{'offload': {'device': 'cpu',\n  'pin': True}}\n"
    console.write_text(other + f"starting\n{printed}" * 4 + trainer_console(range(1, 11), 10))
    (found,) = diagnose(tmp_path).runs
    assert (found.group_size, found.problems_per_batch, found.rollouts) == ("4", "2", 80)


@pytest.mark.slow
def test_the_command_line_of_a_wandb_run_is_used(tmp_path: Path) -> None:
    need("wandb")
    program = tmp_path / "train.py"
    program.write_text(
        "import os, sys\nos.environ.update(WANDB_MODE='offline', WANDB_SILENT='true')\nimport wandb\n"
        f"with wandb.init(project='p', name='r', dir={str(tmp_path)!r}) as run:\n"
        "    for step in range(1, 11):\n"
        "        run.log({'train/reward': step / 10, 'train/frac_reward_zero_std': 0.0, 'train/global_step': step})\n"
    )
    words = ["--num-generations=8", "--generation_batch_size", "32", "--gradient_accumulation_steps", "1"]
    subprocess.run([sys.executable, program, *words], check=True, capture_output=True)
    (found,) = diagnose(tmp_path).runs
    assert (found.name, found.group_size, found.problems_per_batch, found.rollouts) == ("r", "8", "4", 320)


def test_a_wandb_folder_that_lost_its_run_file_is_read_by_its_console_and_metadata(tmp_path: Path) -> None:
    files = tmp_path / "wandb" / "run-20260102_100000-abc" / "files"
    files.mkdir(parents=True)
    words = ["--num_generations", "4", "--generation_batch_size", "8"]
    (files / "wandb-metadata.json").write_text(json.dumps({"program": "train.py", "args": words}))
    (files / "output.log").write_text(trainer_console(range(1, 11), 10))
    (found,) = diagnose(tmp_path).runs
    assert (found.group_size, found.problems_per_batch, found.rollouts) == ("4", "2", 80)


def test_configurations_of_several_wandb_runs_that_differ_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": HISTORY}))
    for i, n in enumerate((4, 8)):
        files = tmp_path / "wandb" / f"run-2026010{i}_100000-abc{i}" / "files"
        files.mkdir(parents=True)
        (files / "config.yaml").write_text(
            f"num_generations:\n  value: {n}\ngeneration_batch_size:\n  value: 32\nsteps_per_generation:\n  value: 1\n"
        )
    with pytest.raises(RecordError):
        RunSet.read(tmp_path)
    assert diagnose(tmp_path).runs[0].group_size == "?"


DAPO = """\
set -xeuo pipefail
project_name='DAPO'
n_resp_per_prompt=16
train_prompt_bsz=32
gen_prompt_bsz=96
offload=${OFFLOAD:-True}
python3 -m recipe.dapo.main_dapo \\
    data.gen_batch_size=${gen_prompt_bsz} \\
    data.train_batch_size=${train_prompt_bsz} \\
    actor_rollout_ref.rollout.n=$n_resp_per_prompt \\
    trainer.n_gpus_per_node=${GPUS:-8}
"""


def dapo_log(folder: Path) -> None:
    from tests.unit.ingest.log_files import verl_line

    lines = [verl_line(step, **{"train/num_gen_batches": 1 + step % 2}) for step in range(1, 11)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.jsonl").write_text("\n".join(lines) + "\n")


def test_all_batches_that_dapo_generates_for_an_update_are_counted(tmp_path: Path) -> None:
    dapo_log(tmp_path / "logs")
    (tmp_path / "logs" / "run.sh").write_text(DAPO)
    runs = RunSet.read(tmp_path)
    (info,) = runs.runs()
    assert (info.group_size, info.problems_per_batch) == (16, 32)
    (training,) = runs.series("train_reward")
    assert training.rollouts_T.tolist() == np.cumsum([96 * 16 * (1 + step % 2) for step in range(1, 11)]).tolist()
    assert diagnose(tmp_path).runs[0].rollouts == training.rollouts_T[-1]


def test_a_lower_limit_of_c_is_said_to_be_one(tmp_path: Path) -> None:
    dapo_log(tmp_path)
    runs = RunSet.read(tmp_path, group_size=16, problems_per_batch=32)
    assert "generations-not-counted" in {note.code for note in runs.notes}
