"""slime and SkyRL: batches that are counted by rollouts, whatever else has steps of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk.ingest import diagnose
from isocompute_sdk.ingest.attempts import counted_from_one
from isocompute_sdk.ingest.formats.log_format import Attempt, RunLog, ScalarSeries
from isocompute_sdk.ingest.formats.slime import FORMAT
from isocompute_sdk.records import RunSet
from tests.processes import need
from tests.unit.ingest.log_files import write_events
from tests.unit.ingest.loggers import log_as_slime

PROGRAM = Path(log_as_slime.__file__)
SCRIPT = """\
set -ex
ROLLOUT_ARGS=(
   --prompt-data data/dapo-math-17k.jsonl
   --rollout-batch-size 16
   --n-samples-per-prompt 8
   # --n-samples-per-prompt 32
   --global-batch-size 64
)
EVAL_ARGS=( --n-samples-per-eval-prompt 12 --eval-interval 3 )
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py ${ROLLOUT_ARGS[@]} ${EVAL_ARGS[@]}
"""


def check_slime(folder: Path) -> None:
    (found,) = diagnose(folder).runs
    assert (found.group_size, found.problems_per_batch, found.attempts) == ("8", "16", 1)
    runs = RunSet.read(folder)
    (training,) = runs.series("train_reward")
    assert training.rollouts_T.tolist() == [128 * (i + 1) for i in range(9)]
    (series,) = runs.series("avg@12")
    assert series.rollouts_T.tolist() == [0, 3 * 128, 6 * 128, 9 * 128]
    assert series.value_T == pytest.approx([0.1, 0.27, 0.3, 0.33])
    # Two training steps follow each rollout; the second one ends it.
    (loss,) = runs.series("loss")
    assert loss.rollouts_T.tolist() == training.rollouts_T.tolist()
    assert loss.value_T == pytest.approx([0.01 * (2 * i + 1) for i in range(9)])
    assert runs.runs()[0].context["updates_per_batch"] == 2
    assert runs.runs()[0].rollouts_spent == 9 * 128


@pytest.mark.parametrize("shared", [False, True])
def test_slimes_event_files_with_the_script_beside_them(tmp_path: Path, shared: bool) -> None:
    pytest.importorskip("torch.utils.tensorboard")
    log_as_slime.to_tensorboard(str(tmp_path), shared)
    (tmp_path / "run-qwen3-4B.sh").write_text(SCRIPT)
    check_slime(tmp_path)


def test_a_last_rollout_of_slime_without_its_training_steps_moves_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch.utils.tensorboard")
    every = log_as_slime.rows
    monkeypatch.setattr(log_as_slime, "ROLLOUTS", 2)
    monkeypatch.setattr(log_as_slime, "rows", lambda i: [row for row in every(i) if i < 1 or row[0] != "train"])
    log_as_slime.to_tensorboard(str(tmp_path), shared=False)
    (loss,) = RunSet.read(tmp_path, group_size=8, problems_per_batch=16).series("loss")
    assert loss.rollouts_T.tolist() == [128]
    assert loss.value_T == pytest.approx([0.01])
    # Without a clock, two rollouts and two training steps do not say how many each has.
    steps = np.arange(2), np.full(2, np.nan), np.zeros(2)
    one = Attempt(tmp_path, dict.fromkeys(("rollout/raw_reward", "train/pg_loss"), ScalarSeries(*steps)), 0.0, None, ())
    (found,) = counted_from_one(RunLog("run", tmp_path, "wandb", (one,), framework=FORMAT)).attempts
    assert {*found.series} == {"rollout/raw_reward"}


@pytest.mark.slow
def test_slimes_processes_write_one_run_offline(tmp_path: Path) -> None:
    need("wandb")
    subprocess.run([sys.executable, PROGRAM, "wandb", tmp_path], check=True, capture_output=True)
    assert len(list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))) == 3
    check_slime(tmp_path)
    assert diagnose(tmp_path).runs[0].context["kl_coef"] == 0.001


def test_groups_that_slime_filtered_are_counted(tmp_path: Path) -> None:
    tags = {
        "rollout/raw_reward": lambda step: 0.5,
        "rollout/dynamic_filter/drop_zero_std_0.0": lambda step: 3.0 if step == 1 else None,
        "rollout/dynamic_filter/drop_zero_std_1.0": lambda step: 1.0 if step == 1 else None,
    }
    write_events(tmp_path, range(4), tags)
    (training,) = RunSet.read(tmp_path, group_size=8, problems_per_batch=16).series("train_reward")
    assert training.rollouts_T.tolist() == [128, 256 + 32, 384 + 32, 512 + 32]


SKYRL = {
    "reward/avg_raw_reward": lambda step: step / 20 if step else None,
    "reward/avg_pass_at_6": lambda step: 0.75 if step else None,
    "reward/mean_positive_reward": lambda step: 0.9 if step else None,
    "generate/batch_num_seq": lambda step: 384.0 if step else None,
    "eval/all/avg_score": lambda step: step / 50 if step % 4 == 0 else None,
    "eval/all/pass_at_4": lambda step: 0.5 if step % 4 == 0 else None,
}


def test_a_configuration_that_contradicts_what_was_logged_is_asked_about(tmp_path: Path) -> None:
    write_events(tmp_path, range(13), SKYRL)
    words = "uv run -m skyrl.train.entrypoints.main_base generator.n_samples_per_prompt=5 trainer.train_batch_size=64"
    (tmp_path / "run.sh").write_text(words)
    (found,) = diagnose(tmp_path).runs
    assert found.group_size == "?"
    assert any("n_samples_per_prompt" in problem or "known" in problem for problem in found.problems)
