# Sizes that only the place where it runs knows, and flags behind a plus.
export N_GPUS=$(nvidia-smi --list-gpus | wc -l)
python3 -m verl.trainer.main_ppo --config-path=config \
    --config-name='ppo_megatron_trainer.yaml' \
    algorithm.adv_estimator=grpo \
    data.train_batch_size=$BATCH \
    data.max_prompt_length=1024 \
    data.max_response_length=2048 \
    actor_rollout_ref.actor.optim.lr=3e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=$BATCH \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=1 \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    trainer.n_gpus_per_node=$N_GPUS \
    trainer.total_epochs=15 $@
