"""Log as slime does: `log_as_slime.py KIND FOLDER`, with KIND `tensorboard`, `shared-axis` or `wandb`.

slime cannot be installed without its engines, so its calls are made here, by its own order and names (slime/ray/
rollout.py, backends/megatron_utils and utils/wandb_utils.py of 2025 and 2026): an evaluation before rollout 0 and one
after every third rollout, a row for every rollout, rows for its two training steps. Offline, each of three processes
writes a W&B file of its own under one id; here one process writes the three.
"""

from __future__ import annotations

import os
import sys
from typing import Any

ARGUMENTS = {
    "n_samples_per_prompt": 8,
    "rollout_batch_size": 16,
    "global_batch_size": 64,
    "n_samples_per_eval_prompt": 12,
    "hf_checkpoint": "Qwen/Qwen3-4B",
    "advantage_estimator": "grpo",
    "use_kl_loss": True,
    "kl_loss_coef": 0.001,
    "lr": 1e-6,
    "wandb_always_use_train_step": False,
}
ROLLOUTS, UPDATES = 9, 2


def rows(rollout: int) -> list[tuple[str, int, dict[str, float]]]:
    """Process, its own step and values of everything that one rollout logs."""
    score, extra = {"eval/aime": 0.25 + rollout / 100, "eval/aime-truncated_ratio": 0.125}, {"eval/aime-pass@8": 0.5}
    found: list[tuple[str, int, dict[str, float]]] = []
    if rollout == 0:
        found.append(("eval", rollout, {**score, "eval/aime": 0.1, **extra}))
    found.append(("perf", rollout, {"perf/rollout_time": 3.5, "rollout/zero_std/count_0.0": 2.0}))
    reward = {"rollout/raw_reward": rollout / 10, "rollout/rewards": 0.0, "rollout/response_lengths": 100.0}
    found.append(("rollout", rollout, reward))
    for step in range(UPDATES * rollout, UPDATES * (rollout + 1)):
        found.append(("train", step, {"train/pg_loss": 0.01 * step, "train/grad_norm": 0.5, "train/lr-pg_0": 1e-6}))
    if rollout % 3 == 2:
        found.append(("eval", rollout, {**score, **extra}))
    return found


def to_tensorboard(folder: str, shared: bool) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    for rollout in range(ROLLOUTS):
        for process, step, values in rows(rollout):
            at = step * UPDATES if shared and process != "train" else step
            for name, value in values.items():
                writer.add_scalar(name, value, at)
    writer.close()


def to_wandb(folder: str, process: str) -> None:
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
    import wandb

    own = {"primary": (), "rollouts": ("perf", "eval"), "trainer": ("rollout", "train")}[process]
    step_key = {"perf": "rollout", "rollout": "rollout", "eval": "eval", "train": "train"}
    more: dict[str, Any] = {"name": "my-run"} if process == "primary" else {"resume": "allow"}
    with wandb.init(project="slime", id="shared", dir=folder, config=ARGUMENTS, **more) as run:
        for rollout in range(ROLLOUTS):
            for kind, step, values in rows(rollout):
                if kind in own:
                    run.log({**values, f"{step_key[kind]}/step": step})


if __name__ == "__main__":
    kind, target = sys.argv[1], sys.argv[2]
    if kind != "wandb":
        to_tensorboard(target, kind == "shared-axis")
    else:
        for name in ("primary", "rollouts", "trainer"):
            to_wandb(target, name)
