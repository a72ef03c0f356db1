"""A program that logs to MLflow as veRL and TRL do: `log_to_mlflow.py URI [wait]`; with `wait` it stays in the run."""

from __future__ import annotations

import os
import sys

os.environ.update(MLFLOW_ALLOW_FILE_STORE="true", GIT_PYTHON_REFRESH="quiet")

import mlflow

mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("sweep")
with mlflow.start_run(run_name="verl-n4"):
    mlflow.log_params(
        {"actor_rollout_ref/rollout/n": 4, "data/train_batch_size": 16, "actor_rollout_ref/actor/loss": None}
    )
    for step in range(11):
        mlflow.log_metrics({"bad": float("nan")}, step=step)
        if step:
            mlflow.log_metrics({"critic/score/mean": step / 10, "training/global_step": step}, step=step)
        if step % 5 == 0:
            mlflow.log_metrics({"val-core/gsm8k/acc/mean_at_4": step / 20}, step=step)
    if "wait" in sys.argv:
        print("waiting", flush=True)
        sys.stdin.read()
with mlflow.start_run(run_name="trl-n8"):
    mlflow.log_params({"num_generations": 8, "per_device_train_batch_size": 8, "generation_batch_size": 32})
    mlflow.log_params({"steps_per_generation": 4, "gradient_accumulation_steps": 4, "num_generations_eval": None})
    for step in range(1, 6):
        mlflow.log_metrics({"train/reward": step / 10, "train/frac_reward_zero_std": 0.0}, step=step)
