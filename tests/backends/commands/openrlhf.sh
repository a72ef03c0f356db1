#!/bin/bash
# In the style of OpenRLHF's own examples.
EPISODES=4
python3 -m openrlhf.cli.train_ppo_ray \
   --actor.model_name_or_path Qwen/Qwen2.5-7B-Instruct \
   --actor.num_nodes 1 --actor.num_gpus_per_node 8 \
   --ref.num_nodes 1 --ref.num_gpus_per_node 8 \
   --vllm.num_engines 8 --vllm.tensor_parallel_size 1 \
   --train.colocate_all --vllm.enable_sleep --ds.enable_sleep \
   --reward.remote_url reward.py \
   --data.prompt_dataset prompts.jsonl --data.input_key prompt --data.label_key label \
   --data.max_samples 12800 --data.max_len 2048 \
   --rollout.batch_size 128 --rollout.n_samples_per_prompt 8 --rollout.max_new_tokens 1024 \
   --rollout.temperature 1.0 \
   --train.batch_size 1024 --train.num_episodes ${EPISODES} \
   --actor.adam.lr 5e-7 \
   --algo.advantage.estimator group_norm \
   --algo.kl.use_loss --algo.kl.init_coef 1e-3 --algo.kl.estimator k3
