#!/usr/bin/env bash
# Overrides in arrays, with a configuration of its own as the base.
set -x
PROMPTS=${PROMPTS:-256}
MINI=${MINI:-$PROMPTS}
STEPS=200

DATA=(
    data.train_files="$HOME/data/train.parquet"
    data.train_batch_size="$PROMPTS"
    data.max_response_length=4096
)

ACTOR=(
    actor_rollout_ref.model.path=${MODEL_PATH:-Qwen/Qwen3-8B}
    actor_rollout_ref.actor.optim.lr=2e-6
    actor_rollout_ref.actor.ppo_mini_batch_size=${MINI}
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.001   # k3
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean
)

TRAINER=(
    trainer.total_training_steps=${STEPS}
    trainer.test_freq=10
    trainer.logger='["console"]'
)

python3 -m verl.trainer.main_ppo --config-path="$PWD" --config-name='verl_base' \
    algorithm.adv_estimator=grpo \
    "${DATA[@]}" \
    "${ACTOR[@]}" \
    "${TRAINER[@]}" \
    "$@"
