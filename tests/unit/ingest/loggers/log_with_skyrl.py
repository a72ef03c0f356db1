"""Log with SkyRL's own Tracking: `log_with_skyrl.py BACKEND FOLDER`; twelve batches, an evaluation every fourth."""

from __future__ import annotations

import os
import sys
import typing

import typing_extensions

# SkyRL is typed for Python 3.12, where pydantic takes this class too.
typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]
BACKEND, FOLDER = sys.argv[1], sys.argv[2]
os.makedirs(FOLDER, exist_ok=True)
os.environ.update(
    WANDB_MODE="offline",
    WANDB_SILENT="true",
    WANDB_DIR=FOLDER,
    TENSORBOARD_DIR=f"{FOLDER}/tb",
    MLFLOW_TRACKING_URI=f"sqlite:///{FOLDER}/mlflow.db",
    GIT_PYTHON_REFRESH="quiet",
)

from skyrl.train.config import SkyRLTrainConfig  # noqa: E402
from skyrl.train.utils.tracking import Tracking  # noqa: E402

config = SkyRLTrainConfig()
config.trainer.train_batch_size, config.trainer.policy_mini_batch_size = 64, 32
config.generator.n_samples_per_prompt, config.generator.eval_n_samples_per_prompt = 6, 4
tracking = Tracking("project", "gsm8k", BACKEND, config)
for step in range(13):
    values: dict[str, float] = {}
    if step:
        values |= {"reward/avg_raw_reward": step / 20, "reward/avg_pass_at_6": 0.75, "policy/policy_loss": 0.01}
        values |= {"generate/batch_num_seq": 384, "trainer/global_step": step, "timing/step": 12.5}
    if step % 4 == 0:
        values |= {f"eval/{name}/avg_score": step / 50 for name in ("all", "openai_gsm8k")}
        values |= {f"eval/{name}/pass_at_4": 0.5 for name in ("all", "openai_gsm8k")}
    tracking.log(values, step=step, commit=True)
tracking.finish()
