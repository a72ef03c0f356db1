"""A program that logs to W&B offline as a trainer of TRL does: `log_to_wandb.py FOLDER`.

To a second folder it logs a run whose configuration and row are longer than a block of W&B's file.
"""

from __future__ import annotations

import os
import sys

import wandb

os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
ARGUMENTS = {
    "num_generations": 8,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "steps_per_generation": 4,
    "generation_batch_size": 32,
    "num_iterations": 1,
    "learning_rate": 1e-6,
    "beta": 0.0,
    "loss_type": "grpo",
    "max_completion_length": 64,
    "temperature": 1.0,
}


def start(name: str, first: int, last: int, **more: object) -> None:
    """One start of a run: a row of updates at every step, an evaluation at every fifth, a key of its own between."""
    with wandb.init(project="p", name=name, dir=sys.argv[1], config=ARGUMENTS, **more) as run:
        for step in range(first, last + 1):
            # Logged between two rows of the trainer, with the step of the row before.
            run.log({"profiling/Time taken: generate": 0.5, "train/global_step": step - 1})
            rewards = {
                "train/reward": step / 100,
                "train/rewards/accuracy/mean": 1.0,
                "train/frac_reward_zero_std": 0.0,
            }
            run.log({**rewards, "train/global_step": step, "nan": float("nan"), "text": "no number"})
            if step % 5 == 0:
                run.log({"eval/reward": step / 50, "nested": {"deep": {"x": step}}, "train/global_step": step})
        print(f"done at {last}")


start("first", 1, 10)
start("second", 1, 12, id="kept")
start("second", 11, 20, id="kept", resume="allow")
for folder in sys.argv[2:]:
    with wandb.init(project="p", dir=folder, config={"long": "x" * 100_000, "short": 3}) as long:
        long.log({f"key {i}": i / 7 for i in range(3000)})
